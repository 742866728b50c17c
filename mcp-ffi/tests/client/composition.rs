//! One reconnect budget over the home session and all scoped ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use mcp_budget::State;
use mcpconn::{CallOptions, Client, Event, EventKind, Kind, Outcome, Scope};
use serde_json::json;

use crate::{
    answered, begin, begin_with, child, client, completion, error_of, next,
    server::{Answer, Gate, Numbered, Server, arrival},
};

fn charges(client: &Client) -> u32 {
    client.server_status("", "server").unwrap().charges
}

/// It opens sessions by number. Its tool `lost` finds the session gone when the gate opens, and so does every call of a
/// session in `gone`.
fn losing(gone: Vec<&'static str>) -> (Server, Arc<Gate>, std::sync::mpsc::Receiver<()>) {
    let (gate, arrivals) = Gate::new();
    let sessions = Numbered::default();
    let held = gate.clone();
    let server = Server::start(move |asked| match (asked.method(), asked.tool()) {
        ("initialize", _) => sessions.open(&asked),
        ("tools/call", "held") => {
            held.pass();
            if gone.contains(&&*asked.session) {
                Answer::expired()
            } else {
                asked.text(&asked.session.clone())
            }
        }
        ("tools/call", "lost") => Answer::expired(),
        ("tools/call", _) => asked.text(&asked.session.clone()),
        _ => asked.usual(),
    });
    (server, gate, arrivals)
}

#[test]
fn a_restart_that_takes_several_unproven_sessions_is_one_charge() {
    let (server, gate, arrivals) = losing(vec!["1", "2", "3", "4"]);
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let mut calls = Vec::new();
    for scope in ["", "a", "b", "c"] {
        calls.push(begin(&client, scope, "held"));
        arrival(&arrivals);
    }
    gate.open();
    let mut most = 0;
    while !calls.is_empty() {
        let event = next(&client, |event| {
            matches!(event.kind, EventKind::ServerState(_)) || event.is_completion()
        });
        match event.kind {
            EventKind::ServerState(status) => most = most.max(status.charges),
            // Each was sent again, on a session of its own.
            EventKind::Result(_) => calls.retain(|id| *id != event.id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(most, 1);
    assert_eq!(charges(&client), 0, "the new ones gave proof");
}

#[test]
fn an_old_session_does_not_vouch_for_what_was_lost_after_it() {
    let (server, gate, arrivals) = losing(Vec::new());
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let held = begin(&client, "old", "held");
    arrival(&arrivals);
    let alone = CallOptions {
        same_session: true,
        ..CallOptions::default()
    };
    let error = error_of(&client, begin_with(&client, "other", "lost", alone));
    assert_eq!(error.outcome, Outcome::Rejected);
    assert_eq!(charges(&client), 1);
    gate.open();
    assert_eq!(answered(&client, held), "1");
    assert_eq!(charges(&client), 1);
    assert_eq!(answered(&client, begin(&client, "new", "any")), "3");
    assert_eq!(charges(&client), 0);
}

#[test]
fn a_parked_server_opens_nothing_and_its_live_sessions_go_on() {
    let opened = Arc::new(AtomicU32::new(0));
    let server = Server::start({
        let opened = opened.clone();
        move |asked| match asked.method() {
            // One session, and then it is too busy for more.
            "initialize" if opened.fetch_add(1, Ordering::SeqCst) == 0 => asked.open("1"),
            "initialize" => Answer::status("500 Broken"),
            "tools/call" => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let ours = json!({"budget": {"floor_ms": 1, "backoff_ms": 1, "max_retries": 1}});
    let client = client(&server.config(ours));
    assert_eq!(answered(&client, begin(&client, "a", "any")), "answered");
    begin(&client, "", "any");
    next(
        &client,
        |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Parked),
    );
    let tried = opened.load(Ordering::SeqCst);
    for scope in ["", "b"] {
        let error = error_of(&client, begin(&client, scope, "any"));
        assert_eq!(
            (error.kind, error.outcome),
            (Kind::Parked, Outcome::NotSent)
        );
        assert!(error.next_try.is_some(), "{error}");
    }
    assert_eq!(answered(&client, begin(&client, "a", "any")), "answered");
    assert_eq!(opened.load(Ordering::SeqCst), tried);
    assert_eq!(client.server_status("", "server").unwrap().sessions, 1);
    // Closed by the host it is gone for as long as the server is parked.
    client.close_scope(&Scope::new("", "a"));
    assert_eq!(
        error_of(&client, begin(&client, "a", "any")).kind,
        Kind::Parked
    );
}

#[test]
fn a_call_fails_at_once_where_the_next_attempt_lies_beyond_its_deadline_and_waits_where_it_does_not()
 {
    for scope in ["", "a"] {
        let server = Server::start({
            let opened = AtomicU32::new(0);
            move |asked| match asked.method() {
                "initialize" if opened.fetch_add(1, Ordering::SeqCst) == 0 => {
                    Answer::status("500 Broken")
                }
                "initialize" => asked.open("1"),
                "tools/call" => asked.text("answered"),
                _ => asked.usual(),
            }
        });
        let ours = json!({"budget": {"floor_ms": 1, "backoff_ms": 60_000}});
        let client = client(&server.config(ours));
        error_of(&client, begin(&client, scope, "any"));
        let short = CallOptions {
            timeout: Some(Duration::from_secs(10)),
            ..CallOptions::default()
        };
        let error = error_of(&client, begin_with(&client, scope, "any", short));
        assert_eq!(
            (error.kind, error.outcome),
            (Kind::Waiting, Outcome::NotSent),
            "{error}"
        );
        assert!(error.next_try.is_some_and(|wait| wait > Duration::ZERO));
        let id = begin(&client, scope, "any");
        client.wake("", "server").unwrap();
        assert_eq!(answered(&client, id), "answered");
    }
}

#[test]
fn a_scoped_session_that_died_is_opened_again_by_its_scopes_next_call_alone() {
    let branches = r#"*'"exit"'*) exit 3 ;; *'"tools/call"'*) answer '{"content":[]}' ;;"#;
    let config = child::config(
        branches,
        json!({"budget": {"floor_ms": 1, "backoff_ms": 1}}),
    );
    let client = client(&config);
    let generation = |event: Event| match event.kind {
        EventKind::Result(answer) => answer.generation,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        generation(completion(&client, begin(&client, "a", "any"))),
        1
    );
    error_of(&client, begin(&client, "a", "exit"));
    // What others need is opened meanwhile: had the supervisor opened that of `a`, it would have been the second.
    for (number, scope) in (2..).zip(["", "b", "c"]) {
        let answer = completion(&client, begin(&client, scope, "any"));
        assert_eq!(generation(answer), number);
    }
    let scopes: Vec<_> = client.status().sessions;
    let scopes: Vec<_> = scopes.iter().map(|session| &*session.scope).collect();
    assert_eq!(scopes, ["b", "c"]);
    assert_eq!(
        generation(completion(&client, begin(&client, "a", "any"))),
        5
    );
}
