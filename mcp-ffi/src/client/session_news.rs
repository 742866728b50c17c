//! What a host hears of scoped sessions.

use mcp_pool::Why;

/// Something happened to a scoped session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNews {
    /// Names this very session, and is never used again: for [`Client::close_session`](crate::Client::close_session).
    pub session_id: u64,
    /// Counts the sessions of its server.
    pub generation: u64,
    /// What happened.
    pub change: SessionChange,
    /// One line for a person.
    pub text: String,
}

/// What happened to a scoped session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionChange {
    /// It opened.
    Opened,
    /// No call begins on it any more; it is closed when the last one ended.
    Draining(CloseReason),
    /// It broke, expired or fell silent. The scope's next call has another opened.
    Lost,
    /// It left the pool, and closes.
    Closed(CloseReason),
}

/// Why a scoped session that was not lost had to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// It was idle, and its slot was needed.
    Displaced,
    /// It was idle for too long.
    Idle,
    /// It had lived for long enough.
    Lifetime,
    /// The host closed or drained it, or closed the client.
    Host,
    /// The configuration of its server changed or went.
    Reconfigured,
    /// None of these.
    Other,
}

impl From<Why> for CloseReason {
    fn from(why: Why) -> Self {
        match why {
            Why::Displaced => Self::Displaced,
            Why::IdleTooLong => Self::Idle,
            Why::LifetimeOver => Self::Lifetime,
            Why::Closed | Why::Drained => Self::Host,
            Why::Rebound => Self::Reconfigured,
            _ => Self::Other,
        }
    }
}

impl SessionChange {
    pub(super) fn of_retired(why: Why) -> Self {
        match why {
            Why::Dead => Self::Lost,
            _ => Self::Closed(why.into()),
        }
    }

    /// In words, after the session's name.
    pub(super) fn words(self) -> String {
        let because = |reason| match reason {
            CloseReason::Displaced => ": it was idle, and its slot was needed",
            CloseReason::Idle => ": it was idle for too long",
            CloseReason::Lifetime => ": it lived for long enough",
            CloseReason::Host => " by the host",
            CloseReason::Reconfigured => ": the configuration of its server changed",
            CloseReason::Other => "",
        };
        match self {
            Self::Opened => "opened".into(),
            Self::Draining(reason) => format!("is drained{}", because(reason)),
            Self::Lost => "was lost".into(),
            Self::Closed(reason) => format!("was closed{}", because(reason)),
        }
    }
}
