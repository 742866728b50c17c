//! Where a binding stands, and how it came there.

use core::fmt;

use crate::time::Timestamp;

/// What a binding is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum State {
    /// No home session, and none wanted.
    Idle,
    /// The home session is being opened.
    Connecting,
    /// The home session is open and has proved nothing yet.
    Unproven,
    /// The home session is open and proven.
    Proven,
    /// The next attempt waits for its time.
    Waiting,
    /// The budget is spent: only a wake or a slow probe tries again. Sessions that are open go on serving.
    Parked,
    /// It is over, for good.
    Stopped,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Unproven => "unproven",
            Self::Proven => "proven",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::Stopped => "stopped",
        })
    }
}

/// What brought a binding to its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Reason {
    /// Nothing has happened yet.
    Fresh,
    /// Somebody wants the home session.
    Wanted,
    /// The delay after a failure is over.
    Retry,
    /// It is time for a parked binding's probe.
    Probe,
    /// The host said to try now.
    Woken,
    /// The session is open.
    Opened,
    /// The session gave proof.
    Answered,
    /// The attempt failed.
    Failed,
    /// The session was lost.
    Lost,
    /// This side lacks something: descriptors, memory, processes, a network.
    Local,
    /// The session ended as sessions do: idle close or expiry.
    Ended,
    /// More failures without proof than the budget allows.
    Spent,
    /// Never connected, in as many attempts as are allowed for that.
    NeverConnected,
    /// Trying again cannot help.
    Permanent,
    /// Credentials are needed.
    Auth,
    /// Lost, and the policy allows no reconnect at all.
    NoRetries,
    /// A panic, or the owner's own cancellation.
    Fatal,
    /// The owner shut it down.
    Shutdown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "no home session was wanted yet",
            Self::Wanted => "wanted",
            Self::Retry => "retry",
            Self::Probe => "probe",
            Self::Woken => "woken",
            Self::Opened => "opened",
            Self::Answered => "it answered",
            Self::Failed => "the attempt failed",
            Self::Lost => "the session was lost",
            Self::Local => "this side lacks resources or a network",
            Self::Ended => "the session ended",
            Self::Spent => "the reconnect budget is spent",
            Self::NeverConnected => "it never connected",
            Self::Permanent => "trying again is unlikely to help",
            Self::Auth => "credentials are needed",
            Self::NoRetries => "lost, and reconnecting is off",
            Self::Fatal => "fatal",
            Self::Shutdown => "shut down",
        })
    }
}

/// Where a binding stands after something happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The state.
    pub state: State,
    /// What brought it there.
    pub reason: Reason,
    /// Attempts since the last proof, the present one counted; attempts that failed together count as one.
    pub attempt: u32,
    /// Charges taken from the budget.
    pub charges: u32,
    /// The home session's generation, or that of the last one; 0 if there was none.
    pub generation: u64,
    /// When the next attempt may begin, for `Waiting` and `Parked`; it may have passed where nobody wants one. `None`
    /// where it needs a word from outside: a wake, or the outcome of another opening.
    pub next_try: Option<Timestamp>,
}
