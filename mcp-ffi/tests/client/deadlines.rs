//! Each call has its own deadline.

use std::time::Duration;

use mcpconn::{CallOptions, EventKind, Kind, Scope};
use serde_json::json;

use crate::{
    answered, client, completion,
    server::{Server, arrival},
    within,
};

#[test]
fn a_call_is_not_ended_by_the_deadline_of_another_that_waits_for_the_same_session() {
    let (server, gate, arrivals) = Server::slow_to_open();
    // One scope's session is opening, so that the other scope must wait for leave to open its own.
    let client = client(&server.config(json!({"budget": {"max_unproven": 1}})));
    let call = |scope, options| {
        client
            .call_tool(&Scope::new("", scope), "server", "any", "", options)
            .unwrap()
    };
    let first = call("one", CallOptions::default());
    arrival(&arrivals);
    let short = call("two", within(Duration::from_millis(50)));
    let long = call("two", CallOptions::default());
    let ended = completion(&client, short);
    assert!(
        matches!(&ended.kind, EventKind::Error(error) if error.kind == Kind::Timeout),
        "{ended:?}"
    );
    gate.open();
    assert_eq!(answered(&client, first), "answered");
    assert_eq!(answered(&client, long), "answered");
}

#[test]
fn calls_with_little_time_start_a_server_that_is_slow_only_once() {
    let (server, gate, arrivals) = Server::slow_to_open();
    let client = client(&server.config(json!({})));
    let call = |options| {
        client
            .call_tool(&Scope::new("", "chat"), "server", "any", "", options)
            .unwrap()
    };
    for _ in 0..5 {
        let ended = completion(&client, call(within(Duration::from_millis(20))));
        assert!(
            matches!(&ended.kind, EventKind::Error(error) if error.kind == Kind::Timeout),
            "{ended:?}"
        );
    }
    arrival(&arrivals);
    gate.open();
    assert_eq!(answered(&client, call(CallOptions::default())), "answered");
    assert!(arrivals.try_recv().is_err(), "it was asked to open once");
}
