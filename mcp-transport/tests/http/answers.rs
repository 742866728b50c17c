//! What an answer means, in each form that servers give it.

use std::time::Duration;

use mcp_transport::{
    error::{
        Cause::{self, Auth, Permanent, Transient},
        ErrorKind::{self, Protocol, Transport},
        Outcome::{self, Rejected, Unknown},
    },
    transport::Incoming,
};

use crate::server::{Client, Server, result};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test]
async fn a_json_answer_settles_its_request_after_it_was_written() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(7, "tools/list");
    let (mut connection, request) = server.request().await;
    assert_eq!(request.line, "POST /mcp HTTP/1.1");
    assert_eq!(
        request.body,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}"#
    );
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(
        request.header("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(request.header("host"), Some(server.authority().as_str()));
    connection.json(&result(7, "[]")).await;
    assert_eq!(client.answer(7).await, result(7, "[]"));
}

#[tokio::test]
async fn an_answer_that_is_kept_keeps_no_buffer_of_its_connection() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection.json(&result(1, "{}")).await;
    client.written(1).await;
    let json = client.next().await;
    client.request(2, "ping");
    connection.request().await;
    connection.begin_events(&[]).await;
    connection.event(&result(2, "{}")).await;
    client.written(2).await;
    let event = client.next().await;
    for told in [json, event] {
        let Incoming::Answer(answer) = told else {
            panic!("told {told:?} where an answer was due");
        };
        drop(answer.message);
        // Nobody else has the memory that it lies in, and there is little more of it.
        let kept = answer.outcome.expect("a result").try_into_mut();
        assert!(kept.expect("it is ours alone").capacity() < 128);
    }
}

#[tokio::test]
async fn a_stream_brings_what_the_server_says_before_the_answer() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (mut connection, _) = server.request().await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let ping = r#"{"jsonrpc":"2.0","id":"s1","method":"ping"}"#;
    connection.begin_events(&[]).await;
    connection.chunk(": hello\n\nid: 0\ndata:\n\n").await;
    connection.event(progress).await;
    connection
        .chunk("event: surprise\ndata: {\"method\":\"x\"}\n\n")
        .await;
    connection.event(ping).await;
    client.written(1).await;
    assert_eq!(client.message().await, progress);
    assert_eq!(client.message().await, ping);
    connection.event(&result(1, "{}")).await;
    assert_eq!(client.message().await, result(1, "{}"));
    connection.end_chunks().await;
    // The stream ended well: its connection carries the next request.
    client.request(2, "ping");
    connection.request().await;
    connection.json(&result(2, "{}")).await;
    assert_eq!(client.answer(2).await, result(2, "{}"));
}

#[tokio::test]
async fn each_element_of_a_batch_is_a_message() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    let batch = format!(" [{log} , {}]", result(1, "{\"a\":[1,2]}"));

    client.request(1, "tools/call");
    let (mut connection, _) = server.request().await;
    connection.json(&batch).await;
    client.written(1).await;
    assert_eq!(client.message().await, log);
    assert_eq!(client.message().await, result(1, "{\"a\":[1,2]}"));

    client.request(1, "tools/call");
    connection.request().await;
    connection.begin_events(&[]).await;
    connection.event(&batch).await;
    client.written(1).await;
    assert_eq!(client.message().await, log);
    assert_eq!(client.message().await, result(1, "{\"a\":[1,2]}"));
}

#[tokio::test]
async fn an_answer_without_a_type_is_taken_if_it_is_json() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection.answer("200 OK", &[], &result(1, "{}")).await;
    assert_eq!(client.answer(1).await, result(1, "{}"));
}

#[tokio::test]
async fn a_large_answer_in_pieces_comes_whole() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let large = result(1, &format!("{:?}", "x".repeat(3 << 20)));
    client.request(1, "tools/call");
    let (mut connection, _) = server.request().await;
    connection.json(&large).await;
    assert!(client.answer(1).await == large);

    client.request(1, "tools/call");
    connection.request().await;
    connection.begin_events(&[]).await;
    connection.event(&large).await;
    connection.end_chunks().await;
    assert!(client.answer(1).await == large);
}

/// Status, headers, body; kind, cause, outcome, and words of the error.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    ErrorKind,
    Cause,
    Outcome,
    &'static str,
);

async fn check(case: Case, in_session: bool) -> Option<Duration> {
    let (status, headers, body, kind, cause, outcome, words) = case;
    let server = Server::start().await;
    let (mut client, mut connection) = if in_session {
        let (client, mut connection) = Client::opened(&server, "s-1").await;
        client.request(1, "tools/call");
        connection.request().await;
        (client, connection)
    } else {
        let client = Client::of(&server).await;
        client.request(1, "tools/call");
        let (connection, _) = server.request().await;
        (client, connection)
    };
    connection.answer(status, headers, body).await;
    let (error, was_written) = client.failed(1).await;
    assert!(was_written, "{status}");
    assert_eq!(
        (error.kind, error.cause, error.outcome),
        (kind, cause, outcome),
        "{status} {body}: {error}"
    );
    for word in words.split('|').chain([server.authority().as_str()]) {
        assert!(error.message.contains(word), "{word} in {error}");
    }
    assert!(!error.message.contains('\n'), "{error}");
    error.retry_after
}

#[tokio::test]
async fn each_status_has_its_meaning() {
    const CHALLENGE: &[(&str, &str)] = &[("www-authenticate", "Bearer realm=\"x\"")];
    let cases: &[Case] = &[
        (
            "400 Bad Request",
            JSON,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such version"}}"#,
            Protocol,
            Permanent,
            Unknown,
            "HTTP 400|no such version",
        ),
        (
            "401 Unauthorized",
            CHALLENGE,
            "",
            ErrorKind::Auth,
            Auth,
            Rejected,
            "HTTP 401|credentials",
        ),
        (
            "401 Unauthorized",
            &[],
            "who are you",
            ErrorKind::Auth,
            Auth,
            Rejected,
            "HTTP 401|who are you",
        ),
        (
            "403 Forbidden",
            CHALLENGE,
            "",
            ErrorKind::Auth,
            Auth,
            Rejected,
            "HTTP 403|credentials",
        ),
        (
            "403 Forbidden",
            &[],
            "",
            Protocol,
            Permanent,
            Rejected,
            "HTTP 403",
        ),
        (
            "405 Method Not Allowed",
            &[],
            "",
            Protocol,
            Permanent,
            Rejected,
            "HTTP 405",
        ),
        (
            "406 Not Acceptable",
            &[],
            "",
            Protocol,
            Permanent,
            Rejected,
            "HTTP 406",
        ),
        (
            "408 Request Timeout",
            &[],
            "",
            Transport,
            Transient,
            Unknown,
            "HTTP 408",
        ),
        (
            "415 Unsupported Media Type",
            &[],
            "",
            Protocol,
            Permanent,
            Rejected,
            "HTTP 415",
        ),
        (
            "421 Misdirected Request",
            &[],
            "",
            Protocol,
            Permanent,
            Rejected,
            "HTTP 421",
        ),
        (
            "422 Unprocessable Entity",
            &[],
            "",
            Protocol,
            Permanent,
            Unknown,
            "HTTP 422",
        ),
        (
            "429 Too Many Requests",
            &[],
            "",
            Transport,
            Transient,
            Rejected,
            "HTTP 429",
        ),
        (
            "500 Internal Server Error",
            &[],
            "",
            Transport,
            Transient,
            Unknown,
            "HTTP 500",
        ),
        (
            "502 Bad Gateway",
            &[("content-type", "text/html")],
            "<html><head><title>502 Bad Gateway</title></head></html>",
            Transport,
            Transient,
            Unknown,
            "HTTP 502|: \"502 Bad Gateway\"",
        ),
        (
            "503 Service Unavailable",
            JSON,
            "null",
            Transport,
            Transient,
            Unknown,
            "HTTP 503",
        ),
        (
            "299 Odd",
            &[("content-type", "text/html")],
            "<p>hello",
            Protocol,
            Permanent,
            Unknown,
            "HTTP 299|text/html|hello",
        ),
    ];
    for case in cases {
        assert_eq!(check(*case, false).await, None);
        // Where there is a session, a 401 is first taken as its loss.
        if case.0 != "401 Unauthorized" {
            assert_eq!(check(*case, true).await, None);
        }
    }
    let gone = "Not Found|HTTP 404|no MCP endpoint";
    check(
        ("404 Not Found", &[], "", Protocol, Permanent, Unknown, gone),
        false,
    )
    .await;
}

#[tokio::test]
async fn a_server_that_asks_for_time_is_heard() {
    let wait = &[("retry-after", "17")];
    let (limited, down) = ("429 Too Many Requests", "503 Service Unavailable");
    let waits = [
        check(
            (limited, wait, "", Transport, Transient, Rejected, "429"),
            true,
        )
        .await,
        check((down, wait, "", Transport, Transient, Unknown, "503"), true).await,
    ];
    assert_eq!(waits, [Some(Duration::from_secs(17)); 2]);
    let date = &[
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"),
    ];
    let waits = check((down, date, "", Transport, Transient, Unknown, "503"), true).await;
    assert_eq!(waits, Some(Duration::from_secs(3)));
}

#[tokio::test]
async fn expiry_is_told_by_404_and_by_what_other_servers_say() {
    use mcp_transport::error::{Cause::Routine, ErrorKind::Expired};
    let cases: &[(&str, &str)] = &[
        ("404 Not Found", ""),
        (
            "404 Not Found",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}"#,
        ),
        (
            "404 Not Found",
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
        ),
        (
            "404 Not Found",
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}"#,
        ),
        (
            "400 Bad Request",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
        ),
        (
            "400 Bad Request",
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Session not found"}}"#,
        ),
        (
            "400 Bad Request",
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
        ),
        (
            "400 Bad Request",
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Unknown: session not found."}}"#,
        ),
        ("400 Bad Request", r#"{"detail":"Session not found"}"#),
        ("400 Bad Request", "No valid session ID"),
    ];
    for (status, body) in cases {
        check(
            (
                status,
                JSON,
                body,
                Expired,
                Routine,
                Rejected,
                "no longer knows the session",
            ),
            true,
        )
        .await;
    }
    // Without a session there is none to expire.
    for (status, body) in cases {
        if !body.contains("\"id\":1") {
            check(
                (status, JSON, body, Protocol, Permanent, Unknown, "HTTP 40"),
                false,
            )
            .await;
        }
    }
}

#[tokio::test]
async fn an_error_for_the_request_is_no_expiry_because_it_speaks_of_a_session() {
    for error in [
        r#"{"code":-32603,"message":"Session not found"}"#,
        r#"{"code":-32600,"message":"Tool failed: session not found in the shop"}"#,
        r#"{"code":-32000,"message":"upstream: No valid session ID provided"}"#,
    ] {
        let server = Server::start().await;
        let (mut client, mut connection) = Client::opened(&server, "s").await;
        client.request(1, "tools/call");
        connection.request().await;
        let error = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
        connection.answer("400 Bad Request", JSON, &error).await;
        assert_eq!(client.answer(1).await, error);
    }
}

#[tokio::test]
async fn what_is_too_long_or_a_batch_is_no_expiry_whatever_its_words() {
    let error = r#""error":{"code":-32603,"message":"session not found"}"#;
    let batch = format!(r#"[{{"jsonrpc":"2.0","id":1,{error}}}]"#);
    let long = format!(r#"{{{error},"x":"{}","id":1}}"#, "x".repeat(70_000));
    for body in [batch, long] {
        let status = "400 Bad Request";
        check(
            (
                status,
                JSON,
                body.leak(),
                Protocol,
                Permanent,
                Unknown,
                "HTTP 400",
            ),
            true,
        )
        .await;
    }
}

#[tokio::test]
async fn an_error_for_the_request_is_its_answer_whatever_the_status() {
    for status in [
        "400 Bad Request",
        "404 Not Found",
        "500 Internal Server Error",
    ] {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        client.request(3, "tools/call");
        let (mut connection, _) = server.request().await;
        let error = r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"bad argument"}}"#;
        connection.answer(status, JSON, error).await;
        assert_eq!(client.answer(3).await, error);
    }
}

#[tokio::test]
async fn a_json_answer_that_answers_something_else_fails_the_request() {
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    for (body, words) in [
        ("{}", "answers no request"),
        ("[]", "answers no request"),
        ("[{}, 1]", "answers no request"),
        ("[", "answers no request"),
        ("null", "answers no request"),
        ("{\"jsonrpc\":", "answers no request"),
        (null, "Parse error"),
        ("", "without a message"),
        (" \n", "without a message"),
    ] {
        check(
            ("200 OK", JSON, body, Protocol, Permanent, Unknown, words),
            false,
        )
        .await;
    }
    check(
        (
            "202 Accepted",
            &[],
            "",
            Protocol,
            Permanent,
            Unknown,
            "HTTP 202|without a message",
        ),
        false,
    )
    .await;
}

#[tokio::test]
async fn an_answer_to_another_request_is_handed_on_and_fails_this_one() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "tools/call");
    let (mut connection, _) = server.request().await;
    connection.json(&result(99, "{}")).await;
    assert_eq!(client.answer(1).await, result(99, "{}"));
    let (error, _) = client.failed(1).await;
    assert_eq!((error.kind, error.outcome), (Protocol, Unknown));
}

#[tokio::test]
async fn html_where_json_was_due_is_shown_in_a_few_words() {
    let page =
        "<!doctype html><html><head><title>Sign\n in</title></head><body>much more</body></html>";
    let html = &[("content-type", "Text/HTML; charset=utf-8")];
    let words = "text/html|HTTP 200|: \"Sign in\"";
    check(
        ("200 OK", html, page, Protocol, Permanent, Unknown, words),
        false,
    )
    .await;
    let encoded = &[
        ("content-type", "application/json"),
        ("content-encoding", "br"),
    ];
    check(
        (
            "200 OK",
            encoded,
            "{}",
            Protocol,
            Permanent,
            Unknown,
            "not asked for",
        ),
        false,
    )
    .await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_an_error_before_it_is_held() {
    let server = Server::start().await;
    let mut client = Client::with(server.config().with_body_limit(1000)).await;
    // Announced: not a byte of it is waited for.
    client.request(1, "tools/call");
    let (mut announced, _) = server.request().await;
    announced
        .send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n\r\n")
        .await;
    let (error, _) = client.failed(1).await;
    assert!(error.message.contains("larger than 1000 bytes"), "{error}");
    assert_eq!((error.kind, error.outcome), (Protocol, Outcome::Answered));
    announced.closed().await;
    // Not announced.
    client.request(2, "tools/call");
    let (mut chunked, _) = server.request().await;
    chunked
        .send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    chunked.chunk(&" ".repeat(600)).await;
    chunked.chunk(&" ".repeat(600)).await;
    let (error, _) = client.failed(2).await;
    assert!(error.message.contains("larger than 1000 bytes"), "{error}");
    assert_eq!((error.kind, error.outcome), (Protocol, Outcome::Answered));
    chunked.closed().await;
    // One event; while many small ones may be more than it together.
    client.request(3, "tools/call");
    let (mut stream, _) = server.request().await;
    stream.begin_events(&[]).await;
    for _ in 0..30 {
        stream
            .event(&format!("{{\"method\":\"{}\"}}", "m".repeat(100)))
            .await;
    }
    client.written(3).await;
    for _ in 0..30 {
        client.message().await;
    }
    stream.chunk(&format!("data: {}", "x".repeat(1000))).await;
    let (error, _) = client.failed(3).await;
    assert!(error.message.contains("larger than 1000 bytes"), "{error}");
    stream.closed().await;
}

#[tokio::test]
async fn an_event_over_the_limit_is_the_answer_if_it_begins_like_one() {
    use mcp_transport::error::Outcome::Answered;
    let server = Server::start().await;
    let mut client = Client::with(server.config().with_body_limit(1000)).await;
    for (head, outcome) in [
        (r#"{"result":{"x":""#, Answered),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"x":""#, Answered),
        (r#"{"jsonrpc":"2.0","id":"1","error":{"x":""#, Answered),
        (r#"{"jsonrpc":"2.0","id":2,"result":{"x":""#, Unknown),
        (r#"{"jsonrpc":"2.0","method":"x","params":{"x":""#, Unknown),
        (r#"[{"jsonrpc":"2.0","id":1,"result":{"x":""#, Unknown),
    ] {
        for in_pieces in [false, true] {
            client.request(1, "tools/call");
            let (mut stream, _) = server.request().await;
            stream.begin_events(&[]).await;
            if in_pieces {
                stream.chunk(&format!("data: {head}")).await;
                client.written(1).await;
                stream.chunk(&"x".repeat(1000)).await;
            } else {
                stream
                    .chunk(&format!("data: {head}{}", "x".repeat(1000)))
                    .await;
            }
            let (error, _) = client.failed(1).await;
            assert_eq!((error.kind, error.outcome), (Protocol, outcome), "{head}");
            stream.closed().await;
        }
    }
}
