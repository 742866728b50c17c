//! What was counted of a binding.

use crate::loss::Cause;

/// What happened to a binding since its budget was made, home and scoped sessions together. Counted, never reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Attempts that began.
    pub attempts: u64,
    /// Attempts that led to an open session.
    pub opened: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts and sessions that the owner gave up or closed.
    pub closed: u64,
    /// Open sessions that were lost.
    pub lost: u64,
    /// What both failed and lost ones were put down to, by [`Cause`] in its order.
    pub causes: [u64; 6],
    /// Sessions that gave proof.
    pub proofs: u64,
    /// Charges taken from the budget.
    pub charges: u64,
    /// How often the binding was parked, from not being so.
    pub parks: u64,
    /// How often the host's word to try now was news.
    pub wakes: u64,
}

impl Counters {
    /// Failed attempts and lost sessions with this cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.causes[cause as usize]
    }
}
