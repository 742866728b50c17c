//! Lists of a server, paged to the end.

use mcpconn::{Answer, CallOptions, Client, EventKind, ListKind, Scope};
use serde_json::{Value, json};

use crate::{child, client, completion};

/// Two pages of resources, one of them with an item that is none; templates in one page; a page of prompts that is
/// none; its tools; and no such method else.
const LISTS: &str = r#"
    *'"resources/list"'*'"cursor":"2"'*) answer '{"resources":[{"uri":"a:3","name":"three"}]}' ;;
    *'"resources/list"'*) answer '{"resources":[{"uri":"a:1","name":"one"},{"name":"none"}],"nextCursor":"2"}' ;;
    *'"prompts/list"'*) answer '{"prompts":1}' ;;
    *'"resources/templates/list"'*)
        say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}" ;;"#;

fn list(client: &Client, scope: &Scope, kind: ListKind) -> EventKind {
    let id = client
        .list(scope, "server", kind, CallOptions::default())
        .unwrap();
    completion(client, id).kind
}

fn listed(client: &Client, scope: &Scope, kind: ListKind) -> Answer {
    match list(client, scope, kind) {
        EventKind::Result(answer) => answer,
        other => panic!("it was not listed: {other:?}"),
    }
}

#[test]
fn a_list_is_asked_for_to_its_end_and_a_malformed_item_is_left_out_alone() {
    let client = client(&child::config(LISTS, json!({})));
    for scope in [Scope::default(), Scope::new("", "chat")] {
        let answer = listed(&client, &scope, ListKind::Resources);
        let items: Value = serde_json::from_slice(&answer.json).unwrap();
        assert_eq!(
            items,
            json!([{"uri": "a:1", "name": "one"}, {"uri": "a:3", "name": "three"}])
        );
        assert_eq!(answer.text(), "a:1: one\na:3: three");
    }
}

#[test]
fn a_server_that_does_not_know_a_list_has_none() {
    let client = client(&child::config(LISTS, json!({})));
    let answer = listed(&client, &Scope::default(), ListKind::ResourceTemplates);
    assert_eq!(answer.json, "[]");
}

#[test]
fn a_page_that_is_no_list_is_an_error_that_says_so() {
    let client = client(&child::config(LISTS, json!({})));
    let ended = list(&client, &Scope::default(), ListKind::Prompts);
    let EventKind::Error(error) = ended else {
        panic!("{ended:?}")
    };
    assert!(error.message.contains("prompts/list"), "{error}");
}
