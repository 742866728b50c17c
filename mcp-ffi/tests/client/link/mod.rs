//! Servers whose bytes the test moves, as a host does.

mod config;
mod ends;
mod faults;
mod feeding;
mod stalled;

use bytes::Bytes;
use mcpconn::{CallOptions, Client, Event, EventKind, Kind, Link, Scope};
use serde_json::{Value, json};

/// Servers of these names over links, with this under each's `mcpconn`.
fn hosted(names: &[&str], ours: Value) -> String {
    let entry = json!({"type": "host", "mcpconn": ours});
    let servers: serde_json::Map<_, _> = names
        .iter()
        .map(|name| ((*name).to_owned(), entry.clone()))
        .collect();
    Value::Object(servers).to_string()
}

/// One server, `server`.
fn client(ours: Value) -> Client {
    crate::client(&hosted(&["server"], ours))
}

/// Reconnects without delay.
fn brisk() -> Value {
    json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})
}

fn call_with(client: &Client, scope: &str, text: &str, options: CallOptions) -> u64 {
    let arguments = json!({"text": text}).to_string();
    let scope = Scope::new("", scope);
    client
        .call_tool(&scope, "server", "echo", &arguments, options)
        .unwrap()
}

fn call(client: &Client, text: &str) -> u64 {
    call_with(client, "", text, CallOptions::default())
}

/// The message in an event.
fn message(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("a message")
}

/// What a server that behaves well answers: an echo of the text, if it is called.
fn answer(bytes: &[u8]) -> Option<String> {
    let asked = message(bytes);
    let result = match asked["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "0"},
        }),
        Some("tools/list") => json!({"tools": []}),
        Some("tools/call") => {
            json!({"content": [{"type": "text", "text": asked["params"]["arguments"]["text"]}]})
        }
        _ => json!({}),
    };
    let id = asked.get("id")?;
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

/// Does what the event asks, over a link to a server that behaves well.
fn serve(event: &Event) {
    match &event.kind {
        EventKind::LinkOpen(link) => link.opened().unwrap(),
        EventKind::LinkSend(link, bytes) => {
            // The other side may have given the link up meanwhile.
            let _ = link.sent(bytes.len() as u64);
            let newline = if bytes.ends_with(b"\n") { "\n" } else { "" };
            if let Some(answer) = answer(bytes) {
                let _ = link.received((answer + newline).as_bytes());
            }
        }
        EventKind::LinkClose(link) => {
            let _ = link.closed(None, "");
        }
        _ => {}
    }
}

/// The next event that is wanted; those before it are served.
fn next(client: &Client, mut wanted: impl FnMut(&Event) -> bool) -> Event {
    crate::next(client, |event| {
        let found = wanted(event);
        if !found {
            serve(event);
        }
        found
    })
}

fn completion(client: &Client, id: u64) -> Event {
    next(client, |event| event.id == id && event.is_completion())
}

fn answered(client: &Client, id: u64) -> String {
    match completion(client, id).kind {
        EventKind::Result(answer) => answer.text().into(),
        other => panic!("the call was not answered: {other:?}"),
    }
}

fn failed(client: &Client, id: u64) -> mcpconn::Error {
    match completion(client, id).kind {
        EventKind::Error(error) => error,
        other => panic!("the call was answered: {other:?}"),
    }
}

/// The next link that the host is to open, and has not opened yet.
fn asked_for(client: &Client) -> Link {
    match next(client, |event| matches!(event.kind, EventKind::LinkOpen(_))).kind {
        EventKind::LinkOpen(link) => link,
        other => panic!("it was not asked for: {other:?}"),
    }
}

/// The next request of a tool, which was taken and of which nothing was said.
fn asked_to_call(client: &Client) -> (Link, Bytes) {
    let calls = |event: &Event| matches!(&event.kind, EventKind::LinkSend(_, bytes) if message(bytes)["method"] == "tools/call");
    match next(client, calls).kind {
        EventKind::LinkSend(link, bytes) => (link, bytes),
        other => panic!("it was not asked for: {other:?}"),
    }
}

#[track_caller]
fn refused_as(said: Result<(), mcpconn::Error>, kind: Kind) -> String {
    let error = said.expect_err("it was taken");
    assert_eq!(error.kind, kind, "{error}");
    error.message
}
