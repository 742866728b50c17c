//! Leave to open a scoped session, and what is told of the session.

use std::{fmt, sync::Arc};

use super::{Connect, Failure, Shared, gate::GatePass};
use crate::action::Attempt;

/// Leave for one scoped opening, given by [`Supervisor::leave`](super::Supervisor::leave). Dropped without a word it
/// means that the opening was given up, which costs nothing.
#[must_use = "dropping it gives the opening up"]
pub struct Leave<C: Connect> {
    attempt: Attempt,
    ledger: Option<Arc<Shared<C>>>,
    /// Counts as in flight at the gate for as long as it is held.
    _pass: Option<GatePass>,
}

/// An attempt that may begin, with the place at the gate that it holds.
pub(super) type Granted = (Attempt, Option<GatePass>);

impl<C: Connect> Leave<C> {
    pub(super) fn new((attempt, pass): Granted, ledger: Arc<Shared<C>>) -> Self {
        Self {
            attempt,
            ledger: Some(ledger),
            _pass: pass,
        }
    }

    /// The generation that the session bears.
    pub fn generation(&self) -> u64 {
        self.attempt.generation
    }

    /// The attempt: the generation, and its number among the attempts since the last proof.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The session is open. Keep what this gives for as long as the session lives.
    pub fn opened(mut self) -> Scoped {
        let ledger: Option<Arc<dyn Ledger>> = match self.ledger.take() {
            Some(ledger) => {
                ledger.opened(self.attempt.generation);
                Some(ledger)
            }
            None => None,
        };
        Scoped {
            generation: self.attempt.generation,
            ledger,
        }
    }

    /// The opening failed. One that the owner gave up is dropped instead: [`Cause::Fatal`](crate::Cause::Fatal) here
    /// would stop the whole binding.
    pub fn failed(mut self, failure: Failure) {
        if let Some(ledger) = self.ledger.take() {
            ledger.lost(self.attempt.generation, failure);
        }
    }
}

impl<C: Connect> Drop for Leave<C> {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.take() {
            ledger.closed(self.attempt.generation);
        }
    }
}

impl<C: Connect> fmt::Debug for Leave<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leave")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// One open scoped session, as the budget knows it. Dropping it says that the owner closed the session, which costs
/// nothing.
#[must_use = "dropping it says that the session was closed"]
pub struct Scoped {
    generation: u64,
    ledger: Option<Arc<dyn Ledger>>,
}

impl Scoped {
    /// The session's generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The session answered a request of the host's, also with an error; or it lived
    /// [`Policy::healthy_after`](crate::Policy::healthy_after) and answered a probe, which its owner makes. Every
    /// answer may be told; the first counts.
    pub fn proven(&self) {
        if let Some(ledger) = &self.ledger {
            ledger.proven(self.generation);
        }
    }

    /// The session is gone, and not by its owner's closing. Every loss may be told; the first counts.
    pub fn lost(&self, failure: Failure) {
        if let Some(ledger) = &self.ledger {
            ledger.lost(self.generation, failure);
        }
    }
}

impl Drop for Scoped {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.take() {
            ledger.closed(self.generation);
        }
    }
}

impl fmt::Debug for Scoped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// Where scoped sessions are told of, whatever connects them.
pub(super) trait Ledger: Send + Sync {
    fn opened(&self, generation: u64);
    fn proven(&self, generation: u64);
    fn lost(&self, generation: u64, failure: Failure);
    fn closed(&self, generation: u64);
}
