//! Whatever a server answers to a request, head and body and however it is cut: the request is settled exactly once,
//! by what is an answer to it or by an error, what is handed on is what came, and no error says a secret.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use mcp_transport::{
    error::Error,
    http::{HttpClient, HttpConfig, HttpTransport},
    jsonrpc::{self, RequestId},
    transport::{Incoming, Outgoing, Receiver, Transport},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    time::{Instant, sleep},
};

use crate::sse;

const ID: RequestId = RequestId(7);
const SECRET: &str = "s3cr3t-of-the-host";
/// Far more than loopback takes, and less than before a stream is asked for again.
const SETTLED: Duration = Duration::from_millis(900);

const STATUSES: [&str; 16] = [
    "200 OK",
    "202 Accepted",
    "204 No Content",
    "206 Partial Content",
    "301 Moved Permanently",
    "307 Temporary Redirect",
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "405 Method Not Allowed",
    "421 Misdirected Request",
    "429 Too Many Requests",
    "500 Internal Server Error",
    "503 Service Unavailable",
    "299 Whatever",
];
const HEADERS: [&str; 8] = [
    "content-type: application/json\r\n",
    "content-type: text/event-stream\r\n",
    "content-type: text/html; charset=x\r\n",
    "",
    "content-type: application/json\r\ncontent-encoding: gzip\r\n",
    "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n",
    "content-type: application/problem+json\r\nretry-after: 7\r\n",
    "content-type: application/json\r\nwww-authenticate: Bearer realm=\"x\"\r\nlocation: /mcp\r\n",
];

/// How an answer is made of the bytes.
struct Plan<'a> {
    status: usize,
    headers: usize,
    /// The bytes are the head too.
    raw: bool,
    /// The request bears a session id.
    in_session: bool,
    piece: usize,
    bytes: &'a [u8],
}

impl<'a> Plan<'a> {
    fn of(data: &'a [u8]) -> Option<Self> {
        let [first, second, third, bytes @ ..] = data else {
            return None;
        };
        Some(Self {
            status: usize::from(first % 16),
            headers: usize::from(second % 8),
            raw: first & 0x10 != 0,
            in_session: first & 0x20 != 0,
            piece: usize::from(*third).max(1) * 8,
            bytes,
        })
    }

    fn answer(&self) -> Vec<u8> {
        if self.raw {
            return self.bytes.to_vec();
        }
        let head = format!(
            "HTTP/1.1 {}\r\n{}connection: close\r\n\r\n",
            STATUSES[self.status], HEADERS[self.headers]
        );
        [head.as_bytes(), self.bytes].concat()
    }

    /// The bytes are the body of a success, as they are.
    fn is_plain_success(&self) -> bool {
        !self.raw && self.status == 0 && matches!(self.headers, 0 | 1 | 3)
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<Incoming>>);

impl Receiver for Told {
    fn receive(&self, incoming: Incoming) {
        self.0.lock().unwrap().push(incoming);
    }
}

/// What became of the request.
#[derive(Debug, Default)]
struct Outcome {
    written: usize,
    answers: Vec<Bytes>,
    errors: Vec<Error>,
    /// The end of the connection, which settles what was not settled before.
    ended: Option<Error>,
    messages: Vec<Bytes>,
}

impl Told {
    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for incoming in &*self.0.lock().unwrap() {
            match incoming {
                Incoming::Message(message) => {
                    if jsonrpc::settles(message) == Some(ID) {
                        outcome.answers.push(message.clone());
                    }
                    outcome.messages.push(message.clone());
                }
                Incoming::Answer(answer) => {
                    // It is what its message says, read by another.
                    assert_eq!(jsonrpc::settles(&answer.message), Some(answer.id));
                    if answer.id == ID {
                        outcome.answers.push(answer.message.clone());
                    }
                    outcome.messages.push(answer.message.clone());
                }
                Incoming::Written(ID) => outcome.written += 1,
                Incoming::Failed(ID, error) => outcome.errors.push(error.clone()),
                Incoming::Ended(error) => outcome.ended = Some(error.clone()),
                _ => {}
            }
        }
        outcome
    }

    fn is_settled(&self) -> bool {
        let outcome = self.outcome();
        !outcome.answers.is_empty() || !outcome.errors.is_empty() || outcome.ended.is_some()
    }
}

/// The first two bytes say status, headers and more, the third how the answer is cut; see [`Plan`].
pub fn check(data: &[u8]) {
    let Some(plan) = Plan::of(data) else { return };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let (outcome, ended) = runtime.block_on(ask(&plan));
    judge(&plan, &outcome, ended);
}

/// Sends the request and gives what became of it, and whether it was settled before it was given up.
async fn ask(plan: &Plan<'_>) -> (Outcome, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, plan.answer(), plan.piece));
    // A paused clock goes on whenever only sockets are waited for; so it goes slowly.
    tokio::spawn(async {
        loop {
            sleep(Duration::from_millis(5)).await;
        }
    });
    let headers = [("x-key".to_owned(), SECRET.to_owned())];
    let config = HttpConfig::new(&url, &headers).unwrap();
    let transport = HttpTransport::new(config, HttpClient::new());
    let told = Arc::new(Told::default());
    transport.start(told.clone()).await.unwrap();
    if plan.in_session {
        transport.send(message(0, "initialize"));
        let opened = || {
            told.0
                .lock()
                .unwrap()
                .iter()
                .any(|told| matches!(told, Incoming::Message(_) | Incoming::Answer(_)))
        };
        assert!(until(opened, Duration::from_secs(60)).await, "no session");
        told.0.lock().unwrap().clear();
    }
    transport.send(message(ID.0, "tools/call"));
    let settled = until(|| told.is_settled(), SETTLED).await;
    if !settled {
        transport.abandon(ID);
    }
    transport.close(Duration::from_secs(1)).await;
    (told.outcome(), settled)
}

fn message(id: u64, method: &str) -> Outgoing {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#);
    Outgoing {
        bytes: text.into(),
        request: Some(RequestId(id)),
    }
}

async fn until(so: impl Fn() -> bool, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while !so() {
        if Instant::now() >= end {
            return false;
        }
        sleep(Duration::from_millis(1)).await;
    }
    true
}

/// One connection for each request.
async fn serve(listener: TcpListener, answer: Vec<u8>, piece: usize) {
    while let Ok((connection, _)) = listener.accept().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            // A client that goes away is its own affair.
            let _ = respond(connection, &answer, piece).await;
        });
    }
}

async fn respond(mut connection: TcpStream, answer: &[u8], piece: usize) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut request = Vec::new();
    while !is_whole(&request) {
        if connection.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let asked = |part: &str| {
        request
            .windows(part.len())
            .any(|window| window == part.as_bytes())
    };
    if asked("\"initialize\"") {
        let body = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
        let head = "content-type: application/json\r\nmcp-session-id: s\r\nconnection: close";
        let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
        connection.write_all(answer.as_bytes()).await?;
    } else if asked("\"tools/call\"") {
        for piece in answer.chunks(piece) {
            connection.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
    } else {
        connection
            .write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .await?;
    }
    connection.shutdown().await?;
    // Until the client has gone, so that nothing that was written is lost to a reset.
    while connection.read_buf(&mut request).await? > 0 {}
    Ok(())
}

/// Whether all of a request is there; our messages end with their last brace.
fn is_whole(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
        return false;
    };
    !request.starts_with(b"POST") || request[end + 4..].ends_with(b"}}")
}

fn judge(plan: &Plan<'_>, outcome: &Outcome, settled: bool) {
    assert!(outcome.written <= 1, "{outcome:?}");
    // A second answer is handed on too: the session drops it, as any that is late.
    let failed = outcome.errors.len();
    assert!(
        failed <= usize::from(outcome.answers.is_empty()),
        "settled more than once: {outcome:?}"
    );
    // Only a stream that can be read on is waited for.
    let may_go_on = plan.raw || matches!(plan.headers, 1 | 5);
    assert!(settled || may_go_on, "not settled: {outcome:?}");
    for error in outcome.errors.iter().chain(&outcome.ended) {
        let said = format!("{error} {error:?}");
        assert!(!said.contains(SECRET), "a secret is said: {said}");
    }
    if plan.is_plain_success() {
        if plan.headers == 1 {
            let (events, ..) = sse::reference(plan.bytes);
            for message in &outcome.messages {
                assert!(
                    events.iter().any(|(_, data, _)| data == message),
                    "{message:?}"
                );
            }
        } else {
            judge_json(plan.bytes, outcome);
        }
    }
}

/// What any JSON reader takes for the answer is the answer, whole, and nothing is handed on that did not come.
fn judge_json(body: &[u8], outcome: &Outcome) {
    for message in &outcome.messages {
        let came = body
            .windows(message.len().max(1))
            .any(|window| window == message);
        assert!(came, "{message:?} did not come");
    }
    let Ok(Value::Object(value)) = serde_json::from_slice(body) else {
        return;
    };
    // A name that comes twice is anybody's guess.
    let once = |name: &str| {
        body.windows(name.len())
            .filter(|window| *window == name.as_bytes())
            .count()
            == 1
    };
    let is_answer = value.get("id") == Some(&Value::from(ID.0))
        && value.get("jsonrpc") == Some(&Value::from("2.0"))
        && value.contains_key("result")
        && value.len() == 3
        && once("\"id\"")
        && once("\"jsonrpc\"")
        && once("\"result\"");
    if is_answer {
        assert!(outcome.errors.is_empty(), "{outcome:?}");
        assert_eq!(outcome.answers.len(), 1, "{outcome:?}");
        assert_eq!(outcome.answers[0].trim_ascii(), body.trim_ascii());
    }
}
