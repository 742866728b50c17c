//! One MCP client session: the handshake, and requests that find their answers.

mod asked;
mod backlog;
mod coalesce;
mod handshake;
mod paging;
mod request;
mod router;
mod unsent;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    error::{Error, ErrorKind, Outcome},
    jsonrpc,
    revision::Revision,
    transport::{Outgoing, Transport},
};

pub use asked::{Offers, ServerRequest, ServerRequestId, ServerRequestKind, Withdrawn};
pub use backlog::{Backlog, Held};
pub use coalesce::{Coalescer, Refresh};
use handshake::Info;
pub use paging::{Pages, list_all};
pub use request::Request;
pub use router::Counters;
use router::Router;

/// How long a server may take to go when its handshake failed: it was never in use.
const FAILED_CLOSE: Duration = Duration::from_secs(1);

/// Who hears what the server says and asks on its own.
///
/// Called from the transport's reader, in the order in which it came: it must not block.
pub trait Handler: Send + Sync {
    /// A notification that belongs to no request: `notifications/tools/list_changed`, logging and the
    /// like. `params` is the raw JSON, empty if there was none. Progress goes to its request instead.
    fn notification(&self, method: &str, params: Bytes) {
        let _ = (method, params);
    }

    /// Which requests of the server are taken. Asked once for each session, before `initialize` advertises it.
    fn offers(&self) -> Offers {
        Offers::default()
    }

    /// A request of the server, of a kind that is offered. It is kept until it is answered, which may be at once or
    /// later and from anywhere; dropped, it is refused.
    fn asked(&self, request: ServerRequest) {
        drop(request);
    }

    /// Nobody waits for the answer to this request any more: what the host does for it, a dialogue say, may stop.
    ///
    /// Not called for a request that was answered. Called from any thread, also before [`asked`](Self::asked) of the
    /// same request has returned.
    fn withdrawn(&self, request: ServerRequestId, why: Withdrawn) {
        let _ = (request, why);
    }

    /// The count of what the host has not taken yet, if it wants to hold something of the session's before it has the
    /// session. Asked once for each session; `None`: one of its own, see [`Session::backlog`].
    fn backlog(&self) -> Option<Backlog> {
        None
    }
}

/// A handler that listens to nothing.
impl Handler for () {}

/// How a session is opened.
#[derive(Clone)]
pub struct SessionOptions {
    /// The name of the client, as `initialize` tells it to the server.
    pub client_name: String,
    /// The version of the client.
    pub client_version: String,
    /// When connecting and the handshake must be done; past it the attempt has failed.
    pub connect_deadline: Instant,
    /// Who hears notifications and requests of the server.
    pub handler: Arc<dyn Handler>,
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("client_name", &self.client_name)
            .field("client_version", &self.client_version)
            .field("connect_deadline", &self.connect_deadline)
            .finish_non_exhaustive()
    }
}

/// Takes the params of one `notifications/progress`; called from the transport's reader, must not block.
pub type OnProgress = Box<dyn Fn(Bytes) + Send + Sync>;

/// The limits of one request.
#[derive(Default)]
pub struct RequestOptions {
    /// When the answer must be there, whatever happens meanwhile. `None`: no such limit.
    pub deadline: Option<Instant>,
    /// The longest time without progress of this request; every progress notification begins it anew.
    /// `None`: no such limit. Setting it asks the server for progress.
    pub idle: Option<Duration>,
    /// Asks the server for progress, and takes it.
    pub on_progress: Option<OnProgress>,
}

impl RequestOptions {
    /// Only a deadline.
    pub fn until(deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::default()
        }
    }
}

impl fmt::Debug for RequestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions")
            .field("deadline", &self.deadline)
            .field("idle", &self.idle)
            .field("on_progress", &self.on_progress.is_some())
            .finish()
    }
}

/// An open session. Clones are the same session.
///
/// [`close`](Self::close) ends it in good order. When the last clone and the last request of it are dropped
/// without that, the connection is cut.
#[derive(Clone)]
pub struct Session {
    link: Arc<Link>,
    info: Arc<Info>,
}

/// A session that is not kept open by this handle.
#[derive(Clone)]
pub struct WeakSession {
    link: Weak<Link>,
    info: Arc<Info>,
}

/// What a session and its requests share: the transport, and where that delivers.
struct Link {
    router: Arc<Router>,
    transport: Arc<dyn Transport>,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Most often the transport goes with us. Where somebody else still holds it, it is cut all the same.
        self.end(
            Error::new(ErrorKind::Closed, "the session was dropped"),
            Duration::ZERO,
        );
    }
}

impl Link {
    fn new(transport: Arc<dyn Transport>, handler: Arc<dyn Handler>) -> Arc<Self> {
        let router = Router::new(Arc::downgrade(&transport), handler);
        Arc::new(Self { router, transport })
    }

    /// Ends the session and begins to close the transport. Whoever waits for that closes it once more.
    fn end(&self, error: Error, limit: Duration) {
        self.router
            .end_by(error, || drop(self.transport.close(limit)));
    }

    fn notify(&self, method: &str, params: Option<&[u8]>) -> Result<(), Error> {
        let bytes = jsonrpc::notification(method, params)?;
        if let Some(error) = self.router.ended_with() {
            return Err(error.with_outcome(Outcome::NotSent));
        }
        self.transport.send(Outgoing {
            bytes,
            request: None,
        });
        Ok(())
    }
}

impl Session {
    /// Connects the transport and does the whole handshake: `initialize`, its answer,
    /// `notifications/initialized`.
    ///
    /// On an error the transport has been closed, which may take a second beyond the deadline where a server
    /// refuses to go. Dropping the future cuts the transport.
    ///
    /// # Errors
    /// What the transport says when it cannot connect or ends; `Timeout` past the deadline, naming what was
    /// seen meanwhile; `Protocol` (permanent) when the server answers something that is no MCP, or a revision
    /// that we do not speak; `Server` when it refuses.
    pub async fn open(
        transport: Arc<dyn Transport>,
        options: SessionOptions,
    ) -> Result<Self, Error> {
        let link = Link::new(transport, options.handler.clone());
        match handshake::run(&link, &options).await {
            Ok(info) => Ok(Self {
                link,
                info: Arc::new(info),
            }),
            Err(mut error) => {
                // What the server answered to the handshake may be quoted in it.
                error.message = link.transport.redacted(&error.message);
                link.end(error.clone(), FAILED_CLOSE);
                link.transport.close(FAILED_CLOSE).await;
                // Whatever became of `initialize`: no request of the caller's was sent.
                Err(error.with_outcome(Outcome::NotSent))
            }
        }
    }

    /// Sends a request and gives the future of its raw result.
    ///
    /// The request is sent before this returns; the future only waits. Dropping it before it ends sends
    /// `notifications/cancelled`, as a limit that passes does. `params` is a JSON object.
    ///
    /// # Errors
    /// [`Error::outcome`] says what is known of the request. `Invalid` for params that are no JSON object,
    /// `Server` for an error the server answered, `Timeout`, `Closed`, or what the transport says.
    pub fn request(
        &self,
        method: &str,
        params: Option<Bytes>,
        options: RequestOptions,
    ) -> impl Future<Output = Result<Bytes, Error>> + Send + use<> {
        let request = self.start(method, params.as_deref(), options);
        async move { request?.answer().await }
    }

    /// As [`request`](Self::request), but gives the request itself, which can be cancelled with a word of what is
    /// then known of it.
    ///
    /// # Errors
    /// As there, for a request that cannot even be handed to the transport.
    pub fn start(
        &self,
        method: &str,
        params: Option<&[u8]>,
        options: RequestOptions,
    ) -> Result<Request, Error> {
        Request::begin(self.link.clone(), method, params, options, true)
    }

    /// Sends a notification. It may still be lost with the connection.
    ///
    /// # Errors
    /// `Invalid` for params that are no JSON object; the session's end, if it has ended.
    pub fn notify(&self, method: &str, params: Option<Bytes>) -> Result<(), Error> {
        self.link.notify(method, params.as_deref())
    }

    /// Asks the server for a sign of life. Any answer is one, also an error.
    ///
    /// # Errors
    /// `Timeout` past the deadline; the session's end.
    pub fn ping(
        &self,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let options = RequestOptions {
            deadline,
            ..RequestOptions::default()
        };
        let answer = self.request("ping", None, options);
        async move {
            match answer.await {
                Ok(_) => Ok(()),
                Err(error) if error.outcome == Outcome::Answered => Ok(()),
                Err(error) => Err(error),
            }
        }
    }

    /// Completes once the connection is gone or was closed, with why; at once for who asks later. Holding it
    /// does not keep the session open.
    pub fn ended(&self) -> impl Future<Output = Error> + Send + use<> {
        let router = self.link.router.clone();
        async move { router.ended().await }
    }

    /// Closes the session: new requests are refused and outstanding ones complete as `Closed` before this
    /// returns; the future then waits, at most `limit`, until the connection has been ended in good order or
    /// cut.
    pub fn close(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        let link = self.link.clone();
        link.end(
            Error::new(ErrorKind::Closed, "the session was closed"),
            limit,
        );
        async move { link.transport.close(limit).await }
    }

    /// Whether the server is heard at any time, and not only while it answers a request. Over HTTP that needs a
    /// [stream](crate::http::HttpConfig::with_stream) which is open; without one, silence is no sign of anything.
    pub fn listens(&self) -> bool {
        self.link.transport.listens()
    }

    /// When the server was last heard, or the session began. While the host does not take what came, and so
    /// nothing more is read, it is now: silence is no sign then.
    pub fn heard(&self) -> Instant {
        if self.backlog().is_over() {
            return Instant::now();
        }
        let message = self.link.router.heard();
        let bytes = self.link.transport.heard();
        bytes.map_or(message, |bytes| bytes.max(message))
    }

    /// A handle that does not keep it open.
    pub fn downgrade(&self) -> WeakSession {
        WeakSession {
            link: Arc::downgrade(&self.link),
            info: self.info.clone(),
        }
    }

    /// The process id of the server, where it is a child of ours that has not been reaped.
    pub fn pid(&self) -> Option<u32> {
        self.link.transport.pid()
    }

    /// The revision that was agreed on.
    pub fn revision(&self) -> Revision {
        self.info.revision
    }

    /// The server's `serverInfo`, as raw JSON; `{}` if it sent none.
    pub fn server_info(&self) -> Bytes {
        self.info.server_info.clone()
    }

    /// The server's `capabilities`, as raw JSON; `{}` if it sent none.
    pub fn capabilities(&self) -> Bytes {
        self.info.capabilities.clone()
    }

    /// The server's instructions for the model, if it sent any.
    pub fn instructions(&self) -> Option<&str> {
        self.info.instructions.as_deref()
    }

    /// The count of what of this session nobody has taken yet. While it is over its limit, nothing is read from the
    /// server, so that its silence then means nothing.
    pub fn backlog(&self) -> &Backlog {
        self.link.router.backlog()
    }

    /// What was dropped or refused so far.
    pub fn counters(&self) -> Counters {
        self.link.router.counters()
    }
}

impl WeakSession {
    /// The session, if it is still there; it may have ended all the same.
    pub fn upgrade(&self) -> Option<Session> {
        Some(Session {
            link: self.link.upgrade()?,
            info: self.info.clone(),
        })
    }
}

impl fmt::Debug for WeakSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSession").finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("transport", &self.link.transport)
            .field("revision", &self.info.revision)
            .finish_non_exhaustive()
    }
}
