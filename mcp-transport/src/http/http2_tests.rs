//! Requests that are given up over HTTP/2, and a server that refuses, resets and leaves at any moment.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    AddressPolicy, HttpClient, HttpConfig, HttpTransport,
    connect::Tls,
    proxy::Proxies,
    resolve::Resolver,
    testing::{Authority, in_time, listener},
};
use crate::{
    error::Outcome,
    jsonrpc::RequestId,
    transport::{Incoming, Outgoing, Receiver, Transport},
};

/// The same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 33) % sides
    }
}

/// How often each request came whole.
type Came = Arc<Mutex<HashMap<u64, usize>>>;

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    came: Came,
    way: u64,
) {
    let mut body = request.into_body();
    let mut read = Vec::new();
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return };
        let _ = body.flow_control().release_capacity(data.len());
        read.extend(data);
    }
    let message: serde_json::Value = serde_json::from_slice(&read).expect("a message");
    let id = message["id"].as_u64().expect("a request");
    *came.lock().expect("whole").entry(id).or_default() += 1;
    if way == 0 {
        return respond.send_reset(h2::Reason::CANCEL);
    }
    let head = http::Response::builder().header("content-type", "application/json");
    let Ok(mut stream) = respond.send_response(head.body(()).expect("a head"), false) else {
        return;
    };
    let result = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    if way == 1 {
        let _ = stream.send_data(result[..9].to_owned().into(), false);
        return stream.send_reset(h2::Reason::INTERNAL_ERROR);
    }
    let _ = stream.send_data(result.into(), true);
}

async fn misbehave(stream: impl AsyncRead + AsyncWrite + Unpin, came: Came, mut dice: Dice) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1 + dice.roll(4) as u32);
    let Ok(mut http) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    let mut answers = JoinSet::new();
    while let Some(Ok((request, mut respond))) = http.accept().await {
        match dice.roll(16) {
            0 => respond.send_reset(h2::Reason::REFUSED_STREAM),
            1 => return,
            2 => {
                http.graceful_shutdown();
                answers.spawn(answer(request, respond, came.clone(), 9));
            }
            3 => http.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM),
            way => {
                answers.spawn(answer(request, respond, came.clone(), way - 4));
            }
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, came: Came, seed: u64) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let (stream, _) = listener.accept().await.expect("accept");
        let (acceptor, came) = (acceptor.clone(), came.clone());
        let dice = Dice(seed * 1_000_003 + number);
        connections.spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                misbehave(stream, came, dice).await;
            }
        });
    }
}

struct Recorder(mpsc::UnboundedSender<Incoming>);

impl Receiver for Recorder {
    fn receive(&self, incoming: Incoming) {
        let _ = self.0.send(incoming);
    }
}

/// What became of a request that was not given up.
type Ends = Vec<(u64, Result<(), Outcome>)>;

async fn ask(transport: HttpTransport, first: u64, mut dice: Dice) -> Ends {
    let (tell, mut told) = mpsc::unbounded_channel();
    let recorder = Arc::new(Recorder(tell));
    transport.start(recorder).await.expect("it starts");
    let mut ends = Vec::new();
    for id in first..first + 60 {
        let x = "x".repeat([10, 10, 10, 1 << 18][dice.roll(4) as usize]);
        let bytes =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"x":"{x}"}}}}"#);
        transport.send(Outgoing {
            bytes: bytes.into(),
            request: Some(RequestId(id)),
        });
        let patience = [1, 10, 300, 300, 300][dice.roll(5) as usize];
        let end = timeout(Duration::from_millis(patience), async {
            loop {
                match told.recv().await.expect("the transport is held") {
                    Incoming::Answer(answer) if answer.id == RequestId(id) => return Ok(()),
                    Incoming::Failed(failed, error) if failed == RequestId(id) => {
                        return Err(error.outcome);
                    }
                    // What was given up before may have ended in that moment.
                    Incoming::Written(_) | Incoming::Answer(_) | Incoming::Failed(..) => {}
                    other => panic!("{other:?}"),
                }
            }
        });
        match end.await {
            Ok(end) => ends.push((id, end)),
            Err(_) => transport.abandon(RequestId(id)),
        }
    }
    ends
}

#[tokio::test]
async fn requests_that_come_together_are_not_refused_by_a_server_that_takes_one_at_a_time() {
    let authority = Authority::new();
    let (listener, port) = listener().await;
    let acceptor = authority.acceptor("h2");
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accept");
        let stream = acceptor.accept(stream).await.expect("it is trusted");
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(1);
        let mut http = builder.handshake::<_, Bytes>(stream).await.expect("HTTP/2");
        while let Some(Ok((request, respond))) = http.accept().await {
            tokio::spawn(answer(request, respond, Came::default(), 9));
        }
    });
    let client = client(&authority);
    let config = HttpConfig::new(&format!("https://localhost:{port}/mcp"), &[]).expect("good");
    let transport = HttpTransport::new(config, client);
    let (tell, mut told) = mpsc::unbounded_channel();
    let recorder = Arc::new(Recorder(tell));
    transport.start(recorder).await.expect("it starts");
    for id in 0..8 {
        let bytes = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        transport.send(Outgoing {
            bytes: bytes.into(),
            request: Some(RequestId(id)),
        });
    }
    let mut answered = 0;
    while answered < 8 {
        match in_time("an answer", told.recv()).await {
            Some(Incoming::Answer(_)) => answered += 1,
            Some(Incoming::Written(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    server.abort();
}

fn client(authority: &Authority) -> HttpClient {
    HttpClient::over(
        Tls::new(Some(authority.roots()), None).expect("good"),
        Resolver::new(AddressPolicy::any()),
        Proxies::default(),
        true,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_an_http_2_server_does_nothing_is_sent_twice_and_what_was_not_sent_never_came() {
    let authority = Authority::new();
    for seed in 0..2 {
        let (listener, port) = listener().await;
        let came = Came::default();
        let acceptor = authority.acceptor("h2");
        let server = tokio::spawn(serve(listener, acceptor, came.clone(), seed));
        let client = client(&authority);
        let url = format!("https://localhost:{port}/mcp");
        let mut asking = JoinSet::new();
        for number in 0..8 {
            let config = HttpConfig::new(&url, &[]).expect("good");
            let transport = HttpTransport::new(config, client.clone());
            asking.spawn(ask(transport, number * 1000, Dice(seed * 77 + number)));
        }
        let ends = in_time("all to end", asking.join_all()).await.concat();
        server.abort();
        let came = came.lock().expect("whole");
        for (id, times) in came.iter() {
            assert_eq!(*times, 1, "request {id} of seed {seed}");
        }
        for (id, end) in &ends {
            assert!(
                *end != Err(Outcome::NotSent) || !came.contains_key(id),
                "{id} of {seed}"
            );
            assert!(end.is_err() || came.contains_key(id), "{id} of {seed}");
        }
        let answered = ends.iter().filter(|(_, end)| end.is_ok()).count();
        assert!(answered > 30, "{answered} of {}", ends.len());
    }
}
