//! What a configuration and a call hold that is nobody else's business: it is in no log, error, event or Debug text,
//! whatever the server does with it.

use std::{
    fmt::Write,
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, OnceLock},
};

use mcpconn::{CallOptions, Client, EventKind, Scope};
use serde_json::{Value, json};
use tracing::{Metadata, Subscriber, field, span};

use crate::{
    LONG, client, next,
    server::{Answer, Server},
};

/// Everything that is logged in this process, by whichever thread, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn of_this_process() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            tracing::subscriber::set_global_default(log.clone()).expect("there is no other");
            log
        })
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl field::Visit for Log {
    fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.0.lock().unwrap(), "{field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What other crates log of their own they answer for.
        metadata.target().starts_with("mcp")
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut self.clone());
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Words that are given as secrets, each in a place of its own.
const SECRETS: [&str; 9] = [
    "headersecret1",
    "usersecret22",
    "passwordsecret3",
    "pathsecret4",
    "querysecret5",
    "envsecret66",
    "flagsecret7",
    "bodysecret8",
    "givensecret9",
];

fn assert_discreet(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} has {secret}:\n{text}");
    }
}

/// Calls with secret arguments, and reads everything that is said until the client is closed.
fn is_discreet(config: &str) {
    let log = Log::of_this_process();
    let client = client(config);
    // Of a server that is a child process none is taken.
    let _ = client.set_header("", "server", "x-given", "givensecret9");
    for scope in [Scope::default(), Scope::new("", "chat")] {
        let arguments = json!({"text": "bodysecret8"}).to_string();
        let options = CallOptions {
            timeout: Some(LONG),
            ..CallOptions::default()
        };
        let call = client.call_tool(&scope, "server", "any", &arguments, options);
        read_until(&client, |event| {
            event.id == *call.as_ref().unwrap() && event.is_completion()
        });
    }
    let status = client.server_status("", "server").unwrap();
    assert_discreet("the status", &format!("{status:?}"));
    assert_discreet("the tools", &format!("{:?}", client.tools("").unwrap()));
    assert_discreet("the client", &format!("{client:?}"));
    client.close(None);
    read_until(&client, |event| matches!(event.kind, EventKind::Closed));
    let logged = log.text();
    assert!(!logged.is_empty());
    assert_discreet("the log", &logged);
}

fn read_until(client: &Client, last: impl Fn(&mcpconn::Event) -> bool) {
    loop {
        let event = next(client, |_| true);
        assert_discreet("an event", &format!("{event:?}"));
        match &event.kind {
            EventKind::Error(error) => assert_discreet("an error", &error.to_string()),
            EventKind::ServerState(status) => assert_discreet("a state", &status.text),
            EventKind::CredentialsNeeded(needed) => {
                assert_discreet("a demand", needed.text());
                assert_discreet("a demand", &String::from_utf8_lossy(needed.json()));
            }
            _ => {}
        }
        if last(&event) {
            return;
        }
    }
}

/// A remote server with secrets wherever they can be.
fn remote(authority: &str) -> Value {
    json!({
        "url": format!("http://usersecret22:passwordsecret3@{authority}/pathsecret4?key=querysecret5"),
        "headers": {"x-key": "headersecret1"},
        "mcpconn": {"budget": {"floor_ms": 1, "backoff_ms": 1, "max_initial_retries": 1}},
    })
}

#[test]
fn of_a_server_that_cannot_be_reached() {
    // Taken and given back: nobody listens there but by a chance that changes nothing.
    let authority = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    drop(TcpStream::connect(authority));
    is_discreet(&json!({"server": remote(&authority.to_string())}).to_string());
}

#[test]
fn of_a_server_that_repeats_all_of_it() {
    for status in [
        "401 Unauthorized",
        "403 Forbidden",
        "500 Oh",
        "404 Not Found",
        "200 OK",
    ] {
        for serves in [false, true] {
            let server = Server::start(move |asked| {
                if serves && asked.method() == "initialize" {
                    return asked.open("1");
                }
                // Of what a call said its answer may speak.
                let all = "headersecret1 usersecret22 passwordsecret3 pathsecret4 querysecret5 givensecret9";
                let challenge =
                    r#"Bearer error_description="headersecret1 passwordsecret3 givensecret9""#;
                let error = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": 1, "message": all}});
                Answer::challenge(status, challenge).with_body(error)
            });
            let authority = server.authority();
            is_discreet(&json!({"server": remote(&authority)}).to_string());
        }
    }
}

#[test]
fn of_a_program_that_says_them_and_ends() {
    let config = json!({"server": {
        "command": "sh",
        "args": ["-c", "echo \"no $TOKEN and no $2\" >&2; echo \"$TOKEN\"; exit 1", "sh", "--token", "flagsecret7"],
        "env": {"TOKEN": "envsecret66"},
        "mcpconn": {"budget": {"floor_ms": 1, "backoff_ms": 1, "max_initial_retries": 1}},
    }});
    is_discreet(&config.to_string());
}
