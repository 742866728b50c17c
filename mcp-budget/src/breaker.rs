//! Whether a call may be sent to a server that is connected and does not answer.

use core::time::Duration;

use crate::{policy::Policy, time::Timestamp};

/// Keeps calls from a server that took the last ones and answered none.
///
/// The budget counts connections, this counts calls: three failures in a row (timeouts, 5xx, sends that were refused,
/// sessions lost with calls in flight) open it for a minute. Then exactly one call probes: its answer closes the
/// breaker, its failure opens it for another minute, and if it is cancelled the next call may probe. What the server
/// answered, if only with an error, is an answer.
///
/// One for each binding, beside its [`Budget`](crate::Budget); home and scoped sessions share it. It is not asked
/// while the binding is waiting or parked: there the budget answers, and no call is sent.
///
/// ```
/// use mcp_budget::{Breaker, CallEnd, Policy, Timestamp};
///
/// let policy = Policy::default();
/// let mut breaker = Breaker::new();
/// let now = Timestamp::ZERO;
/// for _ in 0..3 {
///     let call = breaker.admit(now, &policy).unwrap();
///     breaker.ended(now, &policy, call, CallEnd::Failed);
/// }
/// let refused = breaker.admit(now, &policy).unwrap_err();
/// assert_eq!(refused.until, Some(now.plus(policy.breaker_open)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    now: Timestamp,
    state: Position,
    /// Counts openings and closings. The outcome of a call from before the last of them says nothing any more.
    era: u64,
    lost: LostSessions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Closed { failures: u32 },
    Open { until: Timestamp },
    Probing,
}

impl Default for Position {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed {
        /// How many failed in a row.
        failures: u32,
    },
    /// Calls are refused.
    Open {
        /// Then one call may probe; it may have passed.
        until: Timestamp,
    },
    /// Calls are refused but for the one that is probing.
    Probing,
}

/// A call that was admitted. Say [`Breaker::ended`] with it on every way the call can take, also when it is given up:
/// a probing call that is forgotten keeps the breaker from admitting another.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a probing call that is forgotten keeps the breaker open"]
pub struct Admitted {
    era: u64,
    probe: bool,
}

impl Admitted {
    /// Whether it is the one call that finds out if the server answers again.
    pub fn is_probe(&self) -> bool {
        self.probe
    }
}

/// How a call came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The server answered: with a result, also one whose `isError` is set, with a JSON-RPC error, or a 4xx.
    Answered,
    /// It timed out, the server answered 5xx, or sending was refused.
    Failed,
    /// The session was lost while the call was in flight. All calls that were lost with one session count as one.
    SessionLost {
        /// The session's generation.
        generation: u64,
    },
    /// The host gave the call up, which says nothing of the server.
    Cancelled,
}

/// The call is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerOpen {
    /// When one call may probe; `None` while another is probing.
    pub until: Option<Timestamp>,
}

impl Breaker {
    /// A breaker that no call has failed on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a call may be sent now.
    ///
    /// # Errors
    /// When to come again, if the breaker is open.
    pub fn admit(&mut self, now: Timestamp, policy: &Policy) -> Result<Admitted, BreakerOpen> {
        let now = self.advance(now);
        if policy.breaker_failures == 0 {
            self.turn(Position::default());
        }
        match self.state {
            Position::Closed { .. } => Ok(Admitted {
                era: self.era,
                probe: false,
            }),
            Position::Open { until } if now < until => Err(BreakerOpen { until: Some(until) }),
            Position::Open { .. } => {
                self.state = Position::Probing;
                Ok(Admitted {
                    era: self.era,
                    probe: true,
                })
            }
            Position::Probing => Err(BreakerOpen { until: None }),
        }
    }

    /// How an admitted call came to its end.
    pub fn ended(&mut self, now: Timestamp, policy: &Policy, call: Admitted, end: CallEnd) {
        let now = self.advance(now);
        if call.era != self.era {
            return;
        }
        match (self.state, end) {
            (Position::Closed { .. }, CallEnd::Answered) => {
                self.state = Position::default();
            }
            (Position::Closed { .. }, CallEnd::SessionLost { generation })
                if !self.lost.is_news(generation) => {}
            (Position::Closed { failures }, CallEnd::Failed | CallEnd::SessionLost { .. }) => {
                let failures = failures.saturating_add(1);
                if policy.breaker_failures > 0 && failures >= policy.breaker_failures {
                    self.open(now, policy.breaker_open);
                } else {
                    self.state = Position::Closed { failures };
                }
            }
            (Position::Probing, _) if !call.probe => {}
            (Position::Probing, CallEnd::Answered) => self.turn(Position::default()),
            (Position::Probing, CallEnd::Failed | CallEnd::SessionLost { .. }) => {
                self.open(now, policy.breaker_open);
            }
            (Position::Probing, CallEnd::Cancelled) => {
                self.state = Position::Open { until: now };
            }
            (Position::Closed { .. }, CallEnd::Cancelled) | (Position::Open { .. }, _) => {}
        }
    }

    /// Where it stands.
    pub fn state(&self) -> BreakerState {
        match self.state {
            Position::Closed { failures } => BreakerState::Closed { failures },
            Position::Open { until } => BreakerState::Open { until },
            Position::Probing => BreakerState::Probing,
        }
    }

    fn open(&mut self, now: Timestamp, time: Duration) {
        self.turn(Position::Open {
            until: now.plus(time),
        });
    }

    fn turn(&mut self, state: Position) {
        let was_closed = matches!(self.state, Position::Closed { .. });
        let is_closed = matches!(state, Position::Closed { .. });
        // A breaker that stays closed keeps its calls; every opening forgets those from before.
        if !(was_closed && is_closed) {
            self.era += 1;
        }
        self.state = state;
    }

    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }
}

/// The sessions whose loss was counted last. Calls end together when their session is lost, so few need be remembered.
#[derive(Debug, Clone, Default)]
struct LostSessions {
    last: [Option<u64>; 8],
    next: usize,
}

impl LostSessions {
    fn is_news(&mut self, generation: u64) -> bool {
        if self.last.contains(&Some(generation)) {
            return false;
        }
        self.last[self.next] = Some(generation);
        self.next = (self.next + 1) % self.last.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        breaker: Breaker,
        policy: Policy,
        now: Timestamp,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                breaker: Breaker::new(),
                policy: Policy::default(),
                now: Timestamp::from_nanos(1),
            }
        }

        fn opened() -> Self {
            let mut bench = Self::new();
            bench.calls([CallEnd::Failed; 3]);
            assert!(!bench.is_closed());
            bench
        }

        fn admit(&mut self) -> Result<Admitted, BreakerOpen> {
            self.breaker.admit(self.now, &self.policy)
        }

        fn end(&mut self, call: Admitted, end: CallEnd) {
            self.breaker.ended(self.now, &self.policy, call, end);
        }

        fn calls(&mut self, ends: impl IntoIterator<Item = CallEnd>) {
            for end in ends {
                let call = self.admit().unwrap();
                self.end(call, end);
            }
        }

        fn pass(&mut self, time: Duration) {
            self.now = self.now.plus(time);
        }

        fn is_closed(&self) -> bool {
            matches!(self.breaker.state(), BreakerState::Closed { .. })
        }

        fn failures(&self) -> u32 {
            match self.breaker.state() {
                BreakerState::Closed { failures } => failures,
                other => panic!("it is not closed: {other:?}"),
            }
        }
    }

    #[test]
    fn three_failures_in_a_row_open_it_for_a_minute() {
        let mut bench = Bench::new();
        bench.calls([CallEnd::Failed, CallEnd::Failed]);
        assert!(bench.is_closed());
        bench.calls([CallEnd::Failed]);
        let until = bench.now.plus(Duration::from_secs(60));
        assert_eq!(bench.admit(), Err(BreakerOpen { until: Some(until) }));
        bench.pass(Duration::from_secs(60) - Duration::from_nanos(1));
        assert!(bench.admit().is_err());
        bench.pass(Duration::from_nanos(1));
        assert!(bench.admit().unwrap().is_probe());
    }

    #[test]
    fn an_answer_between_failures_begins_the_count_anew_and_a_cancelled_call_does_not() {
        let mut bench = Bench::new();
        bench.calls([CallEnd::Failed, CallEnd::Failed, CallEnd::Answered]);
        assert_eq!(bench.failures(), 0);
        bench.calls([CallEnd::Failed, CallEnd::Cancelled, CallEnd::Failed]);
        assert_eq!(bench.failures(), 2);
    }

    #[test]
    fn the_loss_of_a_session_counts_as_one_however_many_calls_were_in_flight() {
        let mut bench = Bench::new();
        let calls: Vec<_> = (0..100).map(|_| bench.admit().unwrap()).collect();
        for call in calls {
            bench.end(call, CallEnd::SessionLost { generation: 7 });
        }
        assert_eq!(bench.failures(), 1);
        bench.calls([8, 9].map(|generation| CallEnd::SessionLost { generation }));
        assert!(!bench.is_closed());
    }

    #[test]
    fn exactly_one_call_probes_and_its_answer_closes_the_breaker() {
        let mut bench = Bench::opened();
        bench.pass(Duration::from_secs(60));
        let probe = bench.admit().unwrap();
        for _ in 0..1000 {
            bench.pass(Duration::from_secs(1));
            assert_eq!(bench.admit(), Err(BreakerOpen { until: None }));
        }
        bench.end(probe, CallEnd::Answered);
        assert_eq!(bench.failures(), 0);
        assert!(!bench.admit().unwrap().is_probe());
    }

    #[test]
    fn a_probe_that_fails_or_is_lost_with_its_session_opens_it_for_another_minute() {
        for end in [CallEnd::Failed, CallEnd::SessionLost { generation: 7 }] {
            let mut bench = Bench::opened();
            for _ in 0..3 {
                bench.pass(Duration::from_secs(60));
                let probe = bench.admit().unwrap();
                bench.end(probe, end);
                let until = bench.now.plus(Duration::from_secs(60));
                assert_eq!(bench.admit(), Err(BreakerOpen { until: Some(until) }));
            }
        }
    }

    #[test]
    fn a_probe_that_is_cancelled_lets_the_next_call_probe() {
        let mut bench = Bench::opened();
        bench.pass(Duration::from_secs(60));
        for _ in 0..5 {
            let probe = bench.admit().unwrap();
            assert!(probe.is_probe() && bench.admit().is_err());
            bench.end(probe, CallEnd::Cancelled);
        }
        assert!(bench.admit().unwrap().is_probe());
    }

    #[test]
    fn calls_from_before_it_opened_change_nothing_when_they_end() {
        let mut bench = Bench::new();
        let calls: Vec<_> = (0..20).map(|_| bench.admit().unwrap()).collect();
        let mut calls = calls.into_iter();
        for call in calls.by_ref().take(3) {
            bench.end(call, CallEnd::Failed);
        }
        let late = calls.next().unwrap();
        bench.end(late, CallEnd::Answered);
        assert!(!bench.is_closed(), "only the probe closes it");
        bench.pass(Duration::from_secs(60));
        let probe = bench.admit().unwrap();
        let late = calls.next().unwrap();
        bench.end(late, CallEnd::Failed);
        assert_eq!(bench.breaker.state(), BreakerState::Probing);
        bench.end(probe, CallEnd::Answered);
        for late in calls {
            bench.end(late, CallEnd::Failed);
        }
        assert_eq!(bench.failures(), 0);
    }

    #[test]
    fn with_a_threshold_of_zero_it_is_off() {
        let mut bench = Bench::opened();
        bench.policy.breaker_failures = 0;
        bench.calls([CallEnd::Failed; 100]);
        assert!(bench.is_closed());
    }

    #[test]
    fn a_time_before_the_last_is_taken_as_the_last() {
        let mut bench = Bench::opened();
        bench.pass(Duration::from_secs(60));
        assert!(bench.admit().unwrap().is_probe());
        bench.now = Timestamp::ZERO;
        assert_eq!(bench.admit(), Err(BreakerOpen { until: None }));
    }
}
