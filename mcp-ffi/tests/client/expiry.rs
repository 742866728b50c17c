//! A session that the server no longer knows is replaced under its callers' feet.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

use mcpconn::{CallOptions, Client, ClientOptions, Event, EventKind, HostTakes, Scope, Withdrawn};
use serde_json::json;

use crate::{
    answered, begin, client, completion, next,
    server::{Answer, Gate, Numbered, Server, arrival},
};

/// The first session answers the call of `held` when the gate opens, and expires with any other call.
fn a_call_in_flight_keeps_its_answer_when_another_finds_the_session_expired(scope: &Scope) {
    let (gate, arrivals) = Gate::new();
    let sessions = Numbered::default();
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => sessions.open(&asked),
            ("tools/call", "held") => {
                gate.pass();
                asked.text(&format!("held on {}", asked.session))
            }
            ("tools/call", _) if asked.session == "1" => Answer::expired(),
            ("tools/call", _) => asked.text(&format!("answered on {}", asked.session)),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let call = |tool| {
        client
            .call_tool(scope, "server", tool, "", CallOptions::default())
            .unwrap()
    };
    let held = call("held");
    arrival(&arrivals);
    let replaced = completion(&client, call("other"));
    let EventKind::Result(answer) = replaced.kind else {
        panic!("the call was not answered: {replaced:?}");
    };
    assert_eq!(answer.text(), "answered on 2");
    assert!(answer.replaced);
    gate.open();
    assert_eq!(answered(&client, held), "held on 1");
}

#[test]
fn a_call_in_flight_keeps_its_answer_when_another_finds_the_home_session_expired() {
    a_call_in_flight_keeps_its_answer_when_another_finds_the_session_expired(&Scope::default());
}

#[test]
fn a_call_in_flight_keeps_its_answer_when_another_finds_the_scoped_session_expired() {
    a_call_in_flight_keeps_its_answer_when_another_finds_the_session_expired(&Scope::new("", "s"));
}

#[test]
fn closing_the_client_ends_a_call_that_is_left_on_an_expired_session() {
    let (gate, arrivals) = Gate::new();
    let server = Server::start({
        let gate = gate.clone();
        let sessions = Numbered::default();
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => sessions.open(&asked),
            ("tools/call", "held") => {
                gate.pass();
                asked.text("held")
            }
            ("tools/call", _) if asked.session == "1" => Answer::expired(),
            ("tools/call", _) => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let client = client(&server.config(json!({"budget": {"floor_ms": 1, "backoff_ms": 1}})));
    let call = |tool| {
        client
            .call_tool(
                &Scope::default(),
                "server",
                tool,
                "",
                CallOptions::default(),
            )
            .unwrap()
    };
    let held = call("held");
    arrival(&arrivals);
    assert_eq!(answered(&client, call("other")), "answered");
    client.close(None);
    let ended = completion(&client, held);
    assert!(
        matches!(&ended.kind, EventKind::Error(error) if error.kind == mcpconn::Kind::Closed),
        "{ended:?}"
    );
    gate.open();
}

/// Expires the first session at the first call of `any`, while a request of the server is open at the host: it came on
/// a stream that the server speaks on by itself, or on that of the call of `asks`, which never ends.
fn a_request_of_an_expired_session_is_withdrawn_once(method: &'static str, on_its_own: bool) {
    let (say, said) = mpsc::channel();
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": {}});
    say.send(format!("data: {question}\n\n")).unwrap();
    let said = Mutex::new(Some(said));
    let answers = Arc::new(AtomicU32::new(0));
    let server = Server::start({
        let (sessions, answers) = (Numbered::default(), answers.clone());
        move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => sessions.open(&asked),
            ("tools/call", "asks") => Answer::stream(said.lock().unwrap().take().unwrap()),
            ("tools/call", _) if asked.session == "1" => Answer::expired(),
            ("tools/call", _) => asked.text(&format!("answered on {}", asked.session)),
            _ if asked.http == "GET" && asked.session == "1" && on_its_own => {
                Answer::stream(said.lock().unwrap().take().unwrap())
            }
            ("", _) if asked.message["id"] == "q" => {
                answers.fetch_add(1, Ordering::Relaxed);
                Answer::expired()
            }
            _ => asked.usual(),
        }
    });
    let client = Client::new(ClientOptions {
        takes: HostTakes {
            elicitation_form: true,
            sampling: true,
            ..HostTakes::default()
        },
        ..ClientOptions::default()
    })
    .unwrap();
    let ours = json!({"eager": true, "budget": {"floor_ms": 1, "backoff_ms": 1}});
    client.configure("", &server.config(ours)).unwrap();
    let held = (!on_its_own).then(|| begin(&client, "", "asks"));
    let asked = next(&client, |event| {
        matches!(event.kind, EventKind::Request { .. })
    });
    let call = begin(&client, "", "any");
    let withdrawn = Cell::new(0);
    let (mut is_answered, mut ended) = (false, 0);
    let mut see = |event: &Event| match &event.kind {
        EventKind::RequestWithdrawn(why) => {
            assert_eq!((event.id, *why), (asked.id, Withdrawn::Ended));
            withdrawn.set(withdrawn.get() + 1);
        }
        EventKind::Result(answer) if event.id == call => {
            assert_eq!(answer.text(), "answered on 2");
            is_answered = true;
        }
        _ if Some(event.id) == held && event.is_completion() => ended += 1,
        _ => {}
    };
    next(&client, |event| {
        see(event);
        event.id == call
    });
    if let Some(held) = held {
        // The call is still waited for, and so is the host's word about it.
        client.cancel(held);
    }
    while withdrawn.get() == 0 {
        next(&client, |event| {
            see(event);
            true
        });
    }
    // Too late, and harmless.
    assert!(!client.answer(asked.id, "{}").unwrap());
    assert!(!client.refuse(asked.id, -1, "no"));
    assert_eq!(
        answered(&client, begin(&client, "", "any")),
        "answered on 2"
    );
    client.close(None);
    next(&client, |event| {
        see(event);
        matches!(event.kind, EventKind::Closed)
    });
    assert_eq!((withdrawn.get(), is_answered), (1, true));
    assert_eq!(ended, u32::from(!on_its_own));
    assert_eq!(answers.load(Ordering::Relaxed), 0);
    drop(say);
}

#[test]
fn what_an_expired_session_asked_on_its_own_is_withdrawn_once_and_answered_late_in_vain() {
    for method in ["elicitation/create", "sampling/createMessage"] {
        a_request_of_an_expired_session_is_withdrawn_once(method, true);
    }
}

#[test]
fn what_an_expired_session_asked_for_a_call_is_withdrawn_once_with_the_call() {
    for method in ["elicitation/create", "sampling/createMessage"] {
        a_request_of_an_expired_session_is_withdrawn_once(method, false);
    }
}
