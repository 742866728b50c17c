//! A server that does exactly what a test says, byte by byte, and a receiver that keeps what it was told.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mcp_transport::{
    error::{Error, ErrorKind},
    http::{HttpClient, HttpConfig, HttpTransport},
    jsonrpc::{Answer, RequestId},
    revision::Revision,
    transport::{Incoming, Outgoing, Receiver, Transport},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
};

/// A test that waits this long, by any clock that can be stopped and by one that cannot, has failed. It is no part of
/// any test's meaning.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    const LIMIT: Duration = Duration::from_secs(60);
    let begun = std::time::Instant::now();
    let mut future = std::pin::pin!(future);
    loop {
        if let Ok(done) = tokio::time::timeout(LIMIT, &mut future).await {
            return done;
        }
        // A paused clock passes hours in no time, and many tests are about hours.
        assert!(begun.elapsed() < LIMIT, "waited for ever: {what}");
    }
}

/// Until nothing more happens by itself. Only with a paused clock: it moves on when nothing else can.
pub(crate) async fn all_is_quiet() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Keeps a paused clock from jumping far: it moves to the next timer whenever a socket is waited for, and where a
/// limit runs beside the sockets, the limit would pass. Ends with the test.
pub(crate) fn in_small_steps() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Listens on loopback.
pub(crate) struct Server {
    listener: TcpListener,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        Self { listener }
    }

    pub(crate) fn authority(&self) -> String {
        self.listener.local_addr().expect("an address").to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.authority())
    }

    /// The next connection of the client.
    pub(crate) async fn accept(&self) -> Connection {
        let (stream, _) = in_time("a connection", self.listener.accept())
            .await
            .expect("accept");
        // What is written goes out at once: a paused clock does not wait for the acknowledgement that holds it up.
        stream.set_nodelay(true).expect("a socket");
        Connection {
            stream,
            read: Vec::new(),
        }
    }

    /// The next connection and the request that comes on it.
    pub(crate) async fn request(&self) -> (Connection, Request) {
        let mut connection = self.accept().await;
        let request = connection.request().await;
        (connection, request)
    }

    pub(crate) fn config(&self) -> HttpConfig {
        HttpConfig::new(&self.url(), &[]).expect("a good configuration")
    }
}

/// A port that is taken and refuses connections.
pub(crate) struct Refusing(TcpSocket);

impl Refusing {
    pub(crate) fn bind() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(([127, 0, 0, 1], 0).into())
            .expect("a free port");
        Self(socket)
    }

    pub(crate) fn authority(&self) -> String {
        self.0.local_addr().expect("an address").to_string()
    }
}

/// One connection from the client.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// What the client sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

impl Connection {
    /// The next request; panics if the connection ends.
    pub(crate) async fn request(&mut self) -> Request {
        in_time("a request", async {
            let end = loop {
                match self.read.windows(4).position(|end| end == b"\r\n\r\n") {
                    Some(end) => break end + 4,
                    None => assert!(self.read_more().await, "the client closed the connection"),
                }
            };
            let head = String::from_utf8(self.read.drain(..end).collect()).expect("a text head");
            let mut lines = head.trim_end().split("\r\n");
            let line = lines.next().expect("a request line").to_owned();
            let headers: Vec<_> = lines
                .map(|line| {
                    let (name, value) = line.split_once(':').expect("a header");
                    (name.to_owned(), value.trim().to_owned())
                })
                .collect();
            let mut request = Request {
                line,
                headers,
                body: String::new(),
            };
            let length = request
                .header("content-length")
                .map_or(0, |length| length.parse().expect("a length"));
            while self.read.len() < length {
                assert!(self.read_more().await, "the client cut its request");
            }
            request.body =
                String::from_utf8(self.read.drain(..length).collect()).expect("a text body");
            request
        })
        .await
    }

    async fn read_more(&mut self) -> bool {
        self.stream.read_buf(&mut self.read).await.unwrap_or(0) > 0
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .write_all(bytes.as_ref())
            .await
            .expect("the client takes it");
    }

    /// Sends as much as the client takes before it closes.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Answers as a whole; the connection stays open.
    pub(crate) async fn answer(&mut self, status: &str, headers: &[(&str, &str)], body: &str) {
        self.send(response(status, headers, body)).await;
    }

    /// Answers 200 with JSON.
    pub(crate) async fn json(&mut self, body: &str) {
        self.answer("200 OK", &[("content-type", "application/json")], body)
            .await;
    }

    /// Begins a stream of events in chunks.
    pub(crate) async fn begin_events(&mut self, headers: &[(&str, &str)]) {
        let mut head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
                .to_owned();
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        self.send(head + "\r\n").await;
    }

    pub(crate) async fn chunk(&mut self, text: &str) {
        self.send(format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    pub(crate) async fn event(&mut self, data: &str) {
        self.chunk(&format!("event: message\ndata: {data}\n\n"))
            .await;
    }

    pub(crate) async fn end_chunks(&mut self) {
        self.send("0\r\n\r\n").await;
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn closed(&mut self) {
        in_time("the client to close", async {
            while self.read_more().await {}
        })
        .await;
    }

    /// All that came when nothing more does. Only with a paused clock.
    pub(crate) async fn received(&mut self) -> String {
        loop {
            tokio::select! {
                biased;
                more = self.read_more() => if !more { break },
                () = all_is_quiet() => break,
            }
        }
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Closes with FIN, and returns when the client's side has it too.
    pub(crate) async fn hang_up(mut self) {
        self.stream.shutdown().await.expect("shut down");
    }
}

pub(crate) fn response(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n" + body
}

/// A transport with what it told.
pub(crate) struct Client {
    pub(crate) transport: HttpTransport,
    pub(crate) told: mpsc::UnboundedReceiver<Incoming>,
}

struct Recorder(mpsc::UnboundedSender<Incoming>);

impl Receiver for Recorder {
    fn receive(&self, incoming: Incoming) {
        let _ = self.0.send(incoming);
    }
}

impl Client {
    pub(crate) async fn of(server: &Server) -> Self {
        Self::with(server.config()).await
    }

    pub(crate) async fn with(config: HttpConfig) -> Self {
        Self::over(config, HttpClient::new()).await
    }

    pub(crate) async fn over(config: HttpConfig, pool: HttpClient) -> Self {
        let transport = HttpTransport::new(config, pool);
        let (tell, told) = mpsc::unbounded_channel();
        transport
            .start(Arc::new(Recorder(tell)))
            .await
            .expect("it starts");
        Self { transport, told }
    }

    /// A session that the server has opened, with `session` for its id, and the connection it was opened on.
    pub(crate) async fn opened(server: &Server, session: &str) -> (Self, Connection) {
        let mut client = Self::of(server).await;
        let mut connection = client.open(server, &[("mcp-session-id", session)]).await;
        client.notify("notifications/initialized");
        connection.request().await;
        connection.answer("202 Accepted", &[], "").await;
        // Answered, so that the client has seen the end of the notification too.
        client.request(0, "ping");
        connection.request().await;
        connection.json(&result(0, "{}")).await;
        client.answer(0).await;
        (client, connection)
    }

    /// `initialize` alone, answered with these headers.
    pub(crate) async fn open(&mut self, server: &Server, headers: &[(&str, &str)]) -> Connection {
        self.request(0, "initialize");
        let (mut connection, _) = server.request().await;
        let headers = [headers, &[("content-type", "application/json")]].concat();
        connection
            .answer("200 OK", &headers, &result(0, "{}"))
            .await;
        assert_eq!(self.answer(0).await, result(0, "{}"));
        self.transport.negotiated(Revision::V2025_06_18);
        connection
    }

    pub(crate) fn request(&self, id: u64, method: &str) {
        self.request_with(id, method, "{}");
    }

    pub(crate) fn request_with(&self, id: u64, method: &str, params: &str) {
        self.transport.send(Outgoing {
            bytes: Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
            )),
            request: Some(RequestId(id)),
        });
    }

    pub(crate) fn notify(&self, method: &str) {
        self.transport.send(Outgoing {
            bytes: Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)),
            request: None,
        });
    }

    /// The next thing that was told.
    pub(crate) async fn next(&mut self) -> Incoming {
        in_time("the transport to tell something", self.told.recv())
            .await
            .expect("the receiver is held")
    }

    /// That `id` was written, which must be the next thing told.
    pub(crate) async fn written(&mut self, id: u64) {
        match self.next().await {
            Incoming::Written(written) => assert_eq!(written, RequestId(id)),
            other => panic!("told {other:?} where Written({id}) was due"),
        }
    }

    /// The next message.
    pub(crate) async fn message(&mut self) -> String {
        match self.next().await {
            Incoming::Message(message) | Incoming::Answer(Answer { message, .. }) => {
                String::from_utf8(message.to_vec()).expect("a text message")
            }
            other => panic!("told {other:?} where a message was due"),
        }
    }

    /// That `id` was written and then answered.
    pub(crate) async fn answer(&mut self, id: u64) -> String {
        self.written(id).await;
        self.message().await
    }

    /// That `id` failed, and whether it was said to be written before.
    pub(crate) async fn failed(&mut self, id: u64) -> (Error, bool) {
        let mut was_written = false;
        loop {
            match self.next().await {
                Incoming::Written(written) if written == RequestId(id) && !was_written => {
                    was_written = true;
                }
                Incoming::Failed(failed, error) if failed == RequestId(id) => {
                    return (error, was_written);
                }
                other => panic!("told {other:?} where the failure of {id} was due"),
            }
        }
    }

    pub(crate) async fn ended(&mut self) -> ErrorKind {
        match self.next().await {
            Incoming::Ended(error) => error.kind,
            other => panic!("told {other:?} where the end was due"),
        }
    }

    /// What was told and not taken.
    pub(crate) fn left(&mut self) -> Vec<Incoming> {
        let mut left = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            left.push(told);
        }
        left
    }
}

pub(crate) fn result(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}
