//! A budget that is spent.

use core::time::Duration;

use crate::{
    jitter::Spread, policy::Policy, snapshot::ParkedSnapshot, time::Timestamp, transition::Reason,
};

/// Why a binding is parked, and when it is tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Park {
    pub(crate) why: Reason,
    /// From a failed probe to the next; `None`: no probe is made.
    interval: Option<Duration>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is opened before the probe.
    Barred { probe_at: Option<Timestamp> },
    /// The host said to try now.
    Woken { since: Timestamp },
    /// A probe is out: it is being opened, or open and unproven.
    Reviving,
}

impl Park {
    pub(crate) fn new(
        now: Timestamp,
        why: Reason,
        policy: &Policy,
        ever_proven: bool,
        spread: Spread,
    ) -> Self {
        let interval = if policy.max_retries == 0 {
            None
        } else if why == Reason::Auth {
            // Without new credentials a probe can only find out that they were given back.
            ever_proven.then_some(policy.auth_probe)
        } else {
            Some(policy.park_probe)
        };
        let mut park = Self {
            why,
            interval,
            phase: Phase::Reviving,
        };
        park.bar(now, policy, spread);
        park
    }

    fn bar(&mut self, now: Timestamp, policy: &Policy, spread: Spread) {
        let probe_at = self.interval.map(|interval| {
            let longest = interval.max(policy.park_probe_max);
            now.plus(spread.above(interval, policy.jitter_percent).min(longest))
        });
        self.phase = Phase::Barred { probe_at };
    }

    /// What outlives the process. A probe that is out had no outcome, so another may be made.
    pub(crate) fn save(&self, now: Timestamp) -> ParkedSnapshot {
        let mut park = *self;
        park.probe_given_up(now);
        ParkedSnapshot {
            reason: park.why,
            interval: park.interval,
            next_try: park.probe_at().map(|at| at.since(now)),
        }
    }

    /// As it was, with what remained, counted from now.
    pub(crate) fn restored(
        now: Timestamp,
        snapshot: &ParkedSnapshot,
        woken: bool,
        policy: &Policy,
    ) -> Self {
        let why = match snapshot.reason {
            Reason::NeverConnected | Reason::Permanent | Reason::Auth | Reason::NoRetries => {
                snapshot.reason
            }
            _ => Reason::Spent,
        };
        let longest = policy.park_probe_max.max(policy.auth_probe);
        let next_try = snapshot.next_try.map(|wait| now.plus(wait.min(longest)));
        Self {
            why,
            interval: snapshot.interval.map(|interval| interval.min(longest)),
            phase: match woken {
                true => Phase::Woken { since: now },
                false => Phase::Barred { probe_at: next_try },
            },
        }
    }

    /// Whether nothing may be opened now.
    pub(crate) fn is_barred(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Barred { probe_at } => probe_at.is_none_or(|at| now < at),
            Phase::Woken { .. } | Phase::Reviving => false,
        }
    }

    pub(crate) fn is_reviving(&self) -> bool {
        self.phase == Phase::Reviving
    }

    pub(crate) fn is_woken(&self) -> bool {
        matches!(self.phase, Phase::Woken { .. })
    }

    /// When it is tried again; `None`: not before a word from outside.
    pub(crate) fn probe_at(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Barred { probe_at } => probe_at,
            Phase::Woken { since } => Some(since),
            Phase::Reviving => None,
        }
    }

    /// A probe goes out.
    pub(crate) fn revive(&mut self) {
        self.phase = Phase::Reviving;
    }

    /// The host said to try now. Says whether that is news.
    pub(crate) fn wake(&mut self, now: Timestamp) -> bool {
        let news = matches!(self.phase, Phase::Barred { .. });
        if news {
            self.phase = Phase::Woken { since: now };
        }
        news
    }

    /// A call was refused: the probe is brought forward to a tenth of its interval after the last attempt.
    pub(crate) fn knock(&mut self, last_attempt: Timestamp) {
        if let (Phase::Barred { probe_at: Some(at) }, Some(interval)) = (self.phase, self.interval)
        {
            // Calls do not bring credentials.
            if self.why != Reason::Auth {
                let probe_at = Some(at.min(last_attempt.plus(interval / 10)));
                self.phase = Phase::Barred { probe_at };
            }
        }
    }

    /// The probe failed, or what it opened was lost before it proved anything.
    pub(crate) fn probe_failed(&mut self, now: Timestamp, policy: &Policy, spread: Spread) {
        if let (Some(interval), true) = (self.interval, self.why != Reason::Auth) {
            self.interval = Some(
                interval
                    .saturating_mul(2)
                    .min(policy.park_probe_max.max(interval)),
            );
        }
        self.bar(now, policy, spread);
    }

    /// The probe failed by this side's fault, which says nothing of the server.
    pub(crate) fn probe_failed_here(&mut self, now: Timestamp, policy: &Policy, spread: Spread) {
        self.bar(now, policy, spread);
    }

    /// The probe was given up before it had an outcome: the next may be made.
    pub(crate) fn probe_given_up(&mut self, now: Timestamp) {
        if self.is_reviving() {
            self.phase = match self.interval {
                Some(_) => Phase::Barred {
                    probe_at: Some(now),
                },
                // No probe is ever made here, so it was a wake that is not answered yet.
                None => Phase::Woken { since: now },
            };
        }
    }
}
