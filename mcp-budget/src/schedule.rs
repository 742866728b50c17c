//! When the next session may be opened.

use core::time::Duration;

use crate::{
    allowance::Allowance, jitter::Spread, policy::Policy, snapshot::Snapshot, time::Timestamp,
};

/// The times that hold openings up. Which of them holds whom is the budget's to say.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    /// When the last attempt began that the floor is counted from.
    last_start: Option<Timestamp>,
    /// The end of the delay after a failure or an opening made while failures stand; it holds for everybody.
    gate: Timestamp,
    /// The server's own wish.
    not_before: Timestamp,
    /// The backoff of home attempts that nobody waits for.
    backoff: Duration,
    /// Since that was last cleared something failed that can never park.
    endless: bool,
    /// The end of that backoff.
    unattended_at: Timestamp,
    allowance: Allowance,
}

impl Schedule {
    /// Nothing holds anything up.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            last_start: None,
            gate: Timestamp::ZERO,
            not_before: Timestamp::ZERO,
            backoff: Duration::ZERO,
            endless: false,
            unattended_at: Timestamp::ZERO,
            allowance: Allowance::new(policy),
        }
    }

    /// Another policy from now on.
    pub(crate) fn set_policy(&mut self, policy: &Policy) {
        self.allowance = self.allowance.under(policy);
    }

    pub(crate) fn last_start(&self) -> Timestamp {
        self.last_start.unwrap_or_default()
    }

    pub(crate) fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// The earliest time but for the delay: the floor and the server's wish.
    pub(crate) fn floor(&self, policy: &Policy) -> Timestamp {
        self.last_start
            .map_or(self.not_before, |start| start.plus(policy.floor))
            .max(self.not_before)
    }

    /// The end of the delay that holds while failures stand.
    pub(crate) fn gate(&self) -> Timestamp {
        self.gate
    }

    /// The earliest time for a home attempt that nobody waits for, apart from what holds for everybody.
    pub(crate) fn unattended(&self) -> Timestamp {
        self.unattended_at.max(self.allowance.earliest())
    }

    /// An attempt begins from which the floor is counted.
    pub(crate) fn started(&mut self, now: Timestamp) {
        self.last_start = Some(now);
    }

    /// It is one that nobody waits for.
    pub(crate) fn unattended_started(&mut self, now: Timestamp) {
        self.allowance.take(now);
    }

    /// The server does not want to be tried for so long.
    pub(crate) fn wish(&mut self, now: Timestamp, wait: Duration, policy: &Policy) {
        let until = now.plus(wait.min(policy.not_before_max));
        self.not_before = self.not_before.max(until);
    }

    /// The delay after so many failures in a row begins.
    pub(crate) fn delay(&mut self, now: Timestamp, failures: u32, policy: &Policy, spread: Spread) {
        self.gate = now.plus(policy.jittered(policy.delay(failures), spread));
    }

    /// What outlives the process.
    pub(crate) fn save(&self, now: Timestamp, snapshot: &mut Snapshot) {
        snapshot.since_start = self.last_start.map(|start| now.since(start));
        snapshot.delay = self.gate.since(now);
        snapshot.not_before = self.not_before.since(now);
        snapshot.backoff = self.backoff;
        snapshot.backoff_endless = self.endless;
        snapshot.backoff_left = self.unattended_at.since(now);
        snapshot.allowance = self.allowance.until_full(now);
    }

    /// The times as they were, counted from now, none longer than the policy makes them.
    pub(crate) fn restored(now: Timestamp, snapshot: &Snapshot, policy: &Policy) -> Self {
        let longest = |delay| Spread::LONGEST.around(delay, policy.jitter_percent);
        let (delay, backoff) = (policy.backoff_max, policy.backoff_max_proven);
        // The last start may lie before the clock's beginning, so what remains of the floor is kept apart.
        let ago = snapshot.since_start.unwrap_or(Duration::MAX);
        let floor_left = policy.floor.saturating_sub(ago);
        let tellable = floor_left.is_zero() && ago <= now.since(Timestamp::ZERO);
        Self {
            last_start: tellable.then(|| now.minus(ago)),
            gate: now.plus(snapshot.delay.min(longest(delay))),
            not_before: now.plus(
                snapshot
                    .not_before
                    .min(policy.not_before_max)
                    .max(floor_left),
            ),
            backoff: snapshot.backoff.min(delay.max(backoff)),
            endless: snapshot.backoff_endless,
            unattended_at: now.plus(snapshot.backoff_left.min(longest(delay.max(backoff)))),
            allowance: Allowance::restored(now, snapshot.allowance, policy),
        }
    }

    /// The host wants no delay.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.gate = now;
    }

    /// A home session lived long.
    pub(crate) fn stable(&mut self) {
        self.backoff = Duration::ZERO;
        self.endless = false;
    }

    /// The backoff that spares a server whom nobody waits for doubles and begins. It grows further where a failure
    /// `can_park`s nothing, for then nothing else would end the series.
    pub(crate) fn back_off(
        &mut self,
        now: Timestamp,
        can_park: bool,
        policy: &Policy,
        spread: Spread,
    ) {
        self.endless |= !can_park;
        let cap = if self.endless {
            policy.backoff_max_proven
        } else {
            policy.backoff_max
        };
        self.backoff = policy.grown(self.backoff, cap);
        self.unattended_at = now.plus(policy.jittered(self.backoff, spread));
    }

    /// No backoff is due.
    pub(crate) fn at_once(&mut self, now: Timestamp) {
        self.unattended_at = now;
    }
}
