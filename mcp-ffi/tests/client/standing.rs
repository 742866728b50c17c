//! What the host asked of a home session outlives it.

use mcpconn::{CallOptions, Client, EventKind, Scope};
use serde_json::json;

use crate::{answered, child, client, completion, next};

/// Ends at the call of `die`, and at that of `noted` says what it was asked to keep.
const KEEPS: &str = r#"
    *'"die"'*) exit 0 ;;
    *'"noted"'*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"$count $noted\"}]}" ;;
    *'"resources/subscribe"'*) count=$((count + 1)); answer '{}' ;;
    *'"resources/unsubscribe"'*) count=$((count - 1)); answer '{}' ;;
    *'"logging/setLevel"'*'"debug"'*) noted=debug; answer '{}' ;;"#;

fn ask(client: &Client, method: &str, params: &str) {
    let (home, options) = (Scope::default(), CallOptions::default());
    let id = client.request(&home, "server", method, params, options);
    let ended = completion(client, id.unwrap());
    assert!(matches!(ended.kind, EventKind::Result(_)), "{ended:?}");
}

fn call(client: &Client, tool: &str) -> u64 {
    let (home, options) = (Scope::default(), CallOptions::default());
    client
        .call_tool(&home, "server", tool, "", options)
        .unwrap()
}

fn kept(client: &Client) -> String {
    answered(client, call(client, "noted"))
}

#[test]
fn a_new_home_session_is_asked_again_for_what_stands_and_the_host_is_told() {
    let quick = json!({"budget": {"floor_ms": 10, "backoff_ms": 10}});
    let client = client(&child::config(KEEPS, quick));
    ask(&client, "resources/subscribe", r#"{"uri": "a:1"}"#);
    ask(&client, "resources/subscribe", r#"{"uri": "a:2"}"#);
    ask(&client, "resources/unsubscribe", r#"{"uri": "a:2"}"#);
    ask(&client, "logging/setLevel", r#"{"level": "debug"}"#);
    assert_eq!(kept(&client), "1 debug");
    // Nobody calls: it comes back for the subscription.
    completion(&client, call(&client, "die"));
    let told = next(&client, |event| {
        matches!(event.kind, EventKind::ResourceUpdated(_))
    });
    assert_eq!(told.kind.text(), "a:1");
    assert_eq!(kept(&client), "1 debug");
}
