//! How servers are reached: through proxies, past the policy for addresses, with a private authority and a
//! certificate of ours.

use std::sync::Arc;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

use super::{
    AddressClass, AddressPolicy, HttpClient, HttpClientOptions, HttpConfig, HttpTransport,
    connect::Tls, proxy::Proxies,
};
use crate::{
    error::{Cause, Error, ErrorKind, Outcome},
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
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";

/// A ping on its way to `url`; what comes of it.
struct Ping {
    _transport: HttpTransport,
    told: mpsc::UnboundedReceiver<Incoming>,
}

impl Ping {
    async fn sent(url: &str, client: HttpClient) -> Self {
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

    async fn ended(mut self) -> Result<(), Error> {
        loop {
            match self.told.recv().await.expect("the transport is held") {
                Incoming::Written(_) => {}
                Incoming::Message(_) => return Ok(()),
                Incoming::Failed(_, error) | Incoming::Ended(error) => return Err(error),
            }
        }
    }
}

/// A request up to its end, with a body if it has one.
async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read);
        if text.contains("ping\"}") || (text.starts_with("CONNECT") && text.ends_with("\r\n\r\n")) {
            return text.into_owned();
        }
        assert!(stream.read_buf(&mut read).await.expect("a request") > 0);
    }
}

fn through(proxy: &str) -> HttpClient {
    HttpClient::over(
        Tls::default(),
        // The proxy is of this machine all the same.
        AddressPolicy::any().deny(AddressClass::Loopback),
        Proxies::all(proxy, "no.invalid"),
    )
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

#[tokio::test]
async fn a_proxy_is_sent_whole_urls_and_shown_its_credentials() {
    let (listener, port) = listener().await;
    let client = through(&format!("http://user:proxysecret@127.0.0.1:{port}"));
    let ping = Ping::sent("http://h.invalid/mcp", client).await;
    let (mut stream, _) = listener.accept().await.expect("the client");
    let request = read_request(&mut stream).await;
    assert!(
        request.starts_with("POST http://h.invalid/mcp HTTP/1.1"),
        "{request}"
    );
    assert!(
        request.contains("proxy-authorization: Basic dXNlcjpwcm94eXNlY3JldA=="),
        "{request}"
    );
    stream
        .write_all(ANSWER.as_bytes())
        .await
        .expect("the client");
    ping.ended().await.expect("answered");
}

#[tokio::test]
async fn https_goes_through_a_tunnel_and_a_proxy_that_refuses_it_is_an_error() {
    let (listener, port) = listener().await;
    let client = through(&format!("http://user:proxysecret@127.0.0.1:{port}"));
    let ping = Ping::sent("https://h.invalid/mcp", client).await;
    let (mut stream, _) = listener.accept().await.expect("the client");
    let request = read_request(&mut stream).await;
    assert!(
        request.starts_with("CONNECT h.invalid:443 HTTP/1.1"),
        "{request}"
    );
    assert!(
        request
            .to_lowercase()
            .contains("proxy-authorization: basic"),
        "{request}"
    );
    stream
        .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        .await
        .expect("the client");
    let error = ping.ended().await.expect_err("refused");
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Transport, Outcome::NotSent)
    );
    assert!(!format!("{error:?}").contains("proxysecret"), "{error:?}");
}

#[tokio::test]
async fn an_address_that_the_policy_denies_is_not_connected_to() {
    let (listener, port) = listener().await;
    let client = || {
        HttpClientOptions::new()
            .with_proxies_of_environment(false)
            .with_address_policy(AddressPolicy::public_only())
            .build()
            .expect("good")
    };
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".into(),
        "https://10.0.0.1/".into(),
    ] {
        let error = Ping::sent(&url, client())
            .await
            .ended()
            .await
            .expect_err(&url);
        assert_eq!(
            (error.kind, error.cause, error.outcome),
            (ErrorKind::Config, Cause::Permanent, Outcome::NotSent)
        );
        assert!(error.message.contains("policy"), "{error}");
    }
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("it was connected to"),
        () = tokio::task::yield_now() => {}
    }
}

/// An authority, what it vouches for, and the key of that.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn vouched_for(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (
            params.signed_by(&key, &self.issuer).expect("a certificate"),
            key,
        )
    }

    fn roots(&self) -> RootCertStore {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        roots.add(root).expect("a root");
        roots
    }

    /// A server of this authority that asks for a certificate of it.
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
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

#[tokio::test]
async fn a_private_authority_is_trusted_and_a_certificate_of_ours_shown() {
    let authority = Authority::new();
    let (certificate, key) = authority.vouched_for("client");
    for shows in [true, false] {
        let mut options = HttpClientOptions::new()
            .with_roots_pem(authority.pem.as_bytes())
            .expect("PEM");
        if shows {
            options = options
                .with_client_certificate_pem(
                    certificate.pem().as_bytes(),
                    key.serialize_pem().as_bytes(),
                )
                .expect("PEM");
        }
        let (listener, port) = listener().await;
        let client = options.build().expect("good");
        let ping = Ping::sent(&format!("https://localhost:{port}/mcp"), client).await;
        let (stream, _) = listener.accept().await.expect("the client");
        let (served, ended) = tokio::join!(authority.serve(stream), ping.ended());
        assert_eq!(served.is_ok(), shows);
        assert_eq!(ended.is_ok(), shows, "{ended:?}");
    }
}

#[test]
fn what_is_no_certificate_or_key_is_said_without_it() {
    let authority = Authority::new();
    let (certificate, key) = authority.vouched_for("client");
    let (_, other) = authority.vouched_for("other");
    let options = HttpClientOptions::new;
    let (pem, key) = (certificate.pem(), key.serialize_pem());
    let spoilt = pem.replace("MII", "%%%");
    for failed in [
        options().with_roots_pem(b"").err(),
        options().with_roots_pem(b"hunter2").err(),
        options().with_roots_pem(spoilt.as_bytes()).err(),
        options()
            .with_client_certificate_pem(b"hunter2", key.as_bytes())
            .err(),
        options()
            .with_client_certificate_pem(pem.as_bytes(), b"hunter2")
            .err(),
        options()
            .with_client_certificate_pem(pem.as_bytes(), other.serialize_pem().as_bytes())
            .err(),
    ] {
        let error = failed.expect("refused");
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(!error.message.contains("hunter2"), "{error}");
    }
    let shown = format!("{:?}", options().with_roots_pem(authority.pem.as_bytes()));
    assert!(!shown.contains("BEGIN"), "{shown}");
}
