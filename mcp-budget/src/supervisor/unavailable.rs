//! Why a session cannot be had.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::transition::Reason;

/// Why there is no session for a call, which was not sent. `Display` names the reason, the next try and the last
/// error in one line.
#[derive(Debug, Clone)]
pub struct Unavailable {
    /// What the call met.
    pub why: Why,
    /// What brought the binding to its state.
    pub reason: Reason,
    /// How long from now the next try is, if one is planned.
    pub next_try: Option<Duration>,
    /// The last error of an attempt or session of the binding.
    pub error: Option<Arc<dyn Error + Send + Sync>>,
}

/// What a call met that gets no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The attempt that it waited for failed.
    Failed,
    /// The next try lies beyond the call's deadline.
    Waiting,
    /// The call's deadline passed while it waited.
    Deadline,
    /// The binding is parked.
    Parked,
    /// The owner let the home session go while the call waited for it.
    Closed,
    /// The binding is stopped, for good.
    Stopped,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Failed => f.write_str("it cannot be connected to")?,
            Why::Waiting => write!(f, "waiting to reconnect ({})", self.reason)?,
            Why::Deadline => f.write_str("not connected within the deadline")?,
            Why::Parked => write!(f, "parked ({})", self.reason)?,
            Why::Closed => f.write_str("its session was closed while the call waited for it")?,
            Why::Stopped => write!(f, "stopped ({})", self.reason)?,
        }
        match self.next_try {
            Some(wait) => write!(
                f,
                ", next try in {:.1} s or when it is woken",
                wait.as_secs_f64()
            )?,
            None if self.why == Why::Parked => f.write_str(", no try before it is woken")?,
            None => {}
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

impl Error for Unavailable {}
