//! How servers are reached: through proxies, past the policy for addresses, with a private authority and a
//! certificate of ours.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{
    AddressClass, AddressPolicy, HttpClient, HttpClientOptions,
    connect::Tls,
    proxy::Proxies,
    resolve::Resolver,
    testing::{ANSWER, Authority, Ping, listener, read_request},
};
use crate::{
    config::{self, ConfigError, Connection, RemoteConfig},
    error::{Cause, ErrorKind, Outcome},
};

fn through(proxy: &str) -> HttpClient {
    HttpClient::over(
        Tls::default(),
        // The proxy is of this machine all the same.
        Resolver::new(AddressPolicy::any().deny(AddressClass::Loopback)),
        Proxies::one(proxy, "no.invalid"),
        true,
    )
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

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mcp-transport-reach-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// A file with this content, as a configuration names it.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file");
        path.to_str().expect("a text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn configured(url: &str, ours: &Value) -> Result<config::ServerConfig, ConfigError> {
    let json = json!({"s": {"url": url, "mcpconn": ours}}).to_string();
    let mut all = config::parse_with(&json, |_| None)?;
    Ok(all.remove(0).1)
}

fn remote(url: &str, ours: &Value) -> RemoteConfig {
    match configured(url, ours).expect("good").connection {
        Connection::Http(remote) => remote,
        other => panic!("{other:?}"),
    }
}

async fn sent_as_configured(url: &str, ours: &Value) -> Ping {
    Ping::sent(url, remote(url, ours).reach.client().expect("good")).await
}

#[tokio::test]
async fn a_configuration_names_the_authority_and_the_certificate_of_ours() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let (certificate, key) = authority.vouched_for("client");
    let roots = folder.file("ca.pem", &authority.pem);
    let certificate = folder.file("me.pem", &certificate.pem());
    let key = folder.file("me.key", &key.serialize_pem());
    let whole = json!({"ca_file": roots, "cert_file": certificate, "key_file": key});
    for (tls, is_served) in [
        (whole.clone(), true),
        (json!({"ca_file": roots}), false),
        (json!({"cert_file": certificate, "key_file": key}), false),
    ] {
        let (listener, port) = listener().await;
        let url = format!("https://localhost:{port}/mcp");
        let ping = sent_as_configured(&url, &json!({"tls": tls, "proxy": "none"})).await;
        let (stream, _) = listener.accept().await.expect("the client");
        let (served, ended) = tokio::join!(authority.serve(stream), ping.ended());
        assert_eq!((served.is_ok(), ended.is_ok()), (is_served, is_served));
    }

    // A certificate that was renewed makes another connection, and what is not of the connection none.
    let bytes = |ours: Value| {
        configured("https://h/", &ours)
            .expect("good")
            .canonical_bytes()
    };
    let before = bytes(json!({"tls": whole}));
    assert_eq!(before, bytes(json!({"tls": whole, "eager": true})));
    folder.file("ca.pem", &Authority::new().pem);
    assert_ne!(before, bytes(json!({"tls": whole})));
    let shown = format!("{:?}", remote("https://h/", &json!({"tls": whole})));
    assert!(
        shown.contains("me.key") && !shown.contains("BEGIN"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_configuration_names_a_proxy_and_what_is_reached_without_it() {
    let (listener, port) = listener().await;
    let proxy = format!("http://user:proxysecret@127.0.0.1:{port}");
    let ours =
        json!({"proxy": proxy, "no_proxy": "direct.invalid", "deny_addresses": ["loopback"]});
    let ping = sent_as_configured("http://h.invalid/mcp", &ours).await;
    let (mut stream, _) = listener.accept().await.expect("the client");
    let request = read_request(&mut stream).await;
    assert!(request.starts_with("POST http://h.invalid/mcp HTTP/1.1"));
    stream.write_all(ANSWER.as_bytes()).await.expect("it reads");
    ping.ended().await.expect("answered");

    let error = sent_as_configured("http://direct.invalid/mcp", &ours).await;
    let error = error.ended().await.expect_err("there is no such host");
    assert!(error.message.contains("direct.invalid"), "{error}");
    let shown = format!("{:?}", remote("http://h.invalid/", &ours));
    assert!(
        shown.contains("127.0.0.1") && !shown.contains("proxysecret"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_configuration_denies_kinds_of_addresses_and_redirects() {
    let (listener, port) = listener().await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let denied =
        sent_as_configured(&url, &json!({"deny_addresses": ["private", "loopback"]})).await;
    let error = denied.ended().await.expect_err("denied");
    assert!(error.message.contains("127.0.0.1") && error.message.contains("policy"));

    let redirected = sent_as_configured(&url, &json!({"redirects": false})).await;
    let (mut stream, _) = listener.accept().await.expect("the client");
    read_request(&mut stream).await;
    let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(answer.as_bytes()).await.expect("it reads");
    let error = redirected.ended().await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(
        error.message.contains("307") && error.message.contains("not to follow"),
        "{error}"
    );
}

#[test]
fn what_a_configuration_names_in_vain_is_said_with_its_member_and_without_a_secret() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let (certificate, key) = authority.vouched_for("client");
    let none = folder.file("none.pem", "hunter2");
    let certificate = folder.file("me.pem", &certificate.pem());
    let other = folder.file(
        "other.key",
        &authority.vouched_for("other").1.serialize_pem(),
    );
    let key = folder.file("me.key", &key.serialize_pem());
    let missing = folder.0.join("missing.pem");
    for (ours, named, said) in [
        (json!({"tls": 1}), "mcpconn.tls", "object"),
        (json!({"tls": {"ca": "x"}}), "mcpconn.tls.ca", "ca_file"),
        (
            json!({"tls": {"ca_file": 1}}),
            "mcpconn.tls.ca_file",
            "string",
        ),
        (
            json!({"tls": {"ca_file": missing}}),
            "mcpconn.tls.ca_file",
            "missing.pem",
        ),
        (
            json!({"tls": {"ca_file": folder.0}}),
            "mcpconn.tls.ca_file",
            "no file",
        ),
        (
            json!({"tls": {"ca_file": "/dev/zero"}}),
            "mcpconn.tls.ca_file",
            "no file",
        ),
        (
            json!({"tls": {"ca_file": none}}),
            "mcpconn.tls.ca_file",
            "no certificate",
        ),
        (
            json!({"tls": {"cert_file": certificate}}),
            "mcpconn.tls.key_file",
            "missing",
        ),
        (
            json!({"tls": {"key_file": key}}),
            "mcpconn.tls.cert_file",
            "missing",
        ),
        (
            json!({"tls": {"cert_file": certificate, "key_file": other}}),
            "mcpconn.tls.cert_file",
            "certificate and key",
        ),
        (
            json!({"tls": {"cert_file": certificate, "key_file": none}}),
            "mcpconn.tls.cert_file",
            "key",
        ),
        (json!({"proxy": "hunter2"}), "mcpconn.proxy", "none"),
        (
            json!({"proxy": "ftp://u:hunter2@h"}),
            "mcpconn.proxy",
            "ftp",
        ),
        (json!({"no_proxy": "h"}), "mcpconn.no_proxy", "proxy"),
        (
            json!({"deny_addresses": "private"}),
            "mcpconn.deny_addresses",
            "array",
        ),
        (
            json!({"deny_addresses": ["intranet"]}),
            "mcpconn.deny_addresses",
            "link_local",
        ),
        (
            json!({"redirects": "no"}),
            "mcpconn.redirects",
            "true or false",
        ),
    ] {
        let error = configured("https://h/", &ours)
            .expect_err(named)
            .to_string();
        assert!(
            error.contains(&format!("{named}: ")) && error.contains(said),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
    let stdio = r#"{"s": {"command": "x", "mcpconn": {"tls": {}}}}"#;
    let error = config::parse_with(stdio, |_| None)
        .expect_err("stdio")
        .to_string();
    assert!(
        error.contains("mcpconn.tls: ") && error.contains("url"),
        "{error}"
    );
}
