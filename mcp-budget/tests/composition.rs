//! Home and scoped sessions of one binding together.

mod support;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use mcp_budget::{Action, Budget, Cause, Policy, Reason, Refusal, State, Timestamp};
use support::{Bench, Chance, HOUR, MINUTE, SECOND, exact};

/// A server that never proves anything, its home session and scopes that each want one of their own.
struct Flapping {
    budget: Budget,
    now: Timestamp,
    events: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// What is being opened or open: whose, and whether it is open.
    sessions: BTreeMap<u64, (Option<usize>, bool)>,
    scopes: Vec<bool>,
    openings: usize,
}

/// How the server behaves, drawn anew for each opening.
struct Server {
    opening: &'static [u64],
    life: &'static [u64],
    fails_one_in: usize,
}

impl Flapping {
    fn new(policy: Policy, seed: u64, scopes: usize) -> Self {
        let mut budget = Budget::new(policy, seed);
        budget.hold(Timestamp::ZERO);
        Self {
            budget,
            now: Timestamp::ZERO,
            events: BinaryHeap::new(),
            sessions: BTreeMap::new(),
            scopes: vec![false; scopes],
            openings: 0,
        }
    }

    fn begin(&mut self, generation: u64, scope: Option<usize>, takes: u64) {
        self.openings += 1;
        self.sessions.insert(generation, (scope, false));
        self.events.push(Reverse((
            self.now.plus(Duration::from_millis(takes)),
            generation,
        )));
    }

    /// Runs until it is parked. How many sessions were opened, home and scoped together.
    fn run(mut self, server: &Server, chance: &mut Chance) -> usize {
        while self.budget.standing().state != State::Parked {
            assert!(self.now < Timestamp::ZERO.plus(HOUR * 24), "never parked");
            while let Some(action) = self.budget.poll(self.now) {
                let Action::Connect(attempt) = action else {
                    panic!("no session lives long enough for a probe");
                };
                self.begin(attempt.generation, None, chance.pick(server.opening));
            }
            let mut next = self.budget.timeout();
            while let Some(scope) = self.scopes.iter().position(|open| !open) {
                match self.budget.leave(self.now) {
                    Ok(attempt) => {
                        self.scopes[scope] = true;
                        self.begin(attempt.generation, Some(scope), chance.pick(server.opening));
                    }
                    Err(Refusal::Wait(at)) => {
                        next = next.into_iter().chain(at).min();
                        break;
                    }
                    // The home session's attempt from before still shows.
                    Err(Refusal::Parked(_)) => return self.openings,
                    Err(Refusal::Stopped) => panic!("nobody stopped it"),
                }
            }
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            self.now = next.into_iter().chain(event).min().expect("no deadlock");
            while let Some(Reverse((at, generation))) = self.events.peek().copied() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                let (scope, open) = self.sessions[&generation];
                if open || chance.of(server.fails_one_in) == 0 {
                    let cause = chance.pick(&[Cause::Transient, Cause::Routine]);
                    self.budget.lost(self.now, generation, cause.into());
                    self.sessions.remove(&generation);
                    if let Some(scope) = scope {
                        self.scopes[scope] = false;
                    }
                } else {
                    self.budget.opened(self.now, generation);
                    self.sessions.insert(generation, (scope, true));
                    let life = Duration::from_millis(chance.pick(server.life));
                    self.events.push(Reverse((self.now.plus(life), generation)));
                }
            }
        }
        self.openings
    }
}

const SERVERS: [Server; 4] = [
    Server {
        opening: &[0],
        life: &[0],
        fails_one_in: usize::MAX,
    },
    Server {
        opening: &[100, 3_000],
        life: &[0, 500, 10_000],
        fails_one_in: 10,
    },
    Server {
        opening: &[50, 40_000],
        life: &[0, 1_000, 30_000, 120_000, 170_000],
        fails_one_in: 4,
    },
    Server {
        opening: &[10],
        life: &[170_000],
        fails_one_in: usize::MAX,
    },
];

#[test]
fn a_flapping_server_is_opened_by_its_home_alone_once_and_its_retries() {
    for server in &SERVERS {
        for seed in 0..200 {
            let alone = Flapping::new(Policy::default(), seed, 0);
            assert!(alone.run(server, &mut Chance::new(seed)) <= 1 + 5);
        }
    }
}

#[test]
fn a_flapping_server_is_opened_over_twenty_scopes_only_max_unproven_times_more() {
    for server in &SERVERS {
        let mut most = 0;
        for seed in 0..500 {
            let together = Flapping::new(Policy::default(), seed, 20);
            let openings = together.run(server, &mut Chance::new(seed));
            assert!(openings <= 1 + 4 + 5, "{openings} openings of seed {seed}");
            most = most.max(openings);
        }
        assert!(most >= 6, "the budget is there to be used: {most}");
    }
}

#[test]
fn a_restart_that_takes_two_hundred_unproven_sessions_is_one_charge() {
    let (mut bench, home) = Bench::proven(exact());
    let sessions: Vec<_> = (0..200).map(|_| bench.scoped().unwrap()).collect();
    for session in sessions {
        bench.lose(session, Cause::Transient);
    }
    assert_eq!(bench.standing().charges, 1);
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.standing().charges, 1, "the home session was proven");
}

#[test]
fn what_fails_of_a_round_that_was_charged_costs_nothing() {
    let mut bench = Bench::held(exact());
    let home = bench.attempt().generation;
    bench.pass(SECOND);
    let scoped = bench.budget.leave(bench.now).unwrap().generation;
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.standing().charges, 1);
    bench.budget.opened(bench.now, scoped);
    bench.lose(scoped, Cause::Transient);
    assert_eq!(bench.standing().charges, 1);
}

#[test]
fn an_old_session_does_not_vouch_for_a_new_one() {
    let mut bench = Bench::held(exact());
    let old = bench.open();
    bench.pass(SECOND);
    let scoped = bench.scoped().unwrap();
    bench.lose(scoped, Cause::Transient);
    assert!(bench.budget.proven(bench.now, old));
    assert_eq!(
        (bench.state(), bench.standing().charges),
        (State::Proven, 1)
    );
    bench.pass(SECOND);
    let new = bench.scoped().unwrap();
    bench.budget.proven(bench.now, new);
    assert_eq!(bench.standing().charges, 0);
}

#[test]
fn while_a_binding_was_never_proven_few_scoped_sessions_are_in_doubt_at_a_time() {
    let mut bench = Bench::new(exact());
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(bench.scoped().unwrap());
        bench.pass(SECOND);
    }
    assert_eq!(bench.scoped(), Err(Refusal::Wait(None)));
    assert!(bench.budget.closed(bench.now, sessions[0]));
    sessions.push(bench.scoped().unwrap());
    assert_eq!(bench.scoped(), Err(Refusal::Wait(None)));
    bench.budget.proven(bench.now, sessions[1]);
    for _ in 0..100 {
        bench.scoped().unwrap();
    }
    assert_eq!(bench.budget.open_scoped(), 104);
}

#[test]
fn scoped_openings_keep_the_floor_until_the_binding_is_proven() {
    let mut bench = Bench::held(exact());
    let home = bench.open();
    let after_the_floor = bench.now.plus(SECOND);
    assert_eq!(bench.scoped(), Err(Refusal::Wait(Some(after_the_floor))));
    bench.budget.proven(bench.now, home);
    bench.scoped().unwrap();
    bench.scoped().unwrap();
}

#[test]
fn while_charges_stand_one_session_is_opened_per_delay_whoever_wants_it() {
    let (mut bench, home) = Bench::proven(exact());
    bench.pass(HOUR);
    let scoped = bench.scoped().unwrap();
    bench.lose(scoped, Cause::Transient);
    let delay = Err(Refusal::Wait(Some(bench.now.plus(SECOND))));
    assert_eq!(bench.scoped(), delay);
    bench.pass(SECOND);
    bench.scoped().unwrap();
    let delay = Err(Refusal::Wait(Some(bench.now.plus(SECOND))));
    assert_eq!(bench.scoped(), delay);
    bench.budget.attend(bench.now, true);
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.poll(), None);
    bench.pass(SECOND);
    bench.open();
    assert!(bench.scoped().is_err());
}

#[test]
fn openings_that_may_cost_all_that_is_left_hold_up_further_ones_until_one_has_its_outcome() {
    let (mut bench, _) = Bench::proven(exact());
    let first = bench.scoped().unwrap();
    bench.lose(first, Cause::Transient);
    let mut sessions = Vec::new();
    for _ in 0..5 {
        bench.pass(SECOND);
        sessions.push(bench.scoped().unwrap());
    }
    bench.pass(HOUR);
    assert_eq!(bench.scoped(), Err(Refusal::Wait(None)));
    let mut other = Bench {
        budget: bench.budget.clone(),
        now: bench.now,
        starts: Vec::new(),
    };
    // Proof of one frees all …
    bench.budget.proven(bench.now, sessions[2]);
    bench.scoped().unwrap();
    // … and the loss of one has used the budget up.
    other.lose(sessions[2], Cause::Transient);
    assert_eq!(
        (other.state(), other.reason()),
        (State::Parked, Reason::Spent)
    );
}

#[test]
fn an_opening_that_was_given_up_costs_nothing() {
    let (mut bench, _) = Bench::proven(exact());
    for _ in 0..100 {
        let attempt = bench.budget.leave(bench.now).unwrap();
        assert!(bench.budget.closed(bench.now, attempt.generation));
        assert!(
            !bench
                .budget
                .lost(bench.now, attempt.generation, Cause::Transient.into())
        );
    }
    assert_eq!(
        (bench.standing().charges, bench.budget.open_scoped()),
        (0, 0)
    );
}

/// A binding that its scopes have parked while its home session lives.
fn parked_around_a_living_home() -> (Bench, u64) {
    let (mut bench, home) = Bench::proven(exact());
    while bench.state() != State::Parked {
        match bench.scoped() {
            Ok(scoped) => bench.lose(scoped, Cause::Transient),
            Err(Refusal::Wait(Some(at))) => bench.now = at,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }
    (bench, home)
}

#[test]
fn parking_bars_openings_and_closes_nothing() {
    let (mut bench, home) = parked_around_a_living_home();
    assert_eq!(
        bench.budget.outlook(bench.now),
        mcp_budget::Outlook::Open { generation: home }
    );
    assert!(matches!(bench.scoped(), Err(Refusal::Parked(Some(_)))));
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.state(), State::Parked);
    assert!(matches!(
        bench.budget.outlook(bench.now),
        mcp_budget::Outlook::Parked(Some(_))
    ));
}

#[test]
fn where_the_home_session_lives_a_scope_makes_the_probe() {
    let (mut bench, _) = parked_around_a_living_home();
    bench.pass(MINUTE * 5);
    assert_eq!(bench.poll(), None);
    let probe = bench.scoped().unwrap();
    assert_eq!(bench.scoped(), Err(Refusal::Wait(None)), "one attempt");
    bench.lose(probe, Cause::Transient);
    assert_eq!(bench.next_try(), Some(MINUTE * 10));
    bench.budget.wake(bench.now);
    bench.pass(SECOND);
    let probe = bench.budget.leave(bench.now).unwrap().generation;
    bench.budget.closed(bench.now, probe);
    bench.pass(SECOND);
    let probe = bench
        .scoped()
        .expect("a probe that was given up may be made again");
    bench.budget.proven(bench.now, probe);
    assert_eq!(
        (bench.state(), bench.standing().charges),
        (State::Proven, 0)
    );
}

#[test]
fn a_scope_may_give_the_proof_of_a_revival() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.budget.wake(bench.now);
    assert!(matches!(bench.scoped(), Err(Refusal::Wait(Some(_)))));
    let home = bench.attempt().generation;
    assert_eq!(bench.scoped(), Err(Refusal::Wait(None)), "home goes first");
    bench.budget.opened(bench.now, home);
    bench.pass(SECOND);
    let scoped = bench.scoped().unwrap();
    bench.pass(MINUTE);
    assert_eq!(bench.scoped(), Err(Refusal::Wait(None)), "one at a time");
    bench.budget.proven(bench.now, scoped);
    assert_eq!(bench.standing().charges, 0);
    bench.scoped().unwrap();
}

#[test]
fn a_wake_is_not_lost_when_a_scope_spends_the_budget_before_its_attempt() {
    let mut bench = Bench::held(Policy {
        max_retries: 1,
        ..exact()
    });
    let home = bench.open();
    bench.lose(home, Cause::Transient);
    bench.pass(SECOND);
    let scoped = bench.scoped().unwrap();
    bench.budget.wake(bench.now);
    bench.lose(scoped, Cause::Transient);
    assert_eq!(bench.state(), State::Waiting);
    assert_eq!(bench.flap(), SECOND);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Spent)
    );
}
