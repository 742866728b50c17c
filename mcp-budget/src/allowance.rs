//! How many attempts nobody waits for may be made.

use core::time::Duration;

use crate::{policy::Policy, time::Timestamp};

/// A leaky bucket, kept as the time at which it would be full again.
///
/// Backoff alone does not bound attempts over an hour: whoever dies a few times and then lives just long enough to be
/// called stable begins the doubling anew. From any moment on there are at most a burst and one per interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    full_at: Timestamp,
    /// Of the policy; kept, for it is asked for all the time.
    interval: Duration,
    /// All of a burst but one.
    spare: Duration,
}

impl Allowance {
    /// All of it.
    pub(crate) fn new(policy: &Policy) -> Self {
        let interval = policy.unattended_interval();
        Self {
            full_at: Timestamp::ZERO,
            interval,
            spare: interval.saturating_mul(policy.unattended_burst() - 1),
        }
    }

    /// The same under another policy.
    pub(crate) fn under(self, policy: &Policy) -> Self {
        Self {
            full_at: self.full_at,
            ..Self::new(policy)
        }
    }

    /// The earliest time at which another attempt is allowed.
    pub(crate) fn earliest(&self) -> Timestamp {
        self.full_at.minus(self.spare)
    }

    /// How long it takes until all of it is there again.
    pub(crate) fn until_full(&self, now: Timestamp) -> Duration {
        self.full_at.since(now)
    }

    /// One that is full after so long, which is at most as long as it can be.
    pub(crate) fn restored(now: Timestamp, until_full: Duration, policy: &Policy) -> Self {
        let new = Self::new(policy);
        let most = new.spare.saturating_add(new.interval);
        Self {
            full_at: now.plus(until_full.min(most)),
            ..new
        }
    }

    /// An attempt is made.
    pub(crate) fn take(&mut self, now: Timestamp) {
        self.full_at = self.full_at.max(now).plus(self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_out_and_then_one_per_interval() {
        let policy = Policy::default();
        let mut allowance = Allowance::new(&policy);
        let mut now = Timestamp::ZERO;
        let mut starts = Vec::new();
        while now < Timestamp::ZERO.plus(Duration::from_secs(3600)) {
            starts.push(now);
            allowance.take(now);
            now = now.max(allowance.earliest());
        }
        assert_eq!(starts.len(), 10 + 14);
        assert_eq!(
            starts.iter().filter(|at| **at == Timestamp::ZERO).count(),
            10
        );
    }
}
