//! Requests and notifications of any method.

use mcpconn::{CallOptions, Client, ClientOptions, EventKind, HostTakes, Kind, Outcome, Scope};
use serde_json::{Value, json};

use crate::{child, completion};

/// Gives what it was asked as the result, and counts how often it was told that the roots are others.
const ECHOES: &str = r#"
    *'"wrong/method"'*) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}" ;;
    *'"any/method"'*) answer "{\"asked\":$line,\"noted\":$noted,\"roots\":$count}" ;;
    *'"notifications/roots/list_changed"'*) count=$((count + 1)) ;;
    *'"notifications/any"'*) noted=$line ;;"#;

fn client() -> Client {
    let options = ClientOptions {
        takes: HostTakes {
            roots: true,
            ..HostTakes::default()
        },
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    client
        .configure("", &child::config(ECHOES, json!({})))
        .unwrap();
    client
}

fn ask(client: &Client, scope: &Scope, params: &str) -> Value {
    let id = client
        .request(
            scope,
            "server",
            "any/method",
            params,
            CallOptions::default(),
        )
        .unwrap();
    match completion(client, id).kind {
        EventKind::Result(answer) => serde_json::from_slice(&answer.json).unwrap(),
        other => panic!("the request was not answered: {other:?}"),
    }
}

#[test]
fn a_request_of_any_method_goes_and_comes_as_it_is() {
    let client = client();
    let result = ask(&client, &Scope::default(), r#"{"uri": "a:b"}"#);
    assert_eq!(result["asked"]["method"], "any/method");
    assert_eq!(result["asked"]["params"], json!({"uri": "a:b"}));
    let result = ask(&client, &Scope::new("", "chat"), "");
    assert_eq!(result["asked"].get("params"), None);
}

#[test]
fn an_error_that_the_server_answers_is_the_end_of_the_request() {
    let client = client();
    let (home, options) = (Scope::default(), CallOptions::default());
    let id = client.request(&home, "server", "wrong/method", "", options);
    let ended = completion(&client, id.unwrap());
    let EventKind::Error(error) = &ended.kind else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Server, Outcome::Answered)
    );
}

#[test]
fn what_is_the_clients_own_is_refused_by_its_name() {
    let client = client();
    let home = Scope::default();
    for method in ["", "initialize", "notifications/any"] {
        let options = CallOptions::default();
        let error = client
            .request(&home, "server", method, "", options)
            .unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains(method), "{error}");
    }
    for method in ["", "notifications/initialized", "notifications/cancelled"] {
        let error = client.notify(&home, "server", method, "").unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains(method), "{error}");
    }
}

#[test]
fn params_that_are_no_object_are_refused_at_once() {
    let client = client();
    let home = Scope::default();
    for params in ["[]", "1", "{"] {
        let options = CallOptions::default();
        let request = client.request(&home, "server", "any/method", params, options);
        let notification = client.notify(&home, "server", "notifications/any", params);
        for error in [request.unwrap_err(), notification.unwrap_err()] {
            assert_eq!(error.kind, Kind::Invalid);
            assert!(error.message.contains("the params"), "{error}");
        }
    }
}

#[test]
fn a_notification_goes_to_the_open_session_of_its_scope_and_opens_none() {
    let client = client();
    let (home, chat) = (Scope::default(), Scope::new("", "chat"));
    let notify = |scope, params| {
        client
            .notify(scope, "server", "notifications/any", params)
            .unwrap()
    };
    assert!(!notify(&home, ""));
    ask(&client, &home, "");
    assert!(!notify(&chat, ""));
    assert!(notify(&home, r#"{"n":1}"#));
    let noted = ask(&client, &home, "")["noted"].clone();
    assert_eq!(noted["params"], json!({"n": 1}));
    assert_eq!(ask(&client, &chat, "")["noted"], Value::Null);
}

#[test]
fn every_open_session_is_told_that_the_roots_are_others() {
    let client = client();
    let (home, chat) = (Scope::default(), Scope::new("", "chat"));
    ask(&client, &home, "");
    client.roots_changed();
    assert_eq!(ask(&client, &chat, "")["roots"], 0);
    client.roots_changed();
    assert_eq!(ask(&client, &home, "")["roots"], 2);
    assert_eq!(ask(&client, &chat, "")["roots"], 1);
    client.close_scope(&chat);
    client.roots_changed();
    assert_eq!(ask(&client, &chat, "")["roots"], 0);
}
