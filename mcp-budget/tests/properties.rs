//! What holds in any history, home and scoped sessions, calls, wakes and restarts of the host together.

mod support;

use std::{collections::BTreeMap, time::Duration};

use mcp_budget::{
    Action, Breaker, BreakerState, Budget, CallEnd, Cause, Gate, GateLimits, Loss, Policy, State,
    Timestamp, Urgency,
};
use proptest::{collection::vec, prelude::*, sample::select};
use support::{HOUR, SECOND};

/// One thing that happens. Which session it happens to is counted through those there are.
#[derive(Debug, Clone, Copy)]
enum Step {
    Pass(Duration),
    /// Time passes until the budget is due.
    Due,
    Opens(usize),
    Proves(usize),
    Fails(usize, Cause, Option<Duration>),
    Closes(usize),
    Leave,
    LetGo,
    Hold,
    Attend(bool),
    KeepOpen(bool),
    Knock,
    Wake,
    /// The host ends and comes back.
    Restart,
    /// Something is told of a generation that never was.
    Stray(u64),
}

/// All that one history showed.
struct World {
    budget: Budget,
    policy: Policy,
    now: Timestamp,
    /// By generation: whether it is the home session, and whether it is open.
    sessions: BTreeMap<u64, (bool, bool)>,
    proven: bool,
    attended: bool,
    woken: bool,
    /// When attempts that keep the floor began, and whether nobody asked for them.
    starts: Vec<(Timestamp, bool)>,
    openings: usize,
    parked: bool,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self {
            budget: Budget::new(policy.clone(), 1),
            policy,
            now: Timestamp::ZERO.plus(HOUR),
            sessions: BTreeMap::new(),
            proven: false,
            attended: false,
            woken: false,
            starts: Vec::new(),
            openings: 0,
            parked: false,
        }
    }

    fn run(policy: Policy, steps: &[Step]) -> Self {
        let mut world = Self::new(policy);
        for step in steps {
            world.step(*step);
        }
        world
    }

    fn pick(&self, n: usize) -> Option<u64> {
        let at = n % self.sessions.len().max(1);
        self.sessions.keys().nth(at).copied()
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Pass(time) => self.now = now.plus(time),
            Step::Due => self.now = self.budget.timeout().unwrap_or(now).max(now),
            Step::Opens(n) => {
                if let Some(generation) = self.pick(n) {
                    if self.budget.opened(now, generation) {
                        self.sessions.entry(generation).and_modify(|s| s.1 = true);
                    }
                }
            }
            Step::Proves(n) => {
                if let Some(generation) = self.pick(n) {
                    self.budget.opened(now, generation);
                    self.budget.proven(now, generation);
                    self.proven = true;
                }
            }
            Step::Fails(n, cause, not_before) => {
                if let Some(generation) = self.pick(n) {
                    self.budget
                        .lost(now, generation, Loss { cause, not_before });
                    let gone = self.sessions.remove(&generation);
                    if gone.is_some_and(|(home, open)| home && !open) {
                        self.attended = false;
                    }
                }
            }
            Step::Closes(n) => {
                if let Some(generation) = self.pick(n) {
                    self.budget.closed(now, generation);
                    self.sessions.remove(&generation);
                }
            }
            Step::Leave => {
                if let Ok(attempt) = self.budget.leave(now) {
                    self.openings += 1;
                    self.sessions.insert(attempt.generation, (false, false));
                    if !self.proven {
                        self.starts.push((now, false));
                    }
                }
            }
            Step::LetGo => {
                self.attended = false;
                let home = self.budget.let_go(now);
                let mut ours = self.sessions.iter().filter(|(_, (home, _))| *home);
                assert_eq!(home, ours.next().map(|(generation, _)| *generation));
                home.map(|home| self.sessions.remove(&home));
            }
            Step::Hold => self.budget.hold(now),
            Step::Attend(waits) => {
                self.attended = waits;
                self.budget.attend(now, waits);
            }
            Step::KeepOpen(keep) => self.budget.keep_open(now, keep),
            Step::Knock => self.budget.knock(now),
            Step::Wake => {
                self.woken = true;
                self.budget.wake(now);
            }
            Step::Restart => {
                let snapshot = self.budget.snapshot(now, Duration::ZERO);
                self.budget = Budget::restore(self.policy.clone(), 2, now, &snapshot);
                self.sessions.clear();
                self.attended = false;
            }
            Step::Stray(generation) => {
                let generation = u64::MAX - generation;
                assert!(!self.budget.opened(now, generation));
                assert!(!self.budget.proven(now, generation));
                assert!(!self.budget.lost(now, generation, Cause::Fatal.into()));
                assert!(!self.budget.closed(now, generation));
            }
        }
        let mut polled = 0;
        while let Some(action) = self.budget.poll(self.now) {
            polled += 1;
            assert!(polled <= 2, "it wants ever more at the same moment");
            if let Action::Connect(attempt) = action {
                self.openings += 1;
                self.sessions.insert(attempt.generation, (true, false));
                let asked_for = self.attended || self.woken;
                self.starts.push((self.now, !asked_for));
                self.woken = false;
            }
        }
        self.parked |= self.budget.standing().state == State::Parked;
    }
}

fn moments() -> impl Strategy<Value = Duration> {
    prop_oneof![
        select(vec![
            0, 1, 400, 1_000, 5_000, 60_000, 180_000, 600_000, 3_600_000
        ])
        .prop_map(Duration::from_millis),
        (0..4_000_000u64).prop_map(Duration::from_millis),
    ]
}

fn steps(causes: &'static [Cause]) -> impl Strategy<Value = Vec<Step>> {
    let n = 0..50usize;
    let step = prop_oneof![
        3 => moments().prop_map(Step::Pass),
        6 => Just(Step::Due),
        5 => n.clone().prop_map(Step::Opens),
        3 => n.clone().prop_map(Step::Proves),
        6 => (n.clone(), select(causes), proptest::option::weighted(0.1, moments()))
            .prop_map(|(n, cause, wait)| Step::Fails(n, cause, wait)),
        1 => n.prop_map(Step::Closes),
        2 => Just(Step::Leave),
        1 => Just(Step::LetGo),
        3 => Just(Step::Hold),
        1 => any::<bool>().prop_map(Step::Attend),
        1 => any::<bool>().prop_map(Step::KeepOpen),
        1 => Just(Step::Knock),
        1 => Just(Step::Wake),
        1 => Just(Step::Restart),
        1 => (0..4u64).prop_map(Step::Stray),
    ];
    vec(step, 0..150)
}

const CAUSES: &[Cause] = &[
    Cause::Auth,
    Cause::Permanent,
    Cause::Transient,
    Cause::Local,
    Cause::Routine,
];
const DROPS: &[Cause] = &[Cause::Transient, Cause::Routine];

fn most_in_an_hour(starts: &[Timestamp]) -> usize {
    let within = |(first, at): (usize, &Timestamp)| {
        let later = starts[first..].iter();
        later.take_while(|later| later.since(*at) < HOUR).count()
    };
    starts.iter().enumerate().map(within).max().unwrap_or(0)
}

/// A policy with nothing sane about it.
fn any_policy() -> impl Strategy<Value = Policy> {
    let time = || {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            Just(Duration::from_nanos(1)),
            (0..10_000u64).prop_map(Duration::from_millis),
        ]
    };
    let count = || prop_oneof![Just(0), Just(u32::MAX), 0..10u32];
    let times = vec(time(), 11);
    (times, vec(count(), 3), any::<u8>()).prop_map(|(times, counts, jitter_percent)| Policy {
        max_retries: counts[0],
        max_initial_retries: counts[1],
        max_unproven: counts[2],
        backoff: times[0],
        backoff_max: times[1],
        backoff_max_proven: times[2],
        jitter_percent,
        floor: times[3],
        healthy_after: times[4],
        probe_deadline: times[5],
        stable_after: times[6],
        park_probe: times[7],
        park_probe_max: times[8],
        auth_probe: times[9],
        not_before_max: times[10],
        ..Policy::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_attempts_start_nearer_than_the_floor(
        steps in steps(CAUSES),
        floor in select(vec![SECOND / 20, SECOND, SECOND * 30]),
    ) {
        let policy = Policy { floor, ..Policy::default() };
        let world = World::run(policy, &steps);
        for pair in world.starts.windows(2) {
            prop_assert!(pair[1].0.since(pair[0].0) >= floor);
        }
    }

    #[test]
    fn nobody_makes_more_than_25_unattended_attempts_in_any_hour(steps in steps(CAUSES)) {
        let world = World::run(Policy::default(), &steps);
        let unattended = world.starts.iter().filter(|start| start.1);
        let starts: Vec<_> = unattended.map(|start| start.0).collect();
        prop_assert!(most_in_an_hour(&starts) <= 25);
    }

    #[test]
    fn who_loses_only_what_was_proven_is_never_parked(steps in steps(DROPS)) {
        let mut world = World::new(Policy::default());
        for step in steps {
            if let Step::Fails(n, ..) = step {
                world.step(Step::Proves(n));
            }
            world.step(step);
            prop_assert!(!world.parked);
            prop_assert_eq!(world.budget.standing().charges, 0);
        }
    }

    #[test]
    fn who_never_proves_anything_is_parked_within_the_openings_of_the_rule(
        steps in steps(DROPS),
        scopes in any::<bool>(),
    ) {
        let mut world = World::new(Policy::default());
        let most = if scopes { 1 + 4 + 5 } else { 1 + 5 };
        let allowed = |step: &Step| match step {
            Step::Proves(_) | Step::Closes(_) | Step::LetGo | Step::Restart => false,
            Step::Leave => scopes,
            _ => true,
        };
        for step in steps.into_iter().filter(allowed) {
            world.step(step);
            if world.parked {
                break;
            }
            prop_assert!(world.openings <= most, "{} openings", world.openings);
        }
        // Whatever it did before, going on failing parks it.
        for _ in 0..most {
            world.step(Step::Hold);
            world.step(Step::Due);
            while let Some(generation) = world.pick(0) {
                world.step(Step::Fails(0, Cause::Transient, None));
                prop_assert!(!world.sessions.contains_key(&generation));
                if world.parked {
                    return Ok(());
                }
            }
            prop_assert!(world.openings <= most, "{} openings", world.openings);
        }
        prop_assert!(world.parked);
    }

    #[test]
    fn restored_it_is_idle_with_its_charges_or_keeps_what_remained(
        steps in steps(CAUSES),
        epoch in select(vec![1, 1 << 62]),
    ) {
        let mut world = World::run(Policy::default(), &steps);
        world.step(Step::Attend(false));
        let before = world.budget.standing();
        let snapshot = world.budget.snapshot(world.now, Duration::ZERO);
        let now = Timestamp::from_nanos(epoch);
        let restored = Budget::restore(Policy::default(), 2, now, &snapshot);
        let after = restored.standing();
        prop_assert_eq!(after.charges, before.charges);
        let probing = snapshot.parked.is_some();
        match before.state {
            State::Connecting | State::Unproven | State::Proven if !probing => {
                prop_assert_eq!(after.state, State::Idle);
                prop_assert_eq!(restored.timeout(), None);
            }
            State::Waiting | State::Parked => {
                prop_assert!(after.state == before.state || world.budget.timeout().is_none());
                if let (Some(before), Some(after)) = (before.next_try, after.next_try) {
                    prop_assert_eq!(after.since(now), before.since(world.now));
                }
            }
            _ => {}
        }
        let last = world.starts.last().map(|start| start.0);
        if let (Some(due), Some(last)) = (restored.timeout(), last) {
            let floor = Policy::default().floor;
            prop_assert!(due.since(now) + world.now.since(last) >= floor);
        }
    }

    #[test]
    fn no_policy_and_no_history_make_it_panic_or_run_in_circles(
        policy in any_policy(),
        steps in steps(CAUSES),
    ) {
        World::run(policy, &steps);
    }

    #[test]
    fn whatever_order_they_come_in_the_gate_lets_all_in_and_never_more_than_it_may(
        asks in vec((0..20u64, 0..3usize, 0..3_000u64, 0..10_000u64), 0..200),
    ) {
        const URGENCIES: [Urgency; 3] = [Urgency::Awaited, Urgency::Reconnect, Urgency::Probe];
        let limits = GateLimits::default();
        let mut gate = Gate::new(limits.clone());
        let mut now = Timestamp::ZERO;
        let mut starts = Vec::new();
        let mut takes = BTreeMap::new();
        let mut ends = BTreeMap::new();
        let mut asks = asks.into_iter().peekable();
        while asks.peek().is_some() || gate.waiting() > 0 {
            if let Some((server, urgency, pause, take)) = asks.next() {
                let ticket = gate.ask(now, server, URGENCIES[urgency]);
                takes.insert(ticket, Duration::from_millis(take));
                now = now.plus(Duration::from_millis(pause / 100));
            } else if let Some(at) = gate.timeout() {
                now = now.max(at);
            }
            while let Some(((end, ticket), ())) = ends.pop_first() {
                if end > now {
                    ends.insert((end, ticket), ());
                    break;
                }
                gate.leave(now, ticket);
            }
            while let Some(ticket) = gate.poll(now) {
                starts.push(now);
                ends.insert((now.plus(takes[&ticket]), ticket), ());
            }
            prop_assert!(gate.in_flight() <= limits.in_flight as usize);
        }
        prop_assert_eq!(starts.len(), takes.len());
        let most = (limits.burst + limits.per_second) as usize;
        for window in starts.windows(most + 1) {
            prop_assert!(window[most].since(window[0]) >= SECOND);
        }
    }

    #[test]
    fn a_breaker_admits_one_call_a_minute_at_most_while_nothing_answers(
        calls in vec((0..100_000u64, 0..3usize), 0..300),
    ) {
        let policy = Policy::default();
        let mut breaker = Breaker::new();
        let mut now = Timestamp::ZERO;
        let mut probes = Vec::new();
        for (pause, end) in calls {
            now = now.plus(Duration::from_millis(pause));
            if let Ok(call) = breaker.admit(now, &policy) {
                if call.is_probe() {
                    probes.push((now, end));
                    prop_assert_eq!(breaker.state(), BreakerState::Probing);
                    prop_assert!(breaker.admit(now, &policy).is_err());
                }
                let generation = now.as_nanos();
                let ends = [
                    CallEnd::Failed,
                    CallEnd::SessionLost { generation },
                    CallEnd::Cancelled,
                ];
                breaker.ended(now, &policy, call, ends[end]);
            }
        }
        for pair in probes.windows(2) {
            let cancelled = pair[0].1 == 2;
            prop_assert!(cancelled || pair[1].0.since(pair[0].0) >= policy.breaker_open);
        }
    }
}
