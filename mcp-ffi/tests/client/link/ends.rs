use std::time::{Duration, Instant};

use mcpconn::{CallOptions, Client, Event, EventKind, Kind, Outcome};
use serde_json::json;

use super::{answered, asked_to_call, brisk, call, call_with, client, failed, refused_as, serve};

/// Takes all that comes until the end, and gives the scopes whose links are to be closed. The host closes none.
fn asked_to_close(client: &Client) -> Vec<Option<String>> {
    let mut closes = Vec::new();
    crate::next(client, |event| {
        if let EventKind::LinkClose(link) = &event.kind {
            closes.push(link.scope().map(ToOwned::to_owned));
        }
        matches!(event.kind, EventKind::Closed)
    });
    closes.sort();
    closes
}

fn open(client: &Client, scope: &str) {
    let id = call_with(client, scope, "x", CallOptions::default());
    assert_eq!(answered(client, id), "x");
}

#[test]
fn every_open_link_is_to_be_closed_before_the_end_which_waits_for_no_host_for_ever() {
    let client = client(json!({}));
    for scope in ["", "a", "b"] {
        open(&client, scope);
    }
    let in_flight = call(&client, "cut");
    let (link, _) = asked_to_call(&client);
    let begun = Instant::now();
    client.close(Some(Duration::from_millis(200)));
    let scope = |name: &str| Some(name.to_owned());
    let mut ended = None;
    let mut closes = Vec::new();
    crate::next(&client, |event| match &event.kind {
        EventKind::LinkClose(link) => {
            closes.push(link.scope().map(ToOwned::to_owned));
            false
        }
        EventKind::Error(error) if event.id == in_flight => {
            ended = Some(error.clone());
            false
        }
        kind => matches!(kind, EventKind::Closed),
    });
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    closes.sort();
    assert_eq!(closes, [None, scope("a"), scope("b")]);
    let ended = ended.expect("the call completed");
    assert_eq!(
        (ended.kind, ended.outcome),
        (Kind::Closed, Outcome::Unknown)
    );
    // The word that was owed comes too late, and does no harm.
    refused_as(link.closed(None, ""), Kind::Closed);
}

#[test]
fn the_end_comes_as_soon_as_the_host_has_closed_all() {
    let client = client(json!({"close_timeout_ms": 600_000}));
    open(&client, "");
    open(&client, "a");
    client.close(Some(Duration::from_secs(600)));
    super::next(&client, |event| matches!(event.kind, EventKind::Closed));
}

#[test]
fn a_link_that_the_host_said_to_be_closed_is_not_to_be_closed() {
    let client = client(brisk());
    open(&client, "");
    let id = call(&client, "the last");
    let (link, bytes) = asked_to_call(&client);
    // What came before is heard first, and needs no newline any more.
    link.sent(bytes.len() as u64).unwrap();
    link.received(super::answer(&bytes).unwrap().as_bytes())
        .unwrap();
    link.closed(None, "").unwrap();
    assert_eq!(answered(&client, id), "the last");
    client.close(None);
    assert_eq!(asked_to_close(&client), []);
}

#[test]
fn closing_a_scope_closes_its_link_and_no_other() {
    let client = client(json!({}));
    open(&client, "");
    open(&client, "a");
    client.close_scope(&mcpconn::Scope::new("", "a"));
    let close = crate::next(&client, |event| {
        matches!(event.kind, EventKind::LinkClose(_))
    });
    let EventKind::LinkClose(link) = &close.kind else {
        unreachable!("it was asked for")
    };
    assert_eq!(link.scope(), Some("a"));
    refused_as(link.received(b"{}\n"), Kind::Closed);
    serve(&close);
    open(&client, "");
}

#[test]
fn a_server_that_is_taken_out_of_the_configuration_has_its_link_closed() {
    let client = client(json!({}));
    let id = call(&client, "cut");
    let (link, bytes) = asked_to_call(&client);
    link.sent(bytes.len() as u64).unwrap();
    client.configure("", "{}").unwrap();
    let closes = |event: &Event| matches!(event.kind, EventKind::LinkClose(_));
    let close = super::next(&client, |event| closes(event) || event.id == id);
    if closes(&close) {
        serve(&close);
        assert_eq!(failed(&client, id).outcome, Outcome::Unknown);
    } else {
        assert!(
            matches!(&close.kind, EventKind::Error(error) if error.outcome == Outcome::Unknown)
        );
        serve(&crate::next(&client, closes));
    }
}
