//! The transport over TLS, with HTTP/1.1 and HTTP/2, against a server that writes what each test says.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{broadcast, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    AddressPolicy, HttpClient, HttpConfig, HttpTransport,
    connect::Tls,
    proxy::Proxies,
    resolve::Resolver,
    testing::{self, Authority, accepted, in_time, listener},
};
use crate::{
    error::{Cause, ErrorKind, Outcome},
    jsonrpc::RequestId,
    session::{Handler, RequestOptions, Session, SessionOptions},
    transport::{Incoming, Outgoing, Receiver, Transport},
};

struct Recorder(mpsc::UnboundedSender<Incoming>);

impl Receiver for Recorder {
    fn receive(&self, incoming: Incoming) {
        let _ = self.0.send(incoming);
    }
}

/// A server on `localhost` with a certificate of its own, and a transport that trusts it or does not.
struct Scene {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    transport: HttpTransport,
    told: mpsc::UnboundedReceiver<Incoming>,
}

impl Scene {
    async fn new(protocol: &str, trusted: bool) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has every default")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("they fit");
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(certificate).expect("a certificate");
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let port = listener.local_addr().expect("an address").port();
        let transport = HttpTransport::new(
            HttpConfig::new(&format!("https://localhost:{port}/mcp"), &[]).expect("good"),
            HttpClient::over(
                Tls::new(Some(roots), None).expect("nothing to go wrong"),
                Resolver::new(AddressPolicy::any()),
                Proxies::default(),
                true,
            ),
        );
        let (tell, told) = mpsc::unbounded_channel();
        transport
            .start(Arc::new(Recorder(tell)))
            .await
            .expect("it starts");
        Self {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            transport,
            told,
        }
    }

    async fn accept(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let (stream, _) = self.listener.accept().await?;
        self.acceptor.accept(stream).await
    }

    fn ping(&self) {
        self.transport.send(Outgoing {
            bytes: Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
            request: Some(RequestId(1)),
        });
    }

    async fn next(&mut self) -> Incoming {
        self.told.recv().await.expect("the transport is held")
    }
}

const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a small frame");
    let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, stream];
    frame.extend_from_slice(payload);
    frame
}

/// Reads until the client has sent a request, body and all.
async fn read_request(stream: &mut TlsStream<TcpStream>) {
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"ping") {
        assert!(stream.read_buf(&mut read).await.expect("a request") > 0);
    }
}

async fn begin_http2(stream: &mut TlsStream<TcpStream>) {
    // Its settings, and the word that the client's are taken.
    let settings = [frame(4, 0, 0, &[]), frame(4, 1, 0, &[])].concat();
    stream.write_all(&settings).await.expect("a client");
    stream.flush().await.expect("a client");
    read_request(stream).await;
}

#[tokio::test]
async fn https_carries_a_request_over_http_1() {
    let mut scene = Scene::new("http/1.1", true).await;
    scene.ping();
    let mut stream = scene.accept().await.expect("the certificate is trusted");
    read_request(&mut stream).await;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        ANSWER.len()
    );
    stream
        .write_all(&[head.as_bytes(), ANSWER].concat())
        .await
        .expect("a client");
    stream.flush().await.expect("a client");
    assert!(matches!(scene.next().await, Incoming::Written(_)));
    assert!(matches!(scene.next().await, Incoming::Answer(answer) if answer.message == ANSWER));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn closing_what_the_server_has_reset_raises_no_signal_on_whichever_thread_it_is_closed() {
    let mut scene = Scene::new("http/1.1", true).await;
    scene.ping();
    let mut stream = scene.accept().await.expect("the certificate is trusted");
    read_request(&mut stream).await;
    let answer = testing::ANSWER.as_bytes();
    stream.write_all(answer).await.expect("a client");
    stream.flush().await.expect("a client");
    assert!(matches!(scene.next().await, Incoming::Written(_)));
    assert!(matches!(scene.next().await, Incoming::Answer(_)));
    // Ended in good order, and then reset: what is written to it now raises SIGPIPE, if nothing is done about it.
    stream.shutdown().await.expect("a client");
    stream.get_ref().0.set_zero_linger().expect("a socket");
    drop(stream);
    let pending = crate::stdio::with_signals_blocked(|| {
        drop(scene.transport);
        std::fs::read_to_string("/proc/thread-self/status").expect("it is mounted")
    });
    let pending = pending.lines().find(|line| line.starts_with("SigPnd:"));
    assert_eq!(pending, Some("SigPnd:\t0000000000000000"));
}

#[tokio::test]
async fn https_carries_a_request_over_http_2() {
    let mut scene = Scene::new("h2", true).await;
    scene.ping();
    let mut stream = scene.accept().await.expect("the certificate is trusted");
    begin_http2(&mut stream).await;
    // :status 200, and content-type by its place in the static table.
    let headers = [b"\x88\x0f\x10\x10", &b"application/json"[..]].concat();
    let answer = [frame(1, 4, 1, &headers), frame(0, 1, 1, ANSWER)].concat();
    stream.write_all(&answer).await.expect("a client");
    stream.flush().await.expect("a client");
    assert!(matches!(scene.next().await, Incoming::Written(_)));
    assert!(matches!(scene.next().await, Incoming::Answer(answer) if answer.message == ANSWER));
}

#[tokio::test]
async fn what_an_http_2_server_says_it_has_not_begun_was_not_sent() {
    let refused = frame(3, 0, 1, &[0, 0, 0, 7]);
    let going_away = frame(7, 0, 0, &[0; 8]);
    let canceled = frame(3, 0, 1, &[0, 0, 0, 8]);
    let going_later = [frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])].concat();
    for (said, outcome) in [
        (refused, Outcome::NotSent),
        (going_away, Outcome::NotSent),
        (canceled, Outcome::Unknown),
        (going_later, Outcome::Unknown),
    ] {
        let mut scene = Scene::new("h2", true).await;
        scene.ping();
        let mut stream = scene.accept().await.expect("the certificate is trusted");
        begin_http2(&mut stream).await;
        stream.write_all(&said).await.expect("a client");
        stream.shutdown().await.expect("a client");
        drop(stream);
        assert!(matches!(scene.next().await, Incoming::Written(_)));
        match scene.next().await {
            Incoming::Failed(_, error) => {
                assert_eq!(error.kind, ErrorKind::Transport, "{error}");
                assert_eq!(error.outcome, outcome, "{said:?}: {error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_ends_it_before_anything_is_sent() {
    let mut scene = Scene::new("h2", false).await;
    scene.ping();
    assert!(scene.accept().await.is_err());
    match scene.next().await {
        Incoming::Failed(_, error) => {
            assert_eq!(
                (error.kind, error.cause, error.outcome),
                (ErrorKind::Transport, Cause::Transient, Outcome::NotSent)
            );
            assert!(error.message.contains("TLS failed"), "{error}");
            assert!(error.message.contains("https://localhost:"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_to_the_handshake_is_given_up_after_a_minute() {
    let mut scene = Scene::new("h2", true).await;
    scene.ping();
    let mut stream = accepted(&scene.listener).await;
    let hello = in_time("the client's hello", stream.read_u8()).await;
    assert_eq!(hello.expect("the client speaks"), 22);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    match in_time("the end of it", scene.next()).await {
        Incoming::Failed(_, error) => {
            assert_eq!(
                (error.kind, error.outcome),
                (ErrorKind::Transport, Outcome::NotSent)
            );
            assert!(error.message.contains("60 seconds"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() <= Duration::from_secs(61));
}

#[tokio::test]
async fn a_server_that_lets_nobody_in_is_left_by_all_but_a_few_of_those_that_gave_up() {
    let scene = Scene::new("http/1.1", true).await;
    let mut closed = tokio::task::JoinSet::new();
    for id in 0..20 {
        scene.transport.send(Outgoing {
            bytes: format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into(),
            request: Some(RequestId(id)),
        });
        // TLS begins, and is never answered.
        let (mut stream, _) = scene.listener.accept().await.expect("a client");
        closed
            .spawn(async move { while stream.read_buf(&mut Vec::new()).await.unwrap_or(0) > 0 {} });
    }
    let begun = tokio::time::Instant::now();
    for id in 0..20 {
        scene.transport.abandon(RequestId(id));
    }
    for _ in 0..16 {
        in_time("a connection to be closed", closed.join_next()).await;
    }
    assert_eq!(closed.len(), 4);
    // Each is given up then anyway.
    assert!(begun.elapsed() < Duration::from_secs(50));
}

/// A server over HTTP/2 that lets each connection have one request open at a time, and what it was asked: the number
/// of the connection, and the method.
struct OneAtATime {
    asked: Arc<Mutex<Vec<(usize, String)>>>,
    /// What it says on streams that are held open.
    says: broadcast::Sender<&'static str>,
}

impl OneAtATime {
    async fn serve(&self, listener: TcpListener, acceptor: TlsAcceptor) {
        for number in 0.. {
            let (stream, _) = listener.accept().await.expect("a client");
            let stream = acceptor.accept(stream).await.expect("it is trusted");
            let (asked, says) = (self.asked.clone(), self.says.clone());
            tokio::spawn(async move {
                let mut http = h2::server::Builder::new()
                    .max_concurrent_streams(1)
                    .handshake::<_, Bytes>(stream)
                    .await
                    .expect("HTTP/2");
                while let Some(Ok((request, answer))) = http.accept().await {
                    let method = request.method().to_string();
                    asked.lock().expect("whole").push((number, method));
                    tokio::spawn(answer_over_http_2(request, answer, says.subscribe()));
                }
            });
        }
    }
}

async fn answer_over_http_2(
    request: http::Request<h2::RecvStream>,
    mut answer: h2::server::SendResponse<Bytes>,
    mut says: broadcast::Receiver<&'static str>,
) {
    let head = |status: u16, kind: &str| {
        let head = http::Response::builder().status(status);
        head.header("content-type", kind).body(()).expect("a head")
    };
    if request.method() == http::Method::GET {
        let stream = head(200, "text/event-stream");
        let mut stream = answer.send_response(stream, false).expect("a client");
        while let Ok(said) = says.recv().await {
            let event = format!("data: {said}\n\n");
            stream.send_data(event.into(), false).expect("a client");
        }
        return;
    }
    let mut body = request.into_body();
    let mut read = Vec::new();
    while let Some(Ok(more)) = body.data().await {
        let _ = body.flow_control().release_capacity(more.len());
        read.extend(more);
    }
    let message: serde_json::Value = serde_json::from_slice(&read).unwrap_or_default();
    let id = &message["id"];
    if id.is_null() {
        answer
            .send_response(head(202, "text/plain"), true)
            .expect("a client");
        return;
    }
    let result = serde_json::json!({"protocolVersion": "2025-06-18", "content": []});
    let result = serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result});
    let mut stream = answer
        .send_response(head(200, "application/json"), false)
        .expect("a client");
    stream
        .send_data(result.to_string().into(), true)
        .expect("a client");
}

/// Hands on what the server says on its own.
struct Heard(mpsc::UnboundedSender<String>);

impl Handler for Heard {
    fn notification(&self, method: &str, _: Bytes) {
        let _ = self.0.send(method.to_owned());
    }
}

#[tokio::test]
async fn over_http_2_with_one_request_at_a_time_the_standing_stream_holds_up_no_call() {
    let authority = Authority::new();
    let (listener, port) = listener().await;
    let server = OneAtATime {
        asked: Arc::default(),
        says: broadcast::channel(8).0,
    };
    let client = HttpClient::over(
        Tls::new(Some(authority.roots()), None).expect("good"),
        Resolver::new(AddressPolicy::any()),
        Proxies::default(),
        true,
    );
    let url = format!("https://localhost:{port}/mcp");
    let config = HttpConfig::new(&url, &[]).expect("good").with_stream(true);
    let (tell, mut heard) = mpsc::unbounded_channel();
    let using = async {
        let session = Session::open(
            Arc::new(HttpTransport::new(config, client)),
            SessionOptions {
                client_name: "test".into(),
                client_version: "1".into(),
                connect_deadline: tokio::time::Instant::now() + Duration::from_secs(60),
                handler: Arc::new(Heard(tell)),
            },
        );
        let session = session.await.expect("it opens");
        for _ in 0..3 {
            let call = || session.request("tools/call", None, RequestOptions::default());
            let (one, other) = tokio::join!(call(), call());
            one.and(other).expect("both answered");
            let said = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
            server.says.send(said).expect("the stream is open");
            let method = heard.recv().await.expect("the session is held");
            assert_eq!(method, "notifications/tools/list_changed");
        }
    };
    tokio::select! {
        () = in_time("a session", using) => {}
        () = server.serve(listener, authority.acceptor("h2")) => {}
    }
    let asked = server.asked.lock().expect("whole");
    let of = |method: &str| {
        let of = asked.iter().filter(|(_, asked)| asked == method);
        of.map(|&(number, _)| number).collect::<Vec<_>>()
    };
    // All messages on one connection, the stream on another.
    assert_eq!(of("POST"), [0; 8], "{asked:?}");
    assert_eq!(of("GET"), [1], "{asked:?}");
}
