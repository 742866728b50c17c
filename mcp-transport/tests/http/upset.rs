//! Requests that are given up, and servers that do what none should, at every moment of a connection's life.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_transport::{
    error::Outcome,
    http::{HttpClient, HttpConfig},
    jsonrpc::RequestId,
    transport::{Incoming, Transport},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::oneshot,
    task::JoinSet,
    time::timeout,
};

use crate::server::{Client, Server, response, result};

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_refusal_is_heard_while_a_large_request_is_still_written() {
    let large = format!("{{\"data\":\"{}\"}}", "x".repeat(1 << 20));
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for id in 0..200 {
        client.request_with(id, "tools/call", &large);
        let mut connection = server.accept().await;
        // As many servers do: answered by the head alone, and closed with most of the body unread.
        connection
            .send(response(
                "413 Content Too Large",
                &[("connection", "close")],
                "too much",
            ))
            .await;
        connection.hang_up().await;
        let (error, was_written) = client.failed(id).await;
        assert!(was_written);
        assert!(error.message.contains("413"), "{id}: {error}");
    }
}

#[tokio::test]
async fn what_comes_behind_an_answer_is_no_answer_to_the_next_request() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for id in (0..100).step_by(2) {
        client.request(id, "ping");
        let (mut connection, _) = server.request().await;
        let answer = response("200 OK", &[JSON], &result(id, "{}"));
        let forged = response("200 OK", &[JSON], &result(id + 1, "\"forged\""));
        connection.send(answer + &forged).await;
        assert_eq!(client.answer(id).await, result(id, "{}"));
        client.request(id + 1, "ping");
        let (mut other, _) = server.request().await;
        other
            .answer(
                "200 OK",
                &[JSON, ("connection", "close")],
                &result(id + 1, "{}"),
            )
            .await;
        assert_eq!(client.answer(id + 1).await, result(id + 1, "{}"));
        connection.closed().await;
    }
}

#[tokio::test]
async fn a_server_that_changes_the_protocol_unasked_has_refused_and_its_connection_is_closed() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    client.request(1, "ping");
    let (mut connection, _) = server.request().await;
    connection
        .send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nxyz")
        .await;
    let (error, _) = client.failed(1).await;
    assert!(error.message.contains("101"), "{error}");
    connection.closed().await;
}

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

/// The next request of a client, and its id; `None` where the client has closed.
async fn whole_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<u64> {
    loop {
        let text = String::from_utf8_lossy(read);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").parse().expect("a number");
            if body.len() >= length {
                assert_eq!(body.len(), length, "one at a time");
                let message: serde_json::Value = serde_json::from_str(body).expect("a message");
                read.clear();
                return message["id"].as_u64();
            }
        }
        if stream.read_buf(read).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// One connection of a server that does to each request what the dice say.
async fn misbehave(mut stream: TcpStream, came: Came, mut dice: Dice) {
    let mut read = Vec::new();
    loop {
        if dice.roll(12) == 0 {
            // Refused by the first of it.
            let _ = stream.read_buf(&mut read).await;
            let refusal = response("413 Content Too Large", &[("connection", "close")], "no");
            let _ = stream.write_all(refusal.as_bytes()).await;
            return;
        }
        let Some(id) = whole_request(&mut stream, &mut read).await else {
            return;
        };
        *came.lock().expect("whole").entry(id).or_default() += 1;
        let answer = response("200 OK", &[JSON], &result(id, "{}"));
        let stays = match dice.roll(12) {
            0 => return,
            1 => {
                let _ = stream.set_zero_linger();
                return;
            }
            2 => {
                let half = answer.len() - dice.roll(answer.len() as u64) as usize;
                let _ = stream.write_all(&answer.as_bytes()[..half]).await;
                return;
            }
            3 => {
                // Nothing, for as long as the client waits.
                let _ = stream.read_buf(&mut read).await;
                return;
            }
            4 => {
                let close = response(
                    "200 OK",
                    &[JSON, ("connection", "close")],
                    &result(id, "{}"),
                );
                let _ = stream.write_all(close.as_bytes()).await;
                return;
            }
            5 => {
                let _ = stream.write_all(answer.as_bytes()).await;
                return;
            }
            6 => {
                let more = answer.clone() + &answer;
                stream.write_all(more.as_bytes()).await
            }
            7 => {
                let early = "HTTP/1.1 103 Early Hints\r\n\r\n".to_owned() + &answer;
                stream.write_all(early.as_bytes()).await
            }
            8 => {
                let event = format!("data: {}\n\n", result(id, "{}"));
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
                let whole = format!("{head}\r\n\r\n{:x}\r\n{event}\r\n0\r\n\r\n", event.len());
                stream.write_all(whole.as_bytes()).await
            }
            9 => {
                let _ = stream.write_all(answer.as_bytes()).await;
                // Closed when it may just be used again.
                tokio::time::sleep(Duration::from_micros(dice.roll(2000))).await;
                return;
            }
            _ => stream.write_all(answer.as_bytes()).await,
        };
        if stays.is_err() {
            return;
        }
    }
}

/// Serves until it is told to stop, and then until the client has closed what it has.
async fn serve(listener: TcpListener, came: Came, seed: u64, mut stop: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.expect("accept").0,
            _ = &mut stop => break,
        };
        let dice = Dice(seed * 1_000_003 + number);
        connections.spawn(misbehave(stream, came.clone(), dice));
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    connections.join_all().await;
}

/// What became of a request that was not given up.
type Ends = Vec<(u64, Result<(), Outcome>)>;

async fn ask(mut client: Client, first: u64, mut dice: Dice) -> Ends {
    let mut ends = Vec::new();
    for id in first..first + 60 {
        let size = [10, 10, 10, 1 << 19][dice.roll(4) as usize];
        client.request_with(
            id,
            "tools/call",
            &format!("{{\"x\":\"{}\"}}", "x".repeat(size)),
        );
        let patience = [1, 10, 300, 300, 300][dice.roll(5) as usize];
        let waited = timeout(Duration::from_millis(patience), async {
            loop {
                match client.next().await {
                    Incoming::Written(_) => {}
                    Incoming::Answer(answer) => {
                        assert_eq!(answer.id, RequestId(id));
                        return Ok(());
                    }
                    Incoming::Failed(failed, error) => {
                        assert_eq!(failed, RequestId(id), "{error}");
                        return Err(error.outcome);
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        if let Ok(end) = waited.await {
            ends.push((id, end));
            continue;
        }
        client.transport.abandon(RequestId(id));
        // It may have ended just before.
        for left in client.left() {
            match left {
                Incoming::Written(_) => {}
                Incoming::Answer(answer) => assert_eq!(answer.id, RequestId(id)),
                Incoming::Failed(failed, _) => assert_eq!(failed, RequestId(id)),
                other => panic!("{other:?}"),
            }
        }
    }
    ends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_does_nothing_is_sent_twice_and_what_was_not_sent_never_came() {
    for seed in 0..2 {
        let tasks = Handle::current().metrics().num_alive_tasks();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let came = Came::default();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, came.clone(), seed, stopped));
        let pool = HttpClient::new();
        let mut asking = JoinSet::new();
        for number in 0..8 {
            let config = HttpConfig::new(&url, &[]).expect("good");
            let client = Client::over(config, pool.clone()).await;
            asking.spawn(ask(client, number * 1000, Dice(seed * 77 + number)));
        }
        drop(pool);
        let ends = asking.join_all().await.concat();
        // Of the client nothing is left: no connection, and no task.
        stop.send(()).expect("it serves");
        let ended = timeout(Duration::from_secs(60), server).await;
        ended.expect("the client closes").expect("no panic");
        while Handle::current().metrics().num_alive_tasks() > tasks {
            tokio::task::yield_now().await;
        }
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
        assert!(answered > 100, "{answered}");
    }
}
