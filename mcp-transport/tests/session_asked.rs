//! What servers ask of a host, and what a host costs that takes nothing; in memory and in paused time.

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{fake::Fake, options};
use mcp_transport::{
    error::{Error, ErrorKind},
    session::{
        Backlog, Handler, Offers, RequestOptions, ServerRequest, ServerRequestId,
        ServerRequestKind, Session, Withdrawn,
    },
    transport::Incoming,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A host that keeps what it is asked, for the test to answer.
struct Host {
    offers: Offers,
    backlog: Option<Backlog>,
    asked: mpsc::UnboundedSender<ServerRequest>,
    withdrawn: Mutex<Vec<(ServerRequestId, Withdrawn)>>,
}

impl Handler for Host {
    fn offers(&self) -> Offers {
        self.offers
    }
    fn asked(&self, request: ServerRequest) {
        let _ = self.asked.send(request);
    }
    fn withdrawn(&self, request: ServerRequestId, why: Withdrawn) {
        self.withdrawn.lock().unwrap().push((request, why));
    }
    fn backlog(&self) -> Option<Backlog> {
        self.backlog.clone()
    }
}

struct Open {
    session: Session,
    fake: Arc<Fake>,
    sent: mpsc::UnboundedReceiver<Value>,
    host: Arc<Host>,
    asked: mpsc::UnboundedReceiver<ServerRequest>,
    initialize: Value,
}

impl Open {
    fn withdrawn(&self) -> Vec<(ServerRequestId, Withdrawn)> {
        self.host.withdrawn.lock().unwrap().clone()
    }

    /// The server asks; gives what the host has got.
    fn ask(&mut self, id: impl Into<Value>, method: &str) -> ServerRequest {
        let id = id.into();
        self.fake
            .says(json!({"id": id, "method": method, "params": {"a": 1}}));
        self.asked.try_recv().expect("it was not handed out")
    }

    fn answer(&mut self) -> Value {
        self.sent.try_recv().expect("nothing was answered")
    }
}

fn all() -> Offers {
    let mut offers = Offers::default();
    offers.roots = true;
    offers.sampling = true;
    offers.elicitation_form = true;
    offers.elicitation_url = true;
    offers
}

async fn open_with(offers: Offers, backlog: Option<Backlog>) -> Open {
    let (fake, mut sent) = Fake::new();
    let (sender, asked) = mpsc::unbounded_channel();
    let host = Arc::new(Host {
        offers,
        backlog,
        asked: sender,
        withdrawn: Mutex::default(),
    });
    let opening = Session::open(fake.clone(), options(host.clone()));
    let play = async {
        let initialize = sent.recv().await.unwrap();
        fake.answers(&initialize, json!({"protocolVersion": "2025-11-25"}));
        initialize
    };
    let (session, initialize) = tokio::join!(opening, play);
    assert_eq!(
        sent.recv().await.unwrap()["method"],
        "notifications/initialized"
    );
    Open {
        session: session.unwrap(),
        fake,
        sent,
        host,
        asked,
        initialize,
    }
}

async fn open() -> Open {
    open_with(all(), None).await
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no refusal: {answer}"))
}

#[tokio::test(start_paused = true)]
async fn what_the_host_takes_is_advertised_and_handed_out_and_answered() {
    let mut open = open().await;
    assert_eq!(
        open.initialize["params"]["capabilities"],
        json!({"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}})
    );
    let roots = open.ask("r1", "roots/list");
    let sampling = open.ask(7, "sampling/createMessage");
    assert_eq!(roots.kind(), ServerRequestKind::Roots);
    assert_eq!(sampling.kind(), ServerRequestKind::Sampling);
    assert_eq!(sampling.params(), "{\"a\":1}");
    // In any order, with the id as it came.
    sampling.answer(b"{\"role\": \"assistant\"}").unwrap();
    roots.answer(b"{\"roots\": []}").unwrap();
    assert_eq!(
        open.answer(),
        json!({"jsonrpc": "2.0", "id": 7, "result": {"role": "assistant"}})
    );
    assert_eq!(
        open.answer(),
        json!({"jsonrpc": "2.0", "id": "r1", "result": {"roots": []}})
    );
    assert!(open.withdrawn().is_empty());
}

#[tokio::test(start_paused = true)]
async fn forms_and_links_are_told_apart_and_only_the_offered_is_taken() {
    let mut offers = Offers::default();
    offers.elicitation_url = true;
    let mut open = open_with(offers, None).await;
    let elicit = |mode: Value| json!({"id": 1, "method": "elicitation/create", "params": mode});
    open.fake
        .says(elicit(json!({"mode": "url", "url": "https://a"})));
    let request = open.asked.try_recv().unwrap();
    assert_eq!(request.kind(), ServerRequestKind::ElicitUrl);
    request.answer(b"{\"action\":\"accept\"}").unwrap();
    open.answer();
    open.fake.says(elicit(json!({"message": "name?"})));
    assert_eq!(code(&open.answer()), -32602);
    open.fake
        .says(json!({"id": 2, "method": "sampling/createMessage"}));
    assert_eq!(code(&open.answer()), -32601);
    assert!(open.asked.try_recv().is_err());
    assert_eq!(open.session.counters().refused, 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_once_whoever_comes_first() {
    let mut open = open().await;
    let request = open.ask(1, "roots/list");
    request.refuse(-1, "the user said no").unwrap();
    assert_eq!(code(&open.answer()), -1);
    assert_eq!(request.answer(b"{}").unwrap_err().kind, ErrorKind::Closed);
    drop(request);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(open.sent.try_recv().is_err());
    assert!(open.withdrawn().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_object_leaves_the_request_open() {
    let mut open = open().await;
    let request = open.ask(1, "roots/list");
    for bad in [&b"[1]"[..], b"", b"{", b"{}{}", b"\xff"] {
        assert_eq!(request.answer(bad).unwrap_err().kind, ErrorKind::Invalid);
    }
    request.answer(b"{\n}").unwrap();
    assert_eq!(open.answer()["result"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_host_drops_is_refused() {
    let mut open = open().await;
    drop(open.ask(1, "roots/list"));
    assert_eq!(code(&open.answer()), -32603);
    // As by a host that takes it and has nothing to take it with.
    struct Careless;
    impl Handler for Careless {
        fn offers(&self) -> Offers {
            all()
        }
    }
    let (fake, mut sent) = Fake::new();
    let opening = Session::open(fake.clone(), options(Arc::new(Careless)));
    let play = async {
        let initialize = sent.recv().await.unwrap();
        fake.says(json!({"id": "early", "method": "roots/list"}));
        assert_eq!(code(&sent.recv().await.unwrap()), -32603);
        fake.answers(&initialize, json!({"protocolVersion": "2025-11-25"}));
    };
    tokio::join!(opening, play).0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn at_its_deadline_a_request_is_refused_and_withdrawn() {
    let mut offers = all();
    offers.answer_within = Duration::from_secs(10);
    let mut open = open_with(offers, None).await;
    let request = open.ask(1, "elicitation/create");
    let left = request.deadline().unwrap() - tokio::time::Instant::now();
    assert_eq!(left, Duration::from_secs(10));
    tokio::time::sleep(Duration::from_millis(9_999)).await;
    assert!(open.sent.try_recv().is_err());
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(code(&open.answer()), -32001);
    assert_eq!(open.withdrawn(), [(request.id(), Withdrawn::Deadline)]);
    assert!(request.answer(b"{}").is_err());
    assert!(open.sent.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_the_server_cancels_is_withdrawn_and_not_answered() {
    let mut open = open().await;
    let first = open.ask("a", "roots/list");
    let second = open.ask(2, "roots/list");
    for id in [json!("a"), json!("unknown"), json!("a")] {
        let params = json!({"requestId": id, "reason": "never mind"});
        open.fake
            .says(json!({"method": "notifications/cancelled", "params": params}));
    }
    assert_eq!(open.withdrawn(), [(first.id(), Withdrawn::Canceled)]);
    assert!(first.answer(b"{}").is_err());
    drop(first);
    assert!(open.sent.try_recv().is_err());
    second.answer(b"{}").unwrap();
    assert_eq!(open.answer()["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_withdraws_what_is_open() {
    let mut open = open().await;
    let requests = [
        open.ask(1, "roots/list"),
        open.ask(2, "sampling/createMessage"),
    ];
    let error = Error::new(ErrorKind::Transport, "gone");
    open.fake.deliver(Incoming::Ended(error));
    let expected: Vec<_> = requests
        .iter()
        .map(|r| (r.id(), Withdrawn::Ended))
        .collect();
    assert_eq!(open.withdrawn(), expected);
    assert!(requests[0].answer(b"{}").is_err());
    // What comes afterwards is nobody's.
    open.fake.says(json!({"id": 3, "method": "roots/list"}));
    assert!(open.asked.try_recv().is_err());
    drop(requests);
    assert!(open.sent.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_without_end_and_does_not_read_is_kept_few_answers_for() {
    let mut open = open_with(Offers::default(), None).await;
    *open.fake.holds_back.lock().unwrap() = true;
    let asks = |open: &Open, id: u64| {
        open.fake.says(json!({"id": id, "method": "ping"}));
        open.fake.says(json!({"id": id, "method": "roots/list"}));
    };
    for id in 0..5000 {
        asks(&open, id);
    }
    let kept = open.fake.waiting.lock().unwrap().len() as u64;
    assert!((1000..5000).contains(&kept), "{kept}");
    assert_eq!(open.session.counters().unanswered, 10_000 - kept);
    // When it reads, it is answered again.
    open.fake.waiting.lock().unwrap().clear();
    while open.sent.try_recv().is_ok() {}
    asks(&open, 5000);
    assert_eq!(open.answer()["result"], json!({}));
    assert_eq!(open.answer()["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_id_is_longer_than_anybody_keeps_is_refused() {
    let mut open = open_with(all(), None).await;
    let id = "x".repeat(2000);
    open.fake.says(json!({"id": id, "method": "roots/list"}));
    let answer = open.answer();
    assert_eq!(answer["id"], id);
    assert_eq!(answer["error"]["code"], -32600);
    assert!(open.asked.try_recv().is_err());
    open.ask("x".repeat(1000), "roots/list");
}

#[tokio::test(start_paused = true)]
async fn sixty_four_may_be_open_and_further_ones_are_refused() {
    let mut open = open().await;
    let mut requests: Vec<_> = (0..64).map(|id| open.ask(id, "roots/list")).collect();
    open.fake.says(json!({"id": 64, "method": "roots/list"}));
    let refusal = open.answer();
    assert_eq!((&refusal["id"], code(&refusal)), (&json!(64), -32000));
    // Pings are answered all the same.
    open.fake.says(json!({"id": 65, "method": "ping"}));
    assert_eq!(open.answer()["result"], json!({}));
    requests.pop().unwrap().answer(b"{}").unwrap();
    open.answer();
    drop(open.ask(66, "roots/list"));
}

#[tokio::test(start_paused = true)]
async fn the_same_request_once_more_is_the_same() {
    let mut open = open().await;
    let request = open.ask(1, "roots/list");
    open.fake.says(json!({"id": 1, "method": "roots/list"}));
    assert!(open.asked.try_recv().is_err());
    assert_eq!(open.session.counters().duplicate, 1);
    request.answer(b"{}").unwrap();
    open.answer();
    assert!(open.sent.try_recv().is_err());
    // Once it is answered its id is free.
    drop(open.ask(1, "roots/list"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_another_thread_and_from_inside_the_call_is_taken() {
    struct AtOnce(AtomicUsize);
    impl Handler for AtOnce {
        fn offers(&self) -> Offers {
            all()
        }
        fn asked(&self, request: ServerRequest) {
            self.0.fetch_add(1, Ordering::SeqCst);
            request.answer(b"{}").unwrap();
        }
    }
    let (fake, mut sent) = Fake::new();
    let opening = Session::open(fake.clone(), options(Arc::new(AtOnce(AtomicUsize::new(0)))));
    let play = async {
        let initialize = sent.recv().await.unwrap();
        fake.says(json!({"id": "x", "method": "roots/list"}));
        assert_eq!(sent.recv().await.unwrap()["id"], "x");
        fake.answers(&initialize, json!({"protocolVersion": "2025-11-25"}));
    };
    tokio::join!(opening, play).0.unwrap();
    let mut open = open().await;
    let request = open.ask(1, "roots/list");
    std::thread::spawn(move || request.answer(b"{}").unwrap())
        .join()
        .unwrap();
    assert_eq!(open.answer()["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn results_that_nobody_takes_stop_the_reading_until_they_are_taken() {
    let backlog = Backlog::new(1000);
    let mut open = open_with(Offers::default(), Some(backlog.clone())).await;
    let large = "x".repeat(600);
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(Box::pin(open.session.request(
            "m",
            None,
            RequestOptions::default(),
        )));
        let request = open.sent.try_recv().unwrap();
        open.fake.answers(&request, json!({"x": large}));
    }
    assert!(backlog.is_over() && !open.fake.is_read());
    assert_eq!(open.session.backlog().bytes(), backlog.bytes());
    calls.pop().unwrap().await.unwrap();
    assert!(!open.fake.is_read());
    assert_eq!(open.fake.resumed.load(Ordering::SeqCst), 0);
    // One that is dropped does not count any more either.
    drop(calls.pop());
    assert!(open.fake.is_read());
    assert_eq!(open.fake.resumed.load(Ordering::SeqCst), 1);
    let held = backlog.hold(10_000);
    assert!(!open.fake.is_read());
    drop(held);
    assert_eq!(open.fake.resumed.load(Ordering::SeqCst), 2);
    drop(calls);
    assert_eq!(backlog.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_closed_is_read_to_its_end() {
    let backlog = Backlog::new(1000);
    let open = open_with(Offers::default(), Some(backlog.clone())).await;
    let _held = backlog.hold(10_000);
    assert!(!open.fake.is_read());
    // A server that cannot write does not hear that it is to go.
    drop(open.session.close(Duration::from_secs(1)));
    assert!(open.fake.is_read());
}
