//! Servers that want to see credentials, and a host that gives them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc::{Receiver, channel},
};

use mcp_budget::{Reason, State};
use mcpconn::{
    CallOptions, Client, ClientOptions, CredentialsNeeded, Error, Event, EventKind, HostTakes,
    Kind, Outcome, Scope,
};
use serde_json::{Value, json};

use crate::{
    LONG, answered, client, completion, next,
    server::{Answer, Asked, Gate, Numbered, Server, arrival},
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

/// How often each of these calls ended, and how often the host was asked for credentials, up to the last of them.
fn ends_of(client: &Client, calls: &[u64]) -> (Vec<Event>, usize) {
    let (mut ended, mut needed) = (Vec::new(), 0);
    let mut see = |event: Event| {
        needed += usize::from(matches!(event.kind, EventKind::CredentialsNeeded(_)));
        if calls.contains(&event.id) && event.is_completion() {
            ended.push(event);
        }
        ended.len()
    };
    while see(next(client, |_| true)) < calls.len() {}
    while let Some(event) = client.next_event() {
        see(event);
    }
    ended.sort_unstable_by_key(|event| event.id);
    let ids: Vec<_> = ended.iter().map(|event| event.id).collect();
    assert_eq!(ids, calls, "each ends once");
    (ended, needed)
}

/// The calls end, each with its answer, and the host is not asked for credentials meanwhile.
fn each_is_answered(client: &Client, calls: &[u64]) {
    let (ended, needed) = ends_of(client, calls);
    for event in ended {
        assert!(matches!(event.kind, EventKind::Result(_)), "{event:?}");
    }
    assert_eq!(needed, 0);
}

const MANY: usize = 32;

/// Holds calls that show no good credentials until the gate opens, and then refuses them; counts those that it runs.
fn refusing_many(keeps_sessions: bool) -> (Server, Arc<Gate>, Receiver<()>, Arc<AtomicUsize>) {
    let (gate, arrivals) = Gate::new();
    let run = Arc::new(AtomicUsize::new(0));
    let server = Server::start({
        let (gate, run) = (gate.clone(), run.clone());
        move |asked| match (asked.method(), asked.authorization.as_str()) {
            ("tools/call", "Bearer good") => {
                run.fetch_add(1, Ordering::Relaxed);
                asked.text("answered")
            }
            ("tools/call", _) => {
                gate.pass();
                Answer::challenge(UNAUTHORIZED, CHALLENGE)
            }
            ("initialize", _) if keeps_sessions => asked.open("1"),
            ("initialize", _) => asked.open_without_session(),
            _ => asked.usual(),
        }
    });
    (server, gate, arrivals, run)
}

#[test]
fn for_many_calls_refused_together_the_host_is_asked_once_and_each_of_them_ends_once() {
    for (keeps_sessions, scope) in [(false, ""), (true, ""), (false, "chat"), (true, "chat")] {
        let (server, gate, arrivals, run) = refusing_many(keeps_sessions);
        let client = client(&server.config(quick()));
        let scope = Scope::new("", scope);
        let calls: Vec<_> = (0..MANY).map(|_| call(&client, &scope, "any")).collect();
        for _ in &calls {
            arrival(&arrivals);
        }
        gate.open();
        let (ended, needed) = ends_of(&client, &calls);
        for event in ended {
            let error = failure(event);
            assert_eq!(error.kind, Kind::Auth, "{error}");
            assert!(matches!(
                error.outcome,
                Outcome::Rejected | Outcome::NotSent
            ));
        }
        assert_eq!(needed, 1);
        client
            .set_header("", "server", "authorization", "Bearer good")
            .unwrap();
        let calls: Vec<_> = (0..MANY).map(|_| call(&client, &scope, "any")).collect();
        each_is_answered(&client, &calls);
        assert_eq!(run.load(Ordering::Relaxed), MANY);
    }
}

#[test]
fn many_calls_that_are_refused_after_the_host_gave_others_are_each_run_once() {
    for (keeps_sessions, scope) in [(false, ""), (true, ""), (false, "chat"), (true, "chat")] {
        let (server, gate, arrivals, run) = refusing_many(keeps_sessions);
        let client = client(&server.config(quick()));
        let scope = Scope::new("", scope);
        let calls: Vec<_> = (0..MANY).map(|_| call(&client, &scope, "any")).collect();
        for _ in &calls {
            arrival(&arrivals);
        }
        client
            .set_header("", "server", "authorization", "Bearer good")
            .unwrap();
        gate.open();
        each_is_answered(&client, &calls);
        assert_eq!(run.load(Ordering::Relaxed), MANY);
    }
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

/// Lets everything in but the stream on which it speaks on its own, which it gives the first session `first` times and
/// then, as all others', to good credentials alone; there it says that its tools changed. Also the sessions that asked
/// for one.
fn giving_no_stream(first: usize) -> (Server, Receiver<(String, String)>) {
    let (ask, asked_for) = channel();
    let (sessions, given) = (Numbered::default(), AtomicUsize::new(0));
    let held = Mutex::new(Vec::new());
    let server = Server::start(move |asked| match asked.method() {
        "initialize" => sessions.open(&asked),
        "tools/call" => asked.text("answered"),
        _ if asked.http == "GET" => {
            let _ = ask.send((asked.session.clone(), asked.authorization.clone()));
            let is_given = given.fetch_add(1, Ordering::Relaxed) < first;
            if !is_given && asked.authorization != "Bearer good" {
                return Answer::challenge(UNAUTHORIZED, CHALLENGE);
            }
            let (say, said) = channel();
            let changed = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated"}"#;
            say.send(format!("retry: 1\ndata: {changed}\n\n")).unwrap();
            if asked.authorization == "Bearer good" {
                held.lock().unwrap().push(say);
            }
            Answer::stream(said)
        }
        _ => asked.usual(),
    });
    (server, asked_for)
}

#[test]
fn a_stream_that_is_refused_alone_costs_no_call_and_the_host_is_asked_once() {
    let (server, asked_for) = giving_no_stream(0);
    // A host that is asked things: its scoped sessions listen too.
    let client = Client::new(ClientOptions {
        takes: HostTakes {
            sampling: true,
            ..HostTakes::default()
        },
        ..ClientOptions::default()
    })
    .unwrap();
    client.configure("", &server.config(quick())).unwrap();
    let (home, chat) = (Scope::default(), Scope::new("", "chat"));
    let first = call(&client, &home, "any");
    let (mut was_asked, mut was_answered) = (false, false);
    next(&client, |event| {
        was_asked |= matches!(event.kind, EventKind::CredentialsNeeded(_));
        was_answered |= event.id == first && matches!(event.kind, EventKind::Result(_));
        was_asked && was_answered
    });
    // Also calls that are let in do not make it ask again, nor another session that is refused its stream.
    for scope in [&home, &home, &chat, &home, &chat] {
        let again = call(&client, scope, "any");
        next(&client, |event| {
            let asked = matches!(event.kind, EventKind::CredentialsNeeded(_));
            assert!(!asked, "asked again");
            event.id == again && matches!(event.kind, EventKind::Result(_))
        });
    }
    let asked = |authorization: &str| {
        let asked = ["1", "2"].map(|session| (session.to_owned(), authorization.to_owned()));
        let mut came = [(); 2].map(|()| asked_for.recv_timeout(LONG).unwrap());
        came.sort();
        assert_eq!(came, asked);
    };
    asked("");
    client
        .set_header("", "server", "authorization", "Bearer good")
        .unwrap();
    for _ in 0..2 {
        next(&client, |event| {
            assert!(!matches!(event.kind, EventKind::CredentialsNeeded(_)));
            matches!(event.kind, EventKind::ResourceUpdated(_))
        });
    }
    asked("Bearer good");
    assert!(asked_for.try_recv().is_err());
    let status = client.server_status("", "server").unwrap();
    assert_eq!((status.state, status.generation), (State::Proven, 1));
}

#[test]
fn a_stream_that_was_given_and_is_refused_is_first_taken_for_the_loss_of_the_session() {
    let (server, asked_for) = giving_no_stream(1);
    let client = client(&server.config(quick()));
    let home = Scope::default();
    assert_eq!(answered(&client, call(&client, &home, "any")), "answered");
    next(
        &client,
        |event| matches!(&event.kind, EventKind::ServerState(status) if status.state == State::Idle),
    );
    let again = call(&client, &home, "any");
    let (mut was_asked, mut was_answered) = (false, false);
    next(&client, |event| {
        was_asked |= matches!(event.kind, EventKind::CredentialsNeeded(_));
        was_answered |= event.id == again && matches!(event.kind, EventKind::Result(_));
        was_asked && was_answered
    });
    let sessions = asked_for.try_iter().map(|(session, _)| session);
    assert_eq!(sessions.collect::<Vec<_>>(), ["1", "1", "2"]);
}
