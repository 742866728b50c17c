//! What servers over HTTP were seen to do to other clients, where it is the client that decides.

use std::{
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use mcpconn::{Client, Event, EventKind, Kind, Outcome, Scope};
use serde_json::json;

use crate::{
    LONG, answered, client, completion, next,
    server::{Answer, Gate, Server, arrival, config_of},
    within,
};

fn call(client: &Client, scope: &Scope, tool: &str, limit: Duration) -> u64 {
    client
        .call_tool(scope, "server", tool, "", within(limit))
        .unwrap()
}

fn ended_as(event: &Event) -> (Kind, Outcome) {
    match &event.kind {
        EventKind::Error(error) => (error.kind, error.outcome),
        other => panic!("{other:?}"),
    }
}

/// The first session expires with its first call, and the second is slow to open; calls that come meanwhile wait for it.
fn no_call_uses_the_expired_session_again(scope: &Scope) {
    let (gate, arrivals) = Gate::new();
    let (used, uses) = mpsc::channel();
    let sessions = AtomicU32::new(0);
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match asked.method() {
            "initialize" => {
                let number = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                if number == 2 {
                    gate.pass();
                }
                asked.open(&number.to_string())
            }
            "tools/call" => {
                used.send((asked.tool().to_owned(), asked.session.clone()))
                    .unwrap();
                match asked.session.as_str() {
                    "1" => Answer::expired(),
                    session => asked.text(session),
                }
            }
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let first = call(&client, scope, "first", LONG);
    arrival(&arrivals);
    let [second, third] = ["second", "third"].map(|tool| call(&client, scope, tool, LONG));
    gate.open();
    let mut open = vec![first, second, third];
    while !open.is_empty() {
        let event = next(&client, Event::is_completion);
        match event.kind {
            EventKind::Result(answer) => assert_eq!(answer.text(), "2"),
            other => panic!("{other:?}"),
        }
        open.retain(|id| *id != event.id);
    }
    let mut uses: Vec<_> = uses.try_iter().collect();
    uses.sort_unstable();
    let uses: Vec<_> = uses
        .iter()
        .map(|(tool, session)| (tool.as_str(), session.as_str()))
        .collect();
    let expected = [
        ("first", "1"),
        ("first", "2"),
        ("second", "2"),
        ("third", "2"),
    ];
    assert_eq!(uses, expected);
}

#[test]
fn while_the_new_home_session_is_slow_to_open_no_call_uses_the_expired_one() {
    no_call_uses_the_expired_session_again(&Scope::default());
}

#[test]
fn while_the_new_scoped_session_is_slow_to_open_no_call_uses_the_expired_one() {
    no_call_uses_the_expired_session_again(&Scope::new("", "chat"));
}

#[test]
fn a_call_whose_deadline_passes_while_its_stream_is_read_on_ends_and_the_server_is_told() {
    let (cancelled, cancellations) = mpsc::channel();
    let reads = Arc::new(AtomicU32::new(0));
    let server = Server::start({
        let reads = reads.clone();
        move |asked| match asked.method() {
            "initialize" => asked.open("1"),
            "tools/call" if asked.tool() == "polled" => primed(),
            "tools/call" => asked.text("answered"),
            "notifications/cancelled" => {
                cancelled.send(()).unwrap();
                asked.usual()
            }
            _ if asked.http == "GET" => {
                reads.fetch_add(1, Ordering::Relaxed);
                primed()
            }
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({"listen": false})));
    let limit = Duration::from_millis(700);
    let begun = Instant::now();
    let ended = completion(&client, call(&client, &Scope::default(), "polled", limit));
    assert_eq!(ended_as(&ended), (Kind::Timeout, Outcome::Unknown));
    assert!(begun.elapsed() >= limit);
    cancellations.recv_timeout(LONG).unwrap();
    assert!(reads.load(Ordering::Relaxed) > 0);
    let other = call(&client, &Scope::default(), "any", LONG);
    assert_eq!(answered(&client, other), "answered");
}

/// A stream that names an event to go on from, and ends.
fn primed() -> Answer {
    let (say, said) = mpsc::channel();
    say.send("id: 1\nretry: 1\ndata:\n\n".into()).unwrap();
    Answer::stream(said)
}

#[test]
fn whatever_a_server_says_to_the_end_of_its_session_the_client_closes() {
    for status in [
        "405 Method Not Allowed",
        "404 Not Found",
        "501 Not Implemented",
        "500 Internal Server Error",
    ] {
        let (ended, ends) = mpsc::channel();
        let server = Server::start(move |asked| match asked.method() {
            "initialize" => asked.open("1"),
            "tools/call" => asked.text("answered"),
            _ if asked.http == "DELETE" => {
                ended.send(()).unwrap();
                Answer::status(status)
            }
            _ => asked.usual(),
        });
        let client = client(&server.config(json!({})));
        let id = call(&client, &Scope::default(), "any", LONG);
        assert_eq!(answered(&client, id), "answered");
        client.close(None);
        next(&client, |event| matches!(event.kind, EventKind::Closed));
        assert_eq!(ends.try_iter().count(), 1, "{status}");
    }
}

#[test]
fn a_server_that_never_answers_the_end_of_its_session_holds_nobody_up() {
    let (gate, arrivals) = Gate::new();
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match asked.method() {
            "initialize" => asked.open("1"),
            "tools/call" => asked.text("answered"),
            _ if asked.http == "DELETE" => {
                gate.pass();
                asked.usual()
            }
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({})));
    let id = call(&client, &Scope::default(), "any", LONG);
    assert_eq!(answered(&client, id), "answered");
    client.close(Some(Duration::from_millis(300)));
    arrival(&arrivals);
    // The gate is shut, so that only the limit ends it.
    next(&client, |event| matches!(event.kind, EventKind::Closed));
    gate.open();
}

#[test]
fn a_server_that_takes_the_connection_and_never_speaks_costs_a_call_its_deadline_and_no_more() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = json!({"budget": {"floor_ms": 1}});
    let client = client(&config_of(silent.local_addr().unwrap(), ours));
    let limit = Duration::from_millis(500);
    for scope in [Scope::default(), Scope::new("", "chat")] {
        let begun = Instant::now();
        let ended = completion(&client, call(&client, &scope, "any", limit));
        assert_eq!(ended_as(&ended), (Kind::Timeout, Outcome::NotSent));
        // Less than any other limit that there is.
        assert!(begun.elapsed() >= limit && begun.elapsed() < Duration::from_secs(10));
    }
    let begun = Instant::now();
    drop(client);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_session_that_opens_only_when_nobody_waits_any_more_serves_the_next_call() {
    let (gate, arrivals) = Gate::new();
    let opened = Arc::new(Mutex::new(0));
    let server = Server::start({
        let (gate, opened) = (gate.clone(), opened.clone());
        move |asked| match asked.method() {
            "initialize" => {
                *opened.lock().unwrap() += 1;
                gate.pass();
                asked.open("1")
            }
            "tools/call" => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({})));
    let impatient = call(
        &client,
        &Scope::default(),
        "any",
        Duration::from_millis(100),
    );
    arrival(&arrivals);
    let ended = completion(&client, impatient);
    assert_eq!(ended_as(&ended), (Kind::Timeout, Outcome::NotSent));
    gate.open();
    let id = call(&client, &Scope::default(), "any", LONG);
    assert_eq!(answered(&client, id), "answered");
    assert_eq!(*opened.lock().unwrap(), 1);
}
