//! What was reported from the field of other clients, and what a hostile server would try.

use std::{io::Write, sync::Arc, time::Duration};

use flate2::{Compression, write::GzEncoder};
use mcp_transport::{
    error::{ErrorKind, Outcome},
    http::{HttpClient, HttpTransport},
    session::{RequestOptions, Session, SessionOptions},
};
use tokio::{runtime::Handle, time::Instant};

use crate::server::{Client, Connection, Server, all_is_quiet, in_small_steps, result};

const LIMIT: usize = 1 << 20;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn options(deadline: Duration) -> SessionOptions {
    SessionOptions {
        client_name: "test".into(),
        client_version: "0".into(),
        connect_deadline: Instant::now() + deadline,
        handler: Arc::new(()),
    }
}

/// A session of the layer above, and the connection it was opened on.
async fn session(server: &Server) -> (Session, Connection) {
    let transport = HttpTransport::new(server.config(), HttpClient::new());
    let opening = tokio::spawn(Session::open(Arc::new(transport), options(seconds(30))));
    let (mut connection, _) = server.request().await;
    let headers = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s"),
    ];
    connection
        .answer(
            "200 OK",
            &headers,
            &result(1, r#"{"protocolVersion":"2025-11-25"}"#),
        )
        .await;
    connection.request().await;
    connection.answer("202 Accepted", &[], "").await;
    let session = opening.await.expect("no panic").expect("opened");
    // Answered, so that the client has seen the end of the notification too.
    let ping = tokio::spawn(session.ping(None));
    connection.request().await;
    connection.json(&result(2, "{}")).await;
    ping.await.expect("no panic").expect("alive");
    (session, connection)
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_deadline_passes_between_two_polls_stops_all_its_work() {
    in_small_steps();
    let server = Server::start().await;
    let (session, mut connection) = session(&server).await;
    let begun = Instant::now();
    let limits = RequestOptions::until(begun + seconds(5));
    let call = tokio::spawn(session.request("tools/call", None, limits));
    connection.request().await;
    connection.begin_events(&[]).await;
    connection.chunk("id: 1\nretry: 3000\ndata:\n\n").await;
    connection.end_chunks().await;
    let (mut poll, request) = server.request().await;
    assert!(request.line.starts_with("GET"), "{request:?}");
    poll.begin_events(&[]).await;
    poll.chunk("id: 2\ndata:\n\n").await;
    poll.end_chunks().await;
    let error = call.await.expect("no panic").expect_err("too late");
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::Unknown)
    );
    assert_eq!(begun.elapsed().as_secs(), 5);
    let (mut connection, cancelled) = server.request().await;
    assert!(cancelled.body.contains("notifications/cancelled"));
    connection.answer("202 Accepted", &[], "").await;
    tokio::select! {
        _ = server.accept() => panic!("it was given up"),
        () = tokio::time::sleep(seconds(60)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_is_left_at_the_deadline() {
    in_small_steps();
    let server = Server::start().await;
    let (session, mut connection) = session(&server).await;
    let begun = Instant::now();
    let limits = RequestOptions::until(begun + seconds(2));
    let call = tokio::spawn(session.request("tools/call", None, limits));
    connection.request().await;
    let error = call.await.expect("no panic").expect_err("too late");
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert_eq!(begun.elapsed(), seconds(2));
    connection.closed().await;

    let transport = HttpTransport::new(server.config(), HttpClient::new());
    let begun = Instant::now();
    let opening = Session::open(Arc::new(transport), options(seconds(2)));
    let (opened, _silent) = tokio::join!(opening, server.accept());
    assert_eq!(opened.err().map(|e| e.kind), Some(ErrorKind::Timeout));
    assert!(begun.elapsed() <= seconds(3), "{:?}", begun.elapsed());
}

/// One call against a server that answers with these bytes, over a limit of a mebibyte.
async fn answered(head: &str, body: &[u8]) -> (Client, Connection) {
    let server = Server::start().await;
    let client = Client::with(server.config().with_body_limit(LIMIT)).await;
    client.request(1, "tools/call");
    let (mut connection, request) = server.request().await;
    assert_eq!(request.header("accept-encoding"), Some("gzip"));
    let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
    connection.send(head).await;
    connection.try_send(body).await;
    (client, connection)
}

fn gzip(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for part in parts {
        encoder.write_all(&part).expect("to memory");
    }
    encoder.finish().expect("to memory")
}

#[tokio::test]
async fn a_gibibyte_is_not_read() {
    // JSON is the answer. What a stream would have brought is not known.
    for (kind, outcome) in [
        ("application/json", Outcome::Answered),
        ("text/event-stream", Outcome::Unknown),
    ] {
        let head = format!("content-type: {kind}\r\ncontent-length: 1073741824\r\n");
        let (mut client, mut connection) = answered(&head, &vec![b' '; 2 * LIMIT]).await;
        let (error, _) = client.failed(1).await;
        assert!(error.message.contains("larger than"), "{error}");
        assert_eq!(error.outcome, outcome);
        connection.closed().await;
    }
}

#[tokio::test]
async fn what_is_small_only_as_gzip_is_not_unpacked() {
    // Thirty-two times the limit, in a thirtieth of it.
    let bomb = gzip((0..32).map(|_| vec![b' '; LIMIT]));
    for kind in ["application/json", "text/event-stream"] {
        let head = format!(
            "content-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n",
            bomb.len()
        );
        let (mut client, mut connection) = answered(&head, &bomb).await;
        let (error, _) = client.failed(1).await;
        assert!(error.message.contains("larger than"), "{error}");
        connection.closed().await;
    }
}

#[tokio::test]
async fn a_gzip_answer_is_unpacked_whole_and_in_pieces() {
    let text = format!("{:?}", "some text ".repeat(9000));
    let packed = gzip([result(1, &text).into_bytes()]);
    let head = format!(
        "content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n",
        packed.len()
    );
    let (mut client, _connection) = answered(&head, &packed).await;
    assert!(client.answer(1).await == result(1, &text));

    // A stream that is flushed after each event is read so far.
    let head = "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n";
    let (mut client, mut connection) = answered(head, b"").await;
    client.written(1).await;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for event in [
        r#"{"jsonrpc":"2.0","method":"notifications/message"}"#,
        &result(1, "{}"),
    ] {
        write!(encoder, "data: {event}\n\n").expect("to memory");
        encoder.flush().expect("to memory");
        let flushed = std::mem::take(encoder.get_mut());
        for byte in flushed.chunks(7) {
            connection.send(byte).await;
        }
        assert_eq!(client.message().await, event);
    }
}

#[tokio::test]
async fn a_gzip_answer_that_is_cut_or_spoilt_is_an_error() {
    let packed = gzip([result(1, &format!("{:?}", "text ".repeat(999))).into_bytes()]);
    let mut spoilt = packed.clone();
    let middle = spoilt.len() / 2;
    spoilt[middle] ^= 0xff;
    for body in [
        &packed[..packed.len() - 4],
        &packed[..20],
        &spoilt,
        b"{\"plain\":1}",
    ] {
        let head = format!(
            "content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n",
            body.len()
        );
        let (mut client, _connection) = answered(&head, body).await;
        let (error, _) = client.failed(1).await;
        assert_eq!(
            (error.kind, error.outcome),
            (ErrorKind::Protocol, Outcome::Unknown)
        );
        assert!(error.message.contains("gzip"), "{error}");
    }
}

#[tokio::test]
async fn json_nested_a_hundred_thousand_deep_is_carried_or_refused_and_nothing_falls() {
    let deep = |open: &str, close: &str| open.repeat(100_000) + &close.repeat(100_000);
    let arrays = deep("[", "]");
    for nested in [arrays.clone(), deep(r#"{"a":"#, "}").replace(":}", ":1}")] {
        let server = Server::start().await;
        let (session, mut connection) = session(&server).await;
        for body in [
            result(3, &nested),
            nested.clone(),
            format!(r#"{{"jsonrpc":"2.0","id":5,"error":{nested}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":null,"error":{nested}}}"#),
        ] {
            let call = tokio::spawn(session.request("tools/call", None, RequestOptions::default()));
            connection.request().await;
            connection.json(&body).await;
            match call.await.expect("no panic") {
                Ok(answer) => assert!(answer == nested),
                Err(error) => assert!(error.message.len() < 1000),
            }
        }
    }
    // Also in an error's body, and beside what was sent.
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request_with(1, "tools/call", &format!(r#"{{"a":{arrays}}}"#));
    let (mut connection, _) = server.request().await;
    connection
        .answer("500 Oh", &[("content-type", "application/json")], &arrays)
        .await;
    let (error, _) = client.failed(1).await;
    assert_eq!(error.kind, ErrorKind::Transport);
}

#[tokio::test]
async fn cookies_go_along_within_a_session_and_to_no_other() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let mut one = Client::over(server.config(), pool.clone()).await;
    let mut connection = one
        .open(&server, &[("set-cookie", "machine=7; Path=/; HttpOnly")])
        .await;
    one.request(1, "ping");
    let request = connection.request().await;
    assert_eq!(request.header("cookie"), Some("machine=7"));
    connection.json(&result(1, "{}")).await;
    one.answer(1).await;
    let mut other = Client::over(server.config(), pool).await;
    other.request(1, "ping");
    let request = connection.request().await;
    assert_eq!(request.header("cookie"), None);
    connection.json(&result(1, "{}")).await;
    other.answer(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_closes_again_and_again_leaves_no_task_behind_a_drop() {
    let server = Server::start().await;
    let mut client = Client::with(server.config().with_stream(true)).await;
    let mut posts = client.open(&server, &[]).await;
    client.notify("notifications/initialized");
    posts.request().await;
    posts.answer("202 Accepted", &[], "").await;
    for _ in 0..20 {
        let (mut stream, _) = server.request().await;
        stream.begin_events(&[]).await;
        stream.end_chunks().await;
        stream.hang_up().await;
    }
    drop(client);
    all_is_quiet().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}
