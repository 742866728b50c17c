//! What servers over HTTP say on their own, on a stream of the home session's.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
    mpsc,
};

use mcp_budget::State;
use mcpconn::{CallOptions, Client, EventKind, Scope};
use serde_json::json;

use crate::{
    LONG, answered, client, next,
    server::{Answer, Server},
};

fn call(client: &Client, scope: &Scope) -> String {
    let id = client.call_tool(scope, "server", "any", "", CallOptions::default());
    answered(client, id.unwrap())
}

#[test]
fn a_server_says_on_its_own_that_its_tools_are_others_and_the_new_ones_are_known() {
    let (say, said) = mpsc::channel();
    let said = Mutex::new(Some(said));
    let lists = AtomicU32::new(0);
    let server = Server::start(move |asked| match asked.method() {
        "initialize" => asked.open("1"),
        "tools/list" => {
            let name = format!("tool-{}", lists.fetch_add(1, Ordering::Relaxed) + 1);
            asked.result(json!({"tools": [{"name": name, "inputSchema": {}}]}))
        }
        _ if asked.http == "GET" => {
            Answer::stream(said.lock().unwrap().take().expect("asked for once"))
        }
        _ => asked.usual(),
    });
    let client = client(&server.config(json!({"eager": true})));
    let changed = || {
        next(&client, |event| {
            matches!(event.kind, EventKind::CatalogueChanged(_))
        });
        client.tools("").unwrap().text
    };
    assert!(changed().contains("tool-1"));
    say.send(
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n".into(),
    )
    .unwrap();
    assert!(changed().contains("tool-2"));
}

#[test]
fn a_scoped_session_does_not_listen_for_a_host_that_takes_nothing() {
    let (asked_for, streams) = mpsc::channel();
    let sessions = AtomicU32::new(0);
    let server = Server::start(move |asked| match asked.method() {
        "initialize" => asked.open(&(sessions.fetch_add(1, Ordering::Relaxed) + 1).to_string()),
        "tools/call" => asked.text("answered"),
        _ if asked.http == "GET" => {
            asked_for.send(asked.session.clone()).unwrap();
            asked.usual()
        }
        _ => asked.usual(),
    });
    let client = client(&server.config(json!({})));
    assert_eq!(call(&client, &Scope::new("", "chat")), "answered");
    assert_eq!(call(&client, &Scope::default()), "answered");
    assert_eq!(streams.recv_timeout(LONG).as_deref(), Ok("2"));
    // Whatever a session asks for before it is closed has come by now.
    drop(client);
    assert!(streams.try_recv().is_err());
}

/// A server whose streams end at once, and which then does not know their sessions; counts its sessions.
fn forgetful() -> (Server, Arc<AtomicU32>) {
    let sessions = Arc::new(AtomicU32::new(0));
    let streams = AtomicU32::new(0);
    let server = Server::start({
        let sessions = sessions.clone();
        move |asked| match asked.method() {
            "initialize" => asked.open(&(sessions.fetch_add(1, Ordering::Relaxed) + 1).to_string()),
            "tools/call" => asked.text("answered"),
            _ if asked.http == "GET" && streams.fetch_add(1, Ordering::Relaxed) % 2 == 0 => {
                let (say, said) = mpsc::channel();
                say.send("retry: 1\n\n".into()).unwrap();
                Answer::stream(said)
            }
            _ if asked.http == "GET" => Answer::expired(),
            _ => asked.usual(),
        }
    });
    (server, sessions)
}

#[test]
fn a_server_that_forgets_each_session_unproven_is_parked_within_its_budget() {
    let (server, sessions) = forgetful();
    let budget = json!({"max_retries": 2, "backoff_ms": 1, "floor_ms": 1});
    let client = client(&server.config(json!({"eager": true, "budget": budget})));
    next(
        &client,
        |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Parked),
    );
    assert_eq!(sessions.load(Ordering::Relaxed), 1 + 2);
}

#[test]
fn a_session_whose_end_its_stream_tells_is_replaced_when_the_next_call_comes() {
    let (server, sessions) = forgetful();
    let client = client(&server.config(json!({"budget": {"backoff_ms": 1, "floor_ms": 1}})));
    assert_eq!(call(&client, &Scope::default()), "answered");
    next(
        &client,
        |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Idle),
    );
    assert_eq!(sessions.load(Ordering::Relaxed), 1);
    assert_eq!(call(&client, &Scope::default()), "answered");
    assert_eq!(sessions.load(Ordering::Relaxed), 2);
}
