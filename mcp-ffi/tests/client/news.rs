//! What a host hears of scoped sessions, and the page that it can make of everything.

use mcpconn::{
    CallOptions, Client, ClientOptions, CloseReason, EventKind, HostTakes, PoolLimits, Scope,
    SessionChange, SessionNews,
};
use serde_json::{Value, json};

use crate::{
    answered, begin, child, completion, next,
    server::{Answer, Numbered, Server, arrival},
};

fn listening(config: &str, capacity: usize) -> Client {
    let options = ClientOptions {
        pool: PoolLimits {
            capacity,
            ..PoolLimits::default()
        },
        takes: HostTakes {
            sessions: true,
            ..HostTakes::default()
        },
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    client.configure("", config).unwrap();
    client
}

fn numbering() -> Server {
    let sessions = Numbered::default();
    Server::start(move |asked| match (asked.method(), asked.tool()) {
        ("initialize", _) => sessions.open(&asked),
        ("tools/call", "expire") if asked.session == "1" => Answer::expired(),
        ("tools/call", _) => asked.text(&format!("answered on {}", asked.session)),
        _ => asked.usual(),
    })
}

/// The next news of the session of this scope.
fn news(client: &Client, scope: &str) -> SessionNews {
    let event = next(client, |event| {
        event.scope.as_deref() == Some(scope) && matches!(event.kind, EventKind::Session(_))
    });
    assert_eq!((&*event.domain, &*event.server), ("deployment", "server"));
    match event.kind {
        EventKind::Session(news) => news,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_host_hears_of_a_session_from_its_opening_to_its_end() {
    let server = numbering();
    let client = listening(&server.config(json!({})), 1);
    // The news come before the answer.
    let call = begin(&client, "a", "any");
    let first = news(&client, "a");
    assert_eq!(first.change, SessionChange::Opened);
    assert_eq!(answered(&client, call), "answered on 1");
    begin(&client, "b", "any");
    let gone = news(&client, "a");
    assert_eq!(
        (gone.session_id, gone.generation),
        (first.session_id, first.generation)
    );
    assert_eq!(gone.change, SessionChange::Closed(CloseReason::Displaced));
    assert!(
        gone.text.contains("\"a\"") && gone.text.contains("slot"),
        "{}",
        gone.text
    );
    let second = news(&client, "b");
    assert_eq!(second.change, SessionChange::Opened);
    assert!(second.session_id > first.session_id && second.generation > first.generation);
    client.close_scope(&Scope::new("", "b"));
    assert_eq!(
        news(&client, "b").change,
        SessionChange::Closed(CloseReason::Host)
    );
}

#[test]
fn a_host_hears_that_a_session_expired_and_that_another_was_opened() {
    let server = numbering();
    let client = listening(
        &server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})),
        8,
    );
    begin(&client, "a", "any");
    let first = news(&client, "a");
    assert_eq!(first.change, SessionChange::Opened);
    let call = begin(&client, "a", "expire");
    let lost = news(&client, "a");
    assert_eq!(
        (lost.change, lost.session_id),
        (SessionChange::Lost, first.session_id)
    );
    assert!(lost.text.contains("was lost: "), "{}", lost.text);
    let second = news(&client, "a");
    assert_eq!(second.change, SessionChange::Opened);
    assert_ne!(second.session_id, first.session_id);
    assert_eq!(answered(&client, call), "answered on 2");
}

#[test]
fn a_host_hears_that_a_process_died() {
    let config = child::config(
        r#"*'"exit"'*) exit 3 ;; *'"tools/call"'*) answer '{"content":[]}' ;;"#,
        json!({}),
    );
    let client = listening(&config, 8);
    begin(&client, "a", "any");
    assert_eq!(news(&client, "a").change, SessionChange::Opened);
    begin(&client, "a", "exit");
    let lost = news(&client, "a");
    assert_eq!(lost.change, SessionChange::Lost);
    assert!(lost.text.contains('3'), "how it ended: {}", lost.text);
}

#[test]
fn a_host_hears_that_a_changed_configuration_took_a_session_and_the_end_of_the_client_the_last() {
    let server = numbering();
    let client = listening(&server.config(json!({})), 8);
    begin(&client, "a", "any");
    assert_eq!(news(&client, "a").change, SessionChange::Opened);
    let mut config: Value = serde_json::from_str(&server.config(json!({}))).unwrap();
    config["server"]["headers"] = json!({"x-changed": "yes"});
    let report = client.configure("", &config.to_string()).unwrap();
    assert_eq!(report.changed, ["server"]);
    assert_eq!(
        news(&client, "a").change,
        SessionChange::Closed(CloseReason::Reconfigured)
    );
    begin(&client, "a", "any");
    assert_eq!(news(&client, "a").change, SessionChange::Opened);
    client.close(None);
    assert_eq!(
        news(&client, "a").change,
        SessionChange::Closed(CloseReason::Host)
    );
}

#[test]
fn a_host_that_does_not_take_them_hears_nothing_of_sessions() {
    let server = numbering();
    let client = crate::client(&server.config(json!({})));
    assert_eq!(
        answered(&client, begin(&client, "a", "any")),
        "answered on 1"
    );
    client.close(None);
    next(&client, |event| {
        assert!(!matches!(event.kind, EventKind::Session(_)), "{event:?}");
        matches!(event.kind, EventKind::Closed)
    });
}

#[test]
fn a_session_is_closed_by_its_id_and_never_the_one_that_took_its_place() {
    let server = numbering();
    let client = listening(&server.config(json!({})), 8);
    let call = begin(&client, "a", "any");
    let first = news(&client, "a").session_id;
    assert_eq!(answered(&client, call), "answered on 1");
    assert!(!client.close_session(first + 1));
    assert!(client.close_session(first));
    assert!(!client.close_session(first));
    let call = begin(&client, "a", "any");
    assert_eq!(
        news(&client, "a").change,
        SessionChange::Closed(CloseReason::Host)
    );
    let second = news(&client, "a").session_id;
    assert_eq!(answered(&client, call), "answered on 2");
    assert!(!client.close_session(first));
    assert_eq!(client.status().sessions[0].session_id, second);
    assert!(client.drain_session(second, None));
    assert!(client.status().sessions.is_empty(), "it was idle");
}

#[test]
fn a_session_is_closed_by_its_id_while_it_opens_and_while_it_drains() {
    let (server, gate, arrivals) = Server::holding();
    let client = listening(&server.config(json!({})), 8);
    let call = begin(&client, "a", "held");
    arrival(&arrivals);
    let session = client.status().sessions[0].session_id;
    assert!(client.drain_session(session, None));
    assert_eq!(client.status().pool.draining, 1);
    assert!(client.close_session(session));
    let ended = completion(&client, call);
    assert!(
        matches!(&ended.kind, EventKind::Error(error) if error.kind == mcpconn::Kind::Closed),
        "{ended:?}"
    );
    gate.open();

    let (server, gate, arrivals) = Server::slow_to_open();
    let client = listening(&server.config(json!({})), 8);
    let call = begin(&client, "a", "any");
    arrival(&arrivals);
    let opening = client.status().sessions[0].clone();
    assert_eq!(opening.generation, None);
    assert!(client.close_session(opening.session_id));
    let ended = completion(&client, call);
    assert!(
        matches!(&ended.kind, EventKind::Error(error) if error.kind == mcpconn::Kind::Closed),
        "{ended:?}"
    );
    assert!(client.status().sessions.is_empty());
    gate.open();
}

#[test]
fn a_call_that_wants_the_same_session_ends_where_another_would_take_its_place() {
    for scope in ["", "a"] {
        let server = numbering();
        let client = listening(
            &server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})),
            8,
        );
        let call = |same_session| {
            let options = CallOptions {
                same_session,
                ..CallOptions::default()
            };
            let scope = Scope::new("", scope);
            let id = client.call_tool(&scope, "server", "expire", "", options);
            completion(&client, id.unwrap()).kind
        };
        match call(true) {
            EventKind::Error(error) => {
                assert_eq!(error.outcome, mcpconn::Outcome::Rejected, "{error}");
                assert!(error.message.contains("this very session"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        // The next has another, and knows by its generation.
        match call(true) {
            EventKind::Result(answer) => {
                assert_eq!(answer.text(), "answered on 2");
                assert_eq!((answer.generation, answer.replaced), (2, false));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_status_says_how_it_stands_with_every_server_and_session_and_holds_no_secret() {
    let (server, gate, arrivals) = Server::holding();
    let client = listening("{}", 8);
    let mut config: Value = serde_json::from_str(&server.config(json!({}))).unwrap();
    config["server"]["headers"] = json!({"authorization": "Bearer hidden"});
    config["gone"] = json!({"command": "/nonexistent/program", "env": {"TOKEN": "hidden"}});
    config["wrong"] = json!({"url": "ftp://user:hidden@example.org"});
    let report = client.configure("", &config.to_string()).unwrap();
    assert_eq!(report.added, ["gone", "server"]);
    assert_eq!(report.invalid.len(), 1);

    let id = client.call_tool(&Scope::default(), "gone", "any", "", CallOptions::default());
    completion(&client, id.unwrap());
    assert_eq!(answered(&client, begin(&client, "idle", "any")), "answered");
    let held = begin(&client, "busy", "held");
    arrival(&arrivals);

    let text = client.status().to_json();
    assert!(!text.contains("hidden"), "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    let servers = status["servers"].as_array().unwrap();
    let names: Vec<_> = servers.iter().map(|server| &server["server"]).collect();
    assert_eq!(names, ["gone", "server", "wrong"]);
    let states: Vec<_> = servers
        .iter()
        .map(|server| (&server["state"], &server["reason"]))
        .collect();
    assert_eq!(
        json!(states),
        json!([
            ["parked", "permanent"],
            ["idle", "fresh"],
            ["stopped", "invalid"]
        ])
    );
    assert!(servers[0]["next_try_in_ms"].as_u64() > Some(0), "{text}");
    assert!(
        servers[0]["text"]
            .as_str()
            .unwrap()
            .contains("/nonexistent/program")
    );
    assert_eq!(
        (
            &servers[1]["sessions"],
            &servers[1]["calls"],
            &servers[1]["pid"]
        ),
        (&json!(2), &json!(1), &Value::Null)
    );

    let sessions = status["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    for (session, (scope, calls)) in sessions.iter().zip([("idle", 0), ("busy", 1)]) {
        assert_eq!(session["domain"], "deployment");
        assert_eq!(session["server"], "server");
        assert_eq!(session["scope"], scope);
        assert_eq!(session["state"], "live");
        assert_eq!(session["calls"], calls);
        assert!(session["session_id"].as_u64() > Some(0));
        assert!(session["generation"].as_u64() > Some(0));
        assert!(session["age_ms"].is_u64());
        assert_eq!(session["idle_ms"].is_u64(), calls == 0, "{session}");
    }
    let pool = &status["pool"];
    assert_eq!(
        (
            &pool["capacity"],
            &pool["live"],
            &pool["busy"],
            &pool["tally"]["opened"]
        ),
        (&json!(8), &json!(2), &json!(1), &json!(2))
    );
    gate.open();
    completion(&client, held);
}
