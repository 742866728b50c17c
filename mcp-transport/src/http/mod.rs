//! Streamable HTTP: each message is a POST, and what the server has to say comes back as its answer, as JSON or as a
//! stream of events.
//!
//! [`HttpTransport`] carries one session. Its connections are those of an [`HttpClient`], which the sessions of one
//! binding share.

mod address;
mod answer;
mod body;
mod client;
mod config;
mod connect;
mod connections;
mod cookies;
mod credentials;
mod dial;
mod ear;
mod events;
mod exchange;
mod http1;
#[cfg(test)]
mod http2_tests;
mod idle;
mod last_words;
mod legacy_sse;
#[cfg(test)]
mod names_tests;
mod options;
mod pool;
mod proxy;
#[cfg(test)]
mod proxy_tests;
#[cfg(test)]
mod reach_tests;
mod resolve;
mod resumption;
mod retry_after;
mod seen;
mod snippet;
mod socks;
mod streams;
mod tasks;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tls_tests;
mod told;
mod tunnel;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, timeout},
};

pub use self::{
    address::{AddressClass, AddressPolicy},
    client::HttpClient,
    config::HttpConfig,
    options::HttpClientOptions,
};
use self::{
    body::{BodyError, Taken},
    cookies::Cookies,
    ear::Ear,
    events::Events,
    exchange::{Exchange, Role},
    legacy_sse::Endpoint,
    seen::Seen,
    snippet::Secrets,
    tasks::{TaskId, Tasks},
    told::Told,
};
use crate::{
    error::{Error, ErrorKind},
    jsonrpc::RequestId,
    revision::Revision,
    sse::Event,
    transport::{BoxFuture, Incoming, Outgoing, Receiver, Transport},
};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// One session over Streamable HTTP (2025-03-26 to 2025-11-25), or over HTTP+SSE (2024-11-05) where the configuration
/// says so or the server refuses `initialize` with 400, 404 or 405 and then turns out to speak that.
///
/// Each message is carried by a task of its own on the runtime that [`Transport::start`] was called on. Dropping the
/// transport cuts them all.
pub struct HttpTransport {
    shared: Arc<Shared>,
}

/// What the transport and its tasks share.
struct Shared {
    config: HttpConfig,
    origin: String,
    client: HttpClient,
    told: Told,
    state: Mutex<State>,
    cookies: Mutex<Cookies>,
    ear: Arc<Ear>,
    posts: Tasks,
    /// The standing stream, or that of HTTP+SSE.
    streams: Tasks,
    /// The POST of `initialize`. It outlives the others, for what it opens must be closed.
    opening: Tasks,
    /// The good-bye, which outlives the posts.
    closing: Tasks,
}

#[derive(Default)]
struct State {
    /// Where the tasks run, from the start on.
    runtime: Option<Handle>,
    closed: bool,
    /// The end was told, or is about to be: nothing is sent any more.
    over: bool,
    /// The id that the server gave the session.
    session: Option<HeaderValue>,
    /// The server no longer knows the session: it need not be told that it is over.
    expired: bool,
    revision: Option<Revision>,
    /// `notifications/initialized` was sent: messages need not be looked into any more.
    initialized: bool,
    /// Open as long as `notifications/initialized` is under way, or the stream on which the server speaks on its own is
    /// asked for the first time; what is sent meanwhile waits for it.
    gate: Option<watch::Receiver<()>>,
    /// The requests that are not settled.
    requests: HashMap<RequestId, Underway>,
    /// The events that came.
    seen: Seen,
    /// Where messages go, if the server speaks HTTP+SSE.
    endpoint: Option<Arc<Endpoint>>,
}

/// A request under way.
#[derive(Clone)]
struct Underway {
    task: TaskId,
    /// It is `initialize`, and its task one of the opening.
    opens: bool,
    taken: Taken,
}

impl HttpTransport {
    /// A transport for one session with the server of `config`, over the connections of `client`.
    pub fn new(config: HttpConfig, client: HttpClient) -> Self {
        Self {
            shared: Arc::new(Shared {
                origin: config.origin(),
                config,
                client,
                told: Told::default(),
                state: Mutex::default(),
                cookies: Mutex::default(),
                ear: Arc::new(Ear::new()),
                posts: Tasks::default(),
                streams: Tasks::default(),
                opening: Tasks::default(),
                closing: Tasks::default(),
            }),
        }
    }
}

impl Transport for HttpTransport {
    /// Over Streamable HTTP there is nothing to connect before the first message: it only learns whom to tell and
    /// where to run. Over HTTP+SSE it opens the stream.
    fn start(&self, receiver: Arc<dyn Receiver>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            {
                let mut state = self.shared.state();
                if state.closed {
                    return Err(Error::new(ErrorKind::Closed, "the session was closed"));
                }
                state.runtime = Some(Handle::current());
                self.shared.told.begin(receiver);
            }
            match self.shared.config.legacy_sse {
                true => self.shared.open_legacy().await,
                false => Ok(()),
            }
        })
    }

    fn send(&self, message: Outgoing) {
        self.shared.send(message);
    }

    fn negotiated(&self, revision: Revision) {
        self.shared.state().revision = Some(revision);
    }

    fn abandon(&self, request: RequestId) {
        let underway = self.shared.state().requests.get(&request).cloned();
        if let Some(underway) = underway {
            self.shared.give_up(request, &underway);
        }
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        self.shared.begin_close(limit);
        Box::pin(async move {
            let shared = &self.shared;
            let over = async {
                shared.posts.emptied().await;
                shared.streams.emptied().await;
                shared.closing.emptied().await;
            };
            if timeout(limit, over).await.is_err() {
                shared.closing.cut_all();
            }
            shared.opening.cut_all();
        })
    }

    fn resume(&self) {
        self.shared.told.resume();
    }

    fn listens(&self) -> bool {
        self.shared.ear.is_listening()
    }

    fn heard(&self) -> Option<Instant> {
        Some(self.shared.ear.heard())
    }

    fn redacted(&self, text: &str) -> String {
        let headers = self.shared.given_headers();
        let session = self.shared.state().session.clone();
        let cookies = self.shared.cookies.lock();
        let cookies: Vec<_> = cookies
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .filter_map(|value| HeaderValue::from_str(value).ok())
            .collect();
        let values = headers.values().chain(&session).chain(&cookies);
        Secrets::of_remote(&self.shared.config.url, values)
            .redact(text)
            .into_owned()
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.posts.cut_all();
        self.shared.streams.cut_all();
        self.shared.opening.cut_all();
        self.shared.closing.cut_all();
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport")
            .field("origin", &self.shared.origin)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(self: &Arc<Self>, message: Outgoing) {
        let mut state = self.state();
        let Some(runtime) = state
            .runtime
            .clone()
            .filter(|_| !state.closed && !state.over)
        else {
            // Its end was told already.
            return;
        };
        let role = if state.initialized {
            Role::Other
        } else {
            match (answer::method(&message.bytes).as_deref(), message.request) {
                (Some("initialize"), Some(_)) => Role::Initialize,
                (Some("notifications/initialized"), None) => Role::Initialized,
                _ => Role::Other,
            }
        };
        let tasks = match role {
            Role::Initialize => &self.opening,
            Role::Initialized | Role::Other => &self.posts,
        };
        let Some(task) = tasks.reserve() else {
            return;
        };
        let mut gate = state.gate.clone();
        let mut opens = None;
        let mut listens = None;
        if role == Role::Initialized {
            state.initialized = true;
            let (sender, mut receiver) = watch::channel(());
            opens = Some(sender);
            if self.config.stream && state.endpoint.is_none() {
                if let Some(task) = self.streams.reserve() {
                    let (asked, is_asked) = watch::channel(());
                    listens = Some((task, self.clone().listen(receiver, asked)));
                    receiver = is_asked;
                }
            }
            gate = state.gate.replace(receiver);
        } else if gate
            .as_ref()
            .is_some_and(|gate| gate.has_changed().is_err())
        {
            state.gate = None;
            gate = None;
        }
        let taken = self.taken(message.request);
        if let Some(id) = message.request {
            let opens = role == Role::Initialize;
            let taken = taken.clone();
            state.requests.insert(id, Underway { task, opens, taken });
        }
        drop(state);
        let exchange = Exchange {
            shared: self.clone(),
            message: message.bytes,
            request: message.request,
            taken,
            role,
            settled: false,
            opens,
        };
        tasks.spawn(task, &runtime, exchange.run(gate));
        if let Some((task, listen)) = listens {
            self.streams.spawn(task, &runtime, listen);
        }
    }

    /// Tells as written whatever request it is of.
    fn taken(self: &Arc<Self>, request: Option<RequestId>) -> Taken {
        // Weak, for a connection holds it: one that is stuck must not keep alive what would cut it.
        let shared = Arc::downgrade(self);
        Taken::new(move || {
            if let (Some(id), Some(shared)) = (request, shared.upgrade()) {
                shared.tell(Incoming::Written(id));
            }
        })
    }

    /// Tells the receiver, unless the end was told.
    fn tell(&self, incoming: Incoming) {
        self.told.tell(incoming);
    }

    /// Takes a request back, or sees to it that it was told as written.
    fn give_up(&self, id: RequestId, underway: &Underway) {
        let in_time = underway.taken.withdraw();
        // Only now, so that who finds it gone finds what is known of it told.
        self.state().requests.remove(&id);
        if !underway.opens {
            self.posts.cut(underway.task);
        } else if in_time {
            self.opening.cut(underway.task);
        }
        // An `initialize` that is out is not cut before the close, which sees to what it opened.
    }

    /// Gives up every request and tells the end; nothing more is sent then.
    fn end(&self, error: Error) {
        let requests = {
            let mut state = self.state();
            state.over = true;
            state.requests.clone()
        };
        for (id, underway) in &requests {
            self.give_up(*id, underway);
        }
        self.told.end(error);
    }

    /// Tells the end, if no request waits to be settled; nothing more is sent then.
    fn end_if_idle(&self, error: Error) {
        {
            let mut state = self.state();
            if !state.requests.is_empty() {
                return;
            }
            state.over = true;
        }
        self.told.end(error);
    }

    /// Takes it on oneself to settle a request: for one caller only, and not after it was given up. Gives the task
    /// that carries it.
    fn claim(&self, id: RequestId) -> Option<TaskId> {
        let mut state = self.state();
        let underway = state.requests.remove(&id);
        if state.requests.is_empty() {
            // An idle session keeps no table.
            state.requests.shrink_to_fit();
        }
        Some(underway?.task)
    }

    /// The next event of a stream, once the receiver wants more. May be dropped and called again.
    async fn next_event(&self, events: &mut Events) -> Result<Option<Event>, BodyError> {
        self.told.wants_more().await;
        events.next().await
    }

    fn is_pending(&self, id: RequestId) -> bool {
        self.state().requests.contains_key(&id)
    }

    /// Where messages go, if that is not the configured URL.
    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.state().endpoint.clone()
    }

    /// What must not be repeated of what the server says.
    fn secrets(&self) -> Secrets {
        let (session, endpoint) = {
            let state = self.state();
            (state.session.clone(), state.endpoint.clone())
        };
        let cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = Secrets::new(&self.config.url, &self.given_headers(), session.as_ref())
            .and_values(cookies.values());
        match endpoint {
            Some(endpoint) => secrets.and_url(&endpoint.url),
            None => secrets,
        }
    }

    /// `initialize` succeeded, with the session id of its answer if there is one.
    fn opened(&self, session: Option<&HeaderValue>) {
        // Copied: what came is a slice of the connection's buffer, and would keep it as long as the session lives.
        let copy = session.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
        self.state().session = copy.map(|mut id| {
            id.set_sensitive(true);
            id
        });
    }

    fn expired(&self) {
        self.state().expired = true;
    }

    /// All headers that the host gave, also those that were replaced since.
    fn given_headers(&self) -> HeaderMap {
        let mut headers = self.config.headers.clone();
        self.client.credentials().add_to(&mut headers);
        headers
    }

    /// The headers of the host's that are sent.
    fn own_headers(&self) -> HeaderMap {
        let mut headers = self.config.headers.clone();
        self.client.credentials().apply(&mut headers);
        headers
    }

    /// The error with the server's challenge, if it has one, without the headers that this may repeat.
    fn discreet(&self, mut error: Error) -> Error {
        if let Some(challenge) = &error.challenge {
            let secrets = Secrets::of_headers(&self.given_headers());
            error.challenge = Some(Arc::new(challenge.without(&secrets)));
        }
        error
    }

    /// What goes along with every request of the session.
    fn session_headers(&self) -> HeaderMap {
        let mut headers = self.own_headers();
        let state = self.state();
        if let Some(session) = &state.session {
            headers.insert(SESSION_ID, session.clone());
        }
        if let Some(revision) = state.revision {
            headers.insert(
                PROTOCOL_VERSION,
                HeaderValue::from_static(revision.as_str()),
            );
        }
        headers
    }

    fn message_headers(&self) -> HeaderMap {
        let mut headers = self.session_headers();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers
    }

    /// Everything under way is cut and its end told; then the server is told that the session is over, in a task
    /// that is bounded by itself.
    ///
    /// When this returns, also as the second of two at once, every request was either taken back or told as written.
    fn begin_close(self: &Arc<Self>, limit: Duration) {
        let (is_first, runtime, requests) = {
            let mut state = self.state();
            let is_first = !std::mem::replace(&mut state.closed, true);
            (is_first, state.runtime.clone(), state.requests.clone())
        };
        for (id, underway) in &requests {
            self.give_up(*id, underway);
        }
        if !is_first {
            return;
        }
        self.posts.cut_all();
        self.streams.cut_all();
        self.told
            .end(Error::new(ErrorKind::Closed, "the session was closed"));
        let Some(runtime) = runtime else { return };
        let Some(task) = self.closing.reserve() else {
            return;
        };
        let shared = self.clone();
        self.closing.spawn(task, &runtime, async move {
            if timeout(limit, shared.farewell()).await.is_err() {
                tracing::debug!("the session's end was not answered in time");
            }
            // Whoever closed may not wait for it.
            shared.opening.cut_all();
        });
    }

    /// Tells the server that the session is over, also one that opens only now.
    async fn farewell(&self) {
        self.opening.emptied().await;
        {
            let state = self.state();
            if state.session.is_none() || state.expired {
                return;
            }
        }
        let farewell = self.client.send(client::Outgoing {
            method: Method::DELETE,
            url: &self.config.url,
            uri: &self.config.uri,
            headers: self.session_headers(),
            body: bytes::Bytes::new(),
            taken: None,
            cookies: &self.cookies,
            is_stream: false,
        });
        match farewell.await {
            // Whatever it says: many servers do not offer it.
            Ok(answer) => {
                tracing::debug!(status = answer.status().as_u16(), "the session was ended");
            }
            Err(error) => tracing::debug!(%error, "the session's end was not delivered"),
        }
    }
}
