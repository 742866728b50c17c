//! Through proxies: SOCKS5, tunnels, those that the environment names; and what a proxy may do that lets nothing through.

use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::{
    AddressClass, AddressPolicy, HttpClient, HttpClientOptions, HttpConfig, HttpTransport,
    connect::Tls,
    proxy::Proxies,
    resolve::Resolver,
    testing::{ANSWER, Authority, Log, Ping, accepted, in_time, listener, read_request, serve_mcp},
};
use crate::{
    error::{Cause, Error, ErrorKind, Outcome},
    session::{RequestOptions, Session, SessionOptions},
};

/// A client of this proxy, for which every name is at an address of a private network.
fn through(proxy: &str, policy: AddressPolicy) -> HttpClient {
    let look_up = |_: &str| Ok(vec![([10, 1, 2, 3], 0).into()]);
    HttpClient::over(
        Tls::default(),
        Resolver::by(policy, look_up),
        Proxies::one(proxy, ""),
        true,
    )
}

async fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    let read = in_time("bytes of the client", stream.read_exact(&mut bytes)).await;
    read.expect("the client speaks");
    bytes
}

/// What a SOCKS5 proxy does with a client: whom it lets in, and what it answers when it is asked to connect.
struct Socks {
    login: Option<(&'static str, &'static str)>,
    reply: u8,
}

impl Socks {
    /// Speaks with a client up to the reply, and says what it was asked to connect to; `None` if the client was not let
    /// in.
    async fn speak(&self, stream: &mut TcpStream) -> Option<(String, u16)> {
        let [version, count] = read(stream).await;
        assert_eq!(version, 5);
        let mut offered = vec![0; count.into()];
        stream.read_exact(&mut offered).await.expect("the methods");
        let wanted = if self.login.is_some() { 2 } else { 0 };
        if !offered.contains(&wanted) {
            stream.write_all(&[5, 0xff]).await.expect("a client");
            return None;
        }
        stream.write_all(&[5, wanted]).await.expect("a client");
        if let Some((user, password)) = self.login {
            let [1, length] = read(stream).await else {
                panic!("no login")
            };
            let mut shown = vec![0; length.into()];
            stream.read_exact(&mut shown).await.expect("a user");
            let is_known = shown == user.as_bytes();
            let [length] = read(stream).await;
            let mut shown = vec![0; length.into()];
            stream.read_exact(&mut shown).await.expect("a password");
            let is_let_in = is_known && shown == password.as_bytes();
            let status = u8::from(!is_let_in);
            stream.write_all(&[1, status]).await.expect("a client");
            if !is_let_in {
                return None;
            }
        }
        let [5, 1, 0, kind] = read(stream).await else {
            panic!("no request to connect")
        };
        let host = match kind {
            1 => std::net::Ipv4Addr::from(read::<4>(stream).await).to_string(),
            3 => {
                let [length] = read(stream).await;
                let mut name = vec![0; length.into()];
                stream.read_exact(&mut name).await.expect("a name");
                String::from_utf8(name).expect("text")
            }
            4 => std::net::Ipv6Addr::from(read::<16>(stream).await).to_string(),
            other => panic!("an address of kind {other}"),
        };
        let port = u16::from_be_bytes(read(stream).await);
        // Bound to a name, the longest kind of answer.
        let reply = [&[5, self.reply, 0, 3, 5], &b"proxy"[..], &[0, 80]].concat();
        stream.write_all(&reply).await.expect("a client");
        Some((host, port))
    }
}

const OPEN: Socks = Socks {
    login: None,
    reply: 0,
};

#[tokio::test]
async fn a_socks5_proxy_is_told_the_name_or_the_address_as_its_scheme_says_and_the_port() {
    for (scheme, url, asked) in [
        ("socks5h", "http://h.invalid/mcp", ("h.invalid", 80)),
        ("socks5h", "http://h.invalid:8080/", ("h.invalid", 8080)),
        ("socks5h", "http://10.9.8.7/mcp", ("10.9.8.7", 80)),
        ("socks5h", "http://[fd00::1]:81/", ("fd00::1", 81)),
        ("socks5", "http://h.invalid/mcp", ("10.1.2.3", 80)),
        ("socks5", "http://h.invalid:8080/", ("10.1.2.3", 8080)),
    ] {
        let (listener, port) = listener().await;
        let client = through(
            &format!("{scheme}://127.0.0.1:{port}"),
            AddressPolicy::any(),
        );
        let ping = Ping::sent(url, client).await;
        let mut stream = accepted(&listener).await;
        let (host, port) = OPEN.speak(&mut stream).await.expect("let in");
        assert_eq!((host.as_str(), port), asked, "{scheme} {url}");
        let request = read_request(&mut stream).await;
        assert!(request.starts_with("POST /"), "{request}");
        assert!(!request.contains("proxy-authorization"), "{request}");
        stream.write_all(ANSWER.as_bytes()).await.expect("a client");
        ping.ended().await.expect("answered");
    }
}

#[tokio::test]
async fn a_name_that_is_resolved_here_for_a_socks5_proxy_is_checked_by_the_policy() {
    let policy = AddressPolicy::any().deny(AddressClass::Private);
    let (listener, port) = listener().await;
    let client = through(&format!("socks5://127.0.0.1:{port}"), policy);
    let ping = Ping::sent("http://h.invalid/mcp", client).await;
    let error = ping.ended().await.expect_err("denied");
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(
        error.message.contains("10.1.2.3") && error.message.contains("policy"),
        "{error}"
    );
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("the proxy was asked"),
        () = tokio::task::yield_now() => {}
    }
}

/// What comes of a ping through a SOCKS5 proxy that does this, at a URL with this login.
async fn refused_by(socks: &Socks, login: &str) -> Error {
    let (listener, port) = listener().await;
    let proxy = format!("socks5h://{login}127.0.0.1:{port}");
    let ping = Ping::sent(
        "http://h.invalid/mcp",
        through(&proxy, AddressPolicy::any()),
    )
    .await;
    let mut stream = accepted(&listener).await;
    socks.speak(&mut stream).await;
    let error = ping.ended().await.expect_err("refused");
    assert_eq!(error.outcome, Outcome::NotSent);
    for said in ["http://h.invalid", &format!("the proxy 127.0.0.1:{port}")] {
        assert!(error.message.contains(said), "{error}");
    }
    error
}

#[tokio::test]
async fn a_socks5_proxy_is_shown_user_and_password_if_it_wants_them_and_they_are_in_nothing_else() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let long = "p".repeat(250);
    let logins = [
        ("user", "pass%20secret", "pass secret"),
        ("user", &long, &long),
    ];
    for (user, written, password) in logins {
        let (user, password) = (&*user.to_owned().leak(), &*password.to_owned().leak());
        let wants = Socks {
            login: Some((user, password)),
            reply: 0,
        };
        for socks in [OPEN, wants] {
            let (listener, port) = listener().await;
            let proxy = format!("socks5h://{user}:{written}@127.0.0.1:{port}");
            let client = through(&proxy, AddressPolicy::any());
            let ping = Ping::sent("http://h.invalid/mcp", client).await;
            let mut stream = accepted(&listener).await;
            socks.speak(&mut stream).await.expect("let in");
            let request = read_request(&mut stream).await;
            assert!(!request.contains("proxy-authorization"), "{request}");
            stream.write_all(ANSWER.as_bytes()).await.expect("a client");
            ping.ended().await.expect("answered");
        }
    }
    let wants = Socks {
        login: Some(("user", "another")),
        reply: 0,
    };
    for (login, said) in [
        ("user:hunter2@", "refused the user and password"),
        ("", "wants to know who we are"),
        (&format!("hunter2:{}@", "x".repeat(256)), "longer than 255"),
    ] {
        let error = match login.len() {
            // Not even shown: the proxy hears the end of it.
            256.. => {
                let (listener, port) = listener().await;
                let proxy = format!("socks5h://{login}127.0.0.1:{port}");
                let client = through(&proxy, AddressPolicy::any());
                let ping = Ping::sent("http://h.invalid/mcp", client).await;
                let mut stream = accepted(&listener).await;
                read::<4>(&mut stream).await;
                stream.write_all(&[5, 2]).await.expect("a client");
                ping.ended().await.expect_err("it cannot be said")
            }
            _ => refused_by(&wants, login).await,
        };
        assert!(error.message.contains(said), "{error}");
        // Of the configuration: another try makes it no better.
        assert_eq!(
            (error.kind, error.cause),
            (ErrorKind::Config, Cause::Permanent)
        );
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    let options = HttpClientOptions::new().with_proxy("socks5://user:hunter2@h", "");
    assert!(!format!("{options:?}").contains("hunter2"));
    let log = log.0.lock().expect("whole");
    assert!(!log.contains("hunter2") && !log.contains("secret"), "{log}");
}

#[tokio::test]
async fn what_a_socks5_proxy_refuses_with_is_said_in_words() {
    for (reply, said) in [
        (1, "it failed"),
        (2, "its rules do not allow"),
        (3, "cannot reach the network"),
        (4, "cannot reach the host"),
        (5, "refused to it"),
        (6, "too many hops"),
        (7, "cannot connect for others"),
        (8, "address of this kind"),
        (9, "reply 9"),
    ] {
        let error = refused_by(&Socks { login: None, reply }, "").await;
        assert!(error.message.contains(said), "{error}");
        assert_eq!(
            (error.kind, error.cause),
            (ErrorKind::Transport, Cause::Transient)
        );
    }
}

/// How a proxy of `scheme` breaks a client that asks it for `url` by saying this, and whether it then hangs up.
async fn broken_by(scheme: &str, url: &str, says: &[u8], hangs_up: bool) -> Error {
    let (listener, port) = listener().await;
    let proxy = format!("{scheme}://127.0.0.1:{port}");
    let ping = Ping::sent(url, through(&proxy, AddressPolicy::any())).await;
    let mut stream = accepted(&listener).await;
    read::<3>(&mut stream).await;
    stream.write_all(says).await.expect("a client");
    if hangs_up {
        stream.shutdown().await.expect("a client");
    }
    let error = ping.ended().await.expect_err("refused");
    assert_eq!(error.outcome, Outcome::NotSent);
    assert!(
        error
            .message
            .contains(&format!("the proxy 127.0.0.1:{port}")),
        "{error}"
    );
    error
}

#[tokio::test]
async fn what_is_no_socks5_proxy_is_said_to_be_none() {
    for (says, hangs_up, said) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            false,
            "no SOCKS5 proxy",
        ),
        (&[4, 0], false, "no SOCKS5 proxy"),
        (&[5, 1], false, "no SOCKS5 proxy"),
        // A login that nobody offered.
        (&[5, 2], false, "no SOCKS5 proxy"),
        (&[5, 0, 4, 0, 0, 0], false, "no SOCKS5 proxy"),
        (&[5, 0, 5, 0, 0, 9], false, "no SOCKS5 proxy"),
        (&[], true, "closed the connection"),
        (&[5], true, "closed the connection"),
        (&[5, 0, 5, 0, 0, 1, 0], true, "closed the connection"),
    ] {
        let error = broken_by("socks5h", "http://h.invalid/", says, hangs_up).await;
        assert_eq!(error.kind, ErrorKind::Transport);
        assert!(error.message.contains(said), "{says:?}: {error}");
    }
}

#[tokio::test]
async fn a_proxy_that_opens_no_tunnel_is_named_with_what_it_said() {
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(4000));
    for (says, hangs_up, kind, said) in [
        (
            "HTTP/1.1 407 Who\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
            false,
            ErrorKind::Config,
            "HTTP 407",
        ),
        (
            "HTTP/1.0 502 Bad Gateway\r\n\r\n<html>",
            false,
            ErrorKind::Transport,
            "HTTP 502",
        ),
        (
            "HTTP/1.1 302 Login\r\nlocation: /\r\n\r\n",
            false,
            ErrorKind::Transport,
            "HTTP 302",
        ),
        (
            "SSH-2.0-OpenSSH_9.9\r\n",
            false,
            ErrorKind::Transport,
            "no HTTP proxy",
        ),
        (
            "HTTP/2 200\r\n\r\n",
            false,
            ErrorKind::Transport,
            "no HTTP proxy",
        ),
        (
            "HTTP/1.1 2000 OK\r\n\r\n",
            false,
            ErrorKind::Transport,
            "no HTTP proxy",
        ),
        (&endless, false, ErrorKind::Transport, "no end"),
        (
            "HTTP/1.1 200 OK\r\n\r\nhello",
            false,
            ErrorKind::Transport,
            "before anything",
        ),
        ("", true, ErrorKind::Transport, "closed the connection"),
        (
            "HTTP/1.1 200 OK\r\n",
            true,
            ErrorKind::Transport,
            "closed the connection",
        ),
    ] {
        let error = broken_by("http", "https://h.invalid/", says.as_bytes(), hangs_up).await;
        assert_eq!(error.kind, kind, "{says}: {error}");
        assert!(error.message.contains(said), "{says}: {error}");
    }
}

#[tokio::test]
async fn a_proxy_that_says_nothing_is_given_up_after_a_minute() {
    for (scheme, url) in [
        ("http", "https://h.invalid/"),
        ("socks5h", "http://h.invalid/"),
        ("socks5h", "https://h.invalid/"),
    ] {
        let (listener, port) = listener().await;
        let proxy = format!("{scheme}://127.0.0.1:{port}");
        let ping = Ping::sent(url, through(&proxy, AddressPolicy::any())).await;
        let mut stream = accepted(&listener).await;
        read::<3>(&mut stream).await;
        tokio::time::pause();
        let begun = Instant::now();
        let error = ping.ended().await.expect_err("too late");
        assert!(begun.elapsed() <= Duration::from_secs(61));
        tokio::time::resume();
        assert_eq!(
            (error.kind, error.outcome),
            (ErrorKind::Transport, Outcome::NotSent)
        );
        assert!(error.message.contains("60 seconds"), "{error}");
        let end = in_time("the client to hang up", async {
            while stream.read_u8().await.is_ok() {}
        });
        end.await;
    }
}

#[tokio::test]
async fn where_no_proxy_listens_it_is_the_proxy_that_is_named() {
    let (listener, port) = listener().await;
    drop(listener);
    for (scheme, url) in [
        ("http", "http://h.invalid/"),
        ("http", "https://h.invalid/"),
        ("socks5", "http://h.invalid/"),
    ] {
        let proxy = format!("{scheme}://user:hunter2@127.0.0.1:{port}");
        let ping = Ping::sent(url, through(&proxy, AddressPolicy::any())).await;
        let error = ping.ended().await.expect_err("refused");
        for said in [format!("the proxy 127.0.0.1:{port}"), "refused".into()] {
            assert!(error.message.contains(&said), "{said}: {error}");
        }
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

/// A whole session through a proxy of `scheme`, which `speak` answers, with a server behind it that speaks TLS; what
/// the server heard.
async fn session_through(
    proxy: String,
    listener: tokio::net::TcpListener,
    speak: impl AsyncFn(&mut TcpStream),
) -> String {
    let authority = Authority::new();
    let acceptor = authority.acceptor("http/1.1");
    let client = HttpClientOptions::new()
        .with_roots_pem(authority.pem.as_bytes())
        .and_then(|options| options.with_proxy(&proxy, ""))
        .and_then(HttpClientOptions::build)
        .expect("good");
    let secret = ("authorization".to_owned(), "Bearer originsecret".to_owned());
    let config = HttpConfig::new("https://h.invalid/mcp", &[secret]).expect("good");
    let heard = Arc::new(Mutex::new(String::new()));
    let serving = async {
        loop {
            let (mut stream, _) = listener.accept().await.expect("the client");
            speak(&mut stream).await;
            let stream = acceptor.accept(stream).await.expect("TLS");
            tokio::spawn(serve_mcp(stream, heard.clone()));
        }
    };
    let using = async {
        let session = Session::open(
            Arc::new(HttpTransport::new(config, client)),
            SessionOptions {
                client_name: "test".into(),
                client_version: "1".into(),
                connect_deadline: Instant::now() + Duration::from_secs(60),
                handler: Arc::new(()),
            },
        );
        let session = session.await.expect("it opens");
        let call = session.request("tools/call", None, RequestOptions::default());
        call.await.expect("answered");
        session.close(Duration::from_secs(60)).await;
    };
    tokio::select! {
        () = in_time("a session", using) => {}
        () = serving => {}
    }
    let heard = heard.lock().expect("whole").clone();
    for part in [
        "\"initialize\"",
        "notifications/initialized",
        "tools/call",
        "DELETE /mcp",
    ] {
        assert!(heard.contains(part), "{part}: {heard}");
    }
    assert_eq!(
        heard.matches("Bearer originsecret").count(),
        heard.matches("HTTP/1.1\r\n").count()
    );
    heard
}

#[tokio::test]
async fn a_session_goes_through_a_tunnel_and_neither_side_sees_the_credentials_of_the_other() {
    let (listener, port) = listener().await;
    let proxy = format!("http://user:proxysecret@127.0.0.1:{port}");
    let heard = session_through(proxy, listener, async |stream| {
        let asked = read_request(stream).await;
        assert!(asked.starts_with("CONNECT h.invalid:443 HTTP/1.1\r\nHost: h.invalid:443\r\n"));
        assert!(asked.contains("Proxy-Authorization: Basic dXNlcjpwcm94eXNlY3JldA==\r\n"));
        assert!(
            !asked.to_lowercase().contains("\r\nauthorization"),
            "{asked}"
        );
        assert!(!asked.contains("originsecret"), "{asked}");
        let opened = b"HTTP/1.1 200 Connection established\r\nvia: p\r\n\r\n";
        stream.write_all(opened).await.expect("a client");
    })
    .await
    .to_lowercase();
    assert!(!heard.contains("proxy-authorization"), "{heard}");
    assert!(!heard.contains("dxnlcjpwcm94exnly3jlda"), "{heard}");
}

#[tokio::test]
async fn a_session_over_tls_goes_through_a_socks5_proxy() {
    let (listener, port) = listener().await;
    let proxy = format!("socks5h://user:proxysecret@127.0.0.1:{port}");
    let heard = session_through(proxy, listener, async |stream| {
        let wants = Socks {
            login: Some(("user", "proxysecret")),
            reply: 0,
        };
        let asked = wants.speak(stream).await.expect("let in");
        assert_eq!(asked, ("h.invalid".into(), 443));
    })
    .await;
    assert!(!heard.contains("proxy"), "{heard}");
}

/// Set in the process that the test below starts, to what it is to reach.
const REACHES: &str = "MCP_TRANSPORT_TEST_REACHES";

#[tokio::test]
async fn the_environment_names_proxies_and_what_is_reached_without_them() {
    if let Ok(url) = std::env::var(REACHES) {
        let ended = Ping::sent(&url, HttpClient::new()).await.ended().await;
        return println!("came of it: {ended:?}");
    }
    let this = "http::proxy_tests::the_environment_names_proxies_and_what_is_reached_without_them";
    let (listener, port) = listener().await;
    let proxy = format!("http://user:proxysecret@127.0.0.1:{port}");
    let dead = "http://127.0.0.1:9";
    let named = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        let own = |&(name, value): &(&'static str, &str)| (name, value.to_owned());
        pairs.iter().map(own).collect()
    };
    let no = "b.invalid, .c.invalid,10.0.0.0/8";
    for (environment, url, is_reached) in [
        (named(&[("HTTP_PROXY", &proxy)]), "http://a.invalid/", true),
        (named(&[("http_proxy", &proxy)]), "http://a.invalid/", true),
        (named(&[("ALL_PROXY", &proxy)]), "http://a.invalid/", true),
        (
            named(&[("HTTPS_PROXY", &proxy)]),
            "http://a.invalid/",
            false,
        ),
        (
            named(&[("HTTP_PROXY", &proxy), ("ALL_PROXY", dead)]),
            "http://a.invalid/",
            true,
        ),
        (
            named(&[("HTTP_PROXY", &proxy), ("NO_PROXY", no)]),
            "http://a.invalid/",
            true,
        ),
        (
            named(&[("HTTP_PROXY", &proxy), ("NO_PROXY", no)]),
            "http://ab.invalid/",
            true,
        ),
        (
            named(&[("HTTP_PROXY", &proxy), ("NO_PROXY", no)]),
            "http://b.invalid/",
            false,
        ),
        (
            named(&[("HTTP_PROXY", &proxy), ("no_proxy", no)]),
            "http://x.c.invalid/",
            false,
        ),
        (
            named(&[("HTTP_PROXY", &proxy), ("NO_PROXY", "*")]),
            "http://a.invalid/",
            false,
        ),
    ] {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child
            .args(["--exact", this, "--nocapture"])
            .env(REACHES, url);
        for name in ["HTTP", "HTTPS", "ALL", "NO"] {
            let name = format!("{name}_PROXY");
            child.env_remove(name.to_lowercase()).env_remove(name);
        }
        child.env_remove("REQUEST_METHOD").envs(environment.clone());
        let child = tokio::task::spawn_blocking(move || child.output());
        let serving = async {
            loop {
                let (mut stream, _) = listener.accept().await.expect("the child");
                let request = read_request(&mut stream).await;
                assert!(
                    request.starts_with(&format!("POST {url} HTTP/1.1")),
                    "{request}"
                );
                assert!(request.contains("dXNlcjpwcm94eXNlY3JldA=="), "{request}");
                stream
                    .write_all(ANSWER.as_bytes())
                    .await
                    .expect("the child");
            }
        };
        let output = tokio::select! {
            output = in_time("the child", child) => output.expect("no panic").expect("it runs"),
            () = serving => unreachable!("it serves for ever"),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let case = format!("{environment:?} {url}: {said}");
        assert!(said.contains("came of it: "), "{case}");
        assert_eq!(said.contains("came of it: Ok"), is_reached, "{case}");
        assert!(!said.contains("proxysecret"), "{case}");
    }
}
