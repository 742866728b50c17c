//! Servers that want to see credentials, and a host that gives them.

use mcp_budget::{Reason, State};
use mcpconn::{
    CallOptions, Client, CredentialsNeeded, Error, Event, EventKind, Kind, Outcome, Scope,
};
use serde_json::{Value, json};

use crate::{
    answered, client, completion, next,
    server::{Answer, Asked, Gate, Server, arrival},
};

const CHALLENGE: &str =
    r#"Bearer realm="r", resource_metadata="https://h/.well-known/x", scope="a b", Basic"#;
const UNAUTHORIZED: &str = "401 Unauthorized";

/// In quick succession.
fn quick() -> Value {
    json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})
}

/// What a server without sessions says to whoever it lets in.
fn served(asked: &Asked) -> Answer {
    match asked.method() {
        "initialize" => asked.open("1"),
        "tools/call" => asked.text("answered"),
        _ => asked.usual(),
    }
}

fn call(client: &Client, scope: &Scope, tool: &str) -> u64 {
    client
        .call_tool(scope, "server", tool, "", CallOptions::default())
        .unwrap()
}

fn failure(event: Event) -> Error {
    match event.kind {
        EventKind::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

fn needed(client: &Client) -> CredentialsNeeded {
    let event = next(client, |event| {
        matches!(event.kind, EventKind::CredentialsNeeded(_))
    });
    match event.kind {
        EventKind::CredentialsNeeded(needed) => needed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_host_is_asked_once_for_all_callers_and_what_it_gives_wakes_the_server() {
    let server = Server::start(|asked| match asked.authorization.as_str() {
        "Bearer good" => served(&asked),
        _ => Answer::challenge(UNAUTHORIZED, CHALLENGE),
    });
    let client = client(&server.config(quick()));
    let scopes = ["", "", "one", "two", "three"].map(|name| Scope::new("", name));
    let calls = scopes.each_ref().map(|scope| call(&client, scope, "any"));
    let (mut asked, mut failed) = (Vec::new(), 0);
    while failed < calls.len() {
        match next(&client, |_| true).kind {
            EventKind::CredentialsNeeded(needed) => asked.push(needed),
            EventKind::Error(error) => {
                assert_eq!((error.kind, error.outcome), (Kind::Auth, Outcome::NotSent));
                failed += 1;
            }
            _ => {}
        }
    }
    let status = client.server_status("", "server").unwrap();
    assert_eq!((status.state, status.reason), (State::Parked, Reason::Auth));
    while let Some(event) = client.next_event() {
        assert!(!matches!(event.kind, EventKind::CredentialsNeeded(_)));
    }
    let [asked] = &asked[..] else {
        panic!("{asked:?}");
    };
    let said: Value = serde_json::from_slice(asked.json()).unwrap();
    let expected = json!({
        "status": 401,
        "challenges": [
            {
                "scheme": "Bearer",
                "realm": "r",
                "resource_metadata": "https://h/.well-known/x",
                "scope": "a b",
            },
            {"scheme": "Basic"},
        ],
    });
    assert_eq!(said, expected);

    client
        .set_header("", "server", "Authorization", "Bearer good")
        .unwrap();
    next(
        &client,
        |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Unproven),
    );
    for scope in &scopes {
        assert_eq!(answered(&client, call(&client, scope, "any")), "answered");
    }
}

#[test]
fn a_call_that_is_refused_after_the_host_gave_others_is_sent_again() {
    let (gate, arrivals) = Gate::new();
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match (asked.method(), asked.authorization.as_str()) {
            ("tools/call", "Bearer good") => asked.text("answered"),
            ("tools/call", _) => {
                gate.pass();
                Answer::challenge(UNAUTHORIZED, CHALLENGE)
            }
            // Without a session there is none that could have expired.
            ("initialize", _) => asked.open_without_session(),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(quick()));
    let id = call(&client, &Scope::default(), "any");
    arrival(&arrivals);
    client
        .set_header("", "server", "authorization", "Bearer good")
        .unwrap();
    gate.open();
    assert_eq!(answered(&client, id), "answered");
}

#[test]
fn a_server_that_lets_in_and_refuses_calls_is_parked_until_it_is_shown_something_else() {
    let server = Server::start(
        |asked| match (asked.method(), asked.authorization.as_str()) {
            ("tools/call", "Bearer good") => asked.text("answered"),
            ("tools/call", _) => Answer::challenge(UNAUTHORIZED, CHALLENGE),
            ("initialize", _) => asked.open_without_session(),
            _ => asked.usual(),
        },
    );
    let client = client(&server.config(quick()));
    let home = Scope::default();
    let first = failure(completion(&client, call(&client, &home, "any")));
    assert_eq!((first.kind, first.outcome), (Kind::Auth, Outcome::Rejected));
    let mut refusals = 1;
    while client.server_status("", "server").unwrap().state != State::Parked {
        failure(completion(&client, call(&client, &home, "any")));
        refusals += 1;
        assert!(
            refusals < 5,
            "calls go on being refused by the server itself"
        );
    }
    let parked = failure(completion(&client, call(&client, &home, "any")));
    assert_eq!(
        (parked.kind, parked.outcome),
        (Kind::Auth, Outcome::NotSent)
    );
    client
        .set_header("", "server", "authorization", "Bearer good")
        .unwrap();
    next(
        &client,
        |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Unproven),
    );
    assert_eq!(answered(&client, call(&client, &home, "any")), "answered");
}

#[test]
fn a_want_of_more_rights_costs_the_call_and_not_the_session() {
    let server = Server::start(|asked| match asked.tool() {
        "forbidden" => Answer::challenge("403 Forbidden", CHALLENGE),
        _ => served(&asked),
    });
    let client = client(&server.config(quick()));
    for scope in [Scope::default(), Scope::new("", "chat")] {
        let refused = call(&client, &scope, "forbidden");
        if scope == Scope::default() {
            assert_eq!(needed(&client).status, 403);
        }
        let error = failure(completion(&client, refused));
        assert_eq!((error.kind, error.outcome), (Kind::Auth, Outcome::Rejected));
        let generation = client.server_status("", "server").unwrap().generation;
        assert_eq!(answered(&client, call(&client, &scope, "any")), "answered");
        let status = client.server_status("", "server").unwrap();
        assert_eq!(status.generation, generation);
    }
}

#[test]
fn what_the_host_gives_is_in_no_event_whatever_the_server_repeats() {
    const SECRETS: [&str; 3] = ["givensecret", "configuredsecret", "formersecret"];
    let server = Server::start(|_| {
        Answer::challenge(
            UNAUTHORIZED,
            r#"Bearer error_description="not givensecret, configuredsecret or formersecret""#,
        )
    });
    let mut config: Value = serde_json::from_str(&server.config(quick())).unwrap();
    config["server"]["headers"] = json!({"authorization": "Bearer configuredsecret"});
    let client = client(&config.to_string());
    for secret in ["Bearer formersecret", "Bearer givensecret"] {
        client
            .set_header("", "server", "authorization", secret)
            .unwrap();
    }
    let id = call(&client, &Scope::default(), "any");
    let mut was_asked = false;
    loop {
        let event = next(&client, |_| true);
        let mut said = format!("{event:?}{client:?}");
        match &event.kind {
            EventKind::CredentialsNeeded(needed) => {
                was_asked = true;
                said += needed.text();
                said += &String::from_utf8_lossy(needed.json());
            }
            EventKind::Error(error) => said += &error.to_string(),
            EventKind::ServerState(status) => said += &status.text,
            _ => {}
        }
        for secret in SECRETS {
            assert!(!said.contains(secret), "{said}");
        }
        if event.id == id && event.is_completion() {
            break;
        }
    }
    assert!(was_asked);
}

#[test]
fn a_header_that_cannot_be_given_is_refused_and_its_value_not_shown() {
    let server = Server::start(|asked| served(&asked));
    let client = client(&server.config(json!({})));
    for (server, name, kind) in [
        ("server", "a b", Kind::Invalid),
        ("server", "content-length", Kind::Invalid),
        ("other", "authorization", Kind::UnknownServer),
    ] {
        let error = client
            .set_header("", server, name, "hunter2hunter2")
            .unwrap_err();
        assert_eq!(error.kind, kind);
        assert!(!error.message.contains("hunter2"), "{error}");
    }
    client.close(None);
    let error = client.set_header("", "server", "authorization", "x");
    assert_eq!(error.unwrap_err().kind, Kind::Closed);
}
