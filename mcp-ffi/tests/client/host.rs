//! What the client promises to its host.

use std::{net::TcpListener, thread, time::Duration};

use mcp_budget::State;
use mcpconn::{CallOptions, Client, ClientOptions, Event, EventKind, Kind, Scope};
use serde_json::json;

use crate::{
    LONG, client, completion, next,
    server::{Server, arrival, config_of},
};

const NO_PROGRAM: &str = r#"{"server": {"command": "/nonexistent/program"}}"#;

fn call(client: &Client) -> Result<u64, mcpconn::Error> {
    client.call_tool(
        &Scope::default(),
        "server",
        "any",
        "",
        CallOptions::default(),
    )
}

#[test]
fn completions_that_nobody_takes_count_as_calls() {
    let client = client(NO_PROGRAM);
    for _ in 0..4096 {
        call(&client).unwrap();
    }
    while client.server_status("", "server").unwrap().calls > 0 {
        thread::yield_now();
    }
    // They have ended by now, but for the last steps of the last.
    for _ in 0..100 {
        assert_eq!(call(&client).unwrap_err().kind, Kind::Capacity);
        thread::yield_now();
    }
    // Of whichever: a later one may have ended first.
    next(&client, Event::is_completion);
    call(&client).unwrap();
    assert_eq!(call(&client).unwrap_err().kind, Kind::Capacity);
}

#[test]
fn an_eager_server_is_heard_connecting() {
    // The kernel takes the connection, and nobody ever answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = config_of(listener.local_addr().unwrap(), json!({"eager": true}));
    // What nobody answers is given the whole time to close.
    let options = ClientOptions {
        close_timeout: Duration::from_millis(1),
        ..ClientOptions::default()
    };
    for _ in 0..200 {
        let client = Client::new(options.clone()).unwrap();
        client.configure("", &config).unwrap();
        let state = next(&client, |event| {
            matches!(event.kind, EventKind::ServerState(_))
        });
        let EventKind::ServerState(status) = state.kind else {
            unreachable!("it was asked for")
        };
        assert_eq!(status.state, State::Connecting, "{status:?}");
    }
}

#[test]
fn a_call_in_flight_can_be_cancelled_more_than_once_and_ends_once() {
    let (server, gate, arrivals) = Server::slow_to_open();
    let client = client(&server.config(json!({})));
    let id = call(&client).unwrap();
    arrival(&arrivals);
    // The call's task may end between the two; then there is no such call any more.
    assert!(client.cancel(id));
    client.cancel(id);
    let ended = completion(&client, id);
    assert!(
        matches!(&ended.kind, EventKind::Error(error) if error.kind == Kind::Canceled),
        "{ended:?}"
    );
    assert!(!client.cancel(id));
    client.close(None);
    next(&client, |event| {
        assert_ne!(event.id, id, "a second end: {event:?}");
        matches!(event.kind, EventKind::Closed)
    });
    gate.open();
}

#[test]
fn parked_servers_are_tried_again_when_the_host_says_so_for_all() {
    let budget = json!({"floor_ms": 10, "backoff_ms": 10, "check_spread_ms": 10});
    let config =
        json!({"server": {"command": "/nonexistent/program", "mcpconn": {"budget": budget}}});
    let client = client(&config.to_string());
    // An attempt that fails at once may be heard by its end alone.
    let parks = || {
        let event = next(
            &client,
            |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Parked),
        );
        match event.kind {
            EventKind::ServerState(status) => status.generation,
            _ => unreachable!("it was asked for"),
        }
    };
    call(&client).unwrap();
    let mut tried = parks();
    for nudge in [Client::wake_all, Client::network_changed] {
        nudge(&client);
        let again = parks();
        assert!(again > tried, "{again} {tried}");
        tried = again;
    }
}

#[test]
fn a_server_whose_certificates_cannot_be_read_is_unusable_and_the_others_are_not() {
    let client = Client::new(ClientOptions::default()).unwrap();
    let config = json!({
        "sound": {"url": "https://localhost/", "mcpconn": {"redirects": false, "eager": false}},
        "broken": {"url": "https://localhost/", "mcpconn": {"tls": {"ca_file": "/no/such.pem"}}},
    });
    let report = client.configure("", &config.to_string()).unwrap();
    assert_eq!(report.added, ["sound"]);
    let [invalid] = &report.invalid[..] else {
        panic!("{report:?}");
    };
    assert_eq!(invalid.server, "broken");
    for said in ["broken", "mcpconn.tls.ca_file", "/no/such.pem"] {
        assert!(invalid.message.contains(said), "{}", invalid.message);
    }
    let redirected = config
        .to_string()
        .replace("\"redirects\":false", "\"redirects\":true");
    let report = client.configure("", &redirected).unwrap();
    assert_eq!(report.changed, ["sound"]);
}

#[test]
fn a_server_without_a_name_is_unusable_and_said_to_be() {
    let client = Client::new(ClientOptions::default()).unwrap();
    let report = client
        .configure("", r#"{"": {"command": "true"}, "b": {"command": "true"}}"#)
        .unwrap();
    assert_eq!(report.added, ["b"]);
    assert_eq!(report.invalid.len(), 1);
    assert!(report.invalid[0].message.contains("name"), "{report:?}");
}

#[tokio::test]
async fn a_client_may_be_dropped_inside_of_a_runtime() {
    let client = client(NO_PROGRAM);
    call(&client).unwrap();
    drop(client);
}

#[test]
fn a_call_that_was_not_started_when_the_client_closes_has_ended_and_holds_up_no_end() {
    let client = client(NO_PROGRAM);
    let prepare = || {
        let options = CallOptions::default();
        let call = client.prepare_tool_call(&Scope::default(), "server", "any", "", options);
        call.unwrap()
    };
    let (late, never) = (prepare(), prepare());
    // Whoever waited for it would wait for ever.
    client.close(Some(Duration::MAX));
    let started = late.start();
    let mut ended = Vec::new();
    next(&client, |event| {
        if let EventKind::Error(error) = &event.kind {
            assert_eq!(error.kind, Kind::Closed);
            ended.push(event.id);
        }
        matches!(event.kind, EventKind::Closed)
    });
    ended.sort_unstable();
    assert_eq!(ended, [started, never.id()]);
}

#[test]
fn a_close_may_take_as_long_as_time_is() {
    let options = ClientOptions {
        close_timeout: Duration::MAX,
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    client.configure("", NO_PROGRAM).unwrap();
    let id = call(&client).unwrap();
    client.close(Some(Duration::MAX));
    completion(&client, id);
    next(&client, |event| matches!(event.kind, EventKind::Closed));
    assert_eq!(client.wait(Some(LONG)).unwrap_err().kind, Kind::Closed);
}
