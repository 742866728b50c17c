//! The servers are given again.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use mcp_budget::State;
use mcpconn::{CallOptions, Client, Event, EventKind, Kind, Outcome, Report, Scope};
use serde_json::{Value, json};

use crate::{
    answered, client, completion,
    server::{Gate, Server, arrival},
};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).into()).collect()
}

fn configure(client: &Client, servers: &Value) -> Report {
    client.configure("", &servers.to_string()).unwrap()
}

fn begin(client: &Client, scope: &str, server: &str, tool: &str) -> u64 {
    let scope = Scope::new("", scope);
    client
        .call_tool(&scope, server, tool, "", CallOptions::default())
        .unwrap()
}

#[test]
fn only_the_servers_that_the_report_says_are_touched() {
    let (gate, arrivals) = Gate::new();
    let opened = Arc::new(AtomicU32::new(0));
    let server = Server::start({
        let (gate, opened) = (gate.clone(), opened.clone());
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => {
                let number = opened.fetch_add(1, Ordering::SeqCst) + 1;
                asked.open(&number.to_string())
            }
            ("tools/call", "held") => {
                gate.pass();
                asked.text("held")
            }
            ("tools/call", _) => asked.text(&asked.session.clone()),
            _ => asked.usual(),
        }
    });
    let entry: Value =
        serde_json::from_str(&server.config(json!({"budget": {"floor_ms": 1}}))).unwrap();
    let entry = entry["server"].clone();
    let with = |member: &str, value: Value| {
        let mut changed = entry.clone();
        changed[member] = value;
        changed
    };
    let client = client("{}");
    let first = json!({"stays": entry, "tuned": entry, "changes": entry, "goes": entry});
    let report = configure(&client, &first);
    assert_eq!(report.added, names(&["changes", "goes", "stays", "tuned"]));

    let mut calls = Vec::new();
    for server in ["stays", "tuned", "changes", "goes"] {
        for scope in ["", "a"] {
            calls.push((server, begin(&client, scope, server, "held")));
            arrival(&arrivals);
        }
    }
    let report = configure(
        &client,
        &json!({
            "stays": entry,
            "tuned": with("mcpconn", json!({"close_timeout_ms": 100})),
            "changes": with("headers", json!({"x-new": "1"})),
            "comes": entry,
            "wrong": {"comand": "misspelt"},
        }),
    );
    assert_eq!(report.added, names(&["comes"]));
    assert_eq!(report.changed, names(&["changes"]));
    assert_eq!(report.removed, names(&["goes"]));
    assert_eq!(report.unchanged, names(&["stays", "tuned"]));
    assert_eq!(report.invalid[0].server, "wrong");

    let (kept, cut): (Vec<_>, Vec<_>) = calls
        .into_iter()
        .partition(|(server, _)| matches!(*server, "stays" | "tuned"));
    let mut cut: Vec<_> = cut.into_iter().map(|(_, id)| id).collect();
    while !cut.is_empty() {
        let event = crate::next(&client, mcpconn::Event::is_completion);
        let place = cut.iter().position(|id| *id == event.id);
        cut.remove(place.unwrap_or_else(|| panic!("it was not to be touched: {event:?}")));
        assert!(
            matches!(&event.kind, EventKind::Error(error)
                if (error.kind, error.outcome) == (Kind::Closed, Outcome::Unknown)),
            "{event:?}"
        );
    }
    let sessions = opened.load(Ordering::SeqCst);
    gate.open();
    for _ in &kept {
        let event = crate::next(&client, mcpconn::Event::is_completion);
        assert!(kept.iter().any(|(_, id)| *id == event.id), "{event:?}");
        assert!(matches!(event.kind, EventKind::Result(_)), "{event:?}");
    }
    for (server, scope) in [("stays", ""), ("stays", "a"), ("tuned", ""), ("tuned", "a")] {
        answered(&client, begin(&client, scope, server, "any"));
    }
    assert_eq!(opened.load(Ordering::SeqCst), sessions, "untouched");
    answered(&client, begin(&client, "a", "changes", "any"));
    answered(&client, begin(&client, "", "comes", "any"));
    assert_eq!(opened.load(Ordering::SeqCst), sessions + 2);
}

#[test]
fn a_server_that_is_unusable_now_is_removed_and_said_to_be_both() {
    let server = Server::start(|asked| match asked.method() {
        "initialize" => asked.open("1"),
        "tools/call" => asked.text("answered"),
        _ => asked.usual(),
    });
    let client = client(&server.config(json!({})));
    assert_eq!(
        answered(&client, begin(&client, "a", "server", "any")),
        "answered"
    );
    let report = configure(&client, &json!({"server": {}}));
    assert_eq!(report.removed, names(&["server"]));
    assert_eq!(report.invalid[0].server, "server");
    assert!(client.status().sessions.is_empty());
    let refused = client.call_tool(
        &Scope::default(),
        "server",
        "any",
        "",
        CallOptions::default(),
    );
    assert_eq!(refused.unwrap_err().kind, Kind::Config);
    // The same configuration again is a new server all the same.
    let report = client.configure("", &server.config(json!({}))).unwrap();
    assert_eq!(report.added, names(&["server"]));
    completion(&client, begin(&client, "a", "server", "any"));
}

#[test]
fn a_domain_is_configured_without_touching_another() {
    let server = Server::start(|asked| match asked.method() {
        "initialize" => asked.open("1"),
        "tools/call" => asked.text("answered"),
        _ => asked.usual(),
    });
    let client = client(&server.config(json!({})));
    answered(&client, begin(&client, "a", "server", "any"));
    let before = client.status().sessions;
    let report = client
        .configure("personal", &server.config(json!({})))
        .unwrap();
    assert_eq!(report.added, names(&["server"]));
    client.configure("personal", "{}").unwrap();
    let after = client.status().sessions;
    assert_eq!(before[0].session_id, after[0].session_id);
}

#[test]
fn a_server_that_is_replaced_is_not_said_to_have_stopped_and_one_that_is_removed_is() {
    let server = Server::start(|asked| match asked.method() {
        "initialize" => asked.open("1"),
        "tools/call" => asked.text("answered"),
        _ => asked.usual(),
    });
    let entry: Value =
        serde_json::from_str(&server.config(json!({"budget": {"floor_ms": 1}}))).unwrap();
    let entry = entry["server"].clone();
    let mut changed = entry.clone();
    changed["headers"] = json!({"x-new": "1"});
    let client = client("{}");
    configure(&client, &json!({"changes": entry, "goes": entry}));
    for server in ["changes", "goes"] {
        answered(&client, begin(&client, "", server, "any"));
    }
    let report = configure(&client, &json!({"changes": changed}));
    assert_eq!(report.changed, names(&["changes"]));
    let call = begin(&client, "", "changes", "any");
    let mut states = Vec::new();
    let mut is_over = |event: &Event| {
        if let EventKind::ServerState(status) = &event.kind {
            states.push((event.server.to_string(), status.state));
        }
        matches!(event.kind, EventKind::Closed)
    };
    // What became of the old ones is told before the client is closed.
    crate::next(&client, |event| {
        is_over(event) || (event.id == call && event.is_completion())
    });
    client.close(None);
    crate::next(&client, is_over);
    let stopped = |server: &str| {
        states
            .iter()
            .filter(|(name, state)| name == server && *state == State::Stopped)
            .count()
    };
    // The one that replaced it stops with the client.
    assert_eq!((stopped("changes"), stopped("goes")), (1, 1), "{states:?}");
}
