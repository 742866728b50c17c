//! The numbers of the C face.

use crate::client::{Kind, Outcome};

/// What every function that can fail returns: 0 and above is good, below 0 is bad. The values are those of
/// mcpconn_status_code; values may be added, and none is ever used again for something else.
pub type mcpconn_status = i32;

/// The values of a mcpconn_status.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_status_code {
    /// Good.
    MCPCONN_OK = 0,
    /// Good, but there is nothing there (any more).
    MCPCONN_EMPTY = 1,
    /// An argument is not what it must be; the text, where there is an err, says which.
    MCPCONN_ERR_INVALID = -1,
    /// The configuration is not usable: bad JSON, command not found, directory missing, bad URL.
    MCPCONN_ERR_CONFIG = -2,
    /// No server of that name is configured in that domain.
    MCPCONN_ERR_UNKNOWN_SERVER = -3,
    /// The connection could not be made or broke.
    MCPCONN_ERR_TRANSPORT = -4,
    /// The server does not speak MCP as it must, or no revision that this library speaks.
    MCPCONN_ERR_PROTOCOL = -5,
    /// The server answered with a JSON-RPC error; mcpconn_error_json() has it.
    MCPCONN_ERR_SERVER = -6,
    /// A deadline passed.
    MCPCONN_ERR_TIMEOUT = -7,
    /// The call was cancelled.
    MCPCONN_ERR_CANCELED = -8,
    /// Every session is busy and the pool is full, too many calls are in flight, or a link takes nothing for now.
    MCPCONN_ERR_CAPACITY = -9,
    /// The server's reconnect budget is spent; mcpconn_client_wake() tries again.
    MCPCONN_ERR_PARKED = -10,
    /// The server wants credentials.
    MCPCONN_ERR_AUTH = -11,
    /// The client, the session, the link or the pool is closed.
    MCPCONN_ERR_CLOSED = -12,
    /// Another thread is taking this client's events; one may at a time.
    MCPCONN_ERR_BUSY = -13,
    /// This side lacks something: descriptors, memory, processes, a network.
    MCPCONN_ERR_LOCAL = -14,
    /// The handle was made before a fork, and this is the child.
    MCPCONN_ERR_FORKED = -15,
    /// A fault of this library. Of an event: that call alone. Returned by a function: the handle only takes its _free
    /// any more.
    MCPCONN_ERR_INTERNAL = -16,
    /// The server is not tried now: the next attempt to connect lies beyond the call's deadline, or it did not answer
    /// the last calls and gets a minute's rest. mcpconn_error_next_try_in_ms() says when to come again.
    MCPCONN_ERR_WAITING = -17,
}

pub(crate) use mcpconn_status_code as Code;

impl Code {
    /// Whether there was something to do or to have.
    pub(crate) fn ok_or_empty(there: bool) -> Self {
        if there {
            Self::MCPCONN_OK
        } else {
            Self::MCPCONN_EMPTY
        }
    }
}

impl From<Kind> for Code {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Invalid => Self::MCPCONN_ERR_INVALID,
            Kind::Config => Self::MCPCONN_ERR_CONFIG,
            Kind::UnknownServer => Self::MCPCONN_ERR_UNKNOWN_SERVER,
            Kind::Transport => Self::MCPCONN_ERR_TRANSPORT,
            Kind::Protocol => Self::MCPCONN_ERR_PROTOCOL,
            Kind::Server => Self::MCPCONN_ERR_SERVER,
            Kind::Timeout => Self::MCPCONN_ERR_TIMEOUT,
            Kind::Canceled => Self::MCPCONN_ERR_CANCELED,
            Kind::Capacity => Self::MCPCONN_ERR_CAPACITY,
            Kind::Waiting => Self::MCPCONN_ERR_WAITING,
            Kind::Parked => Self::MCPCONN_ERR_PARKED,
            Kind::Auth => Self::MCPCONN_ERR_AUTH,
            Kind::Closed => Self::MCPCONN_ERR_CLOSED,
            Kind::Busy => Self::MCPCONN_ERR_BUSY,
            Kind::Local => Self::MCPCONN_ERR_LOCAL,
            Kind::Internal => Self::MCPCONN_ERR_INTERNAL,
        }
    }
}

/// What is known of a call that ended with an error. The first two are safe to send again.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_outcome {
    /// The call never left: the server cannot have run it.
    MCPCONN_OUTCOME_NOT_SENT = 1,
    /// The server refused it before running it.
    MCPCONN_OUTCOME_REJECTED = 2,
    /// The server answered.
    MCPCONN_OUTCOME_ANSWERED = 3,
    /// It was sent and no answer came: it may have run.
    MCPCONN_OUTCOME_UNKNOWN = 4,
}

impl From<Outcome> for mcpconn_outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::NotSent => Self::MCPCONN_OUTCOME_NOT_SENT,
            Outcome::Rejected => Self::MCPCONN_OUTCOME_REJECTED,
            Outcome::Answered => Self::MCPCONN_OUTCOME_ANSWERED,
            Outcome::Unknown => Self::MCPCONN_OUTCOME_UNKNOWN,
        }
    }
}
