//! Nothing secret in an error or a Debug print.

use std::{
    fmt::Write,
    sync::{Arc, Mutex},
};

use mcp_transport::{
    error::{Error, ErrorKind},
    http::{HttpClient, HttpConfig, HttpTransport},
};

use tracing::{Metadata, span};

use crate::server::{Client, Refusing, Server};

/// Everything that is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let mut text = self.0.lock().expect("whole");
        let _ = writeln!(text, "{field}={value:?}");
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut self.clone());
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn no_log_has_what_was_sent_or_given_by_the_server_to_keep() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let echo = "headersecret newsecret sessionsecret pathsecret querysecret cookiesecret";
    for status in [
        "200 OK",
        "202 Accepted",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "500 Oh",
        "308 Moved",
    ] {
        let server = Server::start().await;
        let url = format!("http://{}/pathsecret/mcp?k=querysecret", server.authority());
        let headers = pairs(&[("authorization", "Bearer headersecret")]);
        let config = HttpConfig::new(&url, &headers)
            .expect("good")
            .with_stream(true);
        let pool = HttpClient::new();
        let mut client = Client::over(config, pool.clone()).await;
        let given = [
            ("mcp-session-id", "sessionsecret"),
            ("set-cookie", "c=cookiesecret"),
        ];
        let mut connection = client.open(&server, &given).await;
        pool.set_header("x-token", Some("newsecret"))
            .expect("a header");
        client.notify("notifications/initialized");
        let challenge = format!("Bearer realm=\"{echo}\"");
        let said = [
            ("content-type", "text/plain"),
            (
                "location",
                "http://elsewhere.invalid/pathsecret?k=querysecret",
            ),
            ("www-authenticate", challenge.as_str()),
        ];
        connection.request().await;
        connection.answer(status, &said, echo).await;
        let (mut stream, request) = server.request().await;
        assert!(request.line.starts_with("GET"));
        assert!(
            request
                .header("cookie")
                .is_some_and(|c| c.contains("cookiesecret"))
        );
        assert_eq!(request.header("x-token"), Some("newsecret"));
        // One that is not asked again.
        let no_stream = status.replace("500", "501");
        stream.answer(&no_stream, &said, echo).await;
        stream.hang_up().await;
        if status.starts_with("401") || status.starts_with("404") {
            // Taken for expiry: the session is over, and nothing is sent any more.
            match client.next().await {
                mcp_transport::transport::Incoming::Ended(error) => {
                    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
                }
                other => panic!("told {other:?} where the end was due"),
            }
            continue;
        }
        client.request_with(1, "tools/call", r#"{"a":"idsecret"}"#);
        let (mut posts, _) = tokio::select! {
            next = server.request() => next,
            request = connection.request() => (connection, request),
        };
        posts.begin_events(&[]).await;
        posts
            .chunk("id: idsecret\ndata: {\"idsecret\":1}\n\n")
            .await;
        posts.hang_up().await;
        let (mut resumed, _) = server.request().await;
        let echo = format!("{echo} idsecret");
        resumed.answer("501 No", &said, &echo).await;
        let mut told = String::new();
        while !told.contains("Failed") {
            let next = client.next().await;
            told = format!("{next:?}");
            if !matches!(next, mcp_transport::transport::Incoming::Message(_)) {
                assert!(!told.contains("secret"), "{told}");
            }
            if told.contains("Ended") {
                break;
            }
        }
    }
    let log = log.0.lock().expect("whole");
    assert!(log.contains("standing stream"), "{log}");
    for line in log.lines() {
        assert!(!line.contains("secret"), "{line}");
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn config_error(url: &str, headers: &[(&str, &str)]) -> Error {
    let error = HttpConfig::new(url, &pairs(headers)).expect_err("it cannot be used");
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(!error.message.to_lowercase().contains("secret"), "{error}");
    error
}

#[test]
fn what_cannot_be_used_is_said_without_what_may_be_secret() {
    for url in [
        "",
        "secret",
        "http://",
        "http://host:secret/",
        "ftp://host/secret",
        "http://user:secret@host/",
        "http://secret@host/",
        "file:///secret",
    ] {
        config_error(url, &[]);
    }
    let url = "http://host/";
    let error = config_error(
        url,
        &[("X-A", "fine"), ("Authorization: Bearer secret", "x")],
    );
    assert!(error.message.contains("header 2"), "{error}");
    let error = config_error(url, &[("Authorization", "Bearer\nsecret")]);
    assert!(error.message.contains("authorization"), "{error}");
    for name in [
        "Content-Length",
        "transfer-encoding",
        "Mcp-Session-Id",
        "Connection",
    ] {
        let error = config_error(url, &[(name, "secret")]);
        assert!(error.message.contains(&name.to_lowercase()), "{error}");
    }
    config_error("gopher://host/", &[]);
}

#[test]
fn debug_prints_show_the_origin_and_names_only() {
    let config = HttpConfig::new(
        "https://Host.example/secretpath?key=secretkey",
        &pairs(&[("Authorization", "Bearer secretvalue")]),
    )
    .expect("good");
    let transport = HttpTransport::new(config.clone(), HttpClient::new());
    let printed = format!("{config:?} {transport:?} {:?}", HttpClient::new());
    assert!(!printed.contains("secret"), "{printed}");
    assert!(printed.contains("https://host.example"), "{printed}");
    assert!(printed.contains("authorization"), "{printed}");
}

#[tokio::test]
async fn no_error_has_what_was_sent_in_it_even_if_the_server_echoes_all_of_it() {
    let arguments = r#"{"arguments":{"password":"bodysecret, with words"}}"#;
    let echo = "headersecret sessionsecret pathsecret querysecret bodysecret, with words";
    let null = format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-1,"message":"{echo}"}}}}"#);
    let html = format!("<html><title>{echo}</title>");
    for (status, kind, body) in [
        ("200 OK", "text/html", html.as_str()),
        ("200 OK", "application/json", &null),
        ("200 OK", "application/json", echo),
        ("400 Bad Request", "application/json", &null),
        ("401 Unauthorized", "text/plain", echo),
        ("404 Not Found", "text/html", &html),
        ("500 Internal Server Error", "text/plain", echo),
        ("307 Temporary Redirect", "text/plain", echo),
        ("cut", "", ""),
    ] {
        let server = Server::start().await;
        let url = format!("http://{}/pathsecret/mcp?k=querysecret", server.authority());
        let headers = pairs(&[("authorization", "Bearer headersecret")]);
        let mut client = Client::with(HttpConfig::new(&url, &headers).expect("good")).await;
        let mut connection = client
            .open(&server, &[("mcp-session-id", "sessionsecret")])
            .await;
        client.request_with(1, "tools/call", arguments);
        let request = connection.request().await;
        assert!(request.line.contains("pathsecret") && request.line.contains("querysecret"));
        assert_eq!(request.header("mcp-session-id"), Some("sessionsecret"));
        if status == "cut" {
            connection.hang_up().await;
        } else {
            let location = "http://elsewhere.invalid/pathsecret?k=querysecret";
            let headers = [("content-type", kind), ("location", location)];
            connection.answer(status, &headers, body).await;
        }
        let (error, _) = client.failed(1).await;
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains("secret"), "{status}: {text}");
        }
    }
    // Where nobody listens.
    let port = Refusing::bind();
    let url = format!("http://{}/pathsecret?k=querysecret", port.authority());
    let headers = pairs(&[("authorization", "Bearer headersecret")]);
    let mut client = Client::with(HttpConfig::new(&url, &headers).expect("good")).await;
    client.request_with(1, "tools/call", arguments);
    let (error, _) = client.failed(1).await;
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn an_error_of_the_servers_own_does_not_repeat_the_headers() {
    use std::{sync::Arc, time::Duration};

    use mcp_transport::session::{RequestOptions, Session, SessionOptions};

    let server = Server::start().await;
    let headers = pairs(&[("authorization", "Bearer headersecret")]);
    let config = HttpConfig::new(&server.url(), &headers).expect("good");
    let opening = Session::open(
        Arc::new(HttpTransport::new(config, HttpClient::new())),
        SessionOptions {
            client_name: "test".into(),
            client_version: "1".into(),
            connect_deadline: tokio::time::Instant::now() + Duration::from_secs(60),
            handler: Arc::new(()),
        },
    );
    let served = async {
        let (mut connection, _) = server.request().await;
        let opened = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}"#;
        connection.json(opened).await;
        connection.request().await;
        connection.answer("202 Accepted", &[], "").await;
        connection
    };
    let (session, mut connection) = tokio::join!(opening, served);
    let session = session.expect("it opens");
    let call = session.request("tools/call", None, RequestOptions::default());
    let served = async {
        connection.request().await;
        let error = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no headersecret"}}"#;
        connection.json(error).await;
    };
    let (answer, ()) = tokio::join!(call, served);
    let error = answer.expect_err("an error");
    assert!(error.message.ends_with("no [redacted]"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}
