//! What the server asks of the host: each request is handed out, and answered exactly once.
//!
//! By the host; or by us, at its deadline or when the host drops it; or by nobody, when the server has taken it back
//! or is gone.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

use crate::{
    error::{Error, ErrorKind},
    jsonrpc,
};

use super::router::Router;

/// How many requests of one server may be open.
const MOST_OPEN: usize = 64;

/// How long the server's own name of a request may be, which is kept until the answer.
const LONGEST_ID: usize = 1024;

/// Which requests of the server the host takes; what it does not take is not advertised, and refused at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offers {
    /// `roots/list`.
    pub roots: bool,
    /// The host sends `notifications/roots/list_changed` when its roots change.
    pub roots_list_changed: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// Tools may be given in it.
    pub sampling_tools: bool,
    /// It may ask for the context of other servers.
    pub sampling_context: bool,
    /// `elicitation/create` with a form.
    pub elicitation_form: bool,
    /// `elicitation/create` with a URL to open.
    pub elicitation_url: bool,
    /// How long the host may take to answer; past it we refuse. 5 minutes unless set.
    pub answer_within: Duration,
}

impl Default for Offers {
    /// Nothing.
    fn default() -> Self {
        Self {
            roots: false,
            roots_list_changed: false,
            sampling: false,
            sampling_tools: false,
            sampling_context: false,
            elicitation_form: false,
            elicitation_url: false,
            answer_within: Duration::from_secs(300),
        }
    }
}

impl Offers {
    /// Whether anything is taken.
    pub fn any(&self) -> bool {
        use ServerRequestKind::{ElicitForm, ElicitUrl, Roots, Sampling};
        [Roots, Sampling, ElicitForm, ElicitUrl]
            .into_iter()
            .any(|kind| self.takes(kind))
    }

    fn takes(&self, kind: ServerRequestKind) -> bool {
        match kind {
            ServerRequestKind::Roots => self.roots,
            ServerRequestKind::Sampling => self.sampling,
            ServerRequestKind::ElicitForm => self.elicitation_form,
            ServerRequestKind::ElicitUrl => self.elicitation_url,
        }
    }

    /// The client's `capabilities`, as `initialize` tells them.
    pub(super) fn capabilities(&self) -> Bytes {
        let flag = |name: &'static str, on: bool, value: &'static str| on.then_some((name, value));
        let parts = [
            (
                "roots",
                self.roots,
                vec![flag("listChanged", self.roots_list_changed, "true")],
            ),
            (
                "sampling",
                self.sampling,
                vec![
                    flag("tools", self.sampling_tools, "{}"),
                    flag("context", self.sampling_context, "{}"),
                ],
            ),
            (
                "elicitation",
                self.elicitation_form || self.elicitation_url,
                vec![
                    flag("form", self.elicitation_form, "{}"),
                    flag("url", self.elicitation_url, "{}"),
                ],
            ),
        ];
        let offered = parts.into_iter().filter(|(_, on, _)| *on);
        let members: Vec<_> = offered
            .map(|(name, _, flags)| {
                let flags = flags.into_iter().flatten();
                let inner: Vec<_> = flags
                    .map(|(name, value)| format!("\"{name}\":{value}"))
                    .collect();
                format!("\"{name}\":{{{}}}", inner.join(","))
            })
            .collect();
        let mut out = BytesMut::new();
        out.put_u8(b'{');
        out.put_slice(members.join(",").as_bytes());
        out.put_u8(b'}');
        out.freeze()
    }
}

/// What a server can ask of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerRequestKind {
    /// `roots/list`.
    Roots,
    /// `sampling/createMessage`.
    Sampling,
    /// `elicitation/create` with a form to fill in.
    ElicitForm,
    /// `elicitation/create` with a URL to open.
    ElicitUrl,
}

impl ServerRequestKind {
    fn of(method: &str, params: &[u8]) -> Option<Self> {
        match method {
            "roots/list" => Some(Self::Roots),
            "sampling/createMessage" => Some(Self::Sampling),
            "elicitation/create" => {
                #[derive(Deserialize)]
                struct Params {
                    #[serde(default)]
                    mode: Option<String>,
                }
                let mode = serde_json::from_slice(params).map_or(None, |p: Params| p.mode);
                match mode.as_deref() {
                    Some("url") => Some(Self::ElicitUrl),
                    _ => Some(Self::ElicitForm),
                }
            }
            _ => None,
        }
    }

    /// The method.
    pub fn method(self) -> &'static str {
        match self {
            Self::Roots => "roots/list",
            Self::Sampling => "sampling/createMessage",
            Self::ElicitForm | Self::ElicitUrl => "elicitation/create",
        }
    }
}

/// Names a request of the server within its session; never used again there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerRequestId(pub u64);

/// Why nobody waits for the host's answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Withdrawn {
    /// The server has cancelled it.
    Canceled,
    /// Its deadline has passed; the server was told an error.
    Deadline,
    /// The session has ended.
    Ended,
}

/// A request of the server that waits for the host's answer.
///
/// It may be answered from any thread, at any time; the first answer counts. Dropped without one, it is refused.
pub struct ServerRequest {
    id: ServerRequestId,
    kind: ServerRequestKind,
    params: Bytes,
    deadline: Option<Instant>,
    router: Weak<Router>,
}

impl ServerRequest {
    /// By which [`Handler::withdrawn`](super::Handler::withdrawn) names it.
    pub fn id(&self) -> ServerRequestId {
        self.id
    }

    /// What is asked.
    pub fn kind(&self) -> ServerRequestKind {
        self.kind
    }

    /// The params as raw JSON, the bytes that came; empty if there were none.
    pub fn params(&self) -> &Bytes {
        &self.params
    }

    /// When we refuse it, if it has not been answered.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Answers with this result, a JSON object.
    ///
    /// # Errors
    /// `Invalid` when it is no JSON object; the request is then still open. `Closed` when it was answered or
    /// withdrawn before.
    pub fn answer(&self, result: &[u8]) -> Result<(), Error> {
        let result: &RawValue = serde_json::from_slice(result)
            .ok()
            .filter(|raw: &&RawValue| raw.get().starts_with('{'))
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "a result must be a JSON object"))?;
        self.settle(|id| jsonrpc::result(id, result))
    }

    /// Answers with an error.
    ///
    /// # Errors
    /// `Closed` when it was answered or withdrawn before.
    pub fn refuse(&self, code: i64, message: &str) -> Result<(), Error> {
        self.settle(|id| jsonrpc::error(id, code, message))
    }

    fn settle(&self, answer: impl FnOnce(&RawValue) -> Bytes) -> Result<(), Error> {
        let router = self.router.upgrade();
        let taken = router.and_then(|router| {
            let id = router.open.take(self.id)?;
            router.reply(answer(&id));
            Some(())
        });
        taken.ok_or_else(|| {
            let message = "the server's request was answered or withdrawn before";
            Error::new(ErrorKind::Closed, message)
        })
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        // Most often it has been answered.
        let _ = self.refuse(jsonrpc::INTERNAL_ERROR, "the client gave no answer");
    }
}

impl fmt::Debug for ServerRequest {
    /// Without the params, which may hold what is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequest")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The requests of one server that are open.
pub(super) struct Open {
    offers: Offers,
    /// On which deadlines are waited for.
    runtime: Option<Handle>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    requests: HashMap<ServerRequestId, One>,
    ended: bool,
}

struct One {
    /// The server's own id, echoed as it came.
    id: Box<RawValue>,
    timer: Option<AbortHandle>,
}

/// What becomes of a request that has come.
pub(super) enum Admission {
    /// It is handed to the host.
    Open(ServerRequest),
    /// It is answered with this error.
    Refused(i64, &'static str),
    /// It bears the id of one that is open: the same once more, as after a resumption. Or nobody is there any more.
    Dropped,
}

impl Open {
    pub(super) fn new(offers: Offers) -> Self {
        Self {
            offers,
            runtime: Handle::try_current().ok(),
            state: Mutex::default(),
        }
    }

    pub(super) fn offers(&self) -> &Offers {
        &self.offers
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request in, if it may be.
    pub(super) fn admit(
        &self,
        router: &Weak<Router>,
        id: &RawValue,
        method: &str,
        params: Bytes,
    ) -> Admission {
        let unknown = "this client does not offer the method";
        let Some(kind) = ServerRequestKind::of(method, &params) else {
            return Admission::Refused(jsonrpc::METHOD_NOT_FOUND, unknown);
        };
        if !self.offers.takes(kind) {
            let other_mode = self.offers.elicitation_form || self.offers.elicitation_url;
            return if method == "elicitation/create" && other_mode {
                let message = "this client does not offer the mode of elicitation";
                Admission::Refused(jsonrpc::INVALID_PARAMS, message)
            } else {
                Admission::Refused(jsonrpc::METHOD_NOT_FOUND, unknown)
            };
        }
        if id.get().len() > LONGEST_ID {
            let message = "the id is longer than this client keeps";
            return Admission::Refused(jsonrpc::INVALID_REQUEST, message);
        }
        let mut state = self.state();
        if state.ended || state.requests.values().any(|one| one.id.get() == id.get()) {
            return Admission::Dropped;
        }
        if state.requests.len() >= MOST_OPEN {
            let message = "too many requests of this server are open";
            return Admission::Refused(jsonrpc::BUSY, message);
        }
        state.last += 1;
        let ours = ServerRequestId(state.last);
        let deadline = Instant::now().checked_add(self.offers.answer_within);
        let timer = deadline.zip(self.runtime.as_ref()).map(|(at, runtime)| {
            let router = router.clone();
            let timer = async move {
                tokio::time::sleep_until(at).await;
                if let Some(router) = router.upgrade() {
                    router.time_out_asked(ours);
                }
            };
            runtime.spawn(timer).abort_handle()
        });
        let one = One {
            id: id.to_owned(),
            timer,
        };
        state.requests.insert(ours, one);
        Admission::Open(ServerRequest {
            id: ours,
            kind,
            params,
            deadline,
            router: router.clone(),
        })
    }

    /// Settles a request: gives the server's id to whoever comes first.
    pub(super) fn take(&self, id: ServerRequestId) -> Option<Box<RawValue>> {
        let one = self.state().requests.remove(&id)?;
        if let Some(timer) = one.timer {
            timer.abort();
        }
        Some(one.id)
    }

    /// The server takes a request back.
    pub(super) fn cancel(&self, id: &RawValue) -> Option<ServerRequestId> {
        let ours = {
            let state = self.state();
            let mut requests = state.requests.iter();
            *requests.find(|(_, one)| one.id.get() == id.get())?.0
        };
        self.take(ours).map(|_| ours)
    }

    /// Nobody waits for any of them any more; gives which were open.
    pub(super) fn end(&self) -> Vec<ServerRequestId> {
        let requests = {
            let mut state = self.state();
            state.ended = true;
            std::mem::take(&mut state.requests)
        };
        let mut ids: Vec<_> = requests
            .into_iter()
            .map(|(id, one)| {
                if let Some(timer) = one.timer {
                    timer.abort();
                }
                id
            })
            .collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_advertised_and_nothing_else() {
        assert_eq!(Offers::default().capabilities(), "{}");
        let all = Offers {
            roots: true,
            roots_list_changed: true,
            sampling: true,
            sampling_tools: true,
            sampling_context: true,
            elicitation_form: true,
            elicitation_url: true,
            ..Offers::default()
        };
        assert_eq!(
            all.capabilities(),
            r#"{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#
        );
        let some = Offers {
            roots: true,
            elicitation_url: true,
            ..Offers::default()
        };
        assert_eq!(
            some.capabilities(),
            r#"{"roots":{},"elicitation":{"url":{}}}"#
        );
    }

    #[test]
    fn an_elicitation_without_a_mode_is_a_form() {
        let of = |params: &str| ServerRequestKind::of("elicitation/create", params.as_bytes());
        assert_eq!(
            of(r#"{"message":"?"}"#),
            Some(ServerRequestKind::ElicitForm)
        );
        assert_eq!(of(""), Some(ServerRequestKind::ElicitForm));
        assert_eq!(of(r#"{"mode":"url"}"#), Some(ServerRequestKind::ElicitUrl));
        assert_eq!(ServerRequestKind::of("roots/lists", b""), None);
    }
}
