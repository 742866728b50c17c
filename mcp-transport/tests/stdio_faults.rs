//! Servers that go wrong in ways reported from the field, beyond those of `stdio_life` and `stdio_bytes`.
#![cfg(target_os = "linux")]

mod common;

use std::{sync::Arc, time::Duration};

use common::*;
use mcp_transport::{
    error::{Cause, ErrorKind, Outcome},
    revision::Revision,
    session::{
        Backlog, Coalescer, Handler, Offers, Refresh, ServerRequest, ServerRequestKind, Session,
        list_all,
    },
    stdio::{Spawner, StdioTransport},
};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test]
async fn a_server_that_exits_at_once_while_a_grandchild_holds_its_stdout_is_told_and_both_go() {
    // The grandchild's id comes as a line that is no message, and so into the error.
    let script = "sleep 1000 & echo grandchild $!; exit 0";
    let error = open_with(StdioTransport::new(shell(script)))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.outcome, error.cause),
        (ErrorKind::Transport, Outcome::NotSent, Cause::Transient)
    );
    assert!(
        error.message.starts_with("the server exited with code 0"),
        "{error}"
    );
    let digits = error.message.rsplit("grandchild ").next().unwrap();
    let grandchild = digits
        .trim_end_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap();
    until("the grandchild has gone", || !runs(grandchild)).await;
}

#[tokio::test]
async fn characters_split_over_two_writes_come_whole() {
    let (session, _) = open(&[]).await;
    let text = "a\u{e4}\u{20ac}\u{1f600}z";
    let answer = json!({"content": [{"type": "text", "text": text}]});
    // The text lies somewhere in the middle; every cut in it and around it is made.
    for at in 60..110 {
        let result = call(&session, "split", json!({"text": text, "at": at}))
            .await
            .unwrap();
        assert_eq!(result, answer, "cut at {at}");
    }
    session.close(LONG).await;
}

/// Answers every form with what a user would say.
struct User {
    heard: Arc<Heard>,
}

impl Handler for User {
    fn notification(&self, method: &str, params: bytes::Bytes) {
        self.heard.notification(method, params);
    }
    fn offers(&self) -> Offers {
        let mut offers = Offers::default();
        offers.elicitation_form = true;
        offers
    }
    fn asked(&self, request: ServerRequest) {
        assert_eq!(request.kind(), ServerRequestKind::ElicitForm);
        // Later and from elsewhere, as a user would.
        std::thread::spawn(move || {
            let answer = br#"{"action":"accept","content":{"name":"x"}}"#;
            request.answer(answer).unwrap();
        });
    }
}

#[tokio::test]
async fn a_change_and_a_question_before_the_answer_to_the_call_in_flight_are_both_heard() {
    let (heard, mut notifications) = Notifications::new();
    let transport = Arc::new(StdioTransport::new(fault_server(&[])));
    let session = Session::open(transport, options(Arc::new(User { heard })))
        .await
        .unwrap();
    let params = json!({"params": {"message": "who?", "requestedSchema": {}}});
    let result = call(&session, "elicit", params).await.unwrap();
    assert_eq!(
        result["answer"],
        json!({"jsonrpc": "2.0", "id": "e", "result": {"action": "accept", "content": {"name": "x"}}})
    );
    notifications.next("notifications/tools/list_changed").await;
    // A link is not offered beside the form.
    let params = json!({"params": {"mode": "url", "url": "https://a.example", "message": "?"}});
    let result = call(&session, "elicit", params).await.unwrap();
    assert_eq!(result["answer"]["error"]["code"], -32602);
    session.close(LONG).await;
}

#[tokio::test]
async fn two_hundred_changes_at_once_are_heard_and_hold_up_no_answer() {
    let (session, mut heard) = open(&[]).await;
    call(&session, "burst", json!({"count": 200}))
        .await
        .unwrap();
    for _ in 0..200 {
        heard.next("notifications/tools/list_changed").await;
    }
    session.close(LONG).await;
}

#[tokio::test]
async fn a_server_that_announces_a_change_with_every_listing_is_listed_ever_less_often() {
    let (session, mut heard) = open(&["changes"]).await;
    let mut tools = Coalescer::new(Duration::from_secs(1), Duration::from_secs(60));
    // An hour on a clock of the test's own; the server is real.
    let mut now = Instant::now();
    let end = now + Duration::from_secs(3600);
    let mut listings = 0;
    let mut next = tools.changed(now);
    while now < end {
        match next {
            Refresh::Now => {
                listings += 1;
                list_all(&session, "tools/list", "tools", None)
                    .await
                    .unwrap();
                heard.next("notifications/tools/list_changed").await;
                assert_eq!(tools.changed(now), Refresh::Nothing);
                next = tools.finished(now);
            }
            Refresh::At(at) => {
                now = at;
                next = tools.due(now);
            }
            Refresh::Nothing => panic!("a change was lost"),
        }
    }
    assert!((60..70).contains(&listings), "{listings}");
    session.close(LONG).await;
}

#[tokio::test]
async fn a_malformed_tool_does_not_take_the_others_along() {
    let (session, _) = open(&["pages=odd"]).await;
    let tools = list_all(&session, "tools/list", "tools", None)
        .await
        .unwrap();
    assert_eq!(tools.len(), 6);
    assert!(tools[0].starts_with(br#"{"name": "good""#));
    assert!(tools[5].starts_with(br#"{"name": "better""#));
    session.close(LONG).await;
}

#[tokio::test]
async fn every_revision_that_we_speak_is_taken_over_the_wire_and_no_other() {
    for revision in Revision::ALL {
        let (session, _) = open(&[&format!("version={}", revision.as_str())]).await;
        assert_eq!(session.revision(), revision);
        session.close(LONG).await;
    }
    let transport = StdioTransport::new(fault_server(&["version=9999-01-01"]));
    let error = open_with(transport).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause, error.outcome),
        (ErrorKind::Protocol, Cause::Permanent, Outcome::NotSent)
    );
    let transport = StdioTransport::new(fault_server(&["refuse"]));
    let error = open_with(transport).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (ErrorKind::Server, Cause::Permanent)
    );
}

#[tokio::test]
async fn a_command_outside_of_the_childs_own_path_is_missing_and_one_inside_is_found() {
    let dir = std::env::temp_dir().join(format!("mcp-path-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let name = "mcp-server-elsewhere";
    std::os::unix::fs::symlink("/bin/sh", dir.join(name)).unwrap();
    let mut config = shell("exit 5");
    config.command = name.into();
    let with_path = |path: &str| {
        let mut config = config.clone();
        config.env.insert("PATH".into(), path.into());
        StdioTransport::new(config)
    };
    let error = open_with(with_path("/usr/bin:/bin")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause, error.outcome),
        (ErrorKind::Config, Cause::Permanent, Outcome::NotSent)
    );
    assert!(error.message.contains(name), "{error}");
    let with_dir = format!("/usr/bin:/bin:{}", dir.display());
    let error = open_with(with_path(&with_dir)).await.unwrap_err();
    assert_eq!(error.message, "the server exited with code 5");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn what_comes_late_of_an_old_process_does_not_touch_the_new_one() {
    let spawner = Spawner::new();
    let transport = || StdioTransport::with_spawner(fault_server(&["ignore-eof"]), spawner.clone());
    let (old, _) = open_with(transport()).await.unwrap();
    let old_pid = old.pid().unwrap();
    let old_ended = old.ended();
    let closing = old.close(Duration::from_millis(380));
    let (new, _) = open_with(transport()).await.unwrap();
    assert_ne!(new.pid(), Some(old_pid));
    closing.await;
    assert_eq!(old_ended.await.kind, ErrorKind::Closed);
    until("the old process has gone", || !exists(old_pid)).await;
    call(&new, "echo", json!({"text": "x"})).await.unwrap();
    new.close(LONG).await;
}

/// A host with a small limit for what it does not take.
struct Slow(Backlog);

impl Handler for Slow {
    fn backlog(&self) -> Option<Backlog> {
        Some(self.0.clone())
    }
}

#[tokio::test]
async fn results_that_nobody_takes_are_left_with_the_server_until_they_are_taken() {
    let backlog = Backlog::new(1 << 20);
    let transport = Arc::new(StdioTransport::new(fault_server(&[])));
    let slow = Arc::new(Slow(backlog.clone()));
    let session = Session::open(transport, options(slow)).await.unwrap();
    let other = open(&[]).await.0;
    let arguments = json!({"of": 8, "bytes": 1 << 20});
    let calls: Vec<_> = (0..8)
        .map(|_| session.request("tools/call", tool("results", arguments.clone()), long()))
        .collect();
    until("it is over the limit", || backlog.is_over()).await;
    // One more than the limit at most; the rest stays in the server, and others are read as ever.
    call(&other, "echo", json!({"text": "x"})).await.unwrap();
    assert!(backlog.bytes() <= 3 << 20, "{}", backlog.bytes());
    for call in calls {
        assert!(call.await.unwrap().len() > 1 << 20);
    }
    assert_eq!(backlog.bytes(), 0);
    session.ping(None).await.unwrap();
    // The end is seen also while nothing is read.
    let held = backlog.hold(2 << 20);
    kill(session.pid().unwrap(), libc::SIGKILL);
    assert_eq!(
        session.ended().await.message,
        "the server was ended by signal 9"
    );
    drop(held);
    other.close(LONG).await;
}

#[tokio::test]
async fn the_last_answer_of_a_server_that_ends_while_it_is_not_read_is_not_lost() {
    let backlog = Backlog::new(1000);
    let transport = Arc::new(StdioTransport::new(fault_server(&[])));
    let slow = Arc::new(Slow(backlog.clone()));
    let session = Session::open(transport, options(slow)).await.unwrap();
    let held = backlog.hold(2000);
    let result = call(&session, "exit", json!({"answer": true}))
        .await
        .unwrap();
    assert_eq!(result, json!({"last": true}));
    drop(held);
}
