//! The standing stream, on which a server speaks on its own.

use std::time::Duration;

use mcp_transport::{
    error::ErrorKind,
    http::{HttpClient, HttpConfig},
    transport::Transport,
};
use tokio::time::Instant;

use crate::server::{Client, Connection, Request, Server, all_is_quiet, result};

const HOUR: Duration = Duration::from_secs(3600);
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn listening(server: &Server) -> HttpConfig {
    server.config().with_stream(true)
}

/// A session that listens: its connection for messages, and the request for the stream.
async fn open(server: &Server) -> (Client, Connection, Connection, Request) {
    open_over(server, HttpClient::new()).await
}

async fn open_over(server: &Server, pool: HttpClient) -> (Client, Connection, Connection, Request) {
    let mut client = Client::over(listening(server), pool).await;
    let mut posts = client.open(server, &[("mcp-session-id", "s-1")]).await;
    client.notify("notifications/initialized");
    posts.request().await;
    posts.answer("202 Accepted", &[], "").await;
    let (stream, request) = server.request().await;
    (client, posts, stream, request)
}

async fn is_let_alone(server: &Server, time: Duration) {
    tokio::select! {
        _ = server.accept() => panic!("it was asked again"),
        () = tokio::time::sleep(time) => {}
    }
}

#[tokio::test]
async fn it_is_asked_for_after_the_handshake_and_brings_messages() {
    let server = Server::start().await;
    let (mut client, mut posts, mut stream, request) = open(&server).await;
    assert_eq!(request.line, "GET /mcp HTTP/1.1");
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    assert_eq!(request.header("mcp-session-id"), Some("s-1"));
    assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(request.header("last-event-id"), None);
    stream.begin_events(&[]).await;
    stream.event(NOTE).await;
    assert_eq!(client.message().await, NOTE);
    // Held open, it holds up nothing.
    client.request(1, "ping");
    posts.request().await;
    posts.json(&result(1, "{}")).await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
    stream.event(NOTE).await;
    assert_eq!(client.message().await, NOTE);
}

#[tokio::test(start_paused = true)]
async fn it_is_not_asked_for_unless_wanted_nor_before_the_handshake_is_through() {
    let server = Server::start().await;
    let (_client, _connection) = Client::opened(&server, "s").await;
    is_let_alone(&server, HOUR).await;
    let mut client = Client::with(listening(&server)).await;
    let mut posts = client.open(&server, &[]).await;
    client.notify("notifications/initialized");
    posts.request().await;
    is_let_alone(&server, Duration::from_secs(10)).await;
    posts.answer("202 Accepted", &[], "").await;
    assert!(server.request().await.1.line.starts_with("GET"));
}

#[tokio::test(start_paused = true)]
async fn nothing_else_is_sent_before_the_server_has_answered_or_a_second_is_over() {
    for answers in [true, false] {
        let server = Server::start().await;
        let (client, mut posts, mut stream, _) = open(&server).await;
        let asked = Instant::now();
        client.request(1, "tools/call");
        let answer = async {
            if answers {
                tokio::time::sleep(Duration::from_millis(300)).await;
                stream.begin_events(&[]).await;
            }
        };
        let (_, request) = tokio::join!(answer, posts.request());
        assert!(request.body.contains("tools/call"));
        let waited = asked.elapsed().as_millis();
        let due = if answers { 300 } else { 1000 };
        assert!((due..due + 50).contains(&waited), "{waited} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_none_is_asked_once_and_nothing_is_said() {
    for (status, kind) in [
        ("405 Method Not Allowed", "text/plain"),
        ("404 Not Found", "text/html"),
        ("406 Not Acceptable", "application/json"),
        ("400 Bad Request", "application/json"),
        ("501 Not Implemented", "text/plain"),
        ("200 OK", "application/json"),
        ("200 OK", "text/html"),
        ("204 No Content", "text/event-stream"),
        ("307 Temporary Redirect", "text/plain"),
    ] {
        let server = Server::start().await;
        let (mut client, mut posts, mut stream, _) = open(&server).await;
        if status.starts_with("204") {
            stream.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        } else {
            let headers = [
                ("content-type", kind),
                ("location", "http://other.invalid/"),
            ];
            stream.answer(status, &headers, "{}").await;
        }
        is_let_alone(&server, 24 * HOUR).await;
        assert!(client.left().is_empty());
        drop(posts);
        client.request(1, "ping");
        (posts, _) = server.request().await;
        posts.json(&result(1, "{}")).await;
        assert_eq!(client.answer(1).await, result(1, "{}"), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn closed_at_once_for_an_hour_it_is_asked_for_two_dozen_times() {
    for event in ["", "retry: 1\n\n", "id: 1\nretry: 1\ndata:\n\n"] {
        let server = Server::start().await;
        let (mut client, _posts, mut stream, _) = open(&server).await;
        let begun = Instant::now();
        let mut count = 0;
        while begun.elapsed() < HOUR {
            count += 1;
            stream.begin_events(&[]).await;
            stream.chunk(&format!(":\n{event}")).await;
            stream.end_chunks().await;
            stream.hang_up().await;
            let request;
            (stream, request) = server.request().await;
            let last = event.starts_with("id").then_some("1");
            assert_eq!(request.header("last-event-id"), last);
        }
        assert!((10..=25).contains(&count), "{count} for {event:?}");
        assert!(client.left().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_read_on_from_its_last_event_without_what_came_before() {
    let server = Server::start().await;
    let (mut client, _posts, mut stream, _) = open(&server).await;
    stream.begin_events(&[]).await;
    stream.chunk(&format!("id: a\ndata: {NOTE}\n\n")).await;
    stream.hang_up().await;
    assert_eq!(client.message().await, NOTE);
    let (mut stream, request) = server.request().await;
    assert_eq!(request.header("last-event-id"), Some("a"));
    stream.begin_events(&[]).await;
    let other = NOTE.replace("tools", "prompts");
    stream
        .chunk(&format!("id: a\ndata: {NOTE}\n\nid: b\ndata: {other}\n\n"))
        .await;
    assert_eq!(client.message().await, other);
    // An answer to nothing that is under way.
    stream.event(&result(77, "{}")).await;
    all_is_quiet().await;
    assert!(client.left().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_for_a_while_is_asked_again() {
    let server = Server::start().await;
    let (mut client, _posts, mut stream, _) = open(&server).await;
    stream
        .answer("503 Service Unavailable", &[("retry-after", "60")], "")
        .await;
    let refused = Instant::now();
    let (mut stream, _) = server.request().await;
    assert!(refused.elapsed() >= Duration::from_secs(60));
    stream.begin_events(&[]).await;
    stream.event(NOTE).await;
    assert_eq!(client.message().await, NOTE);
}

#[tokio::test(start_paused = true)]
async fn gone_after_it_was_there_the_session_is_over() {
    let server = Server::start().await;
    let (mut client, _posts, mut stream, _) = open(&server).await;
    stream.begin_events(&[]).await;
    stream.end_chunks().await;
    stream.hang_up().await;
    let (mut stream, _) = server.request().await;
    stream.answer("404 Not Found", &[], "").await;
    assert_eq!(client.ended().await, ErrorKind::Expired);
}

#[tokio::test(start_paused = true)]
async fn refused_for_want_of_credentials_it_waits_for_new_ones() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let (mut client, _posts, mut stream, _) = open_over(&server, pool.clone()).await;
    let (tell, told) = std::sync::mpsc::channel();
    pool.tell_of_refused_streams(move |error| drop(tell.send(error.clone())));
    let challenge = [("www-authenticate", "Bearer scope=\"a\"")];
    stream.answer("401 Unauthorized", &challenge, "").await;
    stream.hang_up().await;
    is_let_alone(&server, 24 * HOUR).await;
    let [error] = &told.try_iter().collect::<Vec<_>>()[..] else {
        panic!("not told once");
    };
    assert_eq!(error.kind, ErrorKind::Auth);
    assert!(error.challenge.is_some());
    assert!(client.left().is_empty());
    pool.set_header("Authorization", Some("Bearer new"))
        .expect("a header");
    let (_, request) = server.request().await;
    assert!(request.line.starts_with("GET"));
    assert_eq!(request.header("authorization"), Some("Bearer new"));
}

#[tokio::test(start_paused = true)]
async fn refused_with_401_after_it_was_there_the_session_is_over_and_the_next_waits() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let (tell, told) = std::sync::mpsc::channel();
    pool.tell_of_refused_streams(move |error| tell.send(error.kind).expect("it is held"));
    // What was given proves the credentials anew.
    for is_given in [true, false, true] {
        let (mut client, _posts, mut stream, _) = open_over(&server, pool.clone()).await;
        if is_given {
            stream.begin_events(&[]).await;
            stream.end_chunks().await;
            stream.hang_up().await;
            (stream, _) = server.request().await;
        }
        stream.answer("401 Unauthorized", &[], "").await;
        stream.hang_up().await;
        if is_given {
            assert_eq!(client.ended().await, ErrorKind::Expired);
            assert!(told.try_recv().is_err());
        } else {
            // Lost again at once: it is the credentials.
            is_let_alone(&server, HOUR).await;
            assert!(client.left().is_empty());
            assert_eq!(told.try_recv(), Ok(ErrorKind::Auth));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_listened_to_while_it_is_open_and_any_byte_is_heard() {
    let server = Server::start().await;
    let (client, _posts, mut stream, _) = open(&server).await;
    let transport = &client.transport;
    assert!(!transport.listens());
    stream.begin_events(&[]).await;
    all_is_quiet().await;
    assert!(transport.listens());
    let opened = transport.heard();
    stream.chunk(":\n").await;
    all_is_quiet().await;
    assert!(transport.heard() > opened);
    stream.end_chunks().await;
    stream.hang_up().await;
    let (mut stream, _) = server.request().await;
    assert!(!transport.listens());
    stream.answer("405 Method Not Allowed", &[], "").await;
    all_is_quiet().await;
    assert!(!transport.listens());
}

#[tokio::test(start_paused = true)]
async fn closing_and_dropping_cut_it() {
    for drops in [false, true] {
        let server = Server::start().await;
        let (client, mut posts, mut stream, _) = open(&server).await;
        stream.begin_events(&[]).await;
        all_is_quiet().await;
        if drops {
            drop(client);
        } else {
            let close = client.transport.close(Duration::from_secs(5));
            tokio::join!(close, async {
                stream.closed().await;
                posts.request().await;
                posts.answer("200 OK", &[], "").await;
            });
        }
        stream.closed().await;
    }
}
