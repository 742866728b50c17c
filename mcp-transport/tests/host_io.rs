//! Sessions over links that the host moves.

mod common;

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use common::{Heard, LONG, Notifications, options};
use mcp_transport::{
    error::{Error, ErrorKind, Outcome},
    host::{Framing, HostIo, HostLink, HostTransport, NotTaken},
    session::{Backlog, Handler, RequestOptions, Session},
    transport::{Incoming, Receiver, Transport},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// What the host is asked.
#[derive(Debug)]
enum Asked {
    Open(HostLink),
    Send(Bytes),
    Close,
    Hold(bool),
}

/// A host that passes on what it is asked.
struct Host(mpsc::UnboundedSender<Asked>);

impl HostIo for Host {
    fn open(&self, link: HostLink) {
        let _ = self.0.send(Asked::Open(link));
    }
    fn send(&self, link: &HostLink) {
        if let Some(bytes) = link.take() {
            let _ = self.0.send(Asked::Send(bytes));
        }
    }
    fn close(&self) {
        let _ = self.0.send(Asked::Close);
    }
    fn hold(&self, held: bool) {
        let _ = self.0.send(Asked::Hold(held));
    }
}

struct Play {
    asked: mpsc::UnboundedReceiver<Asked>,
    link: Option<HostLink>,
}

impl Play {
    fn new(framing: Framing) -> (Arc<HostTransport>, Self) {
        let (sender, asked) = mpsc::unbounded_channel();
        let transport = HostTransport::new(Arc::new(Host(sender)), framing);
        (Arc::new(transport), Self { asked, link: None })
    }

    async fn next(&mut self) -> Asked {
        let next = tokio::time::timeout(LONG, self.asked.recv()).await;
        next.expect("nothing is asked").expect("the host is gone")
    }

    fn link(&self) -> &HostLink {
        self.link.as_ref().unwrap()
    }

    /// The next message, taken as gone at once.
    async fn message(&mut self) -> Value {
        match self.next().await {
            Asked::Send(bytes) => {
                self.link().sent(bytes.len()).unwrap();
                serde_json::from_slice(&bytes).unwrap()
            }
            other => panic!("not a message: {other:?}"),
        }
    }

    fn says(&self, message: Value, end: &str) {
        let bytes = format!("{message}{end}");
        self.link().received(bytes.as_bytes()).unwrap();
    }

    async fn handshake(&mut self, end: &str) {
        match self.next().await {
            Asked::Open(link) => self.link = Some(link),
            other => panic!("not opened: {other:?}"),
        }
        self.link().opened().unwrap();
        let initialize = self.message().await;
        let result = json!({"protocolVersion": "2025-11-25"});
        self.says(json!({"id": initialize["id"], "result": result}), end);
        assert_eq!(self.message().await["method"], "notifications/initialized");
    }
}

async fn open_with(framing: Framing, handler: Arc<dyn Handler>) -> (Session, Play) {
    let (transport, mut play) = Play::new(framing);
    let end = match framing {
        Framing::Bytes => "\n",
        Framing::Messages => "",
    };
    let opening = Session::open(transport, options(handler));
    let (session, ()) = tokio::join!(opening, play.handshake(end));
    (session.unwrap(), play)
}

async fn open(framing: Framing) -> (Session, Play) {
    open_with(framing, Arc::new(())).await
}

#[tokio::test]
async fn a_session_is_opened_called_and_closed_over_bytes_cut_anywhere() {
    let (session, mut play) = open(Framing::Bytes).await;
    let call = session.request("tools/call", None, RequestOptions::default());
    let request = play.message().await;
    let answer = format!(
        "{}\n",
        json!({"id": request["id"], "result": {"a": "\u{20ac}"}})
    );
    for byte in answer.as_bytes() {
        play.link().received(&[*byte]).unwrap();
    }
    assert_eq!(call.await.unwrap(), "{\"a\":\"\u{20ac}\"}");
    let closing = tokio::spawn(session.close(LONG));
    assert!(matches!(play.next().await, Asked::Close));
    let bye = || Error::new(ErrorKind::Closed, "bye");
    play.link().closed(bye()).unwrap();
    assert_eq!(play.link().closed(bye()), Err(NotTaken::Closed));
    closing.await.unwrap();
    assert_eq!(session.ended().await.kind, ErrorKind::Closed);
}

#[tokio::test]
async fn messages_go_and_come_whole_and_without_newlines() {
    let (session, mut play) = open(Framing::Messages).await;
    let call = session.request("m", None, RequestOptions::default());
    let Asked::Send(bytes) = play.next().await else {
        panic!("nothing is sent")
    };
    assert!(!bytes.contains(&b'\n'));
    // A newline inside of a message ends nothing.
    let answer = "{\"id\":2,\n \"result\":\n{}}";
    play.link().received_message(Bytes::from(answer)).unwrap();
    assert_eq!(call.await.unwrap(), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_close_that_the_host_does_not_answer_ends_at_its_limit() {
    let (session, mut play) = open(Framing::Bytes).await;
    let begun = tokio::time::Instant::now();
    session.close(Duration::from_secs(3)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert!(matches!(play.next().await, Asked::Close));
    drop(session);
    assert!(play.asked.recv().await.is_none(), "the host is kept");
}

#[tokio::test]
async fn a_link_that_cannot_be_opened_says_why() {
    let (transport, mut play) = Play::new(Framing::Bytes);
    let opening = Session::open(transport, options(Arc::new(())));
    let refuse = async {
        let Asked::Open(link) = play.next().await else {
            panic!("not opened")
        };
        link.closed(Error::new(ErrorKind::Config, "no such port"))
            .unwrap();
    };
    let error = tokio::join!(opening, refuse).0.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome, error.message.as_str()),
        (ErrorKind::Config, Outcome::NotSent, "no such port")
    );
}

#[tokio::test]
async fn giving_up_an_opening_closes_the_link() {
    let (transport, mut play) = Play::new(Framing::Bytes);
    let opening = tokio::spawn(Session::open(transport, options(Arc::new(()))));
    let Asked::Open(link) = play.next().await else {
        panic!("not opened")
    };
    opening.abort();
    assert!(matches!(play.next().await, Asked::Close));
    // What comes late touches nothing.
    assert_eq!(link.opened(), Err(NotTaken::Closed));
    assert_eq!(link.received(b"{}\n"), Err(NotTaken::Closed));
    assert!(play.asked.recv().await.is_none());
}

#[tokio::test]
async fn a_link_that_breaks_tells_each_call_what_is_known_of_it() {
    let (session, mut play) = open(Framing::Bytes).await;
    let large = Some(Bytes::from(json!({"x": "x".repeat(100_000)}).to_string()));
    let call = |params| session.request("m", params, RequestOptions::default());
    let (gone, half, waits) = (call(None), call(large), call(None));
    play.message().await;
    assert!(matches!(play.next().await, Asked::Send(bytes) if bytes.len() > 100_000));
    assert!(play.asked.try_recv().is_err(), "beyond the window");
    play.link().sent(50_000).unwrap();
    let too_much = play.link().sent(60_000).unwrap_err();
    assert!(matches!(too_much, NotTaken::TooMuch { said: 60_000, taken } if taken < 60_000));
    play.link()
        .closed(Error::new(ErrorKind::Transport, "reset"))
        .unwrap();
    let outcome = |error: Error| (error.kind, error.outcome);
    assert_eq!(
        outcome(gone.await.unwrap_err()),
        (ErrorKind::Transport, Outcome::Unknown)
    );
    for call in [half, waits] {
        assert_eq!(
            outcome(call.await.unwrap_err()),
            (ErrorKind::Transport, Outcome::NotSent)
        );
    }
    assert_eq!(session.ended().await.message, "reset");
}

#[tokio::test]
async fn a_call_that_is_dropped_before_it_was_taken_never_is_and_needs_no_cancelling() {
    let (session, mut play) = open(Framing::Bytes).await;
    let large = Some(Bytes::from(json!({"x": "x".repeat(100_000)}).to_string()));
    let first = session.request("first", large, RequestOptions::default());
    let second = session
        .start("second", None, RequestOptions::default())
        .unwrap();
    let error = second.cancel("enough").await.unwrap_err();
    assert_eq!(error.outcome, Outcome::NotSent);
    let third = session
        .start("third", None, RequestOptions::default())
        .unwrap();
    assert_eq!(play.message().await["method"], "first");
    assert_eq!(play.message().await["method"], "third");
    // One that was taken may be on its way, whatever the host has said.
    assert_eq!(
        third.cancel("enough").await.unwrap_err().outcome,
        Outcome::Unknown
    );
    assert_eq!(play.message().await["method"], "notifications/cancelled");
    drop(first);
}

/// A server that lives inside of `send`, and answers before that returns.
#[derive(Default)]
struct Inside {
    link: Mutex<Option<HostLink>>,
    in_a_call: Mutex<bool>,
}

impl HostIo for Inside {
    fn open(&self, link: HostLink) {
        *self.link.lock().unwrap() = Some(link.clone());
        link.opened().unwrap();
    }
    fn send(&self, link: &HostLink) {
        let Some(bytes) = link.take() else {
            panic!("nobody takes it back")
        };
        // Never two at once, whichever threads send and feed.
        assert!(!std::mem::replace(
            &mut *self.in_a_call.lock().unwrap(),
            true
        ));
        link.sent(bytes.len()).unwrap();
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        if let Some(id) = message.get("id") {
            let result = json!({"protocolVersion": "2025-11-25", "echo": message["params"]});
            let answer = format!("{}\n", json!({"id": id, "result": result}));
            link.received(answer.as_bytes()).unwrap();
        }
        *self.in_a_call.lock().unwrap() = false;
    }
    fn close(&self) {
        let link = self.link.lock().unwrap().take().unwrap();
        link.closed(Error::new(ErrorKind::Closed, "closed"))
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_host_may_feed_from_inside_its_calls_and_from_many_threads() {
    let transport = HostTransport::new(Arc::new(Inside::default()), Framing::Bytes);
    let session = Session::open(Arc::new(transport), options(Arc::new(())))
        .await
        .unwrap();
    let calls: Vec<_> = (0..64)
        .map(|n| {
            let session = session.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    let params = Some(Bytes::from(json!({"n": n}).to_string()));
                    let limits = RequestOptions::default();
                    let result = session.request("m", params, limits).await.unwrap();
                    let result: Value = serde_json::from_slice(&result).unwrap();
                    assert_eq!(result["echo"]["n"], n);
                }
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    session.close(LONG).await;
}

#[tokio::test]
async fn a_host_whose_results_nobody_takes_is_asked_to_feed_no_more_and_then_to_go_on() {
    struct Slow(Backlog);
    impl Handler for Slow {
        fn backlog(&self) -> Option<Backlog> {
            Some(self.0.clone())
        }
    }
    let slow = Arc::new(Slow(Backlog::new(1000)));
    let (session, mut play) = open_with(Framing::Bytes, slow).await;
    let call = session.request("m", None, RequestOptions::default());
    let request = play.message().await;
    let large = "x".repeat(2000);
    play.says(json!({"id": request["id"], "result": {"x": large}}), "\n");
    assert!(matches!(play.next().await, Asked::Hold(true)));
    // What is fed all the same is kept.
    play.says(json!({"id": "s", "method": "ping"}), "\n");
    assert_eq!(play.message().await["id"], "s");
    call.await.unwrap();
    assert!(matches!(play.next().await, Asked::Hold(false)));
}

/// Full, and emptied in the moment in which it says so.
struct EmptiedMeanwhile {
    transport: Weak<HostTransport>,
    full: AtomicBool,
}

impl Receiver for EmptiedMeanwhile {
    fn receive(&self, _: Incoming) {}

    fn wants_more(&self) -> bool {
        let was_full = self.full.swap(false, Ordering::Relaxed);
        if let (true, Some(transport)) = (was_full, self.transport.upgrade()) {
            transport.resume();
        }
        !was_full
    }
}

#[tokio::test]
async fn a_host_goes_on_feeding_when_all_is_taken_while_it_is_found_that_it_was_not() {
    let (transport, mut play) = Play::new(Framing::Messages);
    let receiver = Arc::new(EmptiedMeanwhile {
        transport: Arc::downgrade(&transport),
        full: AtomicBool::new(true),
    });
    let starting = tokio::spawn({
        let transport = transport.clone();
        async move { transport.start(receiver).await }
    });
    let Asked::Open(link) = play.next().await else {
        panic!("not opened")
    };
    link.opened().unwrap();
    starting.await.unwrap().unwrap();
    link.received(b"{}").unwrap();
    let mut held = false;
    while let Ok(asked) = play.asked.try_recv() {
        if let Asked::Hold(now) = asked {
            held = now;
        }
    }
    assert!(!held);
}

#[tokio::test]
async fn a_handler_that_panics_ends_its_session_and_closes_the_link() {
    struct Panics(Arc<Heard>);
    impl Handler for Panics {
        fn notification(&self, method: &str, params: Bytes) {
            self.0.notification(method, params);
            panic!("as it does");
        }
    }
    let (heard, _notifications) = Notifications::new();
    let (session, mut play) = open_with(Framing::Bytes, Arc::new(Panics(heard))).await;
    let link = play.link().clone();
    let fed = std::thread::spawn(move || link.received(b"{\"method\":\"x\"}\n")).join();
    assert!(fed.is_err());
    assert_eq!(session.ended().await.kind, ErrorKind::Internal);
    assert!(matches!(play.next().await, Asked::Close));
}

/// A host that is told what can be sent, and takes it when the test does.
struct Later(mpsc::UnboundedSender<HostLink>);

impl HostIo for Later {
    fn open(&self, link: HostLink) {
        link.opened().unwrap();
    }
    fn send(&self, link: &HostLink) {
        let _ = self.0.send(link.clone());
    }
    fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn what_the_host_has_not_taken_is_taken_back_at_its_deadline_and_was_not_sent() {
    let (sender, mut told) = mpsc::unbounded_channel();
    let transport = HostTransport::new(Arc::new(Later(sender)), Framing::Messages);
    let opening = Session::open(Arc::new(transport), options(Arc::new(())));
    let handshake = async {
        let link = told.recv().await.unwrap();
        let initialize: Value = serde_json::from_slice(&link.take().unwrap()).unwrap();
        let result = json!({"protocolVersion": "2025-11-25"});
        let answer = json!({"id": initialize["id"], "result": result}).to_string();
        link.received(answer.as_bytes()).unwrap();
        told.recv().await.unwrap().take().unwrap();
        link
    };
    let (session, link) = tokio::join!(opening, handshake);
    let session = session.unwrap();
    let until = |limit| RequestOptions::until(tokio::time::Instant::now() + limit);
    let soon = session.request("soon", None, until(Duration::from_secs(1)));
    let late = session.request("late", None, until(Duration::from_secs(2)));
    let error = soon.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::NotSent)
    );
    told.recv().await.unwrap();
    let taken: Value = serde_json::from_slice(&link.take().unwrap()).unwrap();
    assert_eq!(taken["method"], "late");
    assert_eq!(link.take(), None);
    assert_eq!(late.await.unwrap_err().outcome, Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_opens_or_takes_is_named_in_the_error() {
    struct Idle;
    impl HostIo for Idle {
        fn open(&self, _: HostLink) {}
        fn send(&self, _: &HostLink) {}
        fn close(&self) {}
    }
    let transport = Arc::new(HostTransport::new(Arc::new(Idle), Framing::Bytes));
    let opening = Session::open(transport, options(Arc::new(())));
    let error = opening.await.unwrap_err();
    assert!(
        error.message.contains("has not said that the link is open"),
        "{error}"
    );

    let (sender, _told) = mpsc::unbounded_channel();
    let transport = HostTransport::new(Arc::new(Later(sender)), Framing::Bytes);
    let opening = Session::open(Arc::new(transport), options(Arc::new(())));
    let error = opening.await.unwrap_err();
    assert!(
        error.message.contains("has not taken what is to be sent"),
        "{error}"
    );
}
