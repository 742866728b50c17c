use std::thread;

use mcp_budget::State;
use mcpconn::{CallOptions, EventKind, Kind, Link, Outcome, Scope};
use serde_json::json;

use super::{
    answer, answered, asked_for, asked_to_call, brisk, call, call_with, client, failed, hosted,
    next, refused_as,
};

#[test]
fn a_link_that_opens_late_serves_the_call_that_waited_for_it() {
    let client = crate::client(&hosted(&["server", "other"], json!({})));
    let id = call(&client, "patient");
    let late = asked_for(&client);
    let arguments = r#"{"text": "at once"}"#;
    let options = CallOptions::default();
    let other = client.call_tool(&Scope::default(), "other", "echo", arguments, options);
    assert_eq!(answered(&client, other.unwrap()), "at once");
    let opener = thread::spawn(move || {
        late.opened().unwrap();
        // Said again, it changes nothing.
        late.opened().unwrap();
    });
    assert_eq!(answered(&client, id), "patient");
    opener.join().unwrap();
}

#[test]
fn a_link_that_never_opens_fails_the_attempt_and_is_asked_to_close() {
    let client = client(json!({
        "connect_timeout_ms": 50,
        "budget": {"max_initial_retries": 0},
    }));
    let id = call(&client, "in vain");
    let link = asked_for(&client);
    let close = next(&client, |event| {
        matches!(event.kind, EventKind::LinkClose(_))
    });
    super::serve(&close);
    let error = failed(&client, id);
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Timeout, Outcome::NotSent)
    );
    assert!(
        error.message.contains("has not said that the link is open"),
        "{error}"
    );
    // Too late.
    refused_as(link.opened(), Kind::Closed);
    refused_as(link.received(b"x"), Kind::Closed);
}

#[test]
fn a_link_that_cannot_be_opened_fails_the_call_with_the_words_of_the_host() {
    let client = client(json!({}));
    let id = call(&client, "in vain");
    let link = asked_for(&client);
    link.closed(Some(Kind::Config), "no such port: ttyS9")
        .unwrap();
    let error = failed(&client, id);
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Config, Outcome::NotSent)
    );
    assert!(error.message.contains("no such port: ttyS9"), "{error}");
    // What cannot come about is not tried again and again.
    let status = client.server_status("", "server").unwrap();
    assert_eq!((status.state, status.attempt), (State::Parked, 1));
}

#[test]
fn a_fault_of_this_side_is_not_held_against_the_server() {
    let client = client(json!({
        "budget": {"floor_ms": 1, "backoff_ms": 1, "backoff_max_ms": 1},
    }));
    let id = call(&client, "in vain");
    let fail = |link: Link| {
        link.closed(Some(Kind::Local), "no descriptor is free")
            .unwrap();
    };
    fail(asked_for(&client));
    assert_eq!(failed(&client, id).kind, Kind::Local);
    // More attempts than would park it.
    for _ in 0..5 {
        fail(asked_for(&client));
    }
    asked_for(&client).opened().unwrap();
    assert_eq!(client.server_status("", "server").unwrap().charges, 0);
    let id = call(&client, "at last");
    assert_eq!(answered(&client, id), "at last");
}

#[test]
fn an_answer_may_come_cut_at_any_point() {
    let client = client(json!({}));
    let mut at = 0;
    loop {
        let id = call(&client, "a \u{20ac}");
        let (link, bytes) = asked_to_call(&client);
        link.sent(bytes.len() as u64).unwrap();
        let answer = answer(&bytes).unwrap() + "\n";
        let (first, second) = answer.as_bytes().split_at(at.min(answer.len()));
        link.received(first).unwrap();
        link.received(second).unwrap();
        assert_eq!(answered(&client, id), "a \u{20ac}");
        if at > answer.len() {
            return;
        }
        at += 1;
    }
}

#[test]
fn two_answers_may_come_at_once() {
    let client = client(json!({}));
    let (first, second) = (call(&client, "first"), call(&client, "second"));
    let (link, one) = asked_to_call(&client);
    let (_, other) = asked_to_call(&client);
    link.sent((one.len() + other.len()) as u64).unwrap();
    let both = format!("{}\n{}\n", answer(&one).unwrap(), answer(&other).unwrap());
    link.received(both.as_bytes()).unwrap();
    assert_eq!(answered(&client, first), "first");
    assert_eq!(answered(&client, second), "second");
}

#[test]
fn what_is_no_message_is_skipped() {
    let client = client(json!({}));
    let id = call(&client, "heard");
    let (link, bytes) = asked_to_call(&client);
    link.sent(bytes.len() as u64).unwrap();
    link.received(b"\xff\xfe\0\n\n{\"jsonrpc\"\nready.\r\n[]\n")
        .unwrap();
    let answer = answer(&bytes).unwrap() + "\n";
    link.received(answer.as_bytes()).unwrap();
    assert_eq!(answered(&client, id), "heard");
}

#[test]
fn an_answer_over_the_limit_fails_its_call_alone() {
    for framing in ["line", "message"] {
        let client = client(json!({"framing": framing}));
        let (long, short) = (call(&client, "long"), call(&client, "short"));
        let (link, asked) = asked_to_call(&client);
        link.sent(asked.len() as u64).unwrap();
        let id = &super::message(&asked)["id"];
        let text = "x".repeat(65 << 20);
        let end = if framing == "line" { "\n" } else { "" };
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}{end}"#);
        link.received(answer.as_bytes()).unwrap();
        let error = failed(&client, long);
        assert_eq!(
            (error.kind, error.outcome),
            (Kind::Protocol, Outcome::Answered)
        );
        assert_eq!(answered(&client, short), "short");
    }
}

#[test]
fn a_link_that_breaks_after_the_bytes_have_gone_leaves_the_call_unknown() {
    let client = client(brisk());
    let id = call(&client, "perhaps");
    let (link, bytes) = asked_to_call(&client);
    link.sent(bytes.len() as u64).unwrap();
    link.closed(Some(Kind::Transport), "reset by peer").unwrap();
    let error = failed(&client, id);
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Transport, Outcome::Unknown)
    );
    assert!(
        error.message.contains("the link broke: reset by peer"),
        "{error}"
    );
    let id = call(&client, "over the next");
    assert_eq!(answered(&client, id), "over the next");
}

#[test]
fn a_call_whose_bytes_had_not_all_gone_when_the_link_broke_goes_over_the_next() {
    let client = client(brisk());
    let id = call(&client, "once");
    let (link, bytes) = asked_to_call(&client);
    link.sent(bytes.len() as u64 - 1).unwrap();
    link.closed(Some(Kind::Transport), "").unwrap();
    let (next, again) = asked_to_call(&client);
    assert!(next.generation() > link.generation());
    next.sent(again.len() as u64).unwrap();
    next.received((answer(&again).unwrap() + "\n").as_bytes())
        .unwrap();
    let EventKind::Result(answer) = super::completion(&client, id).kind else {
        panic!("it was safe to send again")
    };
    assert!(answer.replaced);
}

#[test]
fn late_words_of_an_old_link_touch_nothing_of_the_new_one() {
    let client = client(brisk());
    let id = call(&client, "first");
    let (old, bytes) = asked_to_call(&client);
    let late = answer(&bytes).unwrap() + "\n";
    old.sent(bytes.len() as u64).unwrap();
    old.received(late.as_bytes()).unwrap();
    assert_eq!(answered(&client, id), "first");
    old.closed(None, "idle").unwrap();

    let id = call(&client, "second");
    let (new, bytes) = asked_to_call(&client);
    for said in [
        old.opened(),
        old.received(late.as_bytes()),
        old.sent(1),
        old.closed(Some(Kind::Transport), "late"),
    ] {
        refused_as(said, Kind::Closed);
    }
    new.sent(bytes.len() as u64).unwrap();
    new.received((answer(&bytes).unwrap() + "\n").as_bytes())
        .unwrap();
    assert_eq!(answered(&client, id), "second");
    let status = client.server_status("", "server").unwrap();
    assert_eq!((status.state, status.charges), (State::Proven, 0));
}

#[test]
fn more_cannot_have_gone_than_was_handed_out() {
    let client = client(json!({}));
    let id = call(&client, "counted");
    let (link, bytes) = asked_to_call(&client);
    let len = bytes.len() as u64;
    let message = refused_as(link.sent(len + 1), Kind::Invalid);
    assert!(message.contains(&format!("{} bytes", len + 1)), "{message}");
    assert!(message.contains(&format!("of {len} ")), "{message}");
    // Nothing was counted.
    link.sent(len).unwrap();
    refused_as(link.sent(1), Kind::Invalid);
    refused_as(link.sent(u64::MAX), Kind::Invalid);
    link.received((answer(&bytes).unwrap() + "\n").as_bytes())
        .unwrap();
    assert_eq!(answered(&client, id), "counted");
}

#[test]
fn a_link_that_flaps_is_parked_within_the_budget() {
    let client = client(json!({
        "budget": {"floor_ms": 1, "backoff_ms": 1, "backoff_max_ms": 1, "max_retries": 3},
    }));
    call_with(&client, "", "in vain", CallOptions::default());
    let mut opened = 0;
    loop {
        let event = next(&client, |event| match &event.kind {
            EventKind::LinkSend(_, bytes) => super::message(bytes)["method"] != "initialize",
            EventKind::LinkOpen(_) => true,
            EventKind::ServerState(status) => status.state == State::Parked,
            _ => false,
        });
        match event.kind {
            EventKind::LinkOpen(link) => {
                opened += 1;
                link.opened().unwrap();
            }
            EventKind::LinkSend(link, _) => {
                // The handshake proves nothing.
                let _ = link.closed(None, "");
            }
            _ => break,
        }
    }
    assert_eq!(opened, 4);
}

#[test]
fn a_link_that_wants_credentials_says_so_each_time_and_how_they_are_given() {
    let client = client(brisk());
    let vain = call(&client, "in vain");
    asked_for(&client).closed(Some(Kind::Auth), "").unwrap();
    assert_eq!(failed(&client, vain).kind, Kind::Auth);
    let text = refused_as(client.set_header("", "server", "A", "b"), Kind::Invalid);
    assert!(text.contains("link"), "{text}");
    client.wake("", "server").unwrap();
    let id = call(&client, "let in");
    let link = asked_for(&client);
    link.opened().unwrap();
    assert_eq!(answered(&client, id), "let in");
    link.closed(Some(Kind::Auth), "").unwrap();
    call(&client, "out again");
    asked_for(&client).closed(Some(Kind::Auth), "").unwrap();
    let said = next(&client, |event| {
        matches!(event.kind, EventKind::CredentialsNeeded(_))
    });
    assert!(said.kind.text().contains("wake"), "{said:?}");
}
