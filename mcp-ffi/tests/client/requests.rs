//! What servers ask of the host.

use std::{thread, time::Duration};

use mcpconn::{
    CallOptions, Client, ClientOptions, Event, EventKind, HostTakes, Kind, Scope,
    ServerRequestKind, Withdrawn,
};
use serde_json::{Value, json};

use crate::{child, completion, next};

/// Asks for the roots at each call, and gives the host's answer as the call's result.
const ASKS: &str = r#"
    *'"tools/call"'*) call=$id; say '{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"n":1}}' ;;
    *'"id":"q"'*) id=$call; answer "{\"content\":[],\"opened\":$opened,\"heard\":$line}" ;;"#;

/// Asks, takes the question back and answers the call, and the one that was held until then.
const CANCELS: &str = r#"
    *'"held"'*) held=$id ;;
    *'"tools/call"'*) say '{"jsonrpc":"2.0","id":7,"method":"roots/list"}'
        say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
        answer '{"content":[]}'; id=$held; answer '{"content":[]}' ;;"#;

/// Asks, and takes the question back at the next call.
const CANCELS_LATER: &str = r#"
    *'"later"'*) say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
        answer '{"content":[]}' ;;
    *'"tools/call"'*) say '{"jsonrpc":"2.0","id":7,"method":"roots/list"}'
        answer '{"content":[]}' ;;"#;

/// Asks 65 times, and gives what is said to the last as the call's result.
const ASKS_OFTEN: &str = r#"
    *'"tools/call"'*) call=$id; i=1
        while [ $i -le 65 ]; do say "{\"jsonrpc\":\"2.0\",\"id\":\"q$i\",\"method\":\"roots/list\"}"; i=$((i + 1)); done ;;
    *'"id":"q65"'*) id=$call; answer "{\"content\":[],\"heard\":$line}" ;;"#;

fn roots() -> ClientOptions {
    ClientOptions {
        takes: HostTakes {
            roots: true,
            ..HostTakes::default()
        },
        ..ClientOptions::default()
    }
}

fn client(options: ClientOptions, branches: &str) -> Client {
    let client = Client::new(options).unwrap();
    client
        .configure("", &child::config(branches, json!({})))
        .unwrap();
    client
}

fn call_in(client: &Client, scope: &Scope, tool: &str) -> u64 {
    client
        .call_tool(scope, "server", tool, "", CallOptions::default())
        .unwrap()
}

fn call(client: &Client) -> u64 {
    call_in(client, &Scope::default(), "any")
}

fn request(client: &Client) -> Event {
    next(client, |event| {
        matches!(event.kind, EventKind::Request { .. })
    })
}

fn result(client: &Client, call: u64) -> Value {
    match completion(client, call).kind {
        EventKind::Result(answer) => serde_json::from_slice(&answer.json).unwrap(),
        other => panic!("the call was not answered: {other:?}"),
    }
}

#[test]
fn a_server_is_answered_once_by_the_host() {
    let client = client(roots(), ASKS);
    let call = call(&client);
    let asked = request(&client);
    let EventKind::Request { kind, params } = &asked.kind else {
        unreachable!("it was asked for")
    };
    assert_eq!(*kind, ServerRequestKind::Roots);
    assert_eq!(params, &r#"{"n":1}"#);
    assert_eq!((&*asked.domain, &*asked.server), ("deployment", "server"));
    assert_eq!(asked.scope, None);
    assert!(client.answer(asked.id, r#"{"roots": []}"#).unwrap());
    assert!(!client.answer(asked.id, r#"{"roots": []}"#).unwrap());
    assert!(!client.refuse(asked.id, -1, "no"));
    let result = result(&client, call);
    assert_eq!(result["heard"]["result"], json!({"roots": []}));
    assert_eq!(
        result["opened"]["params"]["capabilities"],
        json!({"roots": {"listChanged": true}})
    );
}

#[test]
fn a_server_is_answered_from_another_thread_while_one_waits_for_events() {
    let client = client(roots(), ASKS);
    let call = call(&client);
    let asked = request(&client).id;
    thread::scope(|scope| {
        scope.spawn(|| assert!(client.answer(asked, r#"{"roots": []}"#).unwrap()));
        result(&client, call);
    });
}

#[test]
fn a_server_that_is_refused_hears_code_and_message() {
    let client = client(roots(), ASKS);
    let call = call(&client);
    assert!(client.refuse(request(&client).id, -1, "the user said \"no\""));
    assert_eq!(
        result(&client, call)["heard"]["error"],
        json!({"code": -1, "message": "the user said \"no\""})
    );
}

#[test]
fn what_the_host_does_not_take_is_neither_advertised_nor_asked() {
    let client = client(ClientOptions::default(), ASKS);
    let call = call(&client);
    let ended = next(&client, |event| {
        assert!(!matches!(event.kind, EventKind::Request { .. }));
        event.id == call && event.is_completion()
    });
    let EventKind::Result(answer) = ended.kind else {
        panic!("{ended:?}")
    };
    let result: Value = serde_json::from_slice(&answer.json).unwrap();
    assert_eq!(result["heard"]["error"]["code"], -32601);
    assert_eq!(result["opened"]["params"]["capabilities"], json!({}));
}

#[test]
fn an_answer_that_is_no_object_leaves_the_request_open() {
    let client = client(roots(), ASKS);
    let call = call(&client);
    let asked = request(&client).id;
    for bad in ["", "[]", "{", "{} {}", "null"] {
        let error = client.answer(asked, bad).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains("JSON object"), "{error}");
    }
    assert!(client.answer(asked, "{}").unwrap());
    result(&client, call);
}

#[test]
fn the_id_of_a_call_answers_no_request() {
    let client = client(roots(), ASKS);
    let call = call(&client);
    let asked = request(&client).id;
    assert!(!client.answer(call, "{}").unwrap());
    assert!(!client.cancel(asked));
    assert!(client.answer(asked, "{}").unwrap());
    result(&client, call);
}

#[test]
fn a_request_that_the_server_takes_back_is_withdrawn_and_cannot_be_answered() {
    let client = client(roots(), CANCELS_LATER);
    call(&client);
    let asked = request(&client).id;
    call_in(&client, &Scope::default(), "later");
    let withdrawn = next(&client, |event| event.id == asked);
    assert!(
        matches!(
            withdrawn.kind,
            EventKind::RequestWithdrawn(Withdrawn::Canceled)
        ),
        "{withdrawn:?}"
    );
    assert!(!client.answer(asked, "{}").unwrap());
}

#[test]
fn a_request_that_is_withdrawn_before_the_host_took_it_is_never_heard_of() {
    let client = client(roots(), CANCELS);
    let calls_reach = |number| {
        while client.server_status("", "server").unwrap().calls != number {
            thread::yield_now();
        }
    };
    call_in(&client, &Scope::default(), "held");
    calls_reach(1);
    let call = call(&client);
    // Nothing is taken before all of it was said.
    calls_reach(0);
    next(&client, |event| {
        let asked = matches!(
            event.kind,
            EventKind::Request { .. } | EventKind::RequestWithdrawn(_)
        );
        assert!(!asked, "{event:?}");
        event.id == call && event.is_completion()
    });
}

#[test]
fn a_request_that_is_not_answered_in_time_is_refused_and_withdrawn() {
    let options = ClientOptions {
        answer_within: Duration::from_millis(20),
        ..roots()
    };
    let client = client(options, ASKS);
    let call = call(&client);
    let asked = request(&client).id;
    let withdrawn = next(&client, |event| event.id == asked);
    assert!(
        matches!(
            withdrawn.kind,
            EventKind::RequestWithdrawn(Withdrawn::Deadline)
        ),
        "{withdrawn:?}"
    );
    assert_eq!(result(&client, call)["heard"]["error"]["code"], -32001);
}

#[test]
fn a_client_that_closes_withdraws_what_is_open() {
    let client = client(roots(), ASKS);
    let call = call(&client);
    let asked = request(&client).id;
    client.close(None);
    let (mut withdrawn, mut ended) = (0, 0);
    next(&client, |event| {
        match &event.kind {
            EventKind::RequestWithdrawn(why) if event.id == asked => {
                assert_eq!(*why, Withdrawn::Ended);
                withdrawn += 1;
            }
            EventKind::Error(_) if event.id == call => ended += 1,
            _ => {}
        }
        matches!(event.kind, EventKind::Closed)
    });
    assert_eq!((withdrawn, ended), (1, 1));
    assert!(!client.answer(asked, "{}").unwrap());
}

#[test]
fn a_request_on_a_scoped_session_bears_the_scope() {
    let client = client(roots(), ASKS);
    let call = call_in(&client, &Scope::new("", "chat"), "any");
    let asked = request(&client);
    assert_eq!(asked.scope.as_deref(), Some("chat"));
    client.close_scope(&Scope::new("", "chat"));
    let (mut withdrawn, mut ended) = (false, false);
    next(&client, |event| {
        if let EventKind::RequestWithdrawn(why) = event.kind {
            assert_eq!((event.id, why), (asked.id, Withdrawn::Ended));
            assert_eq!(event.scope.as_deref(), Some("chat"));
            withdrawn = true;
        }
        ended |= event.id == call && event.is_completion();
        withdrawn && ended
    });
}

#[test]
fn of_65_open_requests_the_last_is_refused() {
    let client = client(roots(), ASKS_OFTEN);
    let call = call(&client);
    let mut asked = 0;
    let ended = next(&client, |event| {
        asked += u32::from(matches!(event.kind, EventKind::Request { .. }));
        event.id == call && event.is_completion()
    });
    let EventKind::Result(answer) = ended.kind else {
        panic!("{ended:?}")
    };
    let result: Value = serde_json::from_slice(&answer.json).unwrap();
    assert_eq!(result["heard"]["error"]["code"], -32000);
    assert_eq!(asked, 64);
}

#[test]
fn a_server_is_told_the_name_and_version_of_the_program() {
    let told = |options| {
        let client = client(options, ASKS);
        // Refused at once: what it asks is not taken.
        let call = call(&client);
        result(&client, call)["opened"]["params"]["clientInfo"].clone()
    };
    let options = ClientOptions {
        client_name: "the \"agent\"".into(),
        client_version: "3".into(),
        ..ClientOptions::default()
    };
    assert_eq!(
        told(options),
        json!({"name": "the \"agent\"", "version": "3"})
    );
    assert_eq!(told(ClientOptions::default())["name"], "mcpconn");
}
