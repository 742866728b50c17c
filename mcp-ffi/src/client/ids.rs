//! The ids of a client: of its calls, and of what servers ask of the host.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// One count for all, so that no id ever stands for two things. Clones are the same count.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids(Arc<AtomicU64>);

impl Ids {
    /// One that was never given before; never 0.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
