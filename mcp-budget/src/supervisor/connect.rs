//! What a supervisor is given to supervise.

use std::{error::Error, fmt, future::Future, sync::Arc};

use tokio::time::Instant;

use crate::{
    action::Attempt,
    keepalive::Pulse,
    loss::{Cause, Loss},
};

/// Opens the sessions of one binding.
pub trait Connect: Send + Sync + 'static {
    /// What it opens.
    type Session: Session;

    /// Makes one attempt, whole: what it returns can be used. Dropped, the attempt is given up and leaves nothing
    /// behind. The supervisor sets no deadline: the attempt bounds itself, and may take longer the higher
    /// [`Attempt::number`] is.
    fn connect(
        &self,
        attempt: Attempt,
    ) -> impl Future<Output = Result<Self::Session, Failure>> + Send;
}

/// One open session; clones are cheap, and the same session.
pub trait Session: Clone + Send + Sync + 'static {
    /// Completes when the session is gone, with why.
    fn ended(&self) -> impl Future<Output = Failure> + Send;

    /// Asks the server for any answer; an error is one too. Dropped at [`Policy::probe_deadline`](crate::Policy).
    fn probe(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Asks the server something of another kind, for one that leaves pings unanswered; used only to keep a silent
    /// session alive.
    fn probe_other(&self) -> impl Future<Output = Result<(), Failure>> + Send {
        self.probe()
    }

    /// What is known of its silence, if it can be kept alive; see [`Keepalive`](crate::Keepalive). `None`, as for an
    /// HTTP session without a standing stream: silence is no sign of anything.
    fn pulse(&self) -> Option<Pulse<Instant>> {
        None
    }

    /// Closes it; called once for each session that was opened, also for one that ended by itself. Bounded by itself,
    /// and dropped by the supervisor at its own limit.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Why an attempt failed or a session ended: what it means for the budget, and the error for people.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What it means for the binding.
    pub loss: Loss,
    /// What went wrong.
    pub error: Arc<dyn Error + Send + Sync>,
}

impl Failure {
    /// A failure with this loss and error.
    pub fn new(loss: impl Into<Loss>, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            loss: loss.into(),
            error: Arc::from(error.into()),
        }
    }

    /// One failure of two that came together: the loss of both, the error of the graver.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let loss = self.loss.and(other.loss);
        let error = if other.loss.cause < self.loss.cause {
            other.error
        } else {
            self.error
        };
        Self { loss, error }
    }

    /// A session that should be kept alive gave no sign of life.
    pub(super) fn silent() -> Self {
        Self::new(Cause::Transient, "the server fell silent")
    }

    /// A session did not answer its probe.
    pub(super) fn unanswered() -> Self {
        Self::new(Cause::Transient, "the session did not answer a probe")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.error, self.loss.cause)
    }
}
