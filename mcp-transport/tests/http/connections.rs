//! Connections: refused, cut, closed in between, shared, given back.

use std::time::Duration;

use mcp_transport::{
    error::{
        Cause, ErrorKind,
        Outcome::{NotSent, Unknown},
    },
    http::{HttpClient, HttpConfig},
    jsonrpc::RequestId,
    transport::Transport,
};
use tokio::time::advance;

use crate::server::{Client, Refusing, Server, all_is_quiet, response, result};

#[tokio::test]
async fn a_port_where_nobody_listens_is_named_and_nothing_was_sent() {
    let port = Refusing::bind();
    let authority = port.authority();
    let config = HttpConfig::new(&format!("http://{authority}/mcp"), &[]).expect("good");
    let mut client = Client::with(config).await;
    client.request(1, "initialize");
    let (error, was_written) = client.failed(1).await;
    assert!(!was_written);
    assert_eq!(
        (error.kind, error.outcome, error.cause),
        (ErrorKind::Transport, NotSent, Cause::Transient)
    );
    assert!(error.message.contains(&authority), "{error}");
    assert!(error.message.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_host_that_is_none_is_said_to_be_unresolved() {
    // A label longer than 63 characters is refused by any resolver without being asked for.
    let host = "x".repeat(64);
    let config = HttpConfig::new(&format!("http://{host}.invalid/mcp"), &[]).expect("good");
    let mut client = Client::with(config).await;
    client.request(1, "initialize");
    let (error, was_written) = client.failed(1).await;
    assert!(!was_written);
    assert_eq!(error.outcome, NotSent);
    assert!(error.message.contains("not resolved"), "{error}");
    assert!(error.message.contains(&host), "{error}");
}

#[tokio::test]
async fn a_connection_cut_before_the_answer_leaves_the_outcome_unknown() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (connection, _) = server.request().await;
    connection.hang_up().await;
    let (error, was_written) = client.failed(1).await;
    assert!(was_written);
    assert_eq!(
        (error.kind, error.outcome, error.cause),
        (ErrorKind::Transport, Unknown, Cause::Transient)
    );
    assert!(error.message.contains(&server.authority()), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_cut_leaves_the_outcome_unknown() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    for answer in [
        "HTTP/1.1 200".to_owned(),
        format!("{head}content-length: 1000\r\n\r\n{{\"jsonrpc\""),
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n{{\"js"),
        format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n"),
        format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n"),
        format!("{stream}transfer-encoding: chunked\r\n\r\n6\r\ndata: \r\n"),
        // What stands unfinished at the end of a stream was no event.
        format!("{stream}\r\ndata: {}\n", result(1, "{}")),
        format!("{stream}transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        "no HTTP at all\r\n\r\n".to_owned(),
    ] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(1, "tools/call");
        let (mut connection, _) = server.request().await;
        connection.send(&answer).await;
        connection.hang_up().await;
        let (error, was_written) = client.failed(1).await;
        assert!(was_written, "{answer}");
        assert_eq!(
            (error.kind, error.outcome),
            (ErrorKind::Transport, Unknown),
            "{answer}: {error}"
        );
        assert!(error.message.contains(&server.authority()), "{error}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_the_answer_fails_the_request_at_once() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (mut connection, _) = server.request().await;
    connection.begin_events(&[]).await;
    connection
        .event(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#)
        .await;
    connection.end_chunks().await;
    client.written(1).await;
    client.message().await;
    let (error, _) = client.failed(1).await;
    assert_eq!((error.kind, error.outcome), (ErrorKind::Transport, Unknown));
    assert!(error.message.contains("without the answer"), "{error}");
    // The connection was left in good order.
    client.request(2, "ping");
    connection.request().await;
}

#[tokio::test]
async fn an_abandoned_request_is_cut_and_nothing_more_is_said_of_it() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    // Before its answer.
    client.request(1, "tools/call");
    let (mut silent, _) = server.request().await;
    client.written(1).await;
    client.transport.abandon(RequestId(1));
    silent.closed().await;
    // While its answer comes.
    client.request(2, "tools/call");
    let (mut stream, _) = server.request().await;
    stream.begin_events(&[]).await;
    stream.event(r#"{"method":"notifications/progress"}"#).await;
    client.answer(2).await;
    client.transport.abandon(RequestId(2));
    stream.closed().await;
    // Before it began: nothing connects for it.
    client.request(3, "tools/call");
    client.transport.abandon(RequestId(3));
    client.transport.abandon(RequestId(3));
    client.request(4, "ping");
    let (_, request) = server.request().await;
    assert!(request.body.contains("\"id\":4"));
    client.written(4).await;
    assert!(client.left().is_empty());
}

#[tokio::test]
async fn a_connection_that_the_server_closed_in_between_does_not_fail_the_next_request() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection.json(&result(1, "{}")).await;
    client.answer(1).await;
    for id in 2..20 {
        // The client's task has not run since: it learns of the closing when it wants to send.
        connection.hang_up().await;
        client.request(id, "ping");
        let (next, _) = server.request().await;
        connection = next;
        connection.json(&result(id, "{}")).await;
        assert_eq!(client.answer(id).await, result(id, "{}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_closed_with_the_answer_does_not_fail_the_next_request_on_many_threads() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for id in 0..50 {
        client.request(id, "ping");
        let (mut connection, _) = server.request().await;
        let headers = [
            ("content-type", "application/json"),
            ("connection", "close"),
        ];
        connection
            .answer("200 OK", &headers, &result(id, "{}"))
            .await;
        connection.hang_up().await;
        assert_eq!(client.answer(id).await, result(id, "{}"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_used_again_for_four_seconds_and_then_closed() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection.json(&result(1, "{}")).await;
    client.answer(1).await;
    advance(Duration::from_millis(3900)).await;
    client.request(2, "ping");
    connection.request().await;
    connection.json(&result(2, "{}")).await;
    client.answer(2).await;
    advance(Duration::from_millis(4100)).await;
    client.request(3, "ping");
    server.request().await;
    connection.closed().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_not_used_for_as_long_as_the_server_says() {
    for (said, used, unused) in [(1, 0, 1), (3, 1900, 2100), (60, 3900, 4100)] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        let said = format!("timeout={said}");
        let headers = [
            ("content-type", "application/json"),
            ("keep-alive", said.as_str()),
        ];
        client.request(1, "ping");
        let (mut connection, _) = server.request().await;
        connection
            .answer("200 OK", &headers, &result(1, "{}"))
            .await;
        client.answer(1).await;
        // Also of the last use alone.
        for id in 2..4 {
            if used == 0 {
                break;
            }
            advance(Duration::from_millis(used)).await;
            client.request(id, "ping");
            connection.request().await;
            connection
                .answer("200 OK", &headers, &result(id, "{}"))
                .await;
            client.answer(id).await;
        }
        advance(Duration::from_millis(unused)).await;
        client.request(4, "ping");
        let (mut other, _) = server.request().await;
        other.json(&result(4, "{}")).await;
        client.answer(4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_when_its_own_time_is_over_also_beside_one_that_has_longer() {
    for (said, at_once) in [("timeout=1", true), ("timeout=3", false)] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(1, "ping");
        let (mut longer, _) = server.request().await;
        client.written(1).await;
        client.request(2, "ping");
        let (mut shorter, _) = server.request().await;
        client.written(2).await;
        longer.json(&result(1, "{}")).await;
        assert_eq!(client.message().await, result(1, "{}"));
        let headers = [("content-type", "application/json"), ("keep-alive", said)];
        shorter.answer("200 OK", &headers, &result(2, "{}")).await;
        assert_eq!(client.message().await, result(2, "{}"));
        let begun = tokio::time::Instant::now();
        shorter.closed().await;
        let seconds = if at_once { 0 } else { 2 };
        assert_eq!(begun.elapsed().as_secs(), seconds, "{said}");
        client.request(3, "ping");
        longer.request().await;
    }
}

#[tokio::test]
async fn requests_under_way_together_each_have_a_connection() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (mut first, _) = server.request().await;
    client.written(1).await;
    client.request(2, "tools/call");
    let (mut second, _) = server.request().await;
    second.json(&result(2, "{}")).await;
    assert_eq!(client.answer(2).await, result(2, "{}"));
    first.json(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
}

#[tokio::test]
async fn sessions_share_the_connections_of_their_client() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let mut one = Client::over(server.config(), pool.clone()).await;
    let mut other = Client::over(server.config(), pool).await;
    one.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection.json(&result(1, "{}")).await;
    one.answer(1).await;
    other.request(1, "ping");
    connection.request().await;
    connection.json(&result(1, "{}")).await;
    other.answer(1).await;
    // The connection outlives one session, and goes with the last.
    drop(one);
    other.request(2, "ping");
    connection.request().await;
    connection.json(&result(2, "{}")).await;
    other.answer(2).await;
    drop(other);
    connection.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_left_open_after_its_answer_is_let_go_and_what_it_brings_till_then_counts() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (mut stream, _) = server.request().await;
    stream.begin_events(&[]).await;
    stream.event(&result(1, "{}")).await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
    let late = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    stream.event(late).await;
    assert_eq!(client.message().await, late);
    let begun = tokio::time::Instant::now();
    stream.closed().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_whose_body_never_ends_is_told_all_the_same() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (mut connection, _) = server.request().await;
    connection
        .send("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 100\r\n\r\nwe are")
        .await;
    let (error, _) = client.failed(1).await;
    assert!(error.message.contains("we are"), "{error}");
    connection.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_keeps_the_request_open_until_it_is_abandoned() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let mut connection = server.accept().await;
    connection.request().await;
    client.written(1).await;
    all_is_quiet().await;
    assert!(client.left().is_empty());
    client.transport.abandon(RequestId(1));
    connection.closed().await;
}

#[tokio::test]
async fn an_interim_answer_is_passed_over() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection
        .send("HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n")
        .await;
    let json = &[("content-type", "application/json")];
    connection
        .send(response("200 OK", json, &result(1, "{}")))
        .await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
}
