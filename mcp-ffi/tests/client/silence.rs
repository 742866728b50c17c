//! Servers that are connected and say nothing.

use std::time::{Duration, Instant};

use mcp_budget::State;
use mcpconn::{Client, Event, EventKind, Kind, Outcome, Scope};
use serde_json::json;

use crate::{
    LONG, answered, client, completion, next,
    server::{Gate, Server},
    within,
};

fn call(client: &Client, tool: &str, limit: Duration) -> Event {
    let id = client.call_tool(&Scope::default(), "server", tool, "", within(limit));
    completion(client, id.unwrap())
}

#[test]
fn a_server_that_answers_no_call_is_left_alone_and_then_tried_by_one() {
    let server = Server::start(|asked| match asked.method() {
        "initialize" => asked.open("1"),
        // No answer: it may have run.
        "tools/call" if asked.tool() == "broken" => crate::server::Answer::status("500 Broken"),
        "tools/call" => asked.text("answered"),
        _ => asked.usual(),
    });
    let client = client(&server.config(json!({"budget": {"breaker_open_ms": 60_000}})));
    let long = Duration::from_secs(30);
    for _ in 0..3 {
        let ended = call(&client, "broken", long);
        assert!(
            matches!(&ended.kind, EventKind::Error(error) if error.outcome == Outcome::Unknown),
            "{ended:?}"
        );
    }
    let refused = call(&client, "any", long);
    let EventKind::Error(error) = &refused.kind else {
        panic!("{refused:?}")
    };
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Waiting, Outcome::NotSent)
    );
    assert!(
        error
            .next_try
            .is_some_and(|wait| wait > Duration::from_secs(30))
    );

    // A shorter rest applies without a new connection, and the next call that is sent is answered.
    client
        .configure(
            "",
            &server.config(json!({"budget": {"breaker_failures": 0}})),
        )
        .unwrap();
    let id = client.call_tool(&Scope::default(), "server", "any", "", within(long));
    assert_eq!(answered(&client, id.unwrap()), "answered");
}

/// As much of a server as a call needs; of a ping it takes no notice, nor of being asked for its tools again.
const SILENT: &str = r#"
while read -r line; do
    id=${line#*\"id\":}; id=${id%%,*}
    case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"0"}}' ;;
    *'"tools/call"'*) result='{"content":[]}' ;;
    *) continue ;;
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
done"#;

#[test]
fn a_home_session_that_answers_neither_ping_nor_another_word_is_replaced() {
    let config = json!({"server": {
        "command": "sh",
        "args": ["-c", SILENT],
        "mcpconn": {"budget": {"keepalive_ms": 50, "probe_deadline_ms": 50, "backoff_ms": 10, "floor_ms": 10}},
    }});
    let client = client(&config.to_string());
    let ended = call(&client, "any", Duration::from_secs(30));
    assert!(matches!(ended.kind, EventKind::Result(_)), "{ended:?}");
    // It proved itself, and is lost all the same; nobody waits, so that it comes back by itself.
    next(&client, |event| {
        matches!(&event.kind, EventKind::ServerState(status)
            if status.generation > 1 && status.state == State::Unproven)
    });
}

#[test]
fn a_scoped_session_that_answers_neither_is_let_go_and_its_scope_gets_another() {
    let config = json!({"server": {
        "command": "sh",
        "args": ["-c", SILENT],
        "mcpconn": {"budget": {"keepalive_ms": 50, "probe_deadline_ms": 50, "backoff_ms": 10, "floor_ms": 10}},
    }});
    let client = client(&config.to_string());
    let ask = || {
        let scope = Scope::new("", "chat");
        let id = client.call_tool(&scope, "server", "any", "", within(LONG));
        match completion(&client, id.unwrap()).kind {
            EventKind::Result(answer) => answer.generation,
            other => panic!("{other:?}"),
        }
    };
    let first = ask();
    let begun = Instant::now();
    while client.server_status("", "server").unwrap().sessions > 0 {
        assert!(begun.elapsed() < LONG, "the silent session is still there");
        client.wait(Some(Duration::from_millis(5))).unwrap();
        while client.next_event().is_some() {}
    }
    assert!(ask() > first);
}

#[test]
fn a_scoped_session_that_lives_long_and_answers_a_ping_makes_room_for_other_scopes() {
    let (gate, _arrivals) = Gate::new();
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match asked.method() {
            "initialize" => asked.open(&format!("{:?}", Instant::now())),
            "tools/call" if asked.tool() == "slow" => {
                gate.pass();
                asked.text("late")
            }
            "tools/call" => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let ours = json!({"budget": {"max_unproven": 1, "healthy_after_ms": 50, "floor_ms": 10}});
    let client = client(&server.config(ours));
    let call = |scope, tool| {
        let scope = Scope::new("", scope);
        client
            .call_tool(&scope, "server", tool, "", within(LONG))
            .unwrap()
    };
    // No request of the host's has been answered, and the binding takes one unproven session at a time.
    let slow = call("one", "slow");
    let other = call("two", "any");
    assert_eq!(answered(&client, other), "answered");
    gate.open();
    assert_eq!(answered(&client, slow), "late");
}
