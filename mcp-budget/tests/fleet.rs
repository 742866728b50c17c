//! Supervisors that share a gate, in paused time.

mod fake;

use std::time::Duration;

use fake::{Connector, Fate, Life, MINUTE, SECOND, after, home, settle, supervise_with};
use mcp_budget::{Cause, GateLimits, Options, Policy, SharedGate, State, Supervisor, Want, Why};
use tokio::time::{Instant, sleep};

fn behind(gate: &SharedGate) -> Options {
    Options {
        gate: Some(gate.clone()),
        ..Options::default()
    }
}

fn server(
    gate: &SharedGate,
    fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
) -> (Supervisor<Connector>, Connector) {
    let (supervisor, connector, _) = supervise_with(behind(gate), fate);
    (supervisor, connector)
}

fn slow() -> GateLimits {
    GateLimits {
        per_second: 1,
        burst: 1,
        ..GateLimits::default()
    }
}

fn starts(servers: &[(Supervisor<Connector>, Connector)]) -> Vec<Instant> {
    let mut starts: Vec<_> = servers
        .iter()
        .flat_map(|(_, connector)| {
            connector.seen(|seen| seen.attempts.iter().map(|(at, _)| *at).collect::<Vec<_>>())
        })
        .collect();
    starts.sort();
    starts
}

#[tokio::test(start_paused = true)]
async fn a_thousand_servers_back_at_the_same_instant_connect_within_the_rate() {
    let gate = SharedGate::default();
    let servers: Vec<_> = (0..1000)
        .map(|_| server(&gate, |_| Fate::Opens(Life::Long)))
        .collect();
    for (supervisor, _) in &servers {
        supervisor.start();
    }
    let begun = Instant::now();
    sleep(SECOND * 51).await;
    let starts = starts(&servers);
    assert_eq!(starts.len(), 1000);
    assert!(*starts.last().unwrap() - begun <= SECOND * 50);
    for window in starts.windows(16 + 20 + 1) {
        assert!(*window.last().unwrap() - window[0] >= SECOND - SECOND / 100);
    }
    assert_eq!((gate.waiting(), gate.in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_that_hang_do_not_keep_the_others_from_connecting_within_the_rate() {
    let gate = SharedGate::default();
    let servers: Vec<_> = (0..1000)
        .map(|n| {
            server(&gate, move |_| match n % 10 {
                3 => Fate::Hangs,
                _ => Fate::Opens(Life::Long),
            })
        })
        .collect();
    for (supervisor, _) in &servers {
        supervisor.start();
    }
    sleep(SECOND * 51).await;
    let open = servers
        .iter()
        .filter(|(supervisor, _)| supervisor.status().state == State::Unproven);
    assert_eq!(open.count(), 900);
}

#[tokio::test(start_paused = true)]
async fn who_has_a_call_waiting_goes_before_those_that_nobody_waits_for() {
    let gate = SharedGate::new(slow());
    let servers: Vec<_> = (0..50)
        .map(|_| server(&gate, |_| Fate::Opens(Life::Long)))
        .collect();
    for (supervisor, _) in &servers {
        supervisor.start();
    }
    settle().await;
    let begun = Instant::now();
    let (last, _) = servers.last().unwrap();
    home(last).await.expect("it opens");
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn scoped_openings_pass_the_gate_and_hold_their_place_until_they_are_open() {
    let limits = GateLimits {
        in_flight: 2,
        ..GateLimits::default()
    };
    let gate = SharedGate::new(limits);
    let (supervisor, _) = server(&gate, |_| Fate::Opens(Life::Long));
    let live = home(&supervisor).await.unwrap();
    supervisor.proven(live.generation);
    let first = supervisor.leave(None).await.unwrap();
    let second = supervisor.leave(None).await.unwrap();
    assert_eq!(gate.in_flight(), 2);
    let late = supervisor.leave(after(SECOND)).await.unwrap_err();
    assert_eq!(late.why, Why::Deadline);
    let opened = first.opened();
    let third = supervisor
        .leave(after(SECOND))
        .await
        .expect("there is room");
    drop((second, third, opened));
    assert_eq!((gate.waiting(), gate.in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hung_opening_counts_for_five_seconds() {
    let limits = GateLimits {
        in_flight: 1,
        ..GateLimits::default()
    };
    let gate = SharedGate::new(limits);
    let (hung, _) = server(&gate, |_| Fate::Hangs);
    let (good, _) = server(&gate, |_| Fate::Opens(Life::Long));
    hung.start();
    settle().await;
    let begun = Instant::now();
    home(&good).await.unwrap();
    assert!(begun.elapsed() >= SECOND * 4 && begun.elapsed() <= SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_wants_any_more_is_given_up() {
    let gate = SharedGate::new(slow());
    let servers: Vec<_> = (0..20)
        .map(|_| server(&gate, |_| Fate::Opens(Life::Long)))
        .collect();
    for (supervisor, _) in &servers {
        supervisor.start();
    }
    settle().await;
    assert_eq!(gate.waiting(), 19);
    for (supervisor, _) in &servers {
        supervisor.shutdown(SECOND).await;
    }
    settle().await;
    assert_eq!((gate.waiting(), gate.in_flight()), (0, 0));
    assert_eq!(starts(&servers).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_the_gate_delays_two_attempts_keep_the_floor() {
    let gate = SharedGate::new(GateLimits {
        per_second: 2,
        burst: 1,
        ..GateLimits::default()
    });
    let policy = Policy {
        backoff: Duration::ZERO,
        max_retries: 1000,
        max_initial_retries: 1000,
        ..Policy::default()
    };
    let servers: Vec<_> = (0..7)
        .map(|_| {
            let options = Options {
                policy: policy.clone(),
                ..behind(&gate)
            };
            let fails = |_| Fate::Fails(Cause::Transient, "no");
            let (supervisor, connector, _) = supervise_with(options, fails);
            supervisor.start();
            (supervisor, connector)
        })
        .collect();
    sleep(MINUTE).await;
    assert!(starts(&servers).len() > 100, "the gate is used to the full");
    for (_, connector) in &servers {
        let starts = connector.seen(|seen| seen.attempts.clone());
        for pair in starts.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= SECOND - SECOND / 100);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_its_place_back() {
    let gate = SharedGate::new(GateLimits {
        in_flight: 1,
        ..GateLimits::default()
    });
    let (bad, _) = server(&gate, |_| Fate::Panics("oh no"));
    let (good, _) = server(&gate, |_| Fate::Opens(Life::Long));
    assert!(home(&bad).await.is_err());
    let want = Want {
        deadline: after(SECOND),
        ..Want::default()
    };
    assert!(good.session(want).await.is_ok());
}

#[test]
fn those_who_wait_outlive_the_runtime_that_watched_the_gate() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let gate = SharedGate::new(slow());
    let (first, second) = (runtime(), runtime());
    let fleet = |n| -> Vec<_> {
        (0..n)
            .map(|_| server(&gate, |_| Fate::Opens(Life::Long)))
            .collect()
    };
    let early = first.block_on(async {
        let early = fleet(5);
        early.iter().for_each(|(supervisor, _)| supervisor.start());
        settle().await;
        early
    });
    let late = second.block_on(async {
        let late = fleet(5);
        late.iter().for_each(|(supervisor, _)| supervisor.start());
        settle().await;
        late
    });
    drop(first);
    second.block_on(async { sleep(MINUTE).await });
    assert_eq!(starts(&late).len(), 5);
    drop(early);
}
