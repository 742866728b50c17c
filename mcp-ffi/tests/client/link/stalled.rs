use std::{thread, time::Duration};

use mcpconn::{CallOptions, Client, EventKind, Kind, Outcome, Scope};
use serde_json::{Value, json};

use super::{answered, asked_to_call, call, call_with, failed, hosted, message, next};

fn within(ms: u64) -> CallOptions {
    CallOptions {
        timeout: Some(Duration::from_millis(ms)),
        ..CallOptions::default()
    }
}

/// A client of the servers `server` and `other`.
fn client(ours: Value) -> Client {
    crate::client(&hosted(&["server", "other"], ours))
}

fn call_other(client: &Client, text: &str) -> u64 {
    let arguments = json!({"text": text}).to_string();
    client
        .call_tool(
            &Scope::default(),
            "other",
            "echo",
            &arguments,
            CallOptions::default(),
        )
        .unwrap()
}

/// The host takes no event until no call of `server` is in flight.
fn stall(client: &Client) {
    // Calls begin in order: when this one has, all before it have.
    call_other(client, "");
    while client.server_status("", "other").unwrap().calls == 0 {
        thread::yield_now();
    }
    while client.server_status("", "server").unwrap().calls > 0 {
        thread::yield_now();
    }
}

#[test]
fn what_a_stalled_host_has_not_taken_was_not_sent_and_never_is() {
    let client = client(json!({"budget": {"breaker_failures": 1000}}));
    let id = call(&client, "before");
    assert_eq!(answered(&client, id), "before");
    let late: Vec<u64> = (0..100)
        .map(|_| call_with(&client, "", "late", within(30)))
        .collect();
    stall(&client);
    let after = call(&client, "after");
    for id in late {
        let event = next(&client, |event| match &event.kind {
            EventKind::LinkSend(_, bytes) => {
                let sent = message(bytes);
                assert_ne!(sent["params"]["arguments"]["text"], "late");
                assert_ne!(sent["method"], "notifications/cancelled");
                false
            }
            _ => event.id == id,
        });
        let EventKind::Error(error) = event.kind else {
            panic!("{event:?}")
        };
        assert_eq!(
            (error.kind, error.outcome),
            (Kind::Timeout, Outcome::NotSent)
        );
    }
    assert_eq!(answered(&client, after), "after");
}

#[test]
fn what_the_host_has_taken_may_have_run() {
    let client = client(json!({}));
    let id = call_with(&client, "", "taken", within(50));
    let (link, bytes) = asked_to_call(&client);
    stall(&client);
    let error = failed(&client, id);
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Timeout, Outcome::Unknown)
    );
    // What became of it is the host's to say, and is heard too late.
    link.sent(bytes.len() as u64).unwrap();
    link.received((super::answer(&bytes).unwrap() + "\n").as_bytes())
        .unwrap();
    let id = call(&client, "the next");
    assert_eq!(answered(&client, id), "the next");
}

#[test]
fn what_has_not_gone_holds_up_the_callers_of_that_server_alone() {
    let client = client(json!({}));
    let large = call(&client, &"x".repeat(100_000));
    let (link, bytes) = asked_to_call(&client);
    // The window is full now.
    let held_up = call_with(&client, "", "held up", within(50));
    let other = call_other(&client, "free");
    assert_eq!(answered(&client, other), "free");
    let error = failed(&client, held_up);
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Timeout, Outcome::NotSent)
    );
    let waits = call(&client, "waits");
    link.sent(bytes.len() as u64).unwrap();
    assert_eq!(answered(&client, waits), "waits");
    link.received((super::answer(&bytes).unwrap() + "\n").as_bytes())
        .unwrap();
    assert_eq!(answered(&client, large).len(), 100_000);
}

#[test]
fn a_host_that_never_takes_what_it_is_asked_does_not_hold_up_the_end() {
    let client = client(json!({"connect_timeout_ms": 20}));
    let id = call_with(&client, "", "in vain", within(100));
    call_with(&client, "scope", "in vain", within(100));
    stall(&client);
    client.close(Some(Duration::from_secs(30)));
    // It is not asked to open what nobody wants any more, nor to close it.
    let mut completed = false;
    loop {
        match client.next_event().map(|event| (event.id, event.kind)) {
            Some((_, EventKind::LinkOpen(_) | EventKind::LinkClose(_))) => panic!("asked for"),
            Some((_, EventKind::Closed)) => break,
            Some((ended, EventKind::Error(_))) => completed |= ended == id,
            Some(_) => {}
            None => assert!(client.wait(Some(crate::LONG)).is_ok()),
        }
    }
    assert!(completed);
}
