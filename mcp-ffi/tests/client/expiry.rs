//! A session that the server no longer knows is replaced under its callers' feet.

use mcpconn::{CallOptions, EventKind, Scope};
use serde_json::json;

use crate::{
    answered, client, completion,
    server::{Answer, Gate, Numbered, Server, arrival},
};

/// The first session answers the call of `held` when the gate opens, and expires with any other call.
fn a_call_in_flight_keeps_its_answer_when_another_finds_the_session_expired(scope: &Scope) {
    let (gate, arrivals) = Gate::new();
    let sessions = Numbered::default();
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => sessions.open(&asked),
            ("tools/call", "held") => {
                gate.pass();
                asked.text(&format!("held on {}", asked.session))
            }
            ("tools/call", _) if asked.session == "1" => Answer::expired(),
            ("tools/call", _) => asked.text(&format!("answered on {}", asked.session)),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let call = |tool| {
        client
            .call_tool(scope, "server", tool, "", CallOptions::default())
            .unwrap()
    };
    let held = call("held");
    arrival(&arrivals);
    let replaced = completion(&client, call("other"));
    let EventKind::Result(answer) = replaced.kind else {
        panic!("the call was not answered: {replaced:?}");
    };
    assert_eq!(answer.text(), "answered on 2");
    assert!(answer.replaced);
    gate.open();
    assert_eq!(answered(&client, held), "held on 1");
}

#[test]
fn a_call_in_flight_keeps_its_answer_when_another_finds_the_home_session_expired() {
    a_call_in_flight_keeps_its_answer_when_another_finds_the_session_expired(&Scope::default());
}

#[test]
fn a_call_in_flight_keeps_its_answer_when_another_finds_the_scoped_session_expired() {
    a_call_in_flight_keeps_its_answer_when_another_finds_the_session_expired(&Scope::new("", "s"));
}

#[test]
fn closing_the_client_ends_a_call_that_is_left_on_an_expired_session() {
    let (gate, arrivals) = Gate::new();
    let server = Server::start({
        let gate = gate.clone();
        let sessions = Numbered::default();
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => sessions.open(&asked),
            ("tools/call", "held") => {
                gate.pass();
                asked.text("held")
            }
            ("tools/call", _) if asked.session == "1" => Answer::expired(),
            ("tools/call", _) => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let call = |tool| {
        client
            .call_tool(
                &Scope::default(),
                "server",
                tool,
                "",
                CallOptions::default(),
            )
            .unwrap()
    };
    let held = call("held");
    arrival(&arrivals);
    assert_eq!(answered(&client, call("other")), "answered");
    client.close(None);
    let ended = completion(&client, held);
    assert!(
        matches!(&ended.kind, EventKind::Error(error) if error.kind == mcpconn::Kind::Closed),
        "{ended:?}"
    );
    gate.open();
}
