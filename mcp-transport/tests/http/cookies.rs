//! Cookies: kept for one session and for the origin that set them, and shown to nobody else.

use mcp_transport::http::{HttpClient, HttpConfig};

use crate::server::{Client, Connection, Server, result};

/// Answers what was asked with a cookie to keep.
async fn set_cookie(connection: &mut Connection, id: u64, cookie: &str) {
    let headers = [("content-type", "application/json"), ("set-cookie", cookie)];
    let answer = result(id, "{}");
    connection.answer("200 OK", &headers, &answer).await;
}

/// The cookies that the session sends with its next request.
async fn cookies_of(client: &mut Client, connection: &mut Connection) -> Option<String> {
    client.request(7, "ping");
    let sent = connection.request().await;
    connection.json(&result(7, "{}")).await;
    client.answer(7).await;
    sent.header("cookie").map(str::to_owned)
}

#[tokio::test]
async fn each_session_has_cookies_of_its_own_over_the_same_connection() {
    let server = Server::start().await;
    let pool = HttpClient::new();
    let mut one = Client::over(server.config(), pool.clone()).await;
    let mut other = Client::over(server.config(), pool.clone()).await;
    one.request(1, "ping");
    let (mut connection, _) = server.request().await;
    set_cookie(&mut connection, 1, "place=one; Path=/").await;
    one.answer(1).await;
    assert_eq!(cookies_of(&mut other, &mut connection).await, None);
    other.request(2, "ping");
    connection.request().await;
    set_cookie(&mut connection, 2, "place=other").await;
    other.answer(2).await;
    for (client, cookie) in [(&mut one, "place=one"), (&mut other, "place=other")] {
        let sent = cookies_of(client, &mut connection).await;
        assert_eq!(sent.as_deref(), Some(cookie));
    }
    // Nor does one that comes after them inherit any.
    drop(one);
    let mut last = Client::over(server.config(), pool).await;
    assert_eq!(cookies_of(&mut last, &mut connection).await, None);
}

#[tokio::test]
async fn sessions_with_one_host_at_two_ports_share_no_cookie() {
    let (one, other) = (Server::start().await, Server::start().await);
    let pool = HttpClient::new();
    let mut first = Client::over(one.config(), pool.clone()).await;
    let mut second = Client::over(other.config(), pool).await;
    first.request(1, "ping");
    let (mut connection, _) = one.request().await;
    set_cookie(&mut connection, 1, "c=1; Domain=127.0.0.1; Path=/").await;
    first.answer(1).await;
    second.request(1, "ping");
    let (mut to_other, request) = other.request().await;
    assert_eq!(request.header("cookie"), None);
    to_other.json(&result(1, "{}")).await;
    second.answer(1).await;
    assert_eq!(cookies_of(&mut second, &mut to_other).await, None);
}

#[tokio::test]
async fn a_cookie_that_comes_with_a_redirect_goes_along_within_the_origin() {
    let server = Server::start().await;
    let own = ("cookie".to_owned(), "own=0".to_owned());
    let config = HttpConfig::new(&server.url(), &[own]).expect("good");
    let mut client = Client::with(config).await;
    client.request(1, "ping");
    let (mut connection, first) = server.request().await;
    assert_eq!(first.header("cookie"), Some("own=0"));
    let headers = [("location", "/other"), ("set-cookie", "c=1")];
    connection
        .answer("307 Temporary Redirect", &headers, "")
        .await;
    let second = connection.request().await;
    assert_eq!(second.line, "POST /other HTTP/1.1");
    assert_eq!(second.header("cookie"), Some("own=0; c=1"));
    connection.json(&result(1, "{}")).await;
    client.answer(1).await;
}
