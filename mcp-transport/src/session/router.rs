//! Where a transport delivers: finds for each message who waits for it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tracing::{debug, warn};

use crate::{
    error::{Error, ErrorKind, Outcome, RpcError},
    jsonrpc::{self, Answer, Envelope, RequestId},
    text,
    transport::{Incoming, Outgoing, Receiver, Transport},
};

use super::{
    Handler, OnProgress,
    asked::{Admission, Open, ServerRequestId, Withdrawn},
    backlog::{Backlog, Held},
    unsent::Unsent,
};

/// How many messages that are none are told in full in the log; the rest are only counted.
const LOGGED: u64 = 8;

/// What a session dropped or refused, counted from its opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Answers and progress to requests of ours that nobody waited for any more.
    pub late: u64,
    /// Answers and progress to requests that are not ours.
    pub foreign: u64,
    /// Messages that were no JSON-RPC.
    pub malformed: u64,
    /// Messages with broken UTF-8, taken with replacement characters.
    pub repaired: u64,
    /// Requests of the server that were refused by us: not offered, too many, or past their deadline.
    pub refused: u64,
    /// Requests of the server that bore the id of one that was open.
    pub duplicate: u64,
    /// Requests of the server, pings among them, that were not even refused: too many answers waited for it to read.
    pub unanswered: u64,
}

/// The session's side of a transport.
pub(super) struct Router {
    me: Weak<Self>,
    transport: Weak<dyn Transport>,
    handler: Arc<dyn Handler>,
    backlog: Backlog,
    /// What the server has asked.
    pub(super) open: Open,
    /// What it was answered and has not read.
    unsent: Unsent,
    last_id: AtomicU64,
    began: Instant,
    /// When the last message came, in nanoseconds from the beginning.
    heard: AtomicU64,
    waiting: Mutex<Waiting>,
    ended: OnceLock<Error>,
    on_end: Notify,
    counters: Mutex<Counters>,
    last_malformed: Mutex<String>,
}

/// Never held while a transport, a handler or a caller is called.
#[derive(Default)]
struct Waiting {
    requests: HashMap<RequestId, Expected>,
    ended: bool,
}

impl Waiting {
    fn take(&mut self, id: RequestId) -> Option<Expected> {
        let expected = self.requests.remove(&id);
        if self.requests.is_empty() {
            // An idle session keeps no table.
            self.requests.shrink_to_fit();
        }
        expected
    }
}

/// How a request ended. A result counts as undelivered until it is taken out of here.
pub(super) type Ended = Result<(Bytes, Held), Error>;

/// A request that waits for its answer.
struct Expected {
    answer: oneshot::Sender<Ended>,
    on_progress: Option<Arc<OnProgress>>,
    last_sign: Instant,
    written: bool,
}

impl Expected {
    fn outcome(&self) -> Outcome {
        if self.written {
            Outcome::Unknown
        } else {
            Outcome::NotSent
        }
    }
}

/// What to do with a progress notification.
enum Progress {
    Deliver(Arc<OnProgress>),
    Noted,
    Unwanted(Option<RequestId>),
}

impl Router {
    pub(super) fn new(transport: Weak<dyn Transport>, handler: Arc<dyn Handler>) -> Arc<Self> {
        let backlog = handler.backlog().unwrap_or_default();
        backlog.attach(transport.clone());
        let open = Open::new(handler.offers());
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            transport,
            handler,
            backlog,
            open,
            unsent: Unsent::default(),
            last_id: AtomicU64::new(0),
            began: Instant::now(),
            heard: AtomicU64::new(0),
            waiting: Mutex::default(),
            ended: OnceLock::new(),
            on_end: Notify::new(),
            counters: Mutex::default(),
            last_malformed: Mutex::default(),
        })
    }

    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, what: impl FnOnce(&mut Counters) -> &mut u64) -> u64 {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = what(&mut counters);
        *counter += 1;
        *counter
    }

    pub(super) fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new_id(&self) -> RequestId {
        RequestId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Begins to wait for the answer to `id`; must come before the request is sent.
    pub(super) fn expect(
        &self,
        id: RequestId,
        now: Instant,
        on_progress: Option<OnProgress>,
    ) -> Result<oneshot::Receiver<Ended>, Error> {
        let (answer, receiver) = oneshot::channel();
        let expected = Expected {
            answer,
            on_progress: on_progress.map(Arc::new),
            last_sign: now,
            written: false,
        };
        let mut waiting = self.waiting();
        if waiting.ended {
            drop(waiting);
            let error = self
                .ended_with()
                .unwrap_or_else(|| Error::new(ErrorKind::Closed, "the session has ended"));
            return Err(error.with_outcome(Outcome::NotSent));
        }
        waiting.requests.insert(id, expected);
        Ok(receiver)
    }

    /// Ceases to wait. Gives what is known of the request, `None` if it has ended already.
    pub(super) fn forget(&self, id: RequestId) -> Option<Outcome> {
        let expected = self.waiting().take(id)?;
        Some(expected.outcome())
    }

    /// When the last message came, or it began.
    pub(super) fn heard(&self) -> Instant {
        self.began + Duration::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    fn note_life(&self) {
        let heard = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard.store(heard, Ordering::Relaxed);
    }

    /// When the request was sent or last made progress.
    pub(super) fn last_sign(&self, id: RequestId) -> Option<Instant> {
        self.waiting().requests.get(&id).map(|e| e.last_sign)
    }

    /// The connection has ended: nothing more is written. The first word counts.
    pub(super) fn end(&self, error: Error) {
        self.end_by(error, || {});
    }

    /// Ends the session by our own word: new requests are refused, then `stop` keeps the transport from writing what
    /// waits, and only after that it is reckoned what is known of each request. The first word counts.
    pub(super) fn end_by(&self, error: Error, stop: impl FnOnce()) {
        {
            let mut waiting = self.waiting();
            if !waiting.ended {
                waiting.ended = true;
                // Inside the lock, so that whoever sees the flag finds the reason too.
                let _ = self.ended.set(error);
            }
        }
        stop();
        // Also as the second word: what the first has not come to is known well enough once `stop` is through.
        let requests = std::mem::take(&mut self.waiting().requests);
        if let Some(error) = self.ended_with() {
            for (_, expected) in requests {
                let error = error.clone().with_outcome(expected.outcome());
                let _ = expected.answer.send(Err(error));
            }
        }
        self.on_end.notify_waiters();
        for id in self.open.end() {
            self.handler.withdrawn(id, Withdrawn::Ended);
        }
    }

    pub(super) fn ended_with(&self) -> Option<Error> {
        self.ended.get().cloned()
    }

    pub(super) async fn ended(&self) -> Error {
        loop {
            let mut told = std::pin::pin!(self.on_end.notified());
            // Listening first, so that an end between the look and the wait is not missed.
            told.as_mut().enable();
            if let Some(error) = self.ended_with() {
                return error;
            }
            told.await;
        }
    }

    fn message(&self, message: Bytes) {
        match jsonrpc::parse(&message) {
            Ok(Envelope::Batch) => self.batch(&message),
            Ok(envelope) => self.route(&message, envelope),
            Err(error) => self.broken(&message, &error),
        }
    }

    fn batch(&self, message: &Bytes) {
        match jsonrpc::split_batch(message) {
            Ok(parts) => {
                for part in parts {
                    match jsonrpc::parse(&part) {
                        Ok(Envelope::Batch) => self.malformed(&part, "a batch inside a batch"),
                        Ok(envelope) => self.route(&part, envelope),
                        Err(error) => self.malformed(&part, &error.to_string()),
                    }
                }
            }
            Err(error) => self.broken(message, &error),
        }
    }

    /// A server that writes another encoding than UTF-8 spoils a character, and not the call: the text is
    /// taken with replacement characters.
    fn broken(&self, message: &Bytes, error: &jsonrpc::ParseError) {
        if let std::borrow::Cow::Owned(text) = String::from_utf8_lossy(message) {
            let repaired = Bytes::from(text);
            if let Ok(envelope) = jsonrpc::parse(&repaired) {
                self.count(|c| &mut c.repaired);
                match envelope {
                    Envelope::Batch => self.batch(&repaired),
                    envelope => self.route(&repaired, envelope),
                }
                return;
            }
        }
        self.malformed(message, &error.to_string());
    }

    /// What came that looked like messages and was none, for an error's text.
    pub(super) fn describe_malformed(&self) -> Option<String> {
        let count = self.counters().malformed;
        let last = self
            .last_malformed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let were = if count == 1 {
            "message was"
        } else {
            "messages were"
        };
        (count > 0).then(|| format!("{count} {were} no JSON-RPC, the last {:?}", *last))
    }

    /// What the server said, without the secrets that it was given.
    pub(super) fn redacted(&self, said: &str) -> String {
        match self.transport.upgrade() {
            Some(transport) => transport.redacted(said),
            // It is gone, and with it who knows them.
            None => String::new(),
        }
    }

    fn malformed(&self, message: &[u8], why: &str) {
        // More than is shown, so that it is not cut inside a secret.
        let beginning = &message[..message.len().min(4096)];
        let shown = self.redacted(&String::from_utf8_lossy(beginning));
        let shown = text::one_line(shown.as_bytes(), 120);
        *self
            .last_malformed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = shown;
        if self.count(|c| &mut c.malformed) <= LOGGED {
            let bytes = message.len();
            warn!(bytes, why, "dropped what is no JSON-RPC message");
        }
    }

    fn route(&self, message: &Bytes, envelope: Envelope<'_>) {
        match envelope {
            Envelope::Response { id: None, .. } => self.unwanted(None),
            Envelope::Response {
                id: Some(id),
                outcome,
            } => self.answer(Answer::cut(message, id, outcome)),
            Envelope::Notification { method, params } => {
                let params = params.map_or_else(Bytes::new, |p| jsonrpc::slice(message, p));
                match &*method {
                    "notifications/progress" => self.progress(params),
                    "notifications/cancelled" => self.canceled(&params),
                    // Once it has ended nobody listens.
                    _ if self.ended.get().is_some() => {}
                    _ => self.handler.notification(&method, params),
                }
            }
            Envelope::Request { id, method, params } => {
                let params = params.map_or_else(Bytes::new, |p| jsonrpc::slice(message, p));
                self.asked(id, &method, params);
            }
            // `message` takes batches apart before it comes here.
            Envelope::Batch => {}
        }
    }

    fn answer(&self, answer: Answer) {
        let expected = self.waiting().take(answer.id);
        let Some(expected) = expected else {
            self.unwanted(Some(answer.id));
            return;
        };
        let given = match answer.outcome {
            // The whole message stays as long as the result does.
            Ok(result) => Ok((result, self.backlog.hold(answer.message.len()))),
            Err(error) => Err(server_error(error, |said| self.redacted(said))),
        };
        let _ = expected.answer.send(given);
    }

    fn unwanted(&self, id: Option<RequestId>) {
        let ours = id.is_some_and(|id| (1..=self.last_id.load(Ordering::Relaxed)).contains(&id.0));
        if ours {
            self.count(|c| &mut c.late);
        } else {
            self.count(|c| &mut c.foreign);
        }
        debug!(?id, "dropped an answer that nobody waits for");
    }

    fn progress(&self, params: Bytes) {
        match self.note_progress(jsonrpc::progress_of(&params)) {
            Progress::Deliver(on_progress) => on_progress(params),
            Progress::Noted => {}
            Progress::Unwanted(id) => self.unwanted(id),
        }
    }

    fn note_progress(&self, id: Option<RequestId>) -> Progress {
        let mut waiting = self.waiting();
        let Some(expected) = id.and_then(|id| waiting.requests.get_mut(&id)) else {
            return Progress::Unwanted(id);
        };
        expected.last_sign = Instant::now();
        match &expected.on_progress {
            Some(on_progress) => Progress::Deliver(on_progress.clone()),
            None => Progress::Noted,
        }
    }

    /// The server asks. `ping` is answered always, and what the host takes is handed to it.
    fn asked(&self, id: &RawValue, method: &str, params: Bytes) {
        if self.unsent.is_full() {
            self.count(|c| &mut c.unanswered);
            return;
        }
        if method == "ping" {
            self.reply_alone(jsonrpc::empty_result(id));
            return;
        }
        match self.open.admit(&self.me, id, method, params) {
            Admission::Open(request) => self.handler.asked(request),
            Admission::Refused(code, message) => {
                self.count(|c| &mut c.refused);
                self.reply_alone(jsonrpc::error(id, code, message));
            }
            Admission::Dropped => {
                self.count(|c| &mut c.duplicate);
            }
        }
    }

    /// The server takes back what it has asked. What was answered meanwhile is nobody's any more.
    fn canceled(&self, params: &[u8]) {
        let id = jsonrpc::canceled_of(params).and_then(|id| self.open.cancel(id));
        if let Some(id) = id {
            self.handler.withdrawn(id, Withdrawn::Canceled);
        }
    }

    /// The host has not answered in time.
    pub(super) fn time_out_asked(&self, id: ServerRequestId) {
        if let Some(theirs) = self.open.take(id) {
            self.count(|c| &mut c.refused);
            let message = "the client did not answer in time";
            self.reply(jsonrpc::error(&theirs, jsonrpc::TIMED_OUT, message));
            self.handler.withdrawn(id, Withdrawn::Deadline);
        }
    }

    /// Sends an answer of which the host knows nothing.
    fn reply_alone(&self, bytes: Bytes) {
        self.send(self.unsent.ours(bytes));
    }

    /// Sends an answer of the host's to the server.
    pub(super) fn reply(&self, bytes: Bytes) {
        self.send(self.unsent.of_host(bytes));
    }

    fn send(&self, bytes: Bytes) {
        if let Some(transport) = self.transport.upgrade() {
            transport.send(Outgoing {
                bytes,
                request: None,
            });
        }
    }
}

impl Receiver for Router {
    fn receive(&self, incoming: Incoming) {
        match incoming {
            Incoming::Message(message) => {
                self.note_life();
                self.message(message);
            }
            Incoming::Answer(answer) => {
                self.note_life();
                self.answer(answer);
            }
            Incoming::Written(id) => {
                if let Some(expected) = self.waiting().requests.get_mut(&id) {
                    expected.written = true;
                }
            }
            Incoming::Failed(id, error) => {
                let expected = self.waiting().take(id);
                if let Some(expected) = expected {
                    let _ = expected.answer.send(Err(error));
                }
            }
            Incoming::Ended(error) => self.end(error),
        }
    }

    fn wants_more(&self) -> bool {
        // What has ended keeps nothing: it is read to its end, so that a server which writes can go.
        !self.backlog.is_over() || self.ended.get().is_some()
    }
}

/// The error that the server answered.
fn server_error(raw: Bytes, redacted: impl FnOnce(&str) -> String) -> Error {
    #[derive(Deserialize)]
    struct Shape<'a> {
        #[serde(default)]
        code: serde_json::Value,
        #[serde(borrow, default)]
        message: Option<std::borrow::Cow<'a, str>>,
    }
    let shape: Option<Shape<'_>> = serde_json::from_slice(&raw).ok();
    let code = shape.as_ref().map_or(0, |s| {
        s.code
            .as_i64()
            .or_else(|| s.code.as_f64().map(|f| f as i64))
            .unwrap_or(0)
    });
    let said = shape.and_then(|s| s.message).unwrap_or_default();
    let message = format!(
        "the server answered error {code}: {}",
        text::one_line(redacted(&said).as_bytes(), 400)
    );
    let mut error = Error::new(ErrorKind::Server, message).with_outcome(Outcome::Answered);
    error.rpc = Some(RpcError { code, raw });
    error
}
