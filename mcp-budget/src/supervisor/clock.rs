//! The runtime's clock as the budget counts it.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::Timestamp;

/// Counts from the moment it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    epoch: Instant,
}

/// Longer than any timer of the runtime can run, and short enough to be added to any instant.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            epoch: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    pub(super) fn at(&self, instant: Instant) -> Timestamp {
        Timestamp::ZERO.plus(instant.saturating_duration_since(self.epoch))
    }

    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        let ahead = at.since(self.now()).min(FAR);
        self.epoch
            .checked_add(at.since(Timestamp::ZERO))
            .unwrap_or_else(|| Instant::now() + ahead)
    }
}
