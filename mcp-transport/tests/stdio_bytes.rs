//! What servers over stdio write, and what comes through.
#![cfg(target_os = "linux")]

mod common;

use common::*;
use mcp_transport::{
    error::{ErrorKind, Outcome},
    session::{RequestOptions, list_all},
    stdio::StdioTransport,
};
use serde_json::json;

#[tokio::test]
async fn frames_around_the_size_of_a_pipe_and_of_10_mib_come_whole() {
    let (session, _) = open(&[]).await;
    for bytes in [65_535, 65_536, 65_537, 10 << 20] {
        let result = session.request("tools/call", tool("size", json!({"bytes": bytes})), long());
        let result = result.await.unwrap();
        // The frame without what is around the result.
        assert!(result.starts_with(b"{\"x\":\"xxx") && result.ends_with(b"xxx\"}"));
        assert!(bytes - result.len() < 64, "{bytes}: {}", result.len());
    }
    session.close(LONG).await;
}

#[tokio::test]
async fn a_request_of_10_mib_goes_through_while_the_server_answers_another() {
    let (session, _) = open(&[]).await;
    let text = "y".repeat(10 << 20);
    let arguments = json!({"text": text});
    // Both sides write more than a pipe holds at the same time.
    let (echoed, sized) = tokio::join!(
        call(&session, "echo", arguments),
        call(&session, "size", json!({"bytes": 10 << 20}))
    );
    assert_eq!(
        echoed.unwrap()["content"][0]["text"]
            .as_str()
            .unwrap()
            .len(),
        text.len()
    );
    assert!(sized.is_ok());
    session.close(LONG).await;
}

#[tokio::test]
async fn many_requests_at_once_each_find_their_answer() {
    let (session, _) = open(&[]).await;
    let calls: Vec<_> = (0..500)
        .map(|n| {
            session.request(
                "tools/call",
                tool("echo", json!({"text": n.to_string()})),
                long(),
            )
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        let result = call.await.unwrap();
        assert_eq!(
            result,
            format!(r#"{{"content": [{{"type": "text", "text": "{n}"}}]}}"#)
        );
    }
    session.close(LONG).await;
}

#[tokio::test]
async fn noise_between_frames_is_skipped() {
    let (session, _) = open(&["noise"]).await;
    let noisy = "log line\n\r\n[1,2]\nwarning: {\"id\":$ID}\n{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{}}\n   ";
    let answer = call(&session, "raw", json!({"text": noisy})).await.unwrap();
    assert_eq!(answer, json!({}));
    // Two lines begin like a message and are none: "{" and "{broken".
    assert_eq!(session.counters().malformed, 2);
    session.close(LONG).await;
}

#[tokio::test]
async fn a_byte_of_another_encoding_spoils_a_character_and_not_the_call() {
    let (session, _) = open(&[]).await;
    // {"id":$ID,"result":{"a":"x\x97y"}}
    let hex =
        "7b226964223a244944 2c22726573756c74223a7b2261223a2278 97 79227d7d0a".replace(' ', "");
    let answer = call(&session, "bytes", json!({"hex": hex})).await.unwrap();
    assert_eq!(answer, json!({"a": "x\u{fffd}y"}));
    assert_eq!(session.counters().repaired, 1);
    session.close(LONG).await;
}

#[tokio::test]
async fn line_ends_of_other_kinds_stay_inside_strings() {
    let (session, _) = open(&[]).await;
    let odd = "\u{2028}\u{2029}\u{85}\u{7f}";
    let raw = format!("{{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{{\"a\":\"{odd}\"}}}}");
    let answer = call(&session, "raw", json!({"text": raw})).await.unwrap();
    assert_eq!(answer, json!({"a": odd}));
    session.close(LONG).await;
}

#[tokio::test]
async fn vertical_tab_and_form_feed_end_no_line() {
    let (session, _) = open(&[]).await;
    // Raw control characters are no JSON, so that this one frame is dropped; the next one is whole.
    let raw =
        "{\"id\":$ID,\"result\":\"\u{b}\u{c}\"}\n{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{}}";
    assert_eq!(
        call(&session, "raw", json!({"text": raw})).await.unwrap(),
        json!({})
    );
    assert_eq!(session.counters().malformed, 1);
    session.close(LONG).await;
}

#[tokio::test]
async fn an_answer_over_the_cap_fails_its_call_at_once_and_the_next_comes_through() {
    let transport = StdioTransport::new(fault_server(&[])).max_frame(100_000);
    let (session, _) = open_with(transport).await.unwrap();
    let error = call(&session, "size", json!({"bytes": 300_000}))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Protocol, Outcome::Answered)
    );
    assert_eq!(
        error.message,
        "the answer has 300000 bytes, which is over the limit"
    );
    call(&session, "echo", json!({"text": "x"})).await.unwrap();
    session.close(LONG).await;
}

#[tokio::test]
async fn stderr_of_256_kib_without_a_newline_holds_up_nothing() {
    let (session, _) = open(&["stderr-first=262144"]).await;
    call(&session, "stderr", json!({"bytes": 262_144}))
        .await
        .unwrap();
    let error = call(&session, "exit", json!({"stderr": "\nthe end"}))
        .await
        .unwrap_err();
    assert!(error.message.ends_with("stderr: the end"), "{error}");
}

#[tokio::test]
async fn ids_that_come_back_as_string_or_float_are_understood() {
    let (session, _) = open(&[]).await;
    for shape in ["string", "float"] {
        call(&session, "id", json!({"as": shape})).await.unwrap();
    }
    session.close(LONG).await;
}

#[tokio::test]
async fn a_request_of_the_server_with_our_id_is_answered_and_not_taken_for_an_answer() {
    let (session, _) = open(&[]).await;
    let asked = call(&session, "ask", json!({"method": "ping"}))
        .await
        .unwrap();
    assert_eq!(asked["answer"]["result"], json!({}));
    let asked = call(&session, "ask", json!({"method": "sampling/createMessage"}))
        .await
        .unwrap();
    assert_eq!(asked["answer"]["error"]["code"], -32601);
    assert_eq!(session.counters().refused, 1);
    session.close(LONG).await;
}

#[tokio::test]
async fn what_comes_before_the_handshakes_answer_is_taken() {
    let (session, mut heard) = open(&["early"]).await;
    heard.next("notifications/tools/list_changed").await;
    session.ping(None).await.unwrap();
    session.close(LONG).await;
}

#[tokio::test]
async fn a_server_that_batches_is_understood() {
    let (session, mut heard) = open(&["batch", "version=2025-03-26"]).await;
    heard.next("test/batched").await;
    session.close(LONG).await;
}

#[tokio::test]
async fn a_server_that_stops_reading_holds_up_no_close_and_its_calls_are_not_sent() {
    let (session, _) = open(&["ignore-term"]).await;
    let pid = session.pid().unwrap();
    call(&session, "deaf", json!({})).await.unwrap();
    // More than the pipe holds: the first is out in part, the second waits behind it.
    let text = "z".repeat(1 << 20);
    let first = session.request("tools/call", tool("echo", json!({"text": text})), long());
    let second = session.request("tools/call", tool("echo", json!({"text": "small"})), long());
    session.close(std::time::Duration::from_millis(300)).await;
    for call in [first.await, second.await] {
        let error = call.unwrap_err();
        assert_eq!(
            (error.kind, error.outcome),
            (ErrorKind::Closed, Outcome::NotSent)
        );
    }
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_request_that_waits_behind_a_full_pipe_can_be_taken_back_and_one_that_is_partly_out_cannot()
 {
    let (session, _) = open(&[]).await;
    call(&session, "deaf", json!({})).await.unwrap();
    let soon = || {
        let now = tokio::time::Instant::now();
        RequestOptions::until(now + std::time::Duration::from_millis(50))
    };
    let text = "z".repeat(1 << 20);
    let first = session.request("tools/call", tool("echo", json!({"text": text})), soon());
    let second = session.request("tools/call", tool("echo", json!({"text": "small"})), soon());
    let (first, second) = (first.await.unwrap_err(), second.await.unwrap_err());
    assert_eq!(
        (first.kind, first.outcome),
        (ErrorKind::Timeout, Outcome::Unknown)
    );
    assert_eq!(
        (second.kind, second.outcome),
        (ErrorKind::Timeout, Outcome::NotSent)
    );
    session.close(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn a_full_pipe_whose_queue_was_withdrawn_takes_the_next_request() {
    let (session, _) = open(&[]).await;
    kill(session.pid().unwrap(), libc::SIGSTOP);
    // Exactly what the pipe holds, so that of the next one not a byte goes out.
    let len = |text: &str| {
        let params = tool("echo", json!({"text": text})).unwrap();
        let id = mcp_transport::jsonrpc::RequestId(2);
        mcp_transport::jsonrpc::request(id, "tools/call", Some(&params), false)
            .unwrap()
            .len()
            + 1
    };
    let text = "z".repeat(65_536 - len(""));
    assert_eq!(len(&text), 65_536);
    let first = session.request("tools/call", tool("echo", json!({"text": text})), long());
    let now = tokio::time::Instant::now();
    let soon = RequestOptions::until(now + std::time::Duration::from_millis(50));
    let second = session.request("tools/call", tool("echo", json!({"text": "b"})), soon);
    let error = second.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::NotSent)
    );
    kill(session.pid().unwrap(), libc::SIGCONT);
    first.await.unwrap();
    call(&session, "echo", json!({"text": "c"})).await.unwrap();
    session.close(LONG).await;
}

#[tokio::test]
async fn a_server_hears_what_was_cancelled_and_its_late_answers_are_dropped() {
    let (session, mut heard) = open(&[]).await;
    let now = tokio::time::Instant::now();
    let limit = RequestOptions::until(now + std::time::Duration::from_secs(2));
    let timed_out = session.request("tools/call", tool("hold", json!({})), limit);
    let first = heard.next("test/held").await["id"].clone();
    let dropped = session.request("tools/call", tool("hold", json!({})), long());
    let second = heard.next("test/held").await["id"].clone();
    drop(dropped);
    let error = timed_out.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::Unknown)
    );
    let canceled = call(&session, "canceled", json!({})).await.unwrap();
    assert_eq!(canceled["ids"], json!([second, first]));
    call(&session, "release", json!({})).await.unwrap();
    assert_eq!(session.counters().late, 2);
    session.close(LONG).await;
}

#[tokio::test]
async fn progress_comes_before_its_answer_also_with_the_token_as_a_string() {
    let (session, _) = open(&[]).await;
    for shape in ["number", "string"] {
        let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
        let options = RequestOptions {
            on_progress: Some(Box::new(move |params| sender.send(params).unwrap())),
            ..long()
        };
        let arguments = json!({"count": 3, "as": shape});
        session
            .request("tools/call", tool("progress", arguments), options)
            .await
            .unwrap();
        for _ in 0..3 {
            progress.try_recv().unwrap();
        }
    }
    session.close(LONG).await;
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let (session, _) = open(&["pages=three"]).await;
    let tools = list_all(&session, "tools/list", "tools", None)
        .await
        .unwrap();
    assert_eq!(tools.len(), 6);
    assert!(tools[5].starts_with(br#"{"name": "tool-2-1""#));
    session.close(LONG).await;
}
