//! What the tests of this module share: a ping on its way, what answers it, an authority for TLS.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{HttpClient, HttpConfig, HttpTransport};
use crate::{
    error::Error,
    jsonrpc::RequestId,
    transport::{Incoming, Outgoing, Receiver, Transport},
};

struct Recorder(mpsc::UnboundedSender<Incoming>);

impl Receiver for Recorder {
    fn receive(&self, incoming: Incoming) {
        let _ = self.0.send(incoming);
    }
}

const MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
pub(super) const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";

/// A ping on its way to `url`; what comes of it.
pub(super) struct Ping {
    _transport: HttpTransport,
    told: mpsc::UnboundedReceiver<Incoming>,
}

impl Ping {
    pub(super) async fn sent(url: &str, client: HttpClient) -> Self {
        let config = HttpConfig::new(url, &[]).expect("good");
        let transport = HttpTransport::new(config, client);
        let (tell, told) = mpsc::unbounded_channel();
        let recorder = Arc::new(Recorder(tell));
        transport.start(recorder).await.expect("it starts");
        transport.send(Outgoing {
            bytes: Bytes::from_static(MESSAGE),
            request: Some(RequestId(1)),
        });
        Self {
            _transport: transport,
            told,
        }
    }

    pub(super) async fn ended(mut self) -> Result<(), Error> {
        loop {
            let next = in_time("the end of a ping", self.told.recv()).await;
            match next.expect("the transport is held") {
                Incoming::Written(_) => {}
                Incoming::Message(_) | Incoming::Answer(_) => return Ok(()),
                Incoming::Failed(_, error) | Incoming::Ended(error) => return Err(error),
            }
        }
    }
}

/// A request up to its end, with a body if it has one.
pub(super) async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read);
        if text.contains("ping\"}") || (text.starts_with("CONNECT") && text.ends_with("\r\n\r\n")) {
            return text.into_owned();
        }
        assert!(stream.read_buf(&mut read).await.expect("a request") > 0);
    }
}

/// A test that waits this long has failed. It is no part of any test's meaning.
pub(super) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(120);
    match timeout(limit, future).await {
        Ok(done) => done,
        Err(_) => panic!("waited for ever: {what}"),
    }
}

/// The client's next connection.
pub(super) async fn accepted(listener: &TcpListener) -> TcpStream {
    let accepted = in_time("a connection", listener.accept()).await;
    accepted.expect("accept").0
}

pub(super) async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Answers as a server of MCP does, until the connection ends, and keeps what it was sent.
pub(super) async fn serve_mcp(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    heard: Arc<Mutex<String>>,
) {
    let mut read = Vec::new();
    loop {
        let (request, body) = loop {
            if let Some(request) = whole_request(&read) {
                break request;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        heard.lock().expect("whole").push_str(&request);
        read.clear();
        let message: Value = serde_json::from_str(&body).unwrap_or_default();
        let answer = match &message["id"] {
            Value::Null => "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
            id => {
                let result = json!({"protocolVersion": "2025-06-18", "content": []});
                let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
        };
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// A request and its body, once both are there; the client sends no other before it is answered.
fn whole_request(read: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(read).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().expect("a length"));
    (body.len() == length).then(|| (text.to_owned(), body.to_owned()))
}

/// Everything that is logged, as text.
#[derive(Clone, Default)]
pub(super) struct Log(pub(super) Arc<Mutex<String>>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let line = format!("{field}={value:?}\n");
        self.0.lock().expect("whole").push_str(&line);
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        attributes.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// An authority, what it vouches for, and the key of that.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    pub(super) fn vouched_for(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (
            params.signed_by(&key, &self.issuer).expect("a certificate"),
            key,
        )
    }

    pub(super) fn roots(&self) -> RootCertStore {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        roots.add(root).expect("a root");
        roots
    }

    /// What a server of this authority on `localhost` or `h.invalid` accepts connections with.
    pub(super) fn acceptor(&self, protocol: &str) -> TlsAcceptor {
        let key = KeyPair::generate().expect("a key");
        let names = ["localhost", "h.invalid"].map(str::to_owned);
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has every default")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("they fit");
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// A server of this authority that asks for a certificate of it.
    pub(super) async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let (certificate, key) = self.vouched_for("localhost");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()), provider.clone())
                .build()
                .expect("roots");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has every default")
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("they fit");
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await?;
        read_request(&mut stream).await;
        stream.write_all(ANSWER.as_bytes()).await?;
        stream.flush().await
    }
}
