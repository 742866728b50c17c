//! HTTP+SSE, by configuration and by fallback.

use std::{sync::Arc, time::Duration};

use mcp_transport::{
    error::{ErrorKind, Outcome},
    http::{HttpClient, HttpTransport},
    transport::{Incoming, Receiver, Transport},
};
use tokio::{sync::mpsc, time::Instant};

use crate::server::{Client, Connection, Server, all_is_quiet, result};

struct Recorder(mpsc::UnboundedSender<Incoming>);

impl Receiver for Recorder {
    fn receive(&self, incoming: Incoming) {
        let _ = self.0.send(incoming);
    }
}

/// A client that is being started, and the stream that it asked for.
async fn start(
    server: &Server,
) -> (
    tokio::task::JoinHandle<Result<Client, mcp_transport::error::Error>>,
    Connection,
) {
    let transport = HttpTransport::new(server.config().with_legacy_sse(true), HttpClient::new());
    let starting = tokio::spawn(async move {
        let (tell, told) = mpsc::unbounded_channel();
        transport.start(Arc::new(Recorder(tell))).await?;
        Ok(Client { transport, told })
    });
    let (stream, request) = server.request().await;
    assert_eq!(request.line, "GET /mcp HTTP/1.1");
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    (starting, stream)
}

async fn started(server: &Server) -> (Client, Connection) {
    let (starting, mut stream) = start(server).await;
    stream.begin_events(&[]).await;
    stream
        .chunk("event: endpoint\ndata: /messages?id=1\n\n")
        .await;
    (
        starting.await.expect("no panic").expect("it starts"),
        stream,
    )
}

#[tokio::test]
async fn messages_are_posted_to_the_endpoint_and_answered_on_the_stream() {
    let server = Server::start().await;
    let (mut client, mut stream) = started(&server).await;
    client.request(0, "initialize");
    let (mut posts, request) = server.request().await;
    assert_eq!(request.line, "POST /messages?id=1 HTTP/1.1");
    posts.answer("202 Accepted", &[], "Accepted").await;
    client.written(0).await;
    stream.event(&result(0, "{}")).await;
    assert_eq!(client.message().await, result(0, "{}"));
    client.notify("notifications/initialized");
    posts.request().await;
    posts.answer("202 Accepted", &[], "").await;
    // A comment and an unknown event mean nothing, a second endpoint neither.
    stream
        .chunk(": ping\n\nevent: x\ndata: y\n\nevent: endpoint\ndata: /other\n\n")
        .await;
    client.request(1, "tools/call");
    // The answer may come before that to the POST.
    let request = posts.request().await;
    assert_eq!(request.line, "POST /messages?id=1 HTTP/1.1");
    stream.event(&result(1, "{}")).await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
    posts.answer("202 Accepted", &[], "").await;
}

#[tokio::test(start_paused = true)]
async fn the_first_endpoint_stays_whatever_the_stream_names_later() {
    let elsewhere = Server::start().await;
    let server = Server::start().await;
    let (mut client, mut stream) = started(&server).await;
    client.request(0, "initialize");
    let (mut posts, _) = server.request().await;
    posts.answer("202 Accepted", &[], "").await;
    client.written(0).await;
    stream.event(&result(0, "{}")).await;
    assert_eq!(client.message().await, result(0, "{}"));
    let named = [
        "/other".to_owned(),
        "/messages?id=2".to_owned(),
        format!("http://{}/messages?id=1", server.authority()),
        elsewhere.url(),
        "http://[".to_owned(),
        String::new(),
    ];
    for (id, later) in (1..).zip(named) {
        stream
            .chunk(&format!("event: endpoint\ndata: {later}\n\n"))
            .await;
        // What came after it was read, so it was too.
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
        stream.event(note).await;
        assert_eq!(client.message().await, note);
        client.request(id, "ping");
        let request = posts.request().await;
        assert_eq!(request.line, "POST /messages?id=1 HTTP/1.1", "{later}");
        posts.answer("202 Accepted", &[], "").await;
        client.written(id).await;
        stream.event(&result(id, "{}")).await;
        assert_eq!(client.message().await, result(id, "{}"));
    }
    tokio::select! {
        _ = elsewhere.accept() => panic!("something went to another origin"),
        () = all_is_quiet() => {}
    }
}

#[tokio::test]
async fn a_cookie_that_the_stream_sets_goes_along_with_messages_and_to_no_other_session() {
    let server = Server::start().await;
    let (starting, mut stream) = start(&server).await;
    stream.begin_events(&[("set-cookie", "place=1")]).await;
    stream.chunk("event: endpoint\ndata: /messages\n\n").await;
    let client = starting.await.expect("no panic").expect("it starts");
    client.request(0, "initialize");
    let (_posts, request) = server.request().await;
    assert_eq!(request.header("cookie"), Some("place=1"));
    let (other, _stream) = started(&server).await;
    other.request(0, "initialize");
    let (_posts, request) = server.request().await;
    assert_eq!(request.header("cookie"), None);
}

#[tokio::test]
async fn with_the_stream_all_ends() {
    let server = Server::start().await;
    let (mut client, stream) = started(&server).await;
    client.request(0, "initialize");
    let (mut posts, _) = server.request().await;
    posts.answer("202 Accepted", &[], "").await;
    client.written(0).await;
    stream.hang_up().await;
    assert_eq!(client.ended().await, ErrorKind::Transport);
}

#[tokio::test]
async fn a_refused_post_fails_its_request() {
    for (status, kind, outcome) in [
        ("404 Not Found", ErrorKind::Expired, Outcome::Rejected),
        ("401 Unauthorized", ErrorKind::Auth, Outcome::Rejected),
        ("500 Oh", ErrorKind::Transport, Outcome::Unknown),
    ] {
        let server = Server::start().await;
        let (mut client, _stream) = started(&server).await;
        client.request(1, "tools/call");
        let (mut posts, _) = server.request().await;
        posts.answer(status, &[], "").await;
        let (error, _) = client.failed(1).await;
        assert_eq!((error.kind, error.outcome), (kind, outcome), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_of_another_origin_gets_nothing() {
    let elsewhere = Server::start().await;
    let server = Server::start().await;
    let (starting, mut stream) = start(&server).await;
    stream.begin_events(&[]).await;
    stream
        .chunk(&format!("event: endpoint\ndata: {}\n\n", elsewhere.url()))
        .await;
    let error = starting.await.expect("no panic").err().expect("refused");
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.message.contains("another origin"), "{error}");
    tokio::select! {
        _ = elsewhere.accept() => panic!("something went to another origin"),
        () = all_is_quiet() => {}
    }
    stream.closed().await;
}

#[tokio::test(start_paused = true)]
async fn each_phase_of_the_start_is_bounded() {
    for opens in [false, true] {
        let server = Server::start().await;
        let (starting, mut stream) = start(&server).await;
        let begun = Instant::now();
        if opens {
            stream.begin_events(&[]).await;
            stream.chunk(": nothing\n\n").await;
        }
        let error = starting.await.expect("no panic").err().expect("too late");
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert_eq!(begun.elapsed().as_secs(), 10);
        stream.closed().await;
    }
}

#[tokio::test]
async fn what_is_no_stream_of_events_or_ends_early_fails_the_start() {
    for (answer, kind) in [
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            ErrorKind::Protocol,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1\r\n\r\n<",
            ErrorKind::Protocol,
        ),
        (
            "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
            ErrorKind::Transport,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: x\n\n",
            ErrorKind::Transport,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n",
            ErrorKind::Protocol,
        ),
    ] {
        let server = Server::start().await;
        let (starting, mut stream) = start(&server).await;
        stream.send(answer).await;
        stream.hang_up().await;
        let error = starting.await.expect("no panic").err().expect("refused");
        assert_eq!(error.kind, kind, "{answer}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_initialize_may_be_an_older_one() {
    for status in ["400 Bad Request", "404 Not Found", "405 Method Not Allowed"] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(0, "initialize");
        let (mut posts, _) = server.request().await;
        posts.answer(status, &[], "").await;
        let (mut stream, request) = server.request().await;
        assert_eq!(request.line, "GET /mcp HTTP/1.1");
        stream.begin_events(&[]).await;
        stream.chunk("event: endpoint\ndata: /post\n\n").await;
        let request = posts.request().await;
        assert_eq!(request.line, "POST /post HTTP/1.1");
        assert!(request.body.contains("initialize"));
        posts.answer("202 Accepted", &[], "").await;
        stream.event(&result(0, "{}")).await;
        client.written(0).await;
        let mut next = client.next().await;
        if matches!(next, Incoming::Written(_)) {
            next = client.next().await;
        }
        assert!(matches!(next, Incoming::Message(_)), "{next:?}");
        client.request(1, "ping");
        assert_eq!(posts.request().await.line, "POST /post HTTP/1.1");
        drop(client);
        stream.closed().await;
    }
}

#[tokio::test]
async fn a_server_that_is_no_older_one_either_has_refused_initialize() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(0, "initialize");
    let (mut posts, _) = server.request().await;
    posts.answer("404 Not Found", &[], "").await;
    let (mut stream, _) = server.request().await;
    stream.answer("405 Method Not Allowed", &[], "").await;
    let (error, _) = client.failed(0).await;
    assert!(error.message.contains("HTTP 404"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn other_refusals_and_silence_prove_no_older_server() {
    for status in ["401 Unauthorized", "500 Oh", "406 Not Acceptable"] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(0, "initialize");
        let (mut posts, _) = server.request().await;
        posts.answer(status, &[], "").await;
        client.failed(0).await;
        tokio::select! {
            _ = server.accept() => panic!("asked again after {status}"),
            () = all_is_quiet() => {}
        }
    }
    let server = Server::start().await;
    let client = Client::of(&server).await;
    client.request(0, "initialize");
    let _silent = server.request().await;
    tokio::select! {
        _ = server.accept() => panic!("asked again"),
        () = tokio::time::sleep(Duration::from_secs(600)) => {}
    }
}
