//! The constants of a binding.

use core::time::Duration;

use crate::jitter::Spread;

/// How patient a binding is. Every constant may be set; the defaults are what a host that does not care wants.
///
/// ```
/// use core::time::Duration;
/// use mcp_budget::Policy;
///
/// let policy = Policy { max_retries: 3, floor: Duration::from_millis(200), ..Policy::default() };
/// assert_eq!(policy.park_probe, Duration::from_secs(300));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Charges that a binding may bear; one more parks it. With 0 nothing is reconnected after a loss, proven or not,
    /// and no probe is made: only a wake tries again. Default 5.
    pub max_retries: u32,
    /// The same for a binding that was never connected. Default 3.
    pub max_initial_retries: u32,
    /// How many scoped sessions of a binding that was never proven may be unproven at a time, those that are being
    /// opened counted. With 0 none is opened before the home session is proven. Default 4.
    pub max_unproven: u32,
    /// The first delay after a failure. Default 1 s.
    pub backoff: Duration,
    /// To what failures that are charged double the delay. Default 60 s.
    pub backoff_max: Duration,
    /// To what failures that can never park double the delay of reconnects that nobody waits for: sessions that were
    /// proven and died young, and faults of this side. Default 300 s.
    pub backoff_max_proven: Duration,
    /// By how much of itself, in percent, each delay is moved up or down. Default 20.
    pub jitter_percent: u8,
    /// The least distance between the starts of two attempts, whatever asked for them. Only scoped openings of a
    /// binding that was proven and has no failure standing are free of it. Default 1 s.
    pub floor: Duration,
    /// Age at which an unproven home session is probed; an answer proves it. Default 180 s.
    pub healthy_after: Duration,
    /// How long a probe may stay unanswered before the session is taken as lost. Default 20 s.
    pub probe_deadline: Duration,
    /// Life of a proven session that clears the backoff of reconnects nobody waits for. Default 10 min.
    pub stable_after: Duration,
    /// From parking to the first probe. Default 300 s.
    pub park_probe: Duration,
    /// To what failed probes double that. Default 1 h.
    pub park_probe_max: Duration,
    /// Between the probes of a binding that needs credentials and was once proven. Default 1 h.
    pub auth_probe: Duration,
    /// What is believed at most of a server's wish not to be tried before a time. Default 1 h.
    pub not_before_max: Duration,
    /// Silence of the server after which a session that can be kept alive is pinged; `None`: never. Default 60 s.
    pub keepalive: Option<Duration>,
    /// Over how long the checks of a fleet are spread after the machine slept. Default 10 s.
    pub check_spread: Duration,
    /// Calls that may fail in a row before the [`Breaker`](crate::Breaker) opens; 0 turns it off. Default 3.
    pub breaker_failures: u32,
    /// For how long it opens. Default 60 s.
    pub breaker_open: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 5,
            max_initial_retries: 3,
            max_unproven: 4,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            backoff_max_proven: Duration::from_secs(300),
            jitter_percent: 20,
            floor: Duration::from_secs(1),
            healthy_after: Duration::from_secs(180),
            probe_deadline: Duration::from_secs(20),
            stable_after: Duration::from_secs(600),
            park_probe: Duration::from_secs(300),
            park_probe_max: Duration::from_secs(3600),
            auth_probe: Duration::from_secs(3600),
            not_before_max: Duration::from_secs(3600),
            keepalive: Some(Duration::from_secs(60)),
            check_spread: Duration::from_secs(10),
            breaker_failures: 3,
            breaker_open: Duration::from_secs(60),
        }
    }
}

impl Policy {
    /// The delay after so many failures in a row.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let doubled = 1u32 << failures.saturating_sub(1).min(31);
        self.backoff.saturating_mul(doubled).min(self.backoff_max)
    }

    /// What follows `delay` in the backoff of reconnects that nobody waits for.
    pub(crate) fn grown(&self, delay: Duration, cap: Duration) -> Duration {
        if delay >= cap {
            delay
        } else {
            delay.saturating_mul(2).max(self.backoff).min(cap)
        }
    }

    pub(crate) fn jittered(&self, delay: Duration, spread: Spread) -> Duration {
        spread.around(delay, self.jitter_percent)
    }

    /// How many attempts in a row nobody need wait for: one, and all doublings from the first delay to the last, or
    /// all retries of the budget if those are more.
    pub(crate) fn unattended_burst(&self) -> u32 {
        let mut doublings = 0;
        let mut delay = self.backoff;
        while delay < self.backoff_max_proven && doublings < 64 && !delay.is_zero() {
            delay = delay.saturating_mul(2);
            doublings += 1;
        }
        self.max_retries.max(doublings).saturating_add(1)
    }

    /// The least mean distance of attempts that nobody waits for: the last delay with the jitter that shortens it most.
    pub(crate) fn unattended_interval(&self) -> Duration {
        let kept = u32::from(100u8.saturating_sub(self.jitter_percent));
        (self.backoff_max_proven / 100).saturating_mul(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_to_its_cap_and_stays_there() {
        let policy = Policy::default();
        let seconds: Vec<_> = (0..10).map(|n| policy.delay(n).as_secs()).collect();
        assert_eq!(seconds, [1, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(policy.delay(u32::MAX), policy.backoff_max);
    }

    #[test]
    fn the_default_lets_out_25_unattended_attempts_an_hour() {
        let policy = Policy::default();
        assert_eq!(policy.unattended_burst(), 10);
        assert_eq!(policy.unattended_interval(), Duration::from_secs(240));
    }
}
