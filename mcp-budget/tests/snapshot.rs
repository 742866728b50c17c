//! What outlives the process that held a budget.

mod support;

use std::time::Duration;

use mcp_budget::{Budget, Cause, Outlook, Policy, Reason, Snapshot, State, Timestamp};
use support::{Bench, HOUR, MINUTE, SECOND, exact};

impl Bench {
    fn snapshot(&self) -> Snapshot {
        self.budget.snapshot(self.now, Duration::from_secs(4711))
    }

    /// The same binding in another process, whose clock has just begun.
    fn reborn(&self) -> Self {
        Self::restored(&self.snapshot())
    }

    fn restored(snapshot: &Snapshot) -> Self {
        let now = Timestamp::from_nanos(1);
        Self {
            budget: Budget::restore(exact(), 2, now, snapshot),
            now,
            starts: Vec::new(),
        }
    }
}

#[test]
fn connecting_unproven_and_proven_become_idle_with_their_charges() {
    let mut connecting = Bench::held(exact());
    connecting.flap();
    connecting.attempt();
    let mut unproven = Bench::held(exact());
    unproven.flap();
    unproven.open();
    let (mut proven, _) = Bench::proven(exact());
    let scoped = proven.scoped().unwrap();
    proven.lose(scoped, Cause::Transient);
    for bench in [connecting, unproven, proven] {
        assert_eq!(bench.standing().charges, 1);
        let mut bench = bench.reborn();
        let standing = bench.standing();
        assert_eq!((standing.state, standing.charges), (State::Idle, 1));
        assert_eq!(bench.budget.timeout(), None, "it does nothing by itself");
        bench.budget.attend(bench.now, true);
        bench.pass(SECOND);
        bench.open();
    }
}

#[test]
fn waiting_keeps_what_remained_of_its_time() {
    let mut bench = Bench::held(exact());
    for _ in 0..4 {
        bench.flap();
    }
    bench.pass(SECOND * 3);
    assert_eq!(bench.next_try(), Some(SECOND * 5));
    let mut bench = bench.reborn();
    assert_eq!(bench.state(), State::Waiting);
    assert_eq!(bench.next_try(), Some(SECOND * 5));
    bench.flap();
    assert_eq!(
        bench.next_try(),
        Some(SECOND * 16),
        "and goes on from there"
    );
    bench.flap();
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Spent)
    );
}

#[test]
fn parked_keeps_what_remained_its_reason_and_its_interval() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.fail(Cause::Transient);
    bench.pass(MINUTE);
    let mut bench = bench.reborn();
    assert_eq!(
        (bench.state(), bench.reason()),
        (State::Parked, Reason::Spent)
    );
    assert_eq!(bench.next_try(), Some(MINUTE * 9));
    bench.fail(Cause::Transient);
    assert_eq!(bench.next_try(), Some(MINUTE * 20));

    let mut bench = Bench::held(exact());
    bench.fail(Cause::Auth);
    let bench = bench.reborn();
    assert_eq!((bench.reason(), bench.next_try()), (Reason::Auth, None));
}

#[test]
fn a_wake_that_nothing_came_of_yet_is_kept() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.pass(SECOND);
    bench.budget.wake(bench.now);
    let mut bench = bench.reborn();
    assert_eq!(bench.state(), State::Waiting);
    bench.open();
}

#[test]
fn a_probe_that_was_out_is_made_again_and_the_interval_stays() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.open();
    bench.pass(SECOND);
    for _ in 0..3 {
        bench = bench.reborn();
        assert_eq!(
            (bench.state(), bench.next_try()),
            (State::Parked, Some(Duration::ZERO))
        );
    }
    bench.fail(Cause::Transient);
    assert_eq!(bench.next_try(), Some(MINUTE * 10));
}

#[test]
fn what_was_proven_once_is_not_parked_for_a_permanent_cause_afterwards() {
    let (bench, _) = Bench::proven(exact());
    let mut bench = bench.reborn();
    bench.budget.hold(bench.now);
    bench.pass(SECOND);
    bench.fail(Cause::Permanent);
    assert_eq!(bench.state(), State::Waiting);
}

#[test]
fn no_generation_is_given_out_twice() {
    let mut bench = Bench::held(exact());
    for _ in 0..3 {
        bench.flap();
    }
    let mut bench = bench.reborn();
    assert_eq!(bench.open(), 4);
}

#[test]
fn the_servers_wish_the_floor_and_the_backoff_nobody_waits_for_are_kept() {
    let (mut bench, home) = Bench::proven(exact());
    bench.lose(
        home,
        mcp_budget::Loss::new(Cause::Transient).not_before(HOUR),
    );
    let bench = bench.reborn();
    assert_eq!(bench.next_try(), Some(HOUR));

    let (mut bench, home) = Bench::proven(exact());
    bench.budget.attend(bench.now, true);
    bench.lose(home, Cause::Transient);
    bench.pass(SECOND / 4);
    let bench = bench.reborn();
    assert_eq!(
        bench.budget.outlook(bench.now),
        Outlook::Waiting(Some(bench.now.plus(SECOND * 3 / 4)))
    );

    let (mut bench, mut home) = Bench::proven(exact());
    for _ in 0..4 {
        bench.lose(home, Cause::Transient);
        home = bench.open();
        bench.budget.proven(bench.now, home);
    }
    bench.lose(home, Cause::Transient);
    let bench = bench.reborn();
    assert_eq!(bench.next_try(), Some(SECOND * 16));
}

#[test]
fn restarting_the_host_buys_no_more_unattended_attempts() {
    let (mut bench, mut home) = Bench::proven(exact());
    let mut attempts = 0;
    let mut gone = Duration::ZERO;
    while gone < HOUR {
        bench.lose(home, Cause::Transient);
        bench = bench.reborn();
        let reborn = bench.now;
        home = bench.open();
        attempts += 1;
        bench.budget.proven(bench.now, home);
        gone += bench.now.since(reborn);
    }
    assert!(attempts <= 25, "{attempts} attempts");
}

#[test]
fn times_that_no_policy_makes_are_cut_to_what_it_would_make_them() {
    let never = Duration::MAX;
    let snapshot = Snapshot {
        state: State::Waiting,
        wanted: true,
        failures: u32::MAX,
        charges: u32::MAX,
        generation: 7,
        since_start: Some(never),
        delay: never,
        not_before: never,
        backoff: never,
        backoff_left: never,
        allowance: never,
        ..Snapshot::default()
    };
    let bench = Bench::restored(&snapshot);
    assert!(bench.next_try().unwrap() <= HOUR);
    let parked = mcp_budget::ParkedSnapshot {
        reason: Reason::Opened,
        interval: Some(never),
        next_try: Some(never),
    };
    let snapshot = Snapshot {
        parked: Some(parked),
        ..snapshot
    };
    let mut bench = Bench::restored(&snapshot);
    assert_eq!(
        (bench.reason(), bench.next_try()),
        (Reason::Spent, Some(HOUR))
    );
    bench.fail(Cause::Transient);
    assert_eq!(bench.next_try(), Some(HOUR));
}

#[test]
fn the_snapshot_of_an_untouched_budget_makes_an_untouched_one() {
    let bench = Bench::new(exact());
    let snapshot = bench.snapshot();
    assert_eq!(
        snapshot,
        Snapshot {
            taken: Duration::from_secs(4711),
            ..Snapshot::default()
        }
    );
    let fresh = Bench::restored(&snapshot);
    assert_eq!(
        fresh.standing(),
        Budget::new(Policy::default(), 1).standing()
    );
}

#[cfg(feature = "serde")]
#[test]
fn written_and_read_it_is_the_same_with_units_in_its_names() {
    let mut bench = Bench::held(exact());
    bench.park();
    bench.pass(SECOND * 7);
    let snapshot = bench.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    for part in [
        r#""taken_unix_ms":4711000"#,
        r#""state":"parked""#,
        r#""reason":"spent""#,
        r#""interval_ms":300000"#,
        r#""next_try_ms":293000"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let sparse: Snapshot = serde_json::from_str(r#"{"charges":2,"of_the_future":[]}"#).unwrap();
    assert_eq!((sparse.charges, sparse.state), (2, State::Idle));
    assert!(serde_json::from_str::<Snapshot>(r#"{"delay_ms":-1}"#).is_err());
}
