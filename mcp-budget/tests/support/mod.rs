//! A budget with a clock that the test moves.

#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use mcp_budget::{
    Action, Attempt, Budget, Cause, Loss, Policy, Reason, Refusal, State, Timestamp, Transition,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Delays as the policy says them, without jitter.
pub(crate) fn exact() -> Policy {
    Policy {
        jitter_percent: 0,
        ..Policy::default()
    }
}

pub(crate) struct Bench {
    pub(crate) budget: Budget,
    pub(crate) now: Timestamp,
    pub(crate) starts: Vec<Timestamp>,
}

impl Bench {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            budget: Budget::new(policy, 1),
            // Not zero, so that a time that was forgotten shows.
            now: Timestamp::ZERO.plus(HOUR),
            starts: Vec::new(),
        }
    }

    /// A binding whose home session is wanted.
    pub(crate) fn held(policy: Policy) -> Self {
        let mut bench = Self::new(policy);
        bench.budget.hold(bench.now);
        bench
    }

    /// A binding whose home session is open and proven.
    pub(crate) fn proven(policy: Policy) -> (Self, u64) {
        let mut bench = Self::held(policy);
        let home = bench.open();
        assert!(bench.budget.proven(bench.now, home));
        (bench, home)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    pub(crate) fn poll(&mut self) -> Option<Action> {
        let action = self.budget.poll(self.now);
        if let Some(Action::Connect(_)) = action {
            self.starts.push(self.now);
        }
        action
    }

    /// Lets time pass until the budget wants a home attempt, which it must.
    pub(crate) fn attempt(&mut self) -> Attempt {
        for _ in 0..3 {
            if let Some(Action::Connect(attempt)) = self.poll() {
                return attempt;
            }
            let at = self.budget.timeout();
            self.now = self.now.max(at.expect("the budget waits for something"));
        }
        panic!("the budget wants no attempt: {:?}", self.budget.standing());
    }

    /// The next home attempt, successful.
    pub(crate) fn open(&mut self) -> u64 {
        let generation = self.attempt().generation;
        assert!(self.budget.opened(self.now, generation));
        generation
    }

    /// The next home attempt, failed. How long it was waited for.
    pub(crate) fn fail(&mut self, loss: impl Into<Loss>) -> Duration {
        let before = self.now;
        let generation = self.attempt().generation;
        assert!(self.budget.lost(self.now, generation, loss.into()));
        self.now.since(before)
    }

    /// The next home attempt, opened and lost at once. How long it was waited for.
    pub(crate) fn flap(&mut self) -> Duration {
        let before = self.now;
        let generation = self.open();
        self.lose(generation, Cause::Transient);
        self.now.since(before)
    }

    pub(crate) fn lose(&mut self, generation: u64, loss: impl Into<Loss>) {
        assert!(self.budget.lost(self.now, generation, loss.into()));
    }

    /// Flaps until it is parked.
    pub(crate) fn park(&mut self) {
        while self.state() != State::Parked {
            self.flap();
        }
    }

    /// A scoped session that is open.
    pub(crate) fn scoped(&mut self) -> Result<u64, Refusal> {
        let generation = self.budget.leave(self.now)?.generation;
        assert!(self.budget.opened(self.now, generation));
        Ok(generation)
    }

    pub(crate) fn standing(&self) -> Transition {
        self.budget.standing()
    }

    pub(crate) fn state(&self) -> State {
        self.standing().state
    }

    pub(crate) fn reason(&self) -> Reason {
        self.standing().reason
    }

    /// How long it is to the next try.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        self.standing().next_try.map(|at| at.since(self.now))
    }
}

/// Chance, the same again for the same seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    /// One of `n`.
    pub(crate) fn of(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.of(from.len())]
    }
}
