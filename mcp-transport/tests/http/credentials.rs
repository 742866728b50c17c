//! 401 and 403, what they ask for, and new headers in answer to them.

use mcp_transport::{
    error::{Error, ErrorKind, Outcome},
    http::{HttpClient, HttpConfig},
};

use crate::server::{Client, Server, result};

const CHALLENGE: (&str, &str) = (
    "www-authenticate",
    r#"Bearer resource_metadata="https://h/.well-known/x", scope="a b""#,
);

async fn refused(status: &str, headers: &[(&str, &str)]) -> Error {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(0, "initialize");
    let (mut connection, _) = server.request().await;
    connection.answer(status, headers, "").await;
    client.failed(0).await.0
}

#[tokio::test]
async fn the_challenge_is_in_the_error() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let error = refused(status, &[CHALLENGE, ("www-authenticate", "Basic")]).await;
        assert_eq!(error.kind, ErrorKind::Auth);
        let challenge = error.challenge.expect("a challenge");
        assert_eq!(challenge.status.to_string(), status[..3]);
        assert_eq!(challenge.values, [CHALLENGE.1, "Basic"]);
        let shown = format!("{challenge:?}");
        assert!(
            shown.contains("Bearer") && !shown.contains("well-known"),
            "{shown}"
        );
    }
    let error = refused("401 Unauthorized", &[]).await;
    assert_eq!((error.kind, error.challenge), (ErrorKind::Auth, None));
    let error = refused("403 Forbidden", &[]).await;
    assert_eq!((error.kind, error.challenge), (ErrorKind::Protocol, None));
}

#[tokio::test]
async fn a_challenge_does_not_repeat_the_headers() {
    let server = Server::start().await;
    let given = [
        ("authorization".into(), "Bearer oldsecret".into()),
        ("x-key".into(), "keysecret".into()),
    ];
    let config = HttpConfig::new(&server.url(), &given).expect("good");
    let pool = HttpClient::new();
    for value in ["Bearer secondsecret", "Bearer thirdsecret"] {
        pool.set_header("authorization", Some(value)).expect("good");
    }
    let mut client = Client::over(config, pool).await;
    client.request(0, "initialize");
    let (mut connection, _) = server.request().await;
    let echo = r#"Bearer error_description="neither Bearer oldsecret, secondsecret, thirdsecret nor keysecret", scope="a""#;
    connection
        .answer("401 Unauthorized", &[("www-authenticate", echo)], "")
        .await;
    let challenge = client.failed(0).await.0.challenge.expect("a challenge");
    let [scheme] = &challenge.schemes()[..] else {
        panic!("{challenge:?}");
    };
    assert_eq!(
        (scheme.scheme.as_str(), scheme.parameter("scope")),
        ("Bearer", Some("a"))
    );
    let said = scheme.parameter("error_description").expect("it is there");
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test]
async fn a_header_is_replaced_for_all_sessions_of_the_client_and_given_back() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let config = HttpConfig::new(
        &server.url(),
        &[
            ("authorization".into(), "Bearer old".into()),
            ("x-other".into(), "kept".into()),
        ],
    )
    .expect("good");
    let mut one = Client::over(config.clone(), pool.clone()).await;
    let mut other = Client::over(config, pool.clone()).await;
    one.request(1, "ping");
    let (mut connection, request) = server.request().await;
    assert_eq!(request.header("authorization"), Some("Bearer old"));
    connection.json(&result(1, "{}")).await;
    one.answer(1).await;
    for (value, sent) in [(Some("Bearer new"), "Bearer new"), (None, "Bearer old")] {
        pool.set_header("Authorization", value).expect("a header");
        for client in [&mut one, &mut other] {
            client.request(2, "ping");
            let request = connection.request().await;
            assert_eq!(request.header("authorization"), Some(sent));
            assert_eq!(request.header("x-other"), Some("kept"));
            connection.json(&result(2, "{}")).await;
            client.answer(2).await;
        }
    }
}

#[test]
fn what_cannot_be_a_header_is_refused_without_its_value() {
    let client = HttpClient::new();
    for (name, value) in [
        ("a b", "secret"),
        ("authorization", "Bearer\nsecret"),
        ("mcp-session-id", "secret"),
        ("accept", "secret"),
        ("Content-Length", "secret"),
    ] {
        let error = client.set_header(name, Some(value)).expect_err(name);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(!error.message.contains("secret"), "{error}");
    }
}

/// A session in which a request meets a 401.
async fn meets_401(server: &Server, pool: &HttpClient) -> Error {
    let mut client = Client::over(server.config(), pool.clone()).await;
    client.request(0, "initialize");
    let (mut connection, _) = server.request().await;
    let headers = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s"),
    ];
    connection
        .answer("200 OK", &headers, &result(0, "{}"))
        .await;
    client.answer(0).await;
    client.request(1, "tools/list");
    connection.request().await;
    connection.json(&result(1, "{}")).await;
    client.answer(1).await;
    client.request(2, "tools/call");
    connection.request().await;
    connection
        .answer("401 Unauthorized", &[CHALLENGE], "")
        .await;
    connection.hang_up().await;
    client.failed(2).await.0
}

#[tokio::test]
async fn a_401_within_a_session_is_its_loss_once_and_then_a_want_of_credentials() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let first = meets_401(&server, &pool).await;
    assert_eq!(
        (first.kind, first.outcome),
        (ErrorKind::Expired, Outcome::Rejected)
    );
    for _ in 0..2 {
        let again = meets_401(&server, &pool).await;
        assert_eq!(
            (again.kind, again.outcome),
            (ErrorKind::Auth, Outcome::Rejected)
        );
        assert!(again.challenge.is_some());
    }
    // With others it begins anew.
    pool.set_header("authorization", Some("Bearer b"))
        .expect("a header");
    assert_eq!(meets_401(&server, &pool).await.kind, ErrorKind::Expired);
}
