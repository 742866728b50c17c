//! The client's error: what went wrong, what is known of the call, and what to do.

use std::{fmt, time::Duration};

use bytes::Bytes;
use mcp_budget::{Reason, Unavailable, Why};
use mcp_transport::error::ErrorKind;
pub use mcp_transport::error::Outcome;

/// What kind of thing went wrong, for a program to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument is not what it must be.
    Invalid,
    /// The configuration is not usable.
    Config,
    /// No server of that name is configured in that domain.
    UnknownServer,
    /// The connection could not be made or broke.
    Transport,
    /// The server does not speak MCP as it must.
    Protocol,
    /// The server answered with a JSON-RPC error.
    Server,
    /// A deadline passed.
    Timeout,
    /// The call was cancelled.
    Canceled,
    /// No session is free: every one is busy, or too many calls are in flight.
    Capacity,
    /// The server is not tried now: the next attempt to connect lies beyond the call's deadline, or it did not answer
    /// the last calls.
    Waiting,
    /// The server is parked: its reconnect budget is spent.
    Parked,
    /// The server wants credentials.
    Auth,
    /// The client, the scope or the session was closed.
    Closed,
    /// Somebody else is doing what only one may do at a time.
    Busy,
    /// This side lacks something: descriptors, memory, processes, a network.
    Local,
    /// A fault of this library.
    Internal,
}

/// An error of the client or one of its calls.
///
/// `Debug` shows of [`Error::rpc`] only how long it is: it is the server's word, as it came.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of thing went wrong.
    pub kind: Kind,
    /// What is known of the call.
    pub outcome: Outcome,
    /// One line for a person: what was wrong, with its name, and what to do.
    pub message: String,
    /// The JSON-RPC error object as it came, for [`Kind::Server`].
    pub rpc: Option<Bytes>,
    /// When the server is tried again, for [`Kind::Waiting`] and [`Kind::Parked`].
    pub next_try: Option<Duration>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("outcome", &self.outcome)
            .field("message", &self.message)
            .field("rpc_bytes", &self.rpc.as_ref().map(Bytes::len))
            .field("next_try", &self.next_try)
            .finish()
    }
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            outcome: Outcome::NotSent,
            message: message.into(),
            rpc: None,
            next_try: None,
        }
    }

    pub(crate) fn closed() -> Self {
        Self::new(Kind::Closed, "the client is closed")
    }

    pub(crate) fn busy() -> Self {
        Self::new(
            Kind::Busy,
            "another thread takes this client's events; one may at a time",
        )
    }

    /// An error of the transport, said of the server it happened with.
    pub(super) fn of_server(server: &str, error: &mcp_transport::error::Error) -> Self {
        Self {
            kind: match error.kind {
                ErrorKind::Invalid => Kind::Invalid,
                ErrorKind::Config => Kind::Config,
                ErrorKind::Protocol => Kind::Protocol,
                ErrorKind::Server => Kind::Server,
                ErrorKind::Timeout => Kind::Timeout,
                ErrorKind::Canceled => Kind::Canceled,
                ErrorKind::Auth => Kind::Auth,
                ErrorKind::Closed => Kind::Closed,
                ErrorKind::Local => Kind::Local,
                ErrorKind::Internal => Kind::Internal,
                ErrorKind::Transport | ErrorKind::Expired => Kind::Transport,
                // The enum may grow; what is new is at least a broken connection.
                _ => Kind::Transport,
            },
            outcome: error.outcome,
            message: format!("server \"{server}\": {}", error.message),
            rpc: error.rpc.as_ref().map(|rpc| rpc.raw.clone()),
            next_try: error.retry_after,
        }
    }

    /// Why there is no session of this server, said by its supervisor.
    pub(super) fn unavailable(server: &str, why: &Unavailable) -> Self {
        let kind = match why.why {
            Why::Failed => why
                .error
                .as_deref()
                .and_then(|error| error.downcast_ref::<mcp_transport::error::Error>())
                .map_or(Kind::Transport, |error| Self::of_server(server, error).kind),
            Why::Waiting => Kind::Waiting,
            Why::Deadline => Kind::Timeout,
            Why::Parked if why.reason == Reason::Auth => Kind::Auth,
            Why::Parked => Kind::Parked,
            Why::Closed => Kind::Closed,
            Why::Stopped if why.reason == Reason::Shutdown => Kind::Closed,
            Why::Stopped => Kind::Internal,
        };
        Self {
            next_try: why.next_try,
            ..Self::new(kind, format!("server \"{server}\": {why}"))
        }
    }

    pub(super) fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }
}
