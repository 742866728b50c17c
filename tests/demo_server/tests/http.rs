use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::Path,
};

use mcpconn_tests::{demo_log::DemoLog, scratch::Scratch, server::Server};
use serde_json::{Value, json};

use crate::DEMO_SERVER;

/// A response, read whole.
struct Response {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{:?} is no JSON", self.body))
    }

    /// The messages of an event stream.
    fn events(&self) -> Vec<Value> {
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let lines = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        lines
            .map(|data| serde_json::from_str(data).expect("events hold JSON"))
            .collect()
    }
}

/// A client with one connection that is kept, and perhaps a session.
struct Peer {
    server: Server,
    connection: BufReader<TcpStream>,
    session: Option<String>,
    log: DemoLog,
    _scratch: Scratch,
}

impl Peer {
    fn start(before: &[&str], after: &[&str]) -> Self {
        let scratch = Scratch::new();
        let log = DemoLog::at(scratch.file("log"));
        let before = [&["--log", log.path()], before].concat();
        let server = Server::demo(Path::new(DEMO_SERVER), &before, after);
        let connection = connect(&server);
        Self {
            server,
            connection,
            session: None,
            log,
            _scratch: scratch,
        }
    }

    fn initialized(after: &[&str]) -> Self {
        let mut peer = Self::start(&[], after);
        let response = peer.initialize();
        peer.session = Some(response.headers["mcp-session-id"].clone());
        let accepted =
            peer.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(accepted.status, 202);
        peer
    }

    fn initialize(&mut self) -> Response {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        self.post(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Response {
        let params = json!({ "name": tool, "arguments": arguments });
        self.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
    }

    fn post(&mut self, message: &Value) -> Response {
        let mut headers = vec![
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        let session = self.session.clone();
        headers.extend(
            session
                .as_deref()
                .map(|session| ("Mcp-Session-Id", session)),
        );
        self.send("POST", &headers, &message.to_string())
    }

    fn send(&mut self, method: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let request = format!("{head}\r\n{body}");
        self.connection
            .get_mut()
            .write_all(request.as_bytes())
            .expect("the server listens");
        read_response(&mut self.connection)
    }
}

fn connect(server: &Server) -> BufReader<TcpStream> {
    BufReader::new(
        TcpStream::connect(("127.0.0.1", server.port())).expect("it said that it listens"),
    )
}

fn read_response(connection: &mut impl BufRead) -> Response {
    let mut line = || {
        let mut line = String::new();
        connection.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let status = line()
        .split(' ')
        .nth(1)
        .expect("a status")
        .parse()
        .expect("a number");
    let mut headers = HashMap::new();
    loop {
        let header = line();
        let Some((name, value)) = header.split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        body.resize(length.parse().expect("a number"), 0);
        connection.read_exact(&mut body).expect("the whole body");
    } else if headers.contains_key("transfer-encoding") {
        loop {
            let mut size = String::new();
            connection.read_line(&mut size).expect("a chunk's size");
            let size = usize::from_str_radix(size.trim_end(), 16).expect("a number");
            let mut chunk = vec![0; size + 2];
            connection.read_exact(&mut chunk).expect("a chunk");
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Response {
        status,
        headers,
        body: String::from_utf8(body).expect("UTF-8"),
    }
}

#[test]
fn a_session_is_made_by_initialize_and_used_by_its_id() {
    let mut peer = Peer::initialized(&[]);
    let session = peer.session.clone().expect("it was given");
    let response = peer.call("whoami", json!({}));
    assert_eq!(response.headers["content-type"], "application/json");
    let text = format!("pid {} session {session}", peer.server.child.pid());
    assert_eq!(response.json()["result"]["content"][0]["text"], text);
}

#[test]
fn sessions_are_kept_apart() {
    let mut peer = Peer::initialized(&[]);
    assert_eq!(
        peer.call("counter", json!({})).json()["result"]["content"][0]["text"],
        "1"
    );
    assert_eq!(
        peer.call("counter", json!({})).json()["result"]["content"][0]["text"],
        "2"
    );
    peer.session = None;
    peer.session = Some(peer.initialize().headers["mcp-session-id"].clone());
    peer.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(
        peer.call("counter", json!({})).json()["result"]["content"][0]["text"],
        "1"
    );
    assert_eq!(peer.log.count("open"), 2);
}

#[test]
fn answers_come_as_event_streams_when_told() {
    let mut peer = Peer::initialized(&["--sse"]);
    let events = peer.call("add", json!({ "a": 1, "b": 1 })).events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["result"]["content"][0]["text"], "2");
}

#[test]
fn progress_comes_in_the_stream_that_ends_with_the_answer() {
    let mut peer = Peer::initialized(&[]);
    let params =
        json!({ "name": "sleep", "arguments": { "ms": 60 }, "_meta": { "progressToken": 9 } });
    let response =
        peer.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    let events = response.events();
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["params"]["progressToken"], 9);
    assert_eq!(events[2]["id"], 1);
}

#[test]
fn who_does_not_show_the_token_is_not_let_in() {
    let mut peer = Peer::start(&[], &["--token", "sesame"]);
    let response = peer.initialize();
    assert_eq!(response.status, 401);
    assert!(response.headers["www-authenticate"].starts_with("Bearer "));
    for (token, status) in [("open", 401), ("sesame", 405)] {
        let shown = format!("Bearer {token}");
        let response = peer.send("GET", &[("Authorization", &shown)], "");
        assert_eq!(response.status, status);
    }
}

#[test]
fn a_call_is_cancelled_over_another_connection() {
    let mut peer = Peer::initialized(&[]);
    let session = peer.session.clone().expect("it was given");
    let params = json!({ "name": "sleep", "arguments": { "ms": 60_000 } });
    let call =
        json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params }).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nMcp-Session-Id: {session}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\r\n",
        call.len(),
    );
    let mut calling = connect(&peer.server);
    calling
        .get_mut()
        .write_all((head + &call).as_bytes())
        .expect("the server listens");
    peer.log.await_count("call", 1);
    peer.post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } }));
    assert_eq!(read_response(&mut calling).status, 204);
    assert_eq!(peer.log.count("cancelled"), 1);
}

#[test]
fn an_unknown_session_is_not_found_and_a_missing_one_is_a_bad_request() {
    let mut peer = Peer::initialized(&[]);
    peer.session = Some("unknown".to_owned());
    assert_eq!(peer.call("whoami", json!({})).status, 404);
    peer.session = None;
    assert_eq!(peer.call("whoami", json!({})).status, 400);
}

#[test]
fn a_deleted_session_is_unknown_from_then_on() {
    let mut peer = Peer::initialized(&[]);
    let session = peer.session.clone().expect("it was given");
    assert_eq!(
        peer.send("DELETE", &[("Mcp-Session-Id", &session)], "")
            .status,
        200
    );
    assert_eq!(
        peer.send("DELETE", &[("Mcp-Session-Id", &session)], "")
            .status,
        404
    );
    assert_eq!(peer.call("whoami", json!({})).status, 404);
    assert!(peer.log.lines("close")[0].ends_with("deleted"));
}

#[test]
fn expire_answers_and_forgets_the_session() {
    let mut peer = Peer::initialized(&[]);
    assert_eq!(peer.call("expire", json!({})).status, 200);
    assert_eq!(peer.call("whoami", json!({})).status, 404);
    assert!(peer.log.lines("close")[0].ends_with("expired"));
}

#[test]
fn an_idle_session_is_forgotten_when_told() {
    // At once: no session is ever used twice.
    let mut peer = Peer::start(&[], &["--idle-timeout-ms", "0"]);
    peer.session = Some(peer.initialize().headers["mcp-session-id"].clone());
    assert_eq!(peer.call("whoami", json!({})).status, 404);
    assert!(peer.log.lines("close")[0].ends_with("idle"));
}

#[test]
fn there_is_no_stream_to_get() {
    let mut peer = Peer::initialized(&[]);
    let response = peer.send("GET", &[("Accept", "text/event-stream")], "");
    assert_eq!(response.status, 405);
    assert_eq!(response.headers["allow"], "POST, DELETE");
}

#[test]
fn a_post_must_say_what_it_brings_and_takes_and_come_from_here() {
    let mut peer = Peer::start(&[], &[]);
    let json = ("Content-Type", "application/json");
    let both = ("Accept", "application/json, text/event-stream");
    assert_eq!(peer.send("POST", &[json], "{}").status, 406);
    assert_eq!(peer.send("POST", &[both], "{}").status, 415);
    assert_eq!(
        peer.send(
            "POST",
            &[both, json, ("Origin", "http://example.com")],
            "{}"
        )
        .status,
        403
    );
    assert_eq!(
        peer.send("POST", &[both, json], "nonsense").json()["error"]["code"],
        -32700
    );
}

#[test]
fn the_revision_in_the_header_must_be_the_one_agreed_upon() {
    let mut peer = Peer::initialized(&[]);
    let session = peer.session.clone().expect("it was given");
    let mut ping = |revision| {
        let headers = [
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("Mcp-Session-Id", session.as_str()),
            ("MCP-Protocol-Version", revision),
        ];
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
        peer.send("POST", &headers, &body).status
    };
    assert_eq!(ping("2025-11-25"), 200);
    assert_eq!(ping("2025-06-18"), 400);
}

#[test]
fn garbage_is_a_web_page() {
    let mut peer = Peer::start(&["--garbage"], &[]);
    let response = peer.initialize();
    assert_eq!(response.status, 200);
    assert_eq!(response.headers["content-type"], "text/html");
}
