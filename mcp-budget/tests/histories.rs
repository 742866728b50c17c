//! What holds in any history.

mod support;

use std::time::Duration;

use mcp_budget::{Action, Budget, Cause, Policy, State, Timestamp};
use support::{Chance, HOUR, MINUTE, SECOND};

const CAUSES: [Cause; 5] = [
    Cause::Auth,
    Cause::Permanent,
    Cause::Transient,
    Cause::Local,
    Cause::Routine,
];

/// What a history is made of.
struct Nature {
    /// Causes that attempts fail with.
    attempts: &'static [Cause],
    /// Of four attempts, how many fail.
    failing: usize,
    /// Of four sessions, how many are proven.
    proven: usize,
    /// Causes that sessions are lost with.
    losses: &'static [Cause],
    lives: &'static [Duration],
    /// Calls wait, refused calls knock, and the host wakes.
    attended: bool,
    scopes: bool,
}

struct History {
    /// When home attempts began, and whether nobody asked for them.
    starts: Vec<(Timestamp, bool)>,
    parked: bool,
}

fn history(policy: &Policy, nature: &Nature, seed: u64, steps: usize) -> History {
    let mut chance = Chance::new(seed + 1);
    let mut budget = Budget::new(policy.clone(), seed);
    let mut now = Timestamp::ZERO.plus(HOUR);
    let mut home = None;
    let mut scoped = Vec::new();
    let (mut waits, mut woken) = (false, false);
    let mut history = History {
        starts: Vec::new(),
        parked: false,
    };
    budget.keep_open(now, true);
    for _ in 0..steps {
        match budget.poll(now) {
            Some(Action::Connect(attempt)) => {
                history.starts.push((now, !(waits || woken)));
                woken = false;
                now = now.plus(chance.pick(&[Duration::ZERO, SECOND / 10, SECOND * 20]));
                if chance.of(4) < nature.failing {
                    let cause = chance.pick(nature.attempts);
                    assert!(budget.lost(now, attempt.generation, cause.into()));
                    waits = false;
                } else {
                    assert!(budget.opened(now, attempt.generation));
                    home = Some(attempt.generation);
                    if chance.of(4) < nature.proven {
                        budget.proven(now, attempt.generation);
                    }
                }
            }
            Some(Action::Probe { generation }) => {
                if chance.of(2) == 0 {
                    budget.proven(now, generation);
                }
            }
            None => match home.take() {
                Some(generation) => {
                    now = now.plus(chance.pick(nature.lives));
                    let cause = chance.pick(nature.losses);
                    assert!(budget.lost(now, generation, cause.into()));
                }
                None => {
                    let due = budget.timeout().unwrap_or(now);
                    let on_the_way = now.plus(due.since(now) / 3);
                    now = chance.pick(&[now.max(due), on_the_way]);
                }
            },
        }
        if nature.attended {
            match chance.of(20) {
                0 => {
                    waits = !waits;
                    budget.attend(now, waits);
                }
                1 => budget.knock(now),
                2 => {
                    budget.wake(now);
                    woken = true;
                }
                _ => {}
            }
        }
        if nature.scopes {
            match chance.of(4) {
                0 => scoped.extend(budget.leave(now).ok().map(|attempt| attempt.generation)),
                1 if !scoped.is_empty() => {
                    let generation = scoped.swap_remove(chance.of(scoped.len()));
                    match chance.of(4) {
                        0 => budget.closed(now, generation),
                        1 => {
                            budget.opened(now, generation);
                            budget.proven(now, generation);
                            scoped.push(generation);
                            true
                        }
                        _ => budget.lost(now, generation, chance.pick(&CAUSES).into()),
                    };
                }
                _ => {}
            }
        }
        history.parked |= budget.standing().state == State::Parked;
        if budget.standing().state == State::Idle {
            budget.hold(now);
        }
    }
    history
}

fn most_in_an_hour(starts: &[Timestamp]) -> usize {
    let within = |(first, at): (usize, &Timestamp)| {
        starts[first..]
            .iter()
            .take_while(|later| later.since(*at) < HOUR)
            .count()
    };
    starts.iter().enumerate().map(within).max().unwrap_or(0)
}

const LIVES: [Duration; 6] = [
    Duration::ZERO,
    SECOND,
    Duration::from_secs(29),
    Duration::from_secs(599),
    Duration::from_secs(600),
    HOUR,
];

#[test]
fn no_two_home_attempts_start_nearer_than_the_floor() {
    let nature = Nature {
        attempts: &CAUSES,
        failing: 1,
        proven: 2,
        losses: &CAUSES,
        lives: &LIVES,
        attended: true,
        scopes: true,
    };
    for floor in [Duration::from_millis(50), SECOND, SECOND * 30] {
        let policy = Policy {
            floor,
            ..Policy::default()
        };
        let mut attempts = 0;
        for seed in 0..500 {
            let starts = history(&policy, &nature, seed, 500).starts;
            for pair in starts.windows(2) {
                assert!(pair[1].0.since(pair[0].0) >= floor, "seed {seed}");
            }
            attempts += starts.len();
        }
        assert!(
            attempts > 10_000,
            "the histories are no silence: {attempts}"
        );
    }
}

#[test]
fn nobody_makes_more_than_25_unattended_attempts_in_any_hour() {
    let every = |causes, failing, proven, attended, scopes| Nature {
        attempts: causes,
        failing,
        proven,
        losses: causes,
        lives: &LIVES,
        attended,
        scopes,
    };
    let natures = [
        every(&CAUSES, 1, 2, true, true),
        every(&CAUSES, 1, 3, false, false),
        every(&[Cause::Transient], 2, 2, false, false),
        every(&[Cause::Transient, Cause::Local], 0, 4, false, false),
        every(&[Cause::Local], 4, 4, false, false),
        every(&[Cause::Routine], 0, 4, false, false),
    ];
    for nature in &natures {
        for seed in 0..300 {
            let starts = history(&Policy::default(), nature, seed, 500).starts;
            let unattended: Vec<_> = starts.iter().filter(|s| s.1).map(|s| s.0).collect();
            let most = most_in_an_hour(&unattended);
            assert!(most <= 25, "{most} attempts, seed {seed}");
        }
    }
}

#[test]
fn dying_young_just_often_enough_between_stable_lives_gains_nothing() {
    for young in 0..12 {
        for failed in 0..6 {
            let mut budget = Budget::new(Policy::default(), young * 6 + failed);
            let mut now = Timestamp::ZERO;
            let mut starts = Vec::new();
            budget.hold(now);
            for n in 0..300 {
                let attempt = loop {
                    match budget.poll(now) {
                        Some(Action::Connect(attempt)) => break attempt.generation,
                        Some(Action::Probe { .. }) => unreachable!("all are proven or gone"),
                        None => now = budget.timeout().expect("it reconnects for ever"),
                    }
                };
                starts.push(now);
                let turn = n % (failed + young + 1);
                if turn < failed && budget.standing().charges < 5 {
                    budget.lost(now, attempt, Cause::Transient.into());
                    continue;
                }
                budget.opened(now, attempt);
                budget.proven(now, attempt);
                if turn == failed + young {
                    now = now.plus(MINUTE * 10);
                }
                budget.lost(now, attempt, Cause::Transient.into());
            }
            let most = most_in_an_hour(&starts);
            assert!(most <= 25, "{most} attempts with {young} and {failed}");
        }
    }
}

#[test]
fn losses_after_proof_and_faults_of_this_side_never_park() {
    let nature = Nature {
        attempts: &[Cause::Local],
        failing: 1,
        proven: 4,
        losses: &[
            Cause::Transient,
            Cause::Routine,
            Cause::Local,
            Cause::Permanent,
        ],
        lives: &LIVES,
        attended: true,
        scopes: false,
    };
    for seed in 0..500 {
        let history = history(&Policy::default(), &nature, seed, 500);
        assert!(!history.parked, "seed {seed}");
        assert!(history.starts.len() > 50);
    }
}
