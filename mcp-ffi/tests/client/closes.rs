//! Sessions that the host closes, at once or gently.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    time::Duration,
};

use mcp_budget::State;
use mcpconn::{Client, Error, EventKind, Kind, Outcome, Scope};
use serde_json::json;

use crate::{
    answered, begin, client, next,
    server::{Answer, Gate, Numbered, Server, arrival},
};

/// A server that numbers its sessions; its tool `held` answers when the gate opens.
fn numbering() -> (Server, Arc<Gate>, mpsc::Receiver<()>) {
    let (gate, arrivals) = Gate::new();
    let sessions = Numbered::default();
    let held = gate.clone();
    let server = Server::start(move |asked| match (asked.method(), asked.tool()) {
        ("initialize", _) => sessions.open(&asked),
        ("tools/call", "held") => {
            held.pass();
            asked.text(&format!("held on {}", asked.session))
        }
        ("tools/call", _) => asked.text(&format!("answered on {}", asked.session)),
        _ => asked.usual(),
    });
    (server, gate, arrivals)
}

fn quick() -> serde_json::Value {
    json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})
}

/// How these calls ended, in their order.
#[track_caller]
fn ends(client: &Client, ids: &[u64]) -> Vec<Result<String, Error>> {
    let mut ends = HashMap::new();
    while ends.len() < ids.len() {
        let event = next(client, |event| {
            event.is_completion() && ids.contains(&event.id)
        });
        let end = match event.kind {
            EventKind::Result(answer) => Ok(answer.text().into()),
            EventKind::Error(error) => Err(error),
            other => unreachable!("{other:?} ends no call"),
        };
        assert!(ends.insert(event.id, end).is_none(), "a second end");
    }
    ids.iter().filter_map(|id| ends.remove(id)).collect()
}

fn is_closed(end: &Result<String, Error>, outcome: Outcome) -> bool {
    matches!(end, Err(error) if (error.kind, error.outcome) == (Kind::Closed, outcome))
}

/// A call of the tool `held` in each of these scopes. They are begun one after the other, for sessions are numbered.
fn held(client: &Client, scopes: &[&str], arrivals: &mpsc::Receiver<()>) -> Vec<u64> {
    let each = scopes.iter().map(|scope| {
        let id = begin(client, scope, "held");
        arrival(arrivals);
        id
    });
    each.collect()
}

/// One call each runs on the home session and in the scopes `a` and `b`; which of them does this close cut?
#[track_caller]
fn expect_closed(close: impl Fn(&Client), cut: &[&str]) {
    const SCOPES: [&str; 3] = ["", "a", "b"];
    let (server, gate, arrivals) = numbering();
    let client = client(&server.config(quick()));
    let calls = held(&client, &SCOPES, &arrivals);
    close(&client);
    // Told, however long the server takes.
    let (gone, left): (Vec<usize>, Vec<_>) = (0..3).partition(|n| cut.contains(&SCOPES[*n]));
    let gone_calls: Vec<_> = gone.iter().map(|n| calls[*n]).collect();
    for end in ends(&client, &gone_calls) {
        assert!(is_closed(&end, Outcome::Unknown), "{end:?}");
    }
    // Nothing is unconfigured.
    for n in gone {
        let text = answered(&client, begin(&client, SCOPES[n], "any"));
        let session: usize = text.strip_prefix("answered on ").unwrap().parse().unwrap();
        assert!(session > 3, "{text}");
    }
    assert_eq!(client.server_status("", "server").unwrap().charges, 0);
    gate.open();
    let left_calls: Vec<_> = left.iter().map(|n| calls[*n]).collect();
    for (n, end) in left.into_iter().zip(ends(&client, &left_calls)) {
        assert_eq!(end.unwrap(), format!("held on {}", n + 1));
    }
}

#[test]
fn closing_a_scope_cuts_the_calls_of_that_scope_alone() {
    expect_closed(|client| client.close_scope(&Scope::new("", "a")), &["a"]);
}

#[test]
fn closing_the_scope_without_a_name_closes_nothing() {
    expect_closed(|client| client.close_scope(&Scope::default()), &[]);
}

#[test]
fn closing_a_server_cuts_the_calls_of_all_scopes_and_of_its_home_session() {
    let close = |client: &Client| client.close_server("", "server").unwrap();
    expect_closed(close, &["", "a", "b"]);
}

#[test]
fn closing_a_domain_cuts_all_calls_of_that_domain() {
    expect_closed(|client| client.close_domain(""), &["", "a", "b"]);
    expect_closed(|client| client.close_domain("another"), &[]);
}

#[test]
fn closing_all_cuts_every_call() {
    expect_closed(Client::close_all, &["", "a", "b"]);
}

#[test]
fn closing_a_server_that_is_not_there_is_told() {
    let (server, _, _) = numbering();
    let client = client(&server.config(quick()));
    let error = client.close_server("", "sever").unwrap_err();
    assert_eq!(error.kind, Kind::UnknownServer);
    assert!(error.message.contains("server"), "{error}");
    let error = client.drain_server("another", "server", None).unwrap_err();
    assert_eq!(error.kind, Kind::UnknownServer);
}

#[test]
fn a_call_that_was_begun_before_the_close_ends_with_it_wherever_it_is() {
    let (server, _gate, _arrivals) = numbering();
    let client = client(&server.config(quick()));
    for scope in ["", "a"] {
        for _ in 0..20 {
            let id = begin(&client, scope, "held");
            client.close_all();
            let end = ends(&client, &[id]).remove(0);
            assert!(
                is_closed(&end, Outcome::NotSent) || is_closed(&end, Outcome::Unknown),
                "{end:?}"
            );
        }
    }
}

#[test]
fn closing_a_server_ends_who_waits_for_a_session_that_is_being_opened() {
    let (server, gate, arrivals) = Server::slow_to_open();
    let ours = json!({"budget": {"floor_ms": 1, "max_unproven": 1}});
    let client = client(&server.config(ours));
    let mut calls = vec![begin(&client, "a", "any")];
    arrival(&arrivals);
    // One joins, one waits for leave to open, and the last waits for the home session.
    calls.extend(["a", "b", ""].map(|scope| begin(&client, scope, "any")));
    arrival(&arrivals);
    client.close_server("", "server").unwrap();
    for end in ends(&client, &calls) {
        assert!(is_closed(&end, Outcome::NotSent), "{end:?}");
    }
    let status = client.server_status("", "server").unwrap();
    assert_eq!(
        (status.state, status.charges),
        (State::Idle, 0),
        "{status:?}"
    );
    gate.open();
    assert_eq!(answered(&client, begin(&client, "", "any")), "answered");
    assert_eq!(answered(&client, begin(&client, "a", "any")), "answered");
}

#[test]
fn a_call_on_a_session_that_was_given_up_ends_with_the_close_too() {
    let (gate, arrivals) = Gate::new();
    let sessions = Numbered::default();
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => sessions.open(&asked),
            ("tools/call", "held") => {
                gate.pass();
                asked.text("held")
            }
            ("tools/call", _) if matches!(&*asked.session, "1" | "2") => Answer::expired(),
            ("tools/call", _) => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(quick()));
    let calls = held(&client, &["", "a"], &arrivals);
    for scope in ["", "a"] {
        assert_eq!(answered(&client, begin(&client, scope, "any")), "answered");
    }
    client.close_server("", "server").unwrap();
    for end in ends(&client, &calls) {
        assert!(is_closed(&end, Outcome::Unknown), "{end:?}");
    }
    gate.open();
}

/// The calls of `scopes` are answered though this drain comes while they run, and none comes on their session after it.
#[track_caller]
fn expect_drained(drain: impl Fn(&Client), scopes: &[&str]) {
    let (server, gate, arrivals) = numbering();
    let client = client(&server.config(quick()));
    let calls = held(&client, scopes, &arrivals);
    drain(&client);
    for (n, scope) in scopes.iter().enumerate() {
        let text = answered(&client, begin(&client, scope, "any"));
        assert_ne!(text, format!("answered on {}", n + 1));
    }
    gate.open();
    for (n, end) in ends(&client, &calls).into_iter().enumerate() {
        assert_eq!(end.unwrap(), format!("held on {}", n + 1));
    }
}

#[test]
fn a_scope_that_drains_ends_its_calls_and_has_another_session_for_new_ones() {
    let drain = |client: &Client| client.drain_scope(&Scope::new("", "a"), None);
    expect_drained(drain, &["a"]);
}

#[test]
fn a_server_that_drains_ends_the_calls_of_its_home_session_too() {
    let drain = |client: &Client| client.drain_server("", "server", None).unwrap();
    expect_drained(drain, &["", "a", "b"]);
}

#[test]
fn a_domain_and_all_domains_drain_in_the_same_way() {
    expect_drained(|client| client.drain_domain("", None), &["", "a"]);
    expect_drained(|client| client.drain_all(None), &["", "a"]);
}

#[test]
fn what_still_runs_at_the_limit_of_a_drain_is_cut() {
    let (server, gate, arrivals) = numbering();
    let client = client(&server.config(quick()));
    let calls = held(&client, &["", "a"], &arrivals);
    client.drain_all(Some(Duration::from_millis(10)));
    for end in ends(&client, &calls) {
        assert!(is_closed(&end, Outcome::Unknown), "{end:?}");
    }
    gate.open();
}

#[test]
fn a_client_that_closes_does_not_wait_for_what_drains() {
    let (server, gate, arrivals) = numbering();
    let client = client(&server.config(quick()));
    let calls = held(&client, &["", "a"], &arrivals);
    client.drain_all(None);
    client.close(None);
    for end in ends(&client, &calls) {
        assert!(is_closed(&end, Outcome::Unknown), "{end:?}");
    }
    next(&client, |event| matches!(event.kind, EventKind::Closed));
    gate.open();
}
