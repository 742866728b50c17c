//! Streams of answers that are read on over further connections.

use std::time::Duration;

use mcp_transport::{
    error::{Error, ErrorKind, Outcome},
    jsonrpc::RequestId,
    transport::Transport,
};
use tokio::time::Instant;

use crate::server::{Client, Connection, Request, Server, all_is_quiet, result};

/// A call whose stream named an event to go on from and then ended, with what that event's text is.
async fn cut_short(server: &Server, stream: &str) -> Client {
    let (client, mut connection) = Client::opened(server, "s-1").await;
    let mut client = client;
    client.request(1, "tools/call");
    connection.request().await;
    connection.begin_events(&[]).await;
    connection.chunk(stream).await;
    connection.end_chunks().await;
    client.written(1).await;
    client
}

async fn resumption(server: &Server, last: &str) -> (Connection, Request) {
    let (connection, request) = server.request().await;
    assert_eq!(request.line, "GET /mcp HTTP/1.1");
    assert_eq!(request.header("last-event-id"), Some(last));
    assert_eq!(request.header("mcp-session-id"), Some("s-1"));
    assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    assert_eq!(request.header("content-type"), None);
    (connection, request)
}

#[tokio::test(start_paused = true)]
async fn a_primed_stream_is_read_on_after_the_time_it_named() {
    let server = Server::start().await;
    let mut client = cut_short(&server, "id: e-1\nretry: 2000\ndata:\n\n").await;
    let begun = Instant::now();
    let (mut stream, _) = resumption(&server, "e-1").await;
    let waited = begun.elapsed();
    assert!((2000..=2110).contains(&waited.as_millis()), "{waited:?}");
    stream.begin_events(&[]).await;
    stream
        .chunk(&format!("id: e-2\ndata: {}\n\n", result(1, "{}")))
        .await;
    assert_eq!(client.message().await, result(1, "{}"));
    stream.end_chunks().await;
    all_is_quiet().await;
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_is_read_on_from_its_last_event() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s-1").await;
    client.request(1, "tools/call");
    connection.request().await;
    connection.begin_events(&[]).await;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    connection.chunk(&format!("id: 7\ndata: {log}\n\n")).await;
    connection.chunk("id: 8\ndata: {\"unfini").await;
    connection.hang_up().await;
    assert_eq!(client.answer(1).await, log);
    let (mut stream, _) = resumption(&server, "7").await;
    stream.begin_events(&[]).await;
    stream
        .chunk(&format!("id: 8\ndata: {}\n\n", result(1, "{}")))
        .await;
    assert_eq!(client.message().await, result(1, "{}"));
}

#[tokio::test(start_paused = true)]
async fn what_came_before_and_what_belongs_to_settled_requests_is_dropped() {
    let server = Server::start().await;
    let note =
        |n: u32| format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{n}}}"#);
    let first = format!("id: 1\ndata: {}\n\n", note(1));
    let mut client = cut_short(&server, &first).await;
    assert_eq!(client.message().await, note(1));
    let (mut stream, _) = resumption(&server, "1").await;
    stream.begin_events(&[]).await;
    // The same again; another stream's answer, to a request settled long ago; something new; the answer; twice.
    stream.chunk(&first).await;
    stream
        .chunk(&format!("id: 90\ndata: {}\n\n", result(0, "{}")))
        .await;
    stream.chunk(&format!("id: 2\ndata: {}\n\n", note(2))).await;
    for id in [3, 4] {
        stream
            .chunk(&format!("id: {id}\ndata: {}\n\n", result(1, "{}")))
            .await;
    }
    stream.end_chunks().await;
    assert_eq!(client.message().await, note(2));
    assert_eq!(client.message().await, result(1, "{}"));
    all_is_quiet().await;
    let left = client.left();
    assert!(left.len() <= 1, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_on_another_stream_settles_its_request_once() {
    let server = Server::start().await;
    let mut client = cut_short(&server, "id: 1\ndata:\n\n").await;
    let (mut stream, _) = resumption(&server, "1").await;
    client.request(2, "tools/call");
    let (mut other, _) = server.request().await;
    other.begin_events(&[]).await;
    client.written(2).await;
    stream.begin_events(&[]).await;
    stream.event(&result(2, "{}")).await;
    assert_eq!(client.message().await, result(2, "{}"));
    // Nothing more is done for it.
    other.closed().await;
    stream.event(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
    all_is_quiet().await;
    assert!(client.left().is_empty());
}

async fn fails(client: &mut Client) -> Error {
    let (error, _) = client.failed(1).await;
    assert_eq!(error.outcome, Outcome::Unknown);
    error
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_to_resume_fails_the_request_at_once() {
    for (status, kind) in [
        ("405 Method Not Allowed", ErrorKind::Transport),
        ("400 Bad Request", ErrorKind::Transport),
        ("501 Not Implemented", ErrorKind::Transport),
        ("200 OK", ErrorKind::Transport),
        ("401 Unauthorized", ErrorKind::Auth),
        ("404 Not Found", ErrorKind::Expired),
    ] {
        let server = Server::start().await;
        let mut client = cut_short(&server, "id: 1\ndata:\n\n").await;
        let (mut stream, _) = resumption(&server, "1").await;
        stream
            .answer(status, &[("content-type", "text/plain")], "no")
            .await;
        assert_eq!(fails(&mut client).await.kind, kind, "{status}");
        all_is_quiet().await;
        assert!(client.left().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumption_that_fails_for_now_is_tried_again() {
    let server = Server::start().await;
    let mut client = cut_short(&server, "id: 1\ndata:\n\n").await;
    let (stream, _) = resumption(&server, "1").await;
    stream.hang_up().await;
    let (mut stream, _) = resumption(&server, "1").await;
    let asked = Instant::now();
    stream
        .answer("503 Service Unavailable", &[("retry-after", "20")], "")
        .await;
    let (mut stream, _) = resumption(&server, "1").await;
    assert!(asked.elapsed() >= Duration::from_secs(20));
    stream.begin_events(&[]).await;
    stream.event(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
}

#[tokio::test(start_paused = true)]
async fn a_resumption_that_brings_nothing_is_given_up_after_ten_times() {
    let server = Server::start().await;
    let mut client = cut_short(&server, "id: 1\nretry: 1\ndata:\n\n").await;
    let begun = Instant::now();
    for _ in 0..10 {
        let (mut stream, _) = resumption(&server, "1").await;
        stream.begin_events(&[]).await;
        stream.end_chunks().await;
    }
    let error = fails(&mut client).await;
    assert!(error.message.contains("brings nothing"), "{error}");
    assert!(begun.elapsed() > Duration::from_secs(60));
    tokio::select! {
        _ = server.accept() => panic!("an eleventh"),
        () = tokio::time::sleep(Duration::from_secs(3600)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_primes_and_closes_is_asked_seldom_and_not_after_the_request_was_given_up()
 {
    let server = Server::start().await;
    let mut client = cut_short(&server, "id: 1\nretry: 1\ndata:\n\n").await;
    let end = Instant::now() + Duration::from_secs(3600);
    let mut count = 0;
    let mut last = 1;
    while Instant::now() < end {
        let (mut stream, _) = resumption(&server, &last.to_string()).await;
        count += 1;
        last += 1;
        stream.begin_events(&[]).await;
        stream
            .chunk(&format!("id: {last}\nretry: 1\ndata:\n\n"))
            .await;
        stream.end_chunks().await;
        stream.hang_up().await;
    }
    assert!((20..200).contains(&count), "{count}");
    client.transport.abandon(RequestId(1));
    tokio::select! {
        _ = server.accept() => panic!("it was given up"),
        () = tokio::time::sleep(Duration::from_secs(3600)) => {}
    }
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_initialize_may_come_on_a_resumed_stream() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(0, "initialize");
    let (mut connection, _) = server.request().await;
    connection.begin_events(&[("mcp-session-id", "s-9")]).await;
    connection.chunk("id: 1\ndata:\n\n").await;
    connection.end_chunks().await;
    let (mut stream, request) = server.request().await;
    assert_eq!(request.header("mcp-session-id"), Some("s-9"));
    stream.begin_events(&[]).await;
    stream.event(&result(0, "{}")).await;
    assert_eq!(client.answer(0).await, result(0, "{}"));
    client.request(1, "ping");
    assert_eq!(
        connection.request().await.header("mcp-session-id"),
        Some("s-9")
    );
}

#[tokio::test(start_paused = true)]
async fn closing_ends_a_wait_for_a_resumption() {
    let server = Server::start().await;
    let mut client = cut_short(&server, "id: 1\nretry: 100000\ndata:\n\n").await;
    let begun = Instant::now();
    let served = async {
        let (mut farewell, request) = server.request().await;
        assert!(request.line.starts_with("DELETE"));
        farewell.answer("200 OK", &[], "").await;
    };
    tokio::join!(client.transport.close(Duration::from_secs(5)), async {
        let _ = tokio::time::timeout(Duration::from_secs(1), served).await;
    });
    assert!(begun.elapsed() <= Duration::from_secs(5));
    assert_eq!(client.ended().await, ErrorKind::Closed);
}
