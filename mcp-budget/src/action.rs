//! What a budget answers.

#[cfg(doc)]
use crate::budget::Budget;
use crate::time::Timestamp;

/// One attempt to open a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// What the session will be called in every event. Unique within the budget, home and scoped sessions together.
    pub generation: u64,
    /// Its number since the last proof, from 1. What is above 1 is a retry; attempts of one round share a number.
    pub number: u32,
}

/// What the caller is to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open the home session and say [`Budget::opened`] or [`Budget::lost`].
    Connect(Attempt),
    /// Ask the home session for any answer, and say [`Budget::proven`] or [`Budget::lost`].
    Probe {
        /// The session's generation.
        generation: u64,
    },
}

/// What a call for the home session meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// The session is there.
    Open {
        /// Its generation.
        generation: u64,
    },
    /// It is being opened.
    Connecting,
    /// It will be opened then, if the call waits; `None`: after another opening has had its outcome.
    Waiting(Option<Timestamp>),
    /// It will not be opened before then, unless it is woken; `None`: not before it is woken.
    Parked(Option<Timestamp>),
    /// It is never opened again.
    Stopped,
}

/// Why a scoped session may not be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not before then; `None`: not before another opening has had its outcome.
    Wait(Option<Timestamp>),
    /// Not before then, unless the binding is woken; `None`: not before it is woken.
    Parked(Option<Timestamp>),
    /// Never again.
    Stopped,
}
