//! The session: where its id comes from, what bears it, what goes first, and when it is gone.

use bytes::Bytes;
use mcp_transport::{
    error::{Cause, ErrorKind, Outcome},
    http::HttpConfig,
    transport::{Outgoing, Transport},
};

use crate::server::{Client, Server, all_is_quiet, result};

#[tokio::test]
async fn what_initialize_gave_goes_along_with_everything_after() {
    let server = Server::start().await;
    let headers = [
        ("X-Tenant", "a"),
        ("authorization", "Bearer t"),
        ("Accept", "x/y"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = HttpConfig::new(&format!("{}?key=k#part", server.url()), &headers).expect("good");
    let mut client = Client::with(config).await;
    client.request(0, "initialize");
    let (mut connection, request) = server.request().await;
    assert_eq!(request.line, "POST /mcp?key=k HTTP/1.1");
    assert_eq!(request.header("mcp-session-id"), None);
    assert_eq!(request.header("mcp-protocol-version"), None);
    connection
        .answer(
            "200 OK",
            &[
                ("content-type", "application/json"),
                ("Mcp-Session-Id", "s-42"),
            ],
            &result(0, "{}"),
        )
        .await;
    client.answer(0).await;
    client
        .transport
        .negotiated(mcp_transport::revision::Revision::V2025_06_18);
    client.notify("notifications/initialized");
    let initialized = connection.request().await;
    connection.answer("202 Accepted", &[], "").await;
    client.request(1, "tools/list");
    let list = connection.request().await;
    // An id that comes later changes nothing.
    connection
        .answer(
            "200 OK",
            &[
                ("content-type", "application/json"),
                ("mcp-session-id", "s-43"),
            ],
            &result(1, "{}"),
        )
        .await;
    client.answer(1).await;
    client.request(2, "ping");
    let ping = connection.request().await;
    for request in [initialized, list, ping] {
        assert_eq!(request.header("mcp-session-id"), Some("s-42"));
        assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
        assert_eq!(request.header("x-tenant"), Some("a"));
        assert_eq!(request.header("authorization"), Some("Bearer t"));
        assert_eq!(
            request.header("accept"),
            Some("application/json, text/event-stream")
        );
    }
}

#[tokio::test]
async fn an_id_is_taken_from_a_stream_that_brings_the_result() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(0, "initialize");
    let (mut connection, _) = server.request().await;
    connection
        .begin_events(&[("mcp-session-id", "streamed")])
        .await;
    connection.event(&result(0, "{}")).await;
    connection.end_chunks().await;
    client.answer(0).await;
    client.request(1, "ping");
    let request = connection.request().await;
    assert_eq!(request.header("mcp-session-id"), Some("streamed"));
}

#[tokio::test]
async fn an_id_that_comes_with_anything_but_a_result_is_not_taken() {
    let error =
        |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"no"}}}}"#);
    for (method, status, body) in [
        ("initialize", "400 Bad Request", String::new()),
        ("initialize", "400 Bad Request", error(0)),
        ("initialize", "200 OK", error(0)),
        ("initialize", "200 OK", result(9, "{}")),
        ("initialize", "202 Accepted", String::new()),
        ("ping", "200 OK", result(0, "{}")),
    ] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(0, method);
        let (mut connection, _) = server.request().await;
        let headers = [
            ("content-type", "application/json"),
            ("mcp-session-id", "not-this"),
        ];
        connection.answer(status, &headers, &body).await;
        if method == "initialize" && status.starts_with("400") && body.is_empty() {
            // It may have been a server of the older transport.
            let (mut stream, request) = server.request().await;
            assert!(request.line.starts_with("GET"));
            stream.answer("405 Method Not Allowed", &[], "").await;
        }
        client.written(0).await;
        client.next().await;
        client.request(1, "ping");
        let request = connection.request().await;
        assert_eq!(
            request.header("mcp-session-id"),
            None,
            "{method} {status} {body}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_overtakes_the_notification_that_ends_the_handshake() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut connection = client.open(&server, &[]).await;
    client.notify("notifications/initialized");
    let initialized = connection.request().await;
    assert!(initialized.body.contains("notifications/initialized"));
    client.request(1, "tools/list");
    client.request(2, "ping");
    tokio::select! {
        _ = server.accept() => panic!("a request overtook it"),
        _ = connection.request() => panic!("a request overtook it"),
        () = all_is_quiet() => {}
    }
    assert!(client.left().is_empty());
    connection.answer("202 Accepted", &[], "").await;
    let (_, other) = tokio::join!(connection.request(), server.request());
    assert!(other.1.line.starts_with("POST"));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_notification_that_is_never_answered_holds_up_others_for_a_while_only() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut connection = client.open(&server, &[]).await;
    client.notify("notifications/initialized");
    connection.request().await;
    client.request(1, "tools/list");
    let begun = tokio::time::Instant::now();
    let (mut next, _) = server.request().await;
    assert_eq!(begun.elapsed().as_secs(), 30);
    connection.closed().await;
    next.json(&result(1, "{}")).await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
}

#[tokio::test(start_paused = true)]
async fn the_head_of_its_answer_is_enough_to_go_on() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut connection = client.open(&server, &[]).await;
    client.notify("notifications/initialized");
    connection.request().await;
    client.request(1, "tools/list");
    let begun = tokio::time::Instant::now();
    connection.begin_events(&[]).await;
    server.request().await;
    assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test]
async fn whatever_is_said_to_a_notification_the_next_request_is_served() {
    for (status, headers, body) in [
        ("202 Accepted", &[][..], ""),
        ("200 OK", &[], ""),
        ("204 No Content", &[], ""),
        (
            "202 Accepted",
            &[("content-type", "text/plain")],
            "Accepted",
        ),
        ("200 OK", &[("content-type", "application/json")], "null"),
        (
            "400 Bad Request",
            &[("content-type", "application/json")],
            "{}",
        ),
        ("401 Unauthorized", &[], ""),
        ("404 Not Found", &[], ""),
        ("500 Internal Server Error", &[], "oh"),
    ] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        // Without a session id, so that 404 is no expiry.
        let mut connection = client.open(&server, &[]).await;
        for method in [
            "notifications/initialized",
            "notifications/roots/list_changed",
        ] {
            client.notify(method);
            assert!(connection.request().await.body.contains(method));
            if status.starts_with("204") {
                connection.send("HTTP/1.1 204 No Content\r\n\r\n").await;
            } else {
                connection.answer(status, headers, body).await;
            }
        }
        client.request(1, "ping");
        connection.request().await;
        connection.json(&result(1, "{}")).await;
        assert_eq!(client.answer(1).await, result(1, "{}"), "after {status}");
    }
}

#[tokio::test]
async fn a_notification_that_cannot_be_delivered_disturbs_nothing() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    client.notify("notifications/cancelled");
    connection.request().await;
    drop(connection);
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection.json(&result(1, "{}")).await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
}

#[tokio::test]
async fn an_expiry_fails_the_request_as_rejected_and_there_is_no_farewell() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    connection.request().await;
    connection.answer("404 Not Found", &[], "").await;
    let (error, _) = client.failed(1).await;
    assert_eq!(
        (error.kind, error.outcome, error.cause),
        (ErrorKind::Expired, Outcome::Rejected, Cause::Routine)
    );
    // The next still bears the id: it is refused for the same reason, not as one of no session.
    client.request(2, "tools/call");
    assert_eq!(
        connection.request().await.header("mcp-session-id"),
        Some("s")
    );
    connection.answer("404 Not Found", &[], "").await;
    assert_eq!(client.failed(2).await.0.kind, ErrorKind::Expired);
    let close = client.transport.close(std::time::Duration::from_secs(5));
    tokio::select! {
        biased;
        request = connection.request() => panic!("a farewell: {request:?}"),
        () = close => {}
    }
}

#[tokio::test]
async fn an_expiry_that_a_notification_meets_ends_the_session() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    client.notify("notifications/roots/list_changed");
    connection.request().await;
    connection.answer("404 Not Found", &[], "").await;
    assert_eq!(client.ended().await, ErrorKind::Expired);
}

#[tokio::test(start_paused = true)]
async fn an_expiry_that_a_notification_meets_leaves_requests_their_own_answers() {
    let server = Server::start().await;
    let (mut client, mut connection) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    connection.request().await;
    client.written(1).await;
    client.request(2, "tools/call");
    let (mut second, _) = server.request().await;
    client.written(2).await;
    client.notify("notifications/cancelled");
    let (mut third, _) = server.request().await;
    third.answer("404 Not Found", &[], "").await;
    all_is_quiet().await;
    connection.json(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
    second.answer("404 Not Found", &[], "").await;
    let (error, _) = client.failed(2).await;
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Expired, Outcome::Rejected)
    );
}

#[tokio::test]
async fn the_answer_to_a_request_of_the_server_is_posted() {
    let server = Server::start().await;
    let (mut client, mut stream) = Client::opened(&server, "s").await;
    client.request(1, "tools/call");
    stream.request().await;
    stream.begin_events(&[]).await;
    let asked = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
    stream.event(asked).await;
    assert_eq!(client.answer(1).await, asked);
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}"#;
    client.transport.send(Outgoing {
        bytes: Bytes::from_static(answer.as_bytes()),
        request: None,
    });
    let (mut other, request) = server.request().await;
    assert_eq!(request.body, answer);
    assert_eq!(request.header("mcp-session-id"), Some("s"));
    other.answer("202 Accepted", &[], "").await;
    stream.event(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
}
