//! The session alone, over a transport in memory and in paused time.

mod common;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{Notifications, fake::Fake, options};
use mcp_transport::{
    error::{Cause, Error, ErrorKind, Outcome},
    jsonrpc::RequestId,
    revision::Revision,
    session::{RequestOptions, Session, list_all},
    transport::Incoming,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

struct Open {
    session: Session,
    fake: Arc<Fake>,
    sent: mpsc::UnboundedReceiver<Value>,
    heard: Notifications,
}

/// Opens a session, playing a server that answers the handshake with this result.
async fn open_with(result: Value) -> Result<Open, (Error, Arc<Fake>)> {
    let (fake, mut sent) = Fake::new();
    let (handler, heard) = Notifications::new();
    let opening = Session::open(fake.clone(), options(handler));
    let play = async {
        let initialize = sent.recv().await.unwrap();
        assert_eq!(initialize["method"], "initialize");
        assert_eq!(initialize["params"]["protocolVersion"], "2025-11-25");
        assert_eq!(initialize["params"]["capabilities"], json!({}));
        fake.answers(&initialize, result);
    };
    let (session, ()) = tokio::join!(opening, play);
    match session {
        Ok(session) => {
            assert_eq!(
                sent.recv().await.unwrap()["method"],
                "notifications/initialized"
            );
            Ok(Open {
                session,
                fake,
                sent,
                heard,
            })
        }
        Err(error) => Err((error, fake)),
    }
}

async fn open() -> Open {
    open_with(json!({"protocolVersion": "2025-06-18"}))
        .await
        .ok()
        .unwrap()
}

fn within(ms: u64) -> RequestOptions {
    RequestOptions::until(Instant::now() + Duration::from_millis(ms))
}

#[tokio::test(start_paused = true)]
async fn the_handshake_takes_an_older_revision_and_tells_the_transport() {
    let open = open().await;
    assert_eq!(open.session.revision(), Revision::V2025_06_18);
    assert_eq!(
        *open.fake.negotiated.lock().unwrap(),
        Some(Revision::V2025_06_18)
    );
}

#[tokio::test(start_paused = true)]
async fn a_revision_of_nobody_is_a_permanent_error_and_closes_the_transport() {
    let Err((error, fake)) = open_with(json!({"protocolVersion": "9999-01-01"})).await else {
        panic!("it opened");
    };
    assert_eq!(
        (error.kind, error.cause),
        (ErrorKind::Protocol, Cause::Permanent)
    );
    assert_eq!(error.outcome, Outcome::NotSent);
    assert!(fake.closed.lock().unwrap().is_some());
    assert_eq!(*fake.negotiated.lock().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_initialize_that_is_refused_names_the_refusal() {
    let (fake, mut sent) = Fake::new();
    let opening = Session::open(fake.clone(), options(Arc::new(())));
    let play = async {
        let initialize = sent.recv().await.unwrap();
        fake.says(json!({"id": initialize["id"], "error": {"code": -32602, "message": "not you"}}));
    };
    let error = tokio::join!(opening, play).0.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (ErrorKind::Server, Cause::Permanent)
    );
    assert!(error.message.ends_with("error -32602: not you"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_for_a_minute_and_then_answers_is_opened() {
    let (fake, mut sent) = Fake::new();
    let mut opening = options(Arc::new(()));
    opening.connect_deadline = Instant::now() + Duration::from_secs(180);
    let play = async {
        let initialize = sent.recv().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        fake.answers(&initialize, json!({"protocolVersion": "2025-11-25"}));
    };
    let session = tokio::join!(Session::open(fake.clone(), opening), play).0;
    assert_eq!(session.unwrap().revision(), Revision::V2025_11_25);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_without_an_answer_ends_at_its_deadline_and_is_not_cancelled() {
    let (fake, mut sent) = Fake::new();
    let mut opening = options(Arc::new(()));
    opening.connect_deadline = Instant::now() + Duration::from_secs(5);
    let begun = Instant::now();
    let opening = Session::open(fake.clone(), opening);
    let play = async {
        let initialize = sent.recv().await.unwrap();
        fake.says(json!({"level": "info"}));
        // Progress every second does not help.
        for n in 0..10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let params = json!({"progressToken": initialize["id"], "progress": n});
            fake.says(json!({"method": "notifications/progress", "params": params}));
        }
    };
    let error = tokio::select! {
        opened = opening => opened.unwrap_err(),
        () = play => panic!("the deadline passed"),
    };
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!(
        error.message,
        "the server did not answer `initialize` within 5 s; \
         1 message was no JSON-RPC, the last \"{\\\"level\\\":\\\"info\\\"}\"; it hums"
    );
    assert!(sent.try_recv().is_err(), "initialize was cancelled");
    assert!(fake.closed.lock().unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_cancels_and_the_late_answer_is_dropped() {
    let mut open = open().await;
    let call = open.session.request("tools/call", None, within(500));
    let request = open.sent.recv().await.unwrap();
    let error = call.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::Unknown)
    );
    assert_eq!(error.message, "no answer within 0.5 s");
    let cancelled = open.sent.recv().await.unwrap();
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    assert_eq!(open.fake.abandoned.lock().unwrap().len(), 1);
    open.fake.answers(&request, json!({}));
    open.fake.says(json!({"id": 4711, "result": {}}));
    open.fake.says(json!({"id": "abc", "result": {}}));
    let counters = open.session.counters();
    assert_eq!((counters.late, counters.foreign), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_never_written_times_out_as_not_sent_and_needs_no_cancelling() {
    let mut open = open().await;
    *open.fake.holds_back.lock().unwrap() = true;
    let call = open.session.request("tools/call", None, within(500));
    open.sent.recv().await.unwrap();
    let error = call.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::NotSent)
    );
    assert!(open.sent.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_past_sends_nothing() {
    let mut open = open().await;
    let options = RequestOptions::until(Instant::now());
    let error = open
        .session
        .request("tools/call", None, options)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Timeout, Outcome::NotSent)
    );
    assert!(open.sent.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_it_also_before_it_was_polled() {
    let mut open = open().await;
    for polled in [false, true] {
        let mut call = Box::pin(open.session.request(
            "tools/call",
            None,
            RequestOptions::default(),
        ));
        let request = open.sent.recv().await.unwrap();
        if polled {
            assert!(
                tokio::time::timeout(Duration::from_millis(1), &mut call)
                    .await
                    .is_err()
            );
        }
        drop(call);
        let cancelled = open.sent.recv().await.unwrap();
        assert_eq!(cancelled["params"]["requestId"], request["id"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_answered_is_not_cancelled_when_it_is_dropped() {
    let mut open = open().await;
    let call = open
        .session
        .request("tools/call", None, RequestOptions::default());
    let request = open.sent.recv().await.unwrap();
    open.fake.answers(&request, json!({}));
    drop(call);
    assert!(open.sent.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_its_request_in_order_and_resets_the_idle_limit_only() {
    let mut open = open().await;
    let (progress, mut progressed) = mpsc::unbounded_channel();
    let begun = Instant::now();
    let call = open.session.request(
        "tools/call",
        Some(Bytes::from_static(b"{\"_meta\":{\"mine\":1}}")),
        RequestOptions {
            deadline: Some(begun + Duration::from_secs(10)),
            idle: Some(Duration::from_secs(2)),
            on_progress: Some(Box::new(move |params| progress.send(params).unwrap())),
        },
    );
    let request = open.sent.recv().await.unwrap();
    let token = request["params"]["_meta"]["progressToken"].clone();
    assert_eq!(token, request["id"]);
    assert_eq!(request["params"]["_meta"]["mine"], 1);
    let play = async {
        // For longer than the idle limit, and for ever as far as the server is concerned.
        for n in 0.. {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let token = if n % 2 == 0 {
                token.clone()
            } else {
                json!(token.to_string())
            };
            let params = json!({"progressToken": token, "progress": n});
            open.fake
                .says(json!({"method": "notifications/progress", "params": params}));
        }
    };
    let error = tokio::select! { error = call => error.unwrap_err(), () = play => unreachable!() };
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    assert_eq!(error.message, "no answer within 10 s");
    for n in 0..6 {
        let params: Value = serde_json::from_slice(&progressed.try_recv().unwrap()).unwrap();
        assert_eq!(params["progress"], n);
    }
    assert!(progressed.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_progress_ends_at_its_idle_limit() {
    let mut open = open().await;
    let options = RequestOptions {
        idle: Some(Duration::from_secs(2)),
        ..RequestOptions::default()
    };
    let begun = Instant::now();
    let call = open.session.request("tools/call", None, options);
    let request = open.sent.recv().await.unwrap();
    // The server is asked for progress, without which the limit would be a deadline.
    assert_eq!(request["params"]["_meta"]["progressToken"], request["id"]);
    let error = call.await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(error.message, "neither answer nor progress for 2 s");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_comes_whole() {
    let mut open = open().await;
    let call = open
        .session
        .request("tools/call", None, RequestOptions::default());
    let request = open.sent.recv().await.unwrap();
    let error = json!({"code": -32000, "message": "line one\nline two", "data": {"x": 1}});
    open.fake.says(json!({"id": request["id"], "error": error}));
    let error = call.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Server, Outcome::Answered)
    );
    assert_eq!(
        error.message,
        "the server answered error -32000: line one line two"
    );
    let rpc = error.rpc.unwrap();
    assert_eq!(rpc.code, -32000);
    assert_eq!(
        serde_json::from_slice::<Value>(&rpc.raw).unwrap()["data"]["x"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_shape_is_an_answer_all_the_same() {
    let mut open = open().await;
    for error in [json!("no"), json!({}), json!({"code": "E1", "message": 3})] {
        let call = open
            .session
            .request("tools/call", None, RequestOptions::default());
        let request = open.sent.recv().await.unwrap();
        open.fake.says(json!({"id": request["id"], "error": error}));
        assert_eq!(call.await.unwrap_err().outcome, Outcome::Answered);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_tells_each_call_what_is_known_of_it() {
    let mut open = open().await;
    let written = open
        .session
        .request("tools/call", None, RequestOptions::default());
    open.sent.recv().await.unwrap();
    *open.fake.holds_back.lock().unwrap() = true;
    let queued = open
        .session
        .request("tools/call", None, RequestOptions::default());
    open.sent.recv().await.unwrap();
    let (one, other) = (open.session.ended(), open.session.ended());
    open.fake.deliver(Incoming::Ended(Error::new(
        ErrorKind::Transport,
        "it broke",
    )));
    open.fake.deliver(Incoming::Ended(Error::new(
        ErrorKind::Transport,
        "it broke again",
    )));
    assert_eq!(written.await.unwrap_err().outcome, Outcome::Unknown);
    assert_eq!(queued.await.unwrap_err().outcome, Outcome::NotSent);
    for ended in [one.await, other.await, open.session.ended().await] {
        assert_eq!(ended.message, "it broke");
    }
    let error = open.session.ping(None).await.unwrap_err();
    assert_eq!(
        (error.outcome, &error.message[..]),
        (Outcome::NotSent, "it broke")
    );
    assert!(open.session.notify("x", None).is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_call_when_the_session_is_closed_is_reckoned_after_the_transport_was_stopped()
 {
    let mut open = open().await;
    *open.fake.holds_back.lock().unwrap() = true;
    let call = || {
        open.session
            .start("tools/call", None, RequestOptions::default())
            .unwrap()
    };
    let (mut out, mut held) = (call(), call());
    let id = open.sent.recv().await.unwrap()["id"].as_u64().unwrap();
    *open.fake.slips_out.lock().unwrap() = Some(RequestId(id));
    // Never polled.
    drop(open.session.close(Duration::from_secs(1)));
    for (call, outcome) in [(&mut out, Outcome::Unknown), (&mut held, Outcome::NotSent)] {
        let error = call.answer().await.unwrap_err();
        assert_eq!((error.kind, error.outcome), (ErrorKind::Closed, outcome));
    }
    assert!(
        open.session
            .start("x", None, RequestOptions::default())
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_alone_leaves_the_session_open() {
    let mut open = open().await;
    let call = open
        .session
        .request("tools/call", None, RequestOptions::default());
    open.sent.recv().await.unwrap();
    let error = Error::new(ErrorKind::Auth, "credentials").with_outcome(Outcome::Rejected);
    open.fake.deliver(Incoming::Failed(RequestId(2), error));
    assert_eq!(call.await.unwrap_err().outcome, Outcome::Rejected);
    let ping = open.session.ping(None);
    let request = open.sent.recv().await.unwrap();
    open.fake.answers(&request, json!({}));
    ping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn any_answer_to_a_ping_is_a_sign_of_life() {
    let mut open = open().await;
    let ping = open.session.ping(None);
    let request = open.sent.recv().await.unwrap();
    open.fake
        .says(json!({"id": request["id"], "error": {"code": -32601, "message": "ping?"}}));
    ping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_other_requests_refused() {
    let mut open = open().await;
    open.fake.says(json!({"id": "s1", "method": "ping"}));
    assert_eq!(
        open.sent.recv().await.unwrap(),
        json!({"jsonrpc": "2.0", "id": "s1", "result": {}})
    );
    open.fake
        .says(json!({"id": 1, "method": "elicitation/create", "params": {}}));
    let refusal = open.sent.recv().await.unwrap();
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!(1), &json!(-32601))
    );
}

#[tokio::test(start_paused = true)]
async fn notifications_reach_the_handler_with_their_raw_params() {
    let mut open = open().await;
    open.fake
        .says(json!({"method": "notifications/message", "params": {"level": "info"}}));
    assert_eq!(
        open.heard.next("notifications/message").await,
        json!({"level": "info"})
    );
    open.fake
        .says(json!({"method": "notifications/tools/list_changed"}));
    assert_eq!(
        open.heard.next("notifications/tools/list_changed").await,
        Value::Null
    );
}

#[tokio::test(start_paused = true)]
async fn params_that_are_no_object_are_refused_before_anything_is_sent() {
    let mut open = open().await;
    let bad = Some(Bytes::from_static(b"[1]"));
    let error = open
        .session
        .request("x", bad.clone(), RequestOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Invalid, Outcome::NotSent)
    );
    assert!(open.session.notify("x", bad).is_err());
    assert!(open.sent.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn closing_passes_the_limit_on_and_completes_calls_before_it_is_polled() {
    let mut open = open().await;
    let call = open
        .session
        .request("tools/call", None, RequestOptions::default());
    open.sent.recv().await.unwrap();
    let closing = open.session.close(Duration::from_secs(7));
    let error = call.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Closed, Outcome::Unknown)
    );
    closing.await;
    assert_eq!(
        *open.fake.closed.lock().unwrap(),
        Some(Duration::from_secs(7))
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_keeps_the_session_open_and_the_last_drop_ends_it() {
    let mut open = open().await;
    let transport = Arc::downgrade(&open.fake);
    let ended = open.session.ended();
    let call = open
        .session
        .request("tools/call", None, RequestOptions::default());
    let request = open.sent.recv().await.unwrap();
    drop(open.session);
    open.fake.answers(&request, json!({"a": 1}));
    assert_eq!(call.await.unwrap(), "{\"a\":1}");
    assert_eq!(ended.await.kind, ErrorKind::Closed);
    drop(open.fake);
    assert!(
        transport.upgrade().is_none(),
        "something still holds the transport"
    );
}

/// Plays a server of pages: the items and the next cursor for each cursor.
async fn pages(page: impl Fn(&Value) -> (usize, Option<String>)) -> (usize, usize) {
    let mut open = open().await;
    let session = open.session.clone();
    let listing = list_all(&session, "tools/list", "tools", None);
    let mut listing = std::pin::pin!(listing);
    let mut asked = 0;
    loop {
        tokio::select! {
            biased;
            items = &mut listing => return (items.unwrap().len(), asked),
            request = open.sent.recv() => {
                let request = request.unwrap();
                asked += 1;
                let (items, next) = page(&request["params"]["cursor"]);
                let tools: Vec<_> = (0..items).map(|n| json!({"n": n})).collect();
                open.fake.answers(&request, json!({"tools": tools, "nextCursor": next}));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_followed_to_its_last_page() {
    let (items, asked) = pages(|cursor| match cursor.as_str() {
        None => (2, Some("1".into())),
        Some("1") => (0, Some("2".into())),
        Some(_) => (3, None),
    })
    .await;
    assert_eq!((items, asked), (5, 3));
}

#[tokio::test(start_paused = true)]
async fn cursors_that_repeat_or_alternate_end_the_list() {
    let (items, asked) = pages(|_| (1, Some("same".into()))).await;
    assert_eq!((items, asked), (2, 2));
    let next = |cursor: &Value| if cursor == "a" { "b" } else { "a" };
    let (items, asked) = pages(|cursor| (1, Some(next(cursor).into()))).await;
    assert_eq!((items, asked), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn empty_pages_without_end_end_the_list() {
    let counter = std::cell::Cell::new(0);
    let (items, asked) = pages(|_| {
        counter.set(counter.get() + 1);
        (0, Some(counter.get().to_string()))
    })
    .await;
    assert_eq!((items, asked), (0, 16));
}
