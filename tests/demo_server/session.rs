//! One MCP session: what is answered to each message. It decides; `stdio` and `http` carry.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    cli::Options,
    log::Log,
    tools::{self, Call, Ending},
};

/// The revisions spoken, newest first.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// What is to be done about a message.
pub(crate) enum Action {
    /// Nothing: it was a notification or an answer.
    Nothing,
    /// This is the answer.
    Reply(Value),
    /// A tool has to run; the answer follows.
    Run(Running),
    /// The process has to end, soon or now.
    Exit(Duration),
}

pub(crate) struct Session {
    /// How the session is called in the log and by `whoami`.
    pub(crate) name: String,
    log: Log,
    flap: bool,
    page_size: Option<usize>,
    phase: Mutex<Phase>,
    counter: AtomicU64,
    running: Mutex<HashMap<String, Arc<Cancellation>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    Initializing(&'static str),
    Ready(&'static str),
}

impl Session {
    pub(crate) fn new(name: String, options: &Options, log: &Log) -> Self {
        Self {
            name,
            log: log.clone(),
            flap: options.flap,
            page_size: options.page_size,
            phase: Mutex::new(Phase::Fresh),
            counter: AtomicU64::new(0),
            running: Mutex::new(HashMap::new()),
        }
    }

    /// The revision that was agreed upon, once there was an `initialize`.
    pub(crate) fn revision(&self) -> Option<&'static str> {
        match *lock(&self.phase) {
            Phase::Fresh => None,
            Phase::Initializing(revision) | Phase::Ready(revision) => Some(revision),
        }
    }

    pub(crate) fn log(&self, word: &str, rest: &str) {
        self.log.line(word, &format!("{} {rest}", self.name));
    }

    pub(crate) fn next_count(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn accept(self: &Arc<Self>, message: &Value) -> Action {
        let id = message.get("id").filter(|id| !id.is_null());
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            // An answer to a request of ours; we never ask.
            let is_answer = message.get("result").or(message.get("error")).is_some();
            return match is_answer {
                true => Action::Nothing,
                false => Action::Reply(failure(
                    id,
                    INVALID_REQUEST,
                    "neither request nor notification",
                )),
            };
        };
        let params = message.get("params").unwrap_or(&Value::Null);
        match id {
            Some(id) => self.request(id, method, params),
            None => self.notification(method, params),
        }
    }

    fn notification(&self, method: &str, params: &Value) -> Action {
        match method {
            "notifications/initialized" => {
                let mut phase = lock(&self.phase);
                if let Phase::Initializing(revision) = *phase {
                    *phase = Phase::Ready(revision);
                }
                match self.flap {
                    true => Action::Exit(Duration::from_millis(100)),
                    false => Action::Nothing,
                }
            }
            "notifications/cancelled" => {
                let id = params.get("requestId").unwrap_or(&Value::Null).to_string();
                if let Some(cancellation) = lock(&self.running).get(&id) {
                    cancellation.cancel();
                }
                Action::Nothing
            }
            _ => Action::Nothing,
        }
    }

    fn request(self: &Arc<Self>, id: &Value, method: &str, params: &Value) -> Action {
        let phase = *lock(&self.phase);
        match method {
            "initialize" if phase == Phase::Fresh => {
                Action::Reply(success(id, self.initialize(params)))
            }
            "initialize" => {
                Action::Reply(failure(Some(id), INVALID_REQUEST, "initialized already"))
            }
            "ping" => Action::Reply(success(id, json!({}))),
            "tools/list" | "tools/call" if !matches!(phase, Phase::Ready(_)) => {
                Action::Reply(failure(Some(id), INVALID_REQUEST, "not initialized"))
            }
            "tools/list" => Action::Reply(self.list(id, params)),
            _ if self.flap => Action::Exit(Duration::ZERO),
            "tools/call" => self.call(id, params),
            _ => Action::Reply(failure(
                Some(id),
                METHOD_NOT_FOUND,
                &format!("no method {method}"),
            )),
        }
    }

    fn initialize(&self, params: &Value) -> Value {
        let asked = params.get("protocolVersion").and_then(Value::as_str);
        let revision = REVISIONS
            .into_iter()
            .find(|known| asked == Some(known))
            .unwrap_or(REVISIONS[0]);
        *lock(&self.phase) = Phase::Initializing(revision);
        self.log("open", "");
        json!({
            "protocolVersion": revision,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "demo-server", "version": env!("CARGO_PKG_VERSION") },
            "instructions": "A server for demonstrations and tests; see the tools.",
        })
    }

    fn list(&self, id: &Value, params: &Value) -> Value {
        let all = tools::catalogue();
        let start = match params.get("cursor") {
            None | Some(Value::Null) => 0,
            Some(cursor) => match cursor.as_str().and_then(|cursor| cursor.parse().ok()) {
                Some(start) if start < all.len() => start,
                _ => return failure(Some(id), INVALID_PARAMS, "no such cursor"),
            },
        };
        let end = self
            .page_size
            .map_or(all.len(), |size| all.len().min(start + size));
        let mut result = json!({ "tools": all[start..end] });
        if end < all.len() {
            result["nextCursor"] = json!(end.to_string());
        }
        success(id, result)
    }

    fn call(self: &Arc<Self>, id: &Value, params: &Value) -> Action {
        let call = match tools::find(params) {
            Ok(call) => call,
            Err(problem) => return Action::Reply(failure(Some(id), INVALID_PARAMS, &problem)),
        };
        self.log("call", call.name());
        let cancellation = Arc::new(Cancellation::default());
        // Known from here on, so that a cancellation right behind the request finds it.
        lock(&self.running).insert(id.to_string(), cancellation.clone());
        Action::Run(Running {
            session: self.clone(),
            id: id.clone(),
            call,
            progress_token: params.pointer("/_meta/progressToken").cloned(),
            cancellation,
        })
    }
}

/// A tool call that was accepted.
pub(crate) struct Running {
    session: Arc<Session>,
    id: Value,
    call: Call,
    progress_token: Option<Value>,
    cancellation: Arc<Cancellation>,
}

/// How a call came out.
pub(crate) enum Outcome {
    Answer(Value),
    /// Cancelled: there is no answer.
    Cancelled,
    /// The answer, and with it the session is forgotten.
    Expire(Value),
}

impl Running {
    pub(crate) fn wants_progress(&self) -> bool {
        self.progress_token.is_some()
    }

    /// Runs the tool on this thread; `send` takes what comes before the answer.
    pub(crate) fn run(self, send: &mut dyn FnMut(Value)) -> Outcome {
        let mut progress = |done: u64, total: u64| {
            if let Some(token) = &self.progress_token {
                let params = json!({ "progressToken": token, "progress": done, "total": total });
                send(
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
                );
            }
        };
        let ending = self
            .call
            .run(&self.session, &self.cancellation, &mut progress);
        lock(&self.session.running).remove(&self.id.to_string());
        match ending {
            Ending::Text(text) => Outcome::Answer(success(&self.id, tool_result(&text, false))),
            Ending::ToolError(text) => Outcome::Answer(success(&self.id, tool_result(&text, true))),
            Ending::Expire(text) => Outcome::Expire(success(&self.id, tool_result(&text, false))),
            Ending::Cancelled => {
                self.session.log("cancelled", self.call.name());
                Outcome::Cancelled
            }
        }
    }
}

/// Tells a running tool that nobody wants its answer any more.
#[derive(Default)]
pub(crate) struct Cancellation {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Cancellation {
    fn cancel(&self) {
        *lock(&self.cancelled) = true;
        self.changed.notify_all();
    }

    /// Waits for the cancellation until then, and says whether it came.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        let mut cancelled = lock(&self.cancelled);
        while !*cancelled {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(cancelled, left);
            cancelled = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *cancelled
    }
}

fn success(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The answer to what could not be served, or not even be read.
pub(crate) fn failure(id: Option<&Value>, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn tool_result(text: &str, is_error: bool) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}

/// What a lock guards here is whole at every moment, so a panic of another thread spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
