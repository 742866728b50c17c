//! The rules of a binding that has only its home session.

mod support;

use std::time::Duration;

use mcp_budget::{Action, Cause, Loss, Outlook, Policy, Reason, Refusal, State, Timestamp};
use support::{Bench, HOUR, MINUTE, SECOND, exact};

// A handshake proves nothing.

#[test]
fn a_fatal_cause_beside_a_transient_one_is_never_taken_for_a_drop() {
    let (mut bench, home) = Bench::proven(exact());
    let both = Loss::gravest([Cause::Transient.into(), Cause::Fatal.into()]);
    bench.lose(home, both.unwrap());
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Stopped, Reason::Fatal)
    );
    bench.pass(HOUR * 100);
    bench.budget.wake(bench.now);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.budget.timeout(), None);
    assert_eq!(bench.budget.outlook(bench.now), Outlook::Stopped);
    assert_eq!(bench.budget.leave(bench.now), Err(Refusal::Stopped));
}

#[test]
fn a_transient_cause_alone_is_a_drop_and_reconnects() {
    let (mut bench, home) = Bench::proven(exact());
    bench.lose(home, Cause::Transient);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Waiting, Reason::Lost)
    );
    assert_eq!(bench.attempt().number, 1);
    assert_eq!(bench.reason(), Reason::Retry);
}

#[test]
fn a_handshake_clears_nothing_and_proof_clears_the_charges() {
    let mut bench = Bench::held(exact());
    for charges in 1..=4 {
        bench.flap();
        assert_eq!(bench.standing().charges, charges);
    }
    let home = bench.open();
    assert_eq!(bench.state(), State::Unproven);
    assert_eq!(bench.standing().charges, 4);
    assert!(bench.budget.proven(bench.now, home));
    assert_eq!(bench.state(), State::Proven);
    assert_eq!(bench.standing().charges, 0);
    assert!(!bench.budget.proven(bench.now, home), "proof is told once");
}

#[test]
fn each_session_has_to_prove_itself_anew() {
    let (mut bench, home) = Bench::proven(exact());
    bench.lose(home, Cause::Transient);
    bench.open();
    assert_eq!(bench.state(), State::Unproven);
}

#[test]
fn a_flapping_server_is_parked_after_one_opening_and_its_retries() {
    for max_retries in [1, 3, 5, 20] {
        let mut bench = Bench::held(Policy {
            max_retries,
            ..Policy::default()
        });
        bench.park();
        assert_eq!(bench.reason(), Reason::Spent);
        assert_eq!(bench.starts.len(), 1 + max_retries as usize);
    }
}

#[test]
fn a_clean_end_without_proof_is_charged_and_waits_like_any_other() {
    let mut bench = Bench::held(exact());
    let home = bench.open();
    bench.lose(home, Cause::Routine);
    assert_eq!(bench.standing().charges, 1);
    assert_eq!(bench.next_try(), Some(SECOND));
}

#[test]
fn a_server_that_proves_itself_before_each_drop_is_never_parked() {
    let mut bench = Bench::held(Policy::default());
    for _ in 0..1000 {
        let home = bench.open();
        assert!(bench.budget.proven(bench.now, home));
        bench.lose(home, Cause::Transient);
        assert_eq!(
            (bench.state(), bench.standing().charges),
            (State::Waiting, 0)
        );
    }
}

// Delays.

#[test]
fn failures_double_the_delay() {
    let mut bench = Bench::held(Policy {
        max_retries: 20,
        ..exact()
    });
    let waited: Vec<_> = (0..9).map(|_| bench.flap().as_secs()).collect();
    assert_eq!(waited, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn delays_are_spread_around_what_the_policy_says() {
    let mut waited: Vec<_> = (0..200)
        .map(|seed| {
            let mut bench = Bench::new(Policy::default());
            bench.budget = mcp_budget::Budget::new(
                Policy {
                    floor: Duration::ZERO,
                    ..Policy::default()
                },
                seed,
            );
            bench.budget.hold(bench.now);
            bench.flap();
            bench.flap()
        })
        .collect();
    waited.sort();
    assert!(waited[0] >= SECOND * 8 / 10 && waited[0] < SECOND * 85 / 100);
    assert!(waited[199] <= SECOND * 12 / 10 && waited[199] > SECOND * 115 / 100);
}

#[test]
fn a_proven_server_that_dies_young_is_retried_ever_more_slowly_while_nobody_waits() {
    let mut bench = Bench::held(exact());
    let mut waited = Vec::new();
    for _ in 0..12 {
        let before = bench.now;
        let home = bench.open();
        waited.push(bench.now.since(before).as_secs());
        bench.budget.proven(bench.now, home);
        bench.lose(home, Cause::Transient);
    }
    assert_eq!(waited, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
}

#[test]
fn only_a_stable_life_clears_the_backoff_nobody_waits_for() {
    let (mut bench, mut home) = Bench::proven(exact());
    let mut die_at = |bench: &mut Bench, age: Duration| {
        bench.pass(age);
        bench.lose(home, Cause::Transient);
        let waited = bench.next_try().unwrap();
        home = bench.open();
        bench.budget.proven(bench.now, home);
        waited
    };
    let nearly = MINUTE * 10 - SECOND;
    assert_eq!(die_at(&mut bench, nearly), SECOND);
    assert_eq!(die_at(&mut bench, nearly), SECOND * 2);
    assert_eq!(die_at(&mut bench, nearly), SECOND * 4);
    assert_eq!(die_at(&mut bench, MINUTE * 10), SECOND);
}

#[test]
fn a_call_that_waits_has_a_proven_session_replaced_at_once_but_for_the_floor() {
    let (mut bench, home) = Bench::proven(exact());
    bench.budget.attend(bench.now, true);
    bench.pass(SECOND / 4);
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.next_try(), Some(SECOND * 3 / 4));
    let home = bench.open();
    bench.budget.proven(bench.now, home);
    bench.pass(SECOND);
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.next_try(), Some(Duration::ZERO));
}

#[test]
fn a_call_that_comes_while_it_waits_shortens_the_wait_and_gives_it_back_when_it_leaves() {
    let (mut bench, mut home) = Bench::proven(exact());
    for _ in 0..6 {
        bench.lose(home, Cause::Transient);
        home = bench.open();
        bench.budget.proven(bench.now, home);
    }
    bench.lose(home, Cause::Transient);
    assert_eq!(bench.next_try(), Some(SECOND * 64));
    bench.budget.attend(bench.now, true);
    assert_eq!(bench.next_try(), Some(SECOND));
    bench.budget.attend(bench.now, false);
    assert_eq!(bench.next_try(), Some(SECOND * 64));
}

#[test]
fn a_call_that_waits_does_not_shorten_the_delay_while_charges_stand() {
    let mut bench = Bench::held(exact());
    for _ in 0..4 {
        bench.flap();
    }
    bench.budget.attend(bench.now, true);
    assert_eq!(bench.next_try(), Some(SECOND * 8));
}

#[test]
fn a_servers_own_wish_is_kept_up_to_an_hour_by_calls_and_wakes_too() {
    for (wish, kept) in [(MINUTE * 7, MINUTE * 7), (HOUR * 30, HOUR)] {
        let (mut bench, home) = Bench::proven(exact());
        bench.lose(home, Loss::new(Cause::Transient).not_before(wish));
        assert_eq!(bench.next_try(), Some(kept));
        bench.budget.attend(bench.now, true);
        bench.budget.wake(bench.now);
        assert_eq!(bench.next_try(), Some(kept));
        assert_eq!(
            bench.budget.leave(bench.now),
            Err(Refusal::Wait(Some(bench.now.plus(kept))))
        );
    }
}

#[test]
fn a_time_before_the_last_is_taken_as_the_last() {
    let mut bench = Bench::held(exact());
    bench.flap();
    let late = bench.now;
    bench.now = Timestamp::ZERO;
    assert_eq!(bench.poll(), None);
    let home = bench.budget.standing();
    assert_eq!(home.next_try, Some(late.plus(SECOND)));
    bench.now = late.plus(SECOND);
    let generation = bench.open();
    bench.now = Timestamp::ZERO;
    bench.lose(generation, Cause::Transient);
    assert_eq!(
        bench.standing().next_try,
        Some(late.plus(SECOND).plus(SECOND * 2))
    );
}

#[test]
fn nothing_overflows_however_long_it_fails() {
    let mut bench = Bench::held(Policy {
        max_retries: u32::MAX,
        max_initial_retries: u32::MAX,
        ..Policy::default()
    });
    for _ in 0..100_000 {
        bench.fail(Cause::Transient);
    }
    assert_eq!(bench.standing().charges, 100_000);
    for _ in 0..100_000 {
        bench.fail(Cause::Local);
    }
    let mut endless = Bench::held(Policy {
        backoff: Duration::MAX,
        backoff_max: Duration::MAX,
        backoff_max_proven: Duration::MAX,
        park_probe: Duration::MAX,
        ..Policy::default()
    });
    endless.flap();
    assert_eq!(endless.standing().next_try, Some(Timestamp::NEVER));
}

// Never connected.

#[test]
fn a_binding_that_never_connected_is_parked_after_one_attempt_and_its_initial_retries() {
    let mut bench = Bench::held(exact());
    let waited: Vec<_> = (0..4)
        .map(|_| bench.fail(Cause::Transient).as_secs())
        .collect();
    assert_eq!(waited, [0, 1, 2, 4]);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::NeverConnected)
    );
    assert_eq!(bench.standing().attempt, 4);
}

#[test]
fn once_connected_it_has_the_retries_of_a_loss() {
    let mut bench = Bench::held(exact());
    for _ in 0..3 {
        bench.fail(Cause::Transient);
    }
    bench.flap();
    assert_eq!(
        (bench.state(), bench.standing().charges),
        (State::Waiting, 4)
    );
}

// Causes.

#[test]
fn a_permanent_cause_parks_at_once_what_was_never_proven() {
    let mut bench = Bench::held(exact());
    bench.fail(Cause::Permanent);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Permanent)
    );

    let (mut bench, home) = Bench::proven(exact());
    bench.lose(home, Cause::Transient);
    bench.fail(Cause::Permanent);
    assert_eq!(
        (bench.state(), bench.standing().charges),
        (State::Waiting, 1)
    );
}

#[test]
fn a_local_cause_costs_nothing_backs_off_and_never_parks() {
    let mut bench = Bench::held(exact());
    let waited: Vec<_> = (0..12)
        .map(|_| bench.fail(Cause::Local).as_secs())
        .collect();
    assert_eq!(waited, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    for _ in 0..1000 {
        bench.fail(Cause::Local);
        assert_eq!(
            (bench.state(), bench.standing().charges),
            (State::Waiting, 0)
        );
    }
    assert_eq!(bench.reason(), Reason::Local);
    bench.budget.attend(bench.now, true);
    assert_eq!(bench.next_try(), Some(MINUTE), "calls back off too");
}

#[test]
fn a_routine_end_leaves_the_binding_idle_until_a_call_comes() {
    let (mut bench, home) = Bench::proven(exact());
    bench.pass(MINUTE);
    bench.lose(home, Cause::Routine);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Idle, Reason::Ended)
    );
    assert_eq!(bench.budget.timeout(), None);
    bench.pass(HOUR);
    bench.budget.attend(bench.now, true);
    assert_eq!(bench.next_try(), Some(Duration::ZERO));
}

#[test]
fn a_routine_end_is_mended_at_once_where_a_call_waits_or_it_is_kept_open() {
    let (mut bench, home) = Bench::proven(exact());
    bench.pass(MINUTE);
    bench.budget.attend(bench.now, true);
    bench.lose(home, Cause::Routine);
    assert_eq!(bench.next_try(), Some(Duration::ZERO));

    let (mut bench, home) = Bench::proven(exact());
    bench.budget.keep_open(bench.now, true);
    bench.pass(HOUR);
    bench.lose(home, Cause::Routine);
    assert_eq!(bench.next_try(), Some(Duration::ZERO));
    let home = bench.open();
    bench.budget.proven(bench.now, home);
    bench.lose(home, Cause::Routine);
    assert_eq!(
        bench.next_try(),
        Some(SECOND),
        "a short life is no reason to hurry"
    );
}

#[test]
fn a_session_that_wants_credentials_is_opened_anew_once_and_then_parked() {
    let (mut bench, home) = Bench::proven(exact());
    bench.budget.attend(bench.now, true);
    bench.pass(SECOND);
    bench.lose(home, Cause::Auth);
    assert_eq!(
        (bench.state(), bench.standing().charges),
        (State::Waiting, 0)
    );
    let home = bench.open();
    bench.lose(home, Cause::Auth);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Auth)
    );
    assert_eq!(bench.next_try(), Some(HOUR));
    bench.budget.knock(bench.now);
    assert_eq!(bench.next_try(), Some(HOUR), "calls bring no credentials");
    bench.fail(Cause::Auth);
    assert_eq!(bench.next_try(), Some(HOUR));
    bench.budget.wake(bench.now);
    assert_eq!(bench.next_try(), Some(SECOND));
    let home = bench.open();
    bench.budget.proven(bench.now, home);
    assert_eq!(bench.state(), State::Proven);
}

#[test]
fn an_attempt_that_is_refused_credentials_parks_and_is_probed_only_if_it_was_ever_proven() {
    let mut bench = Bench::held(exact());
    bench.fail(Cause::Auth);
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Auth)
    );
    assert_eq!((bench.next_try(), bench.budget.timeout()), (None, None));
    bench.budget.wake(bench.now);
    bench.open();
}

// No retries.

#[test]
fn without_retries_every_loss_parks_and_only_a_wake_tries_again() {
    let policy = Policy {
        max_retries: 0,
        ..exact()
    };
    for (proven, cause) in [
        (false, Cause::Transient),
        (true, Cause::Transient),
        (true, Cause::Routine),
        (true, Cause::Local),
    ] {
        let mut bench = Bench::held(policy.clone());
        for _ in 0..3 {
            let home = bench.open();
            if proven {
                bench.budget.proven(bench.now, home);
            }
            bench.lose(home, cause);
            assert_eq!(
                (bench.state(), bench.reason()),
                (State::Parked, Reason::NoRetries)
            );
            bench.budget.knock(bench.now);
            assert_eq!((bench.next_try(), bench.budget.timeout()), (None, None));
            bench.pass(HOUR * 24);
            assert_eq!(bench.poll(), None);
            bench.budget.wake(bench.now);
        }
    }
}

// Parked.

#[test]
fn probes_of_a_parked_binding_come_ever_more_slowly_one_attempt_each() {
    let mut bench = Bench::held(exact());
    bench.park();
    let charges = bench.standing().charges;
    let waited: Vec<_> = (0..6)
        .map(|n| match n % 2 {
            0 => bench.fail(Cause::Transient).as_secs(),
            _ => bench.flap().as_secs(),
        })
        .collect();
    assert_eq!(waited, [300, 600, 1200, 2400, 3600, 3600]);
    assert_eq!(bench.state(), State::Parked);
    assert_eq!(bench.standing().charges, charges);
}

#[test]
fn only_proof_ends_parking() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.flap();
    bench.flap();
    let home = bench.open();
    assert_eq!(bench.state(), State::Unproven);
    bench.budget.proven(bench.now, home);
    bench.lose(home, Cause::Transient);
    assert_eq!(
        (bench.state(), bench.standing().charges),
        (State::Waiting, 0)
    );
    bench.park();
    assert_eq!(
        bench.next_try(),
        Some(MINUTE * 5),
        "and resets the interval"
    );
}

#[test]
fn a_refused_call_brings_the_probe_forward_to_a_tenth_of_its_interval_after_the_last_attempt() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.pass(SECOND * 10);
    assert_eq!(
        bench.budget.outlook(bench.now),
        Outlook::Parked(Some(bench.now.plus(SECOND * 290)))
    );
    bench.budget.knock(bench.now);
    assert_eq!(bench.next_try(), Some(SECOND * 20));
    bench.budget.knock(bench.now);
    assert_eq!(bench.next_try(), Some(SECOND * 20), "once");
    bench.fail(Cause::Transient);
    assert_eq!(bench.next_try(), Some(MINUTE * 10));
    bench.pass(MINUTE * 2);
    bench.budget.knock(bench.now);
    assert_eq!(bench.next_try(), Some(Duration::ZERO));
}

#[test]
fn wakes_are_merged_and_keep_the_floor() {
    let mut bench = Bench::held(exact());
    bench.park();
    for _ in 0..100 {
        bench.budget.wake(bench.now);
    }
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Waiting, Reason::Woken)
    );
    assert_eq!(
        bench.budget.outlook(bench.now),
        Outlook::Waiting(Some(bench.now.plus(SECOND))),
        "a call after a wake waits for it"
    );
    assert_eq!(bench.flap(), SECOND);
    assert_eq!(bench.state(), State::Parked, "one attempt for all of them");
}

#[test]
fn a_wake_ends_waiting_but_for_the_floor() {
    let mut bench = Bench::held(exact());
    for _ in 0..5 {
        bench.flap();
    }
    assert_eq!(bench.next_try(), Some(SECOND * 16));
    bench.budget.wake(bench.now);
    assert_eq!(bench.flap(), SECOND);
    assert_eq!(bench.state(), State::Parked, "what it opened was charged");
}

#[test]
fn a_wake_leaves_idle_and_open_bindings_alone() {
    let mut bench = Bench::new(exact());
    bench.budget.wake(bench.now);
    assert_eq!((bench.state(), bench.poll()), (State::Idle, None));
    let (mut bench, home) = Bench::proven(exact());
    bench.budget.wake(bench.now);
    assert_eq!((bench.state(), bench.poll()), (State::Proven, None));
    assert_eq!(bench.standing().generation, home);
}

#[test]
fn a_probe_that_fails_by_this_sides_fault_is_not_held_against_the_server() {
    let mut bench = Bench::held(exact());
    bench.park();
    for _ in 0..3 {
        assert_eq!(bench.fail(Cause::Local), MINUTE * 5);
    }
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Spent)
    );
}

#[test]
fn probes_are_spread_but_come_neither_early_nor_beyond_the_longest_interval() {
    for seed in 0..50 {
        let mut bench = Bench::new(Policy::default());
        bench.budget = mcp_budget::Budget::new(Policy::default(), seed);
        bench.budget.hold(bench.now);
        bench.park();
        let first = bench.flap();
        assert!(first >= MINUTE * 5 && first <= MINUTE * 6);
        for _ in 0..10 {
            assert!(bench.flap() <= HOUR);
        }
    }
}

// Generations, and proof by age.

#[test]
fn what_bears_an_old_generation_changes_nothing() {
    let (mut bench, old) = Bench::proven(exact());
    bench.lose(old, Cause::Transient);
    let home = bench.open();
    let before = bench.standing();
    for generation in [0, old, home + 1, u64::MAX] {
        assert!(
            !bench
                .budget
                .lost(bench.now, generation, Cause::Fatal.into())
        );
        assert!(!bench.budget.proven(bench.now, generation));
        assert!(!bench.budget.opened(bench.now, generation));
        assert!(!bench.budget.closed(bench.now, generation));
    }
    assert_eq!(bench.standing(), before);
}

#[test]
fn an_unproven_session_is_probed_once_when_it_is_old_enough_and_age_alone_proves_nothing() {
    let mut bench = Bench::held(exact());
    let home = bench.open();
    assert_eq!(bench.budget.timeout(), Some(bench.now.plus(MINUTE * 3)));
    bench.pass(MINUTE * 3);
    assert_eq!(bench.poll(), Some(Action::Probe { generation: home }));
    assert_eq!((bench.poll(), bench.budget.timeout()), (None, None));
    bench.pass(HOUR);
    assert_eq!(bench.state(), State::Unproven);
    bench.budget.proven(bench.now, home);
    assert_eq!(bench.state(), State::Proven);
}

#[test]
fn each_step_is_told_once() {
    let mut bench = Bench::held(exact());
    let mut steps = Vec::new();
    let mut take = |bench: &mut Bench| {
        while let Some(step) = bench.budget.transition() {
            steps.push((step.state, step.reason, step.attempt));
        }
    };
    take(&mut bench);
    let first = bench.attempt().generation;
    take(&mut bench);
    bench.lose(first, Cause::Transient);
    take(&mut bench);
    let home = bench.attempt().generation;
    take(&mut bench);
    bench.budget.opened(bench.now, home);
    take(&mut bench);
    bench.budget.proven(bench.now, home);
    take(&mut bench);
    bench.budget.stop(bench.now, Reason::Shutdown);
    bench.budget.stop(bench.now, Reason::Fatal);
    take(&mut bench);
    assert_eq!(
        steps,
        [
            (State::Waiting, Reason::Wanted, 0),
            (State::Connecting, Reason::Wanted, 1),
            (State::Waiting, Reason::Failed, 1),
            (State::Connecting, Reason::Retry, 2),
            (State::Unproven, Reason::Opened, 2),
            (State::Proven, Reason::Answered, 0),
            (State::Stopped, Reason::Shutdown, 0),
        ]
    );
}

// The owner's explicit close.

#[test]
fn what_waits_to_reconnect_and_is_let_go_is_tried_again_only_when_it_is_wanted() {
    let mut bench = Bench::held(exact());
    bench.flap();
    bench.flap();
    assert_eq!(bench.budget.let_go(bench.now), None);
    assert_eq!(bench.budget.timeout(), None);
    bench.pass(HOUR);
    assert_eq!(bench.poll(), None);
    assert_eq!((bench.state(), bench.standing().charges), (State::Idle, 2));
    bench.budget.hold(bench.now);
    bench.open();
}

#[test]
fn what_is_kept_open_is_opened_again_after_it_was_let_go() {
    let (mut bench, home) = Bench::proven(exact());
    bench.budget.keep_open(bench.now, true);
    assert_eq!(bench.budget.let_go(bench.now), Some(home));
    assert!(bench.open() > home);
    assert_eq!(bench.standing().charges, 0);
}
