//! What went wrong, and what is known of the call it went wrong for.

use std::{fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;

pub use crate::challenge::{AuthScheme, Challenge};
use crate::text::with_remedy;

/// What is known of a call that ended.
///
/// Only [`Outcome::NotSent`] and [`Outcome::Rejected`] are safe to send again:
/// the server certainly did not run the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The last byte of the request was never written: the server cannot have run it.
    NotSent,
    /// The server refused the request before running it.
    Rejected,
    /// The server answered, with a result or with an error.
    Answered,
    /// The request was written and no answer came: it may have run.
    Unknown,
}

/// What kind of thing went wrong, for a program to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is not what it must be: the caller's mistake.
    Invalid,
    /// The configuration of a server is not usable: bad URL, command not found, directory missing.
    Config,
    /// The connection could not be made or broke.
    Transport,
    /// The peer does not speak MCP, or not a revision that we speak.
    Protocol,
    /// The server answered with a JSON-RPC error; [`Error::rpc`] has it.
    Server,
    /// A deadline passed.
    Timeout,
    /// The caller cancelled.
    Canceled,
    /// The server wants credentials (HTTP 401, or 403 with a challenge).
    Auth,
    /// The server no longer knows the session (HTTP 404 with a session id, and its look-alikes).
    Expired,
    /// The session was closed by its owner.
    Closed,
    /// This side lacks something: descriptors, memory, processes, a network.
    Local,
    /// A fault of this library.
    Internal,
}

/// How grave the loss of a connection is, gravest first; see the `mcp-budget` crate for what each leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A panic or the owner's own shutdown: never reconnect.
    Fatal,
    /// Credentials are needed.
    Auth,
    /// Trying again cannot help: command missing, bad URL, not an MCP server.
    Permanent,
    /// It broke; trying again may help.
    Transient,
    /// The fault is on our side: descriptors, memory, no network.
    Local,
    /// A normal end after a proven life: idle close, expiry.
    Routine,
}

/// An error of a session or one of its requests.
///
/// `Display` is one line that names what was wrong and, where there is one, the remedy. It never contains
/// headers, environment values, URL user info or queries, or bodies that may hold secrets.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of thing went wrong.
    pub kind: ErrorKind,
    /// What is known of the request; `NotSent` for an error of no request.
    pub outcome: Outcome,
    /// What it means for the connection, if it is lost by it.
    pub cause: Cause,
    /// The earliest the server wants to be tried again (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// The JSON-RPC error as it came, for [`ErrorKind::Server`].
    pub rpc: Option<RpcError>,
    /// What the server asked for, for [`ErrorKind::Auth`]: its challenge, if it sent one.
    pub challenge: Option<Arc<Challenge>>,
    /// The text.
    pub message: String,
}

/// A JSON-RPC error object.
///
/// `Debug` shows the code only: the rest is the server's word, as it came.
#[derive(Clone)]
pub struct RpcError {
    /// The error code.
    pub code: i64,
    /// The whole error object as JSON, the bytes that came.
    pub raw: Bytes,
}

impl fmt::Debug for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcError")
            .field("code", &self.code)
            .field("bytes", &self.raw.len())
            .finish()
    }
}

impl Error {
    /// An error of no request, with the cause that is usual for its kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let cause = match kind {
            ErrorKind::Invalid | ErrorKind::Config | ErrorKind::Protocol => Cause::Permanent,
            ErrorKind::Auth => Cause::Auth,
            ErrorKind::Expired => Cause::Routine,
            ErrorKind::Canceled | ErrorKind::Closed | ErrorKind::Internal => Cause::Fatal,
            ErrorKind::Local => Cause::Local,
            ErrorKind::Transport | ErrorKind::Server | ErrorKind::Timeout => Cause::Transient,
        };
        Self {
            kind,
            outcome: Outcome::NotSent,
            cause,
            retry_after: None,
            rpc: None,
            challenge: None,
            message: message.into(),
        }
    }

    /// This side could not do it, for want of something of the system's.
    pub(crate) fn local(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(ErrorKind::Local, format!("{what}: {}", with_remedy(error)))
    }

    /// The same error with another outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// The same error with another cause.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }
}
