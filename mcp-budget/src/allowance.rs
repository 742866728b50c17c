//! How many attempts nobody waits for may be made.

use core::time::Duration;

use crate::{policy::Policy, time::Timestamp};

/// A leaky bucket, kept as the time at which it would be full again.
///
/// Backoff alone does not bound attempts over an hour: whoever dies a few times and then lives just long enough to be
/// called stable begins the doubling anew. From any moment on there are at most a burst and one per interval.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowance {
    full_at: Timestamp,
}

impl Allowance {
    /// The earliest time at which another attempt is allowed.
    pub(crate) fn earliest(&self, policy: &Policy) -> Timestamp {
        let spare = policy
            .unattended_interval()
            .saturating_mul(policy.unattended_burst() - 1);
        self.full_at.minus(spare)
    }

    /// How long it takes until all of it is there again.
    pub(crate) fn until_full(&self, now: Timestamp) -> Duration {
        self.full_at.since(now)
    }

    /// One that is full after so long, which is at most as long as it can be.
    pub(crate) fn restored(now: Timestamp, until_full: Duration, policy: &Policy) -> Self {
        let most = policy
            .unattended_interval()
            .saturating_mul(policy.unattended_burst());
        Self {
            full_at: now.plus(until_full.min(most)),
        }
    }

    /// An attempt is made.
    pub(crate) fn take(&mut self, now: Timestamp, policy: &Policy) {
        let interval: Duration = policy.unattended_interval();
        self.full_at = self.full_at.max(now).plus(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_out_and_then_one_per_interval() {
        let policy = Policy::default();
        let mut allowance = Allowance::default();
        let mut now = Timestamp::ZERO;
        let mut starts = Vec::new();
        while now < Timestamp::ZERO.plus(Duration::from_secs(3600)) {
            starts.push(now);
            allowance.take(now, &policy);
            now = now.max(allowance.earliest(&policy));
        }
        assert_eq!(starts.len(), 10 + 14);
        assert_eq!(
            starts.iter().filter(|at| **at == Timestamp::ZERO).count(),
            10
        );
    }
}
