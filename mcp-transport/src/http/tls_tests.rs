//! The transport over TLS, with HTTP/1.1 and HTTP/2, against a server that writes what each test says.

use std::sync::Arc;

use bytes::Bytes;
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    AddressPolicy, HttpClient, HttpConfig, HttpTransport, connect::Tls, proxy::Proxies,
    resolve::Resolver,
};
use crate::{
    error::{Cause, ErrorKind, Outcome},
    jsonrpc::RequestId,
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
