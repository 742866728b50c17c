//! Redirects: followed within the origin with the method and the body kept, named and refused elsewhere.

use mcp_transport::{
    error::{ErrorKind, Outcome},
    http::HttpConfig,
};

use crate::server::{Client, Server, all_is_quiet, result};

fn with_secret(server: &Server) -> HttpConfig {
    let secret = ("authorization".to_owned(), "Bearer secret".to_owned());
    HttpConfig::new(&server.url(), &[secret]).expect("good")
}

#[tokio::test]
async fn within_the_origin_a_redirect_that_keeps_the_method_is_followed() {
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        for target in ["/mcp/", "other?x=1#y", ""] {
            let server = Server::start().await;
            let mut client = Client::with(with_secret(&server)).await;
            client.request(1, "ping");
            let (mut connection, first) = server.request().await;
            let location = match target {
                "" => format!("http://user:pass@{}/elsewhere", server.authority()),
                _ => target.to_owned(),
            };
            connection
                .answer(status, &[("location", &location)], "moved")
                .await;
            let second = connection.request().await;
            assert_eq!(second.body, first.body);
            assert_eq!(second.header("authorization"), Some("Bearer secret"));
            let line = match target {
                "/mcp/" => "POST /mcp/ HTTP/1.1",
                "" => "POST /elsewhere HTTP/1.1",
                _ => "POST /other?x=1 HTTP/1.1",
            };
            assert_eq!(second.line, line);
            connection.json(&result(1, "{}")).await;
            assert_eq!(client.answer(1).await, result(1, "{}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_another_origin_is_named_and_gets_nothing() {
    let elsewhere = Server::start().await;
    let https = elsewhere.url().replace("http", "https");
    for location in [
        elsewhere.url(),
        https,
        "https://example.invalid/mcp?token=t".into(),
    ] {
        let server = Server::start().await;
        let mut client = Client::with(with_secret(&server)).await;
        client.request(1, "ping");
        let (mut connection, _) = server.request().await;
        connection
            .answer("308 Permanent Redirect", &[("location", &location)], "")
            .await;
        let (error, _) = client.failed(1).await;
        assert_eq!(
            (error.kind, error.outcome),
            (ErrorKind::Config, Outcome::Unknown)
        );
        let origin = location.rsplit_once("/mcp").expect("a path").0;
        assert!(error.message.contains(origin), "{error}");
        assert!(error.message.contains("308"), "{error}");
        assert!(!error.message.contains("token"), "{error}");
        tokio::select! {
            _ = elsewhere.accept() => panic!("something went to another origin"),
            () = all_is_quiet() => {}
        }
    }
}

#[tokio::test]
async fn a_redirect_that_would_change_the_method_is_an_error_that_names_it() {
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "300 Choose",
    ] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(1, "ping");
        let (mut connection, _) = server.request().await;
        connection
            .answer(status, &[("location", "/login")], "")
            .await;
        let (error, _) = client.failed(1).await;
        assert!(error.message.contains(&status[..3]), "{error}");
        assert_eq!(error.kind, ErrorKind::Config);
    }
}

#[tokio::test]
async fn a_redirect_to_nowhere_and_one_in_a_circle_are_errors() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for location in [&[][..], &[("location", "http://[")]] {
        client.request(1, "ping");
        let (mut connection, _) = server.request().await;
        connection
            .answer("307 Temporary Redirect", location, "")
            .await;
        let (error, _) = client.failed(1).await;
        assert!(error.message.contains("to nowhere"), "{error}");
        connection.hang_up().await;
    }
    client.request(2, "ping");
    let (mut connection, _) = server.request().await;
    for _ in 0..4 {
        connection
            .answer("307 Temporary Redirect", &[("location", "/mcp")], "")
            .await;
        connection.request().await;
    }
    connection
        .answer("307 Temporary Redirect", &[("location", "/mcp")], "")
        .await;
    let (error, _) = client.failed(2).await;
    assert!(error.message.contains("circle"), "{error}");
    assert_eq!(error.outcome, Outcome::Unknown);
}
