//! A host that does not take what came: nothing more is read until it does.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use mcp_transport::{
    http::{HttpClient, HttpTransport},
    jsonrpc::{Answer, RequestId},
    transport::{Incoming, Outgoing, Receiver, Transport},
};
use tokio::sync::mpsc;

use crate::server::{Server, all_is_quiet, result};

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;

/// Takes one message, and another each time that the host made room.
struct Stalled {
    is_full: AtomicBool,
    told: mpsc::UnboundedSender<Bytes>,
}

impl Receiver for Stalled {
    fn receive(&self, incoming: Incoming) {
        if let Incoming::Message(message) | Incoming::Answer(Answer { message, .. }) = incoming {
            self.is_full.store(true, Ordering::SeqCst);
            let _ = self.told.send(message);
        }
    }

    fn wants_more(&self) -> bool {
        !self.is_full.load(Ordering::SeqCst)
    }
}

struct Host {
    transport: HttpTransport,
    stalled: Arc<Stalled>,
    told: mpsc::UnboundedReceiver<Bytes>,
}

impl Host {
    async fn of(server: &Server) -> Self {
        let transport = HttpTransport::new(server.config(), HttpClient::new());
        let (tell, told) = mpsc::unbounded_channel();
        let stalled = Arc::new(Stalled {
            is_full: AtomicBool::new(false),
            told: tell,
        });
        transport.start(stalled.clone()).await.expect("it starts");
        Self {
            transport,
            stalled,
            told,
        }
    }

    fn request(&self, id: u64) {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#);
        self.transport.send(Outgoing {
            bytes: message.into(),
            request: Some(RequestId(id)),
        });
    }

    /// The one message that came, after which nothing more does.
    async fn next(&mut self) -> Bytes {
        let message = self.told.recv().await.expect("the receiver is held");
        all_is_quiet().await;
        assert!(self.told.try_recv().is_err(), "more came");
        message
    }

    fn make_room(&self) {
        self.stalled.is_full.store(false, Ordering::SeqCst);
        self.transport.resume();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_read_on_when_there_is_room() {
    let server = Server::start().await;
    let mut host = Host::of(&server).await;
    host.request(1);
    let (mut connection, _) = server.request().await;
    connection.begin_events(&[]).await;
    for _ in 0..3 {
        connection.event(NOTE).await;
    }
    connection.event(&result(1, "{}")).await;
    for _ in 0..3 {
        assert_eq!(host.next().await, NOTE);
        host.make_room();
    }
    assert_eq!(host.next().await, result(1, "{}"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_room() {
    let server = Server::start().await;
    let mut host = Host::of(&server).await;
    for id in 1..3 {
        host.request(id);
    }
    let ((mut first, _), (mut second, _)) = (server.request().await, server.request().await);
    first.json(&result(1, "{}")).await;
    assert_eq!(host.next().await, result(1, "{}"));
    second.json(&result(2, "{}")).await;
    all_is_quiet().await;
    assert!(host.told.try_recv().is_err());
    host.make_room();
    assert_eq!(host.next().await, result(2, "{}"));
}

#[tokio::test(start_paused = true)]
async fn what_a_stalled_host_gives_up_ends_all_the_same() {
    let server = Server::start().await;
    let mut host = Host::of(&server).await;
    host.request(1);
    let (mut connection, _) = server.request().await;
    connection.begin_events(&[]).await;
    connection.event(NOTE).await;
    host.next().await;
    host.transport.abandon(RequestId(1));
    connection.closed().await;
}
