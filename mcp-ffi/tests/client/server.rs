//! An MCP server over HTTP in the test's own process, which answers as the test says.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// One request that came.
pub(crate) struct Asked {
    /// Its HTTP method.
    pub(crate) http: String,
    /// Its session id, empty if it bears none.
    pub(crate) session: String,
    /// Its credentials, empty if it shows none.
    pub(crate) authorization: String,
    pub(crate) message: Value,
}

impl Asked {
    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// The tool that is called.
    pub(crate) fn tool(&self) -> &str {
        self.message["params"]["name"].as_str().unwrap_or_default()
    }

    /// The answer with this result.
    pub(crate) fn result(&self, result: Value) -> Answer {
        Answer {
            body: Some(json!({"jsonrpc": "2.0", "id": self.message["id"], "result": result})),
            ..Answer::status("200 OK")
        }
    }

    /// The answer of a tool with this text.
    pub(crate) fn text(&self, text: &str) -> Answer {
        self.result(json!({"content": [{"type": "text", "text": text}]}))
    }

    /// The answer to `initialize`, which opens this session.
    pub(crate) fn open(&self, session: &str) -> Answer {
        let result = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "0"},
        });
        Answer {
            session: Some(session.into()),
            ..self.result(result)
        }
    }

    /// The answer to `initialize` of a server that keeps no sessions.
    pub(crate) fn open_without_session(&self) -> Answer {
        Answer {
            session: None,
            ..self.open("")
        }
    }

    /// What a well-behaved server says to all but `initialize` and `tools/call`.
    pub(crate) fn usual(&self) -> Answer {
        match self.method() {
            _ if self.http == "GET" => Answer::status("405 Method Not Allowed"),
            "tools/list" => self.result(json!({"tools": []})),
            "ping" => self.result(json!({})),
            _ => Answer::status("202 Accepted"),
        }
    }
}

pub(crate) struct Answer {
    status: &'static str,
    session: Option<String>,
    challenge: Option<String>,
    body: Option<Value>,
    events: Option<Receiver<String>>,
}

impl Answer {
    pub(crate) fn status(status: &'static str) -> Self {
        Self {
            status,
            session: None,
            challenge: None,
            body: None,
            events: None,
        }
    }

    /// Refused with this challenge.
    pub(crate) fn challenge(status: &'static str, challenge: &str) -> Self {
        Self {
            challenge: Some(challenge.into()),
            ..Self::status(status)
        }
    }

    pub(crate) fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// A stream of events: what the test sends, until it drops the sender.
    pub(crate) fn stream(events: Receiver<String>) -> Self {
        Self {
            events: Some(events),
            ..Self::status("200 OK")
        }
    }

    /// The session of the request is not known.
    pub(crate) fn expired() -> Self {
        Self::status("404 Not Found")
    }
}

/// The sessions of a server that numbers them, from 1.
#[derive(Default)]
pub(crate) struct Numbered(AtomicU32);

impl Numbered {
    /// The answer to `initialize`, which opens the next.
    pub(crate) fn open(&self, asked: &Asked) -> Answer {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        asked.open(&number.to_string())
    }
}

/// Listens until the process ends.
pub(crate) struct Server {
    address: SocketAddr,
}

impl Server {
    /// Answers each request by this function, which may block.
    pub(crate) fn start(answer: impl Fn(Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                thread::spawn(move || serve(&stream, &*answer));
            }
        });
        Self { address }
    }

    /// Opens no session before the gate does; its tools answer at once.
    pub(crate) fn slow_to_open() -> (Self, Arc<Gate>, Receiver<()>) {
        let (gate, arrivals) = Gate::new();
        let shut = gate.clone();
        let server = Self::start(move |asked| match asked.method() {
            "initialize" => {
                shut.pass();
                asked.open("1")
            }
            "tools/call" => asked.text("answered"),
            _ => asked.usual(),
        });
        (server, gate, arrivals)
    }

    /// Its tool `held` answers when the gate opens, the others at once.
    pub(crate) fn holding() -> (Self, Arc<Gate>, Receiver<()>) {
        let (gate, arrivals) = Gate::new();
        let shut = gate.clone();
        let server = Self::start(move |asked| match (asked.method(), asked.tool()) {
            ("initialize", _) => asked.open("1"),
            ("tools/call", "held") => {
                shut.pass();
                asked.text("held")
            }
            ("tools/call", _) => asked.text("answered"),
            _ => asked.usual(),
        });
        (server, gate, arrivals)
    }

    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    /// The entry of this server in a configuration, under the name `server`; `ours` is its member `mcpconn`.
    pub(crate) fn config(&self, ours: Value) -> String {
        config_of(self.address, ours)
    }
}

pub(crate) fn config_of(address: SocketAddr, ours: Value) -> String {
    json!({"server": {"url": format!("http://{address}/mcp"), "mcpconn": ours}}).to_string()
}

fn serve(stream: &TcpStream, answer: &dyn Fn(Asked) -> Answer) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        let Answer {
            status,
            session,
            challenge,
            body,
            events,
        } = answer(asked);
        if let Some(events) = events {
            return serve_events(stream, &events);
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let session = session.map_or(String::new(), |id| format!("mcp-session-id: {id}\r\n"));
        let challenge = challenge.map_or(String::new(), |challenge| {
            format!("www-authenticate: {challenge}\r\n")
        });
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{session}{challenge}content-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = stream;
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// The end of the stream is that of the connection.
fn serve_events(mut stream: &TcpStream, events: &Receiver<String>) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let mut open = stream.write_all(head.as_bytes()).is_ok();
    while let (true, Ok(event)) = (open, events.recv()) {
        open = stream.write_all(event.as_bytes()).is_ok();
    }
}

/// `None` once the connection is over.
fn read(reader: &mut BufReader<&TcpStream>) -> Option<Asked> {
    let (mut session, mut authorization, mut length) = (String::new(), String::new(), 0);
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let http = line.split(' ').next()?.to_owned();
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "mcp-session-id" => session = value.trim().into(),
                "authorization" => authorization = value.trim().into(),
                "content-length" => length = value.trim().parse().ok()?,
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked {
        http,
        session,
        authorization,
        message: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// A place where the server stops until the test lets it go on; it tells of each arrival.
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    arrived: mpsc::Sender<()>,
}

impl Gate {
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<()>) {
        let (arrived, arrivals) = mpsc::channel();
        let gate = Self {
            open: Mutex::new(false),
            opened: Condvar::new(),
            arrived,
        };
        (Arc::new(gate), arrivals)
    }

    /// For the server: says that it is here, and waits.
    pub(crate) fn pass(&self) {
        // The test may have ended.
        let _ = self.arrived.send(());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*open {
            open = self
                .opened
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

/// Waits for one arrival at a gate.
pub(crate) fn arrival(arrivals: &mpsc::Receiver<()>) {
    arrivals
        .recv_timeout(Duration::from_secs(30))
        .expect("the server is asked");
}
