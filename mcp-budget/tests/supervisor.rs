//! The supervisor, in paused time.

mod fake;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fake::{
    Connector, Fate, Life, MINUTE, SECOND, after, failure, home, settle, supervise, supervise_by,
};
use mcp_budget::{Cause, Failure, Options, Policy, Reason, State, Supervisor, Want, Why};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

// The seed.

#[tokio::test(start_paused = true)]
async fn a_flapping_server_is_parked_within_its_budget_and_woken() {
    let (supervisor, connector, steps) = supervise(|nth| match nth {
        ..=6 => Fate::Opens(Life::Dies(Duration::ZERO)),
        _ => Fate::Opens(Life::Long),
    });
    supervisor.start();
    sleep(MINUTE * 2).await;
    let status = supervisor.status();
    assert_eq!(
        (status.state, status.reason),
        (State::Parked, Reason::Spent)
    );
    assert_eq!(connector.attempts(), 1 + 5);

    let refused = home(&supervisor).await.unwrap_err();
    assert_eq!(refused.why, Why::Parked);
    let text = refused.to_string();
    assert!(text.contains("budget is spent") && text.contains("next try in"));
    assert!(text.contains("the pipe broke"), "{text}");

    supervisor.wake();
    let live = home(&supervisor).await.expect("it was woken");
    assert_eq!(supervisor.status().state, State::Unproven);
    supervisor.proven(live.generation);
    assert_eq!(
        (supervisor.status().state, supervisor.status().charges),
        (State::Proven, 0)
    );
    settle().await;
    let states: Vec<_> = steps.lock().unwrap().iter().map(|s| s.state).collect();
    let flap = [State::Connecting, State::Unproven, State::Waiting];
    let mut expected = flap.repeat(6);
    expected[17] = State::Parked;
    expected.extend([
        State::Waiting,
        State::Connecting,
        State::Unproven,
        State::Proven,
    ]);
    // It was so long ago that the floor did not hold the wake up.
    expected.remove(18);
    assert_eq!(states, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_proven_before_each_drop_reconnects_for_ever() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    for drop in 1..=50 {
        let live = home(&supervisor).await.unwrap();
        supervisor.proven(live.generation);
        live.session.kill();
        settle().await;
        assert_ne!(supervisor.status().state, State::Parked);
        assert_eq!(connector.attempts(), drop);
    }
    // And also when nobody waits.
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Dies(MINUTE * 4)));
    supervisor.start();
    sleep(MINUTE * 60 * 24).await;
    assert_ne!(supervisor.status().state, State::Parked);
    assert!(connector.attempts() > 100, "{}", connector.attempts());
    assert!(connector.seen(|seen| seen.probed.len()) > 100);
}

#[tokio::test(start_paused = true)]
async fn a_fatal_failure_stops_the_binding_and_is_handed_up() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    let live = home(&supervisor).await.unwrap();
    let both = failure(Cause::Transient, "the pipe broke").and(failure(Cause::Fatal, "cancelled"));
    supervisor.lost(live.generation, both);
    let refused = home(&supervisor).await.unwrap_err();
    assert_eq!(refused.why, Why::Stopped);
    assert!(refused.to_string().contains("cancelled"));
    supervisor.wake();
    sleep(MINUTE * 60).await;
    assert_eq!(connector.attempts(), 1);
    assert_eq!(connector.seen(|seen| seen.closed.clone()), [1]);
}

// Home and scopes together.

#[tokio::test(start_paused = true)]
async fn a_flapping_server_is_not_stormed_by_its_scopes() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Dies(SECOND / 10)));
    let scoped = Arc::new(Mutex::new(0));
    supervisor.start();
    let scopes: Vec<_> = (0..20)
        .map(|_| {
            let (supervisor, scoped) = (supervisor.clone(), Arc::clone(&scoped));
            tokio::spawn(async move {
                loop {
                    match supervisor.leave(None).await {
                        Ok(leave) => {
                            *scoped.lock().unwrap() += 1;
                            let session = leave.opened();
                            sleep(SECOND / 10).await;
                            session.lost(failure(Cause::Transient, "the pipe broke"));
                        }
                        Err(unavailable) => return unavailable.why,
                    }
                }
            })
        })
        .collect();
    for scope in scopes {
        assert_eq!(scope.await.unwrap(), Why::Parked);
    }
    let opened = *scoped.lock().unwrap() + connector.attempts();
    assert!(opened > 1 && opened <= 1 + 4 + 5, "{opened} openings");
}

#[tokio::test(start_paused = true)]
async fn leaves_are_given_in_the_order_they_were_asked_for() {
    let (supervisor, _, _) = supervise(|_| Fate::Hangs);
    let held: Vec<_> = [(); 4]
        .map(|()| supervisor.leave(None))
        .into_iter()
        .collect();
    let mut leaves = Vec::new();
    for leave in held {
        leaves.push(leave.await.unwrap());
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for n in 0..4 {
        let (supervisor, order) = (supervisor.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let leave = supervisor.leave(None).await.unwrap();
            order.lock().unwrap().push(n);
            drop(leave);
        }));
        settle().await;
    }
    sleep(MINUTE).await;
    assert!(order.lock().unwrap().is_empty());
    // One in the middle stops waiting, and the first leave is given up.
    waiting.remove(1).abort();
    drop(leaves.remove(0));
    for task in waiting {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 2, 3]);
    let generations: Vec<_> = leaves.iter().map(|leave| leave.generation()).collect();
    assert_eq!(generations, [2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_waits_goes_before_a_home_session_that_nobody_waits_for() {
    let (supervisor, connector, _) = supervise(|_| Fate::Fails(Cause::Transient, "refused"));
    home(&supervisor).await.unwrap_err();
    drop(supervisor.leave(None).await.unwrap());
    assert_eq!(connector.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_while_an_older_attempt_hangs_is_told_why_it_is_parked() {
    let (supervisor, connector, _) = supervise(|_| Fate::Hangs);
    let leave = supervisor.leave(None).await.unwrap();
    supervisor.start();
    connector.attempted(1).await;
    leave.failed(failure(Cause::Auth, "HTTP 401"));
    let refused = supervisor.leave(None).await.unwrap_err();
    assert_eq!((refused.why, refused.reason), (Why::Parked, Reason::Auth));
}

#[tokio::test(start_paused = true)]
async fn a_leave_that_cannot_be_had_in_time_is_refused_at_once() {
    let (supervisor, _, _) = supervise(|_| Fate::Hangs);
    let leave = supervisor.leave(None).await.unwrap();
    leave.failed(failure(Cause::Transient, "connection refused"));
    let before = Instant::now();
    let refused = supervisor.leave(after(SECOND / 2)).await.unwrap_err();
    assert_eq!(
        (refused.why, before.elapsed()),
        (Why::Waiting, Duration::ZERO)
    );
    assert!(refused.next_try.unwrap() > SECOND / 2);
    assert!(refused.to_string().contains("connection refused"));
    drop(supervisor.leave(after(SECOND * 2)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_scoped_session_is_told_of_by_its_first_word() {
    let (supervisor, _, _) = supervise(|_| Fate::Hangs);
    let session = supervisor.leave(None).await.unwrap().opened();
    assert_eq!(supervisor.status().scoped, 1);
    session.lost(failure(Cause::Transient, "the pipe broke"));
    session.lost(failure(Cause::Fatal, "closed"));
    session.proven();
    drop(session);
    let status = supervisor.status();
    assert_eq!((status.charges, status.scoped), (1, 0));
    assert_eq!(status.state, State::Waiting);
    let session = supervisor.leave(None).await.unwrap().opened();
    session.proven();
    session.proven();
    assert_eq!(supervisor.status().charges, 0);
    drop(session);
    assert_eq!(
        (supervisor.status().charges, supervisor.status().scoped),
        (0, 0)
    );
}

// Callers.

#[tokio::test(start_paused = true)]
async fn each_failed_attempts_error_reaches_all_who_wait_at_once() {
    let (supervisor, connector, _) = supervise(|nth| match nth {
        1 => Fate::Fails(Cause::Transient, "connection refused"),
        2 => Fate::Fails(Cause::Transient, "no route to host"),
        _ => Fate::Opens(Life::Long),
    });
    for text in ["connection refused", "no route to host"] {
        let before = connector.attempts();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let supervisor = supervisor.clone();
                tokio::spawn(async move { home(&supervisor).await })
            })
            .collect();
        for waiter in waiting {
            let failed = waiter.await.unwrap().unwrap_err();
            assert_eq!(failed.why, Why::Failed);
            assert!(failed.to_string().contains(text), "{failed}");
            let at = connector.seen(|seen| seen.attempts.last().unwrap().0);
            assert!(at.elapsed() < SECOND / 10);
        }
        assert_eq!(connector.attempts(), before + 1);
    }
    home(&supervisor).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn callers_who_want_another_session_share_one_recovery() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    let live = home(&supervisor).await.unwrap();
    supervisor.proven(live.generation);
    sleep(MINUTE).await;
    let before = Instant::now();
    let recovering: Vec<_> = (0..50)
        .map(|_| {
            let supervisor = supervisor.clone();
            let old = live.generation;
            tokio::spawn(async move {
                supervisor.lost(old, failure(Cause::Routine, "session expired"));
                let want = Want {
                    other_than: Some(old),
                    deadline: after(SECOND),
                };
                supervisor.session(want).await.unwrap().generation
            })
        })
        .collect();
    for caller in recovering {
        assert_eq!(caller.await.unwrap(), live.generation + 1);
    }
    assert_eq!(before.elapsed(), Duration::ZERO, "replaced at once");
    assert_eq!(connector.attempts(), 2);
    assert_eq!(
        connector.seen(|seen| seen.closed.clone()),
        [live.generation]
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_loss_of_an_old_generation_changes_nothing() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    let old = home(&supervisor).await.unwrap();
    supervisor.lost(old.generation, failure(Cause::Transient, "the pipe broke"));
    let new = home(&supervisor).await.unwrap();
    settle().await;
    let before = supervisor.status();
    supervisor.lost(old.generation, failure(Cause::Fatal, "too late"));
    supervisor.proven(old.generation);
    old.session.kill();
    settle().await;
    assert_eq!(supervisor.status(), before);
    assert_eq!(home(&supervisor).await.unwrap().generation, new.generation);
    assert_eq!(connector.seen(|seen| seen.closed.clone()), [old.generation]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_deadline_lies_before_the_next_try_fails_at_once() {
    let (supervisor, connector, _) = supervise(|_| Fate::Fails(Cause::Transient, "refused"));
    home(&supervisor).await.unwrap_err();
    home(&supervisor).await.unwrap_err();
    let before = Instant::now();
    let want = Want {
        deadline: after(SECOND),
        ..Want::default()
    };
    let refused = supervisor.session(want).await.unwrap_err();
    assert_eq!(
        (refused.why, before.elapsed()),
        (Why::Waiting, Duration::ZERO)
    );
    let next = refused.next_try.unwrap();
    assert!(next > SECOND && next <= SECOND * 24 / 10, "{next:?}");
    assert_eq!(connector.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_is_told_when_the_next_try_moves_beyond_its_deadline() {
    let (supervisor, _, _) = supervise(|_| Fate::Opens(Life::Long));
    let live = home(&supervisor).await.unwrap();
    let waiting = tokio::spawn({
        let supervisor = supervisor.clone();
        let want = Want {
            deadline: after(MINUTE),
            other_than: Some(live.generation),
        };
        async move { supervisor.session(want).await }
    });
    settle().await;
    let loss = mcp_budget::Loss::new(Cause::Transient).not_before(MINUTE * 5);
    supervisor.lost(live.generation, Failure::new(loss, "503"));
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(refused.why, Why::Waiting);
    assert_eq!(refused.next_try, Some(MINUTE * 5));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_no_longer_than_its_deadline_for_an_attempt_that_hangs() {
    let (supervisor, connector, _) = supervise(|_| Fate::Hangs);
    let want = Want {
        deadline: after(MINUTE),
        ..Want::default()
    };
    let before = Instant::now();
    let refused = supervisor.session(want).await.unwrap_err();
    assert_eq!((refused.why, before.elapsed()), (Why::Deadline, MINUTE));
    assert_eq!(
        connector.seen(|seen| seen.given_up),
        0,
        "the attempt goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_routine_end_is_mended_by_the_next_call_and_not_before() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    let live = home(&supervisor).await.unwrap();
    supervisor.proven(live.generation);
    sleep(MINUTE).await;
    supervisor.lost(live.generation, failure(Cause::Routine, "session expired"));
    sleep(MINUTE * 60).await;
    assert_eq!(supervisor.status().state, State::Idle);
    assert_eq!(connector.attempts(), 1);
    home(&supervisor).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_answers_no_probe_is_lost() {
    let (supervisor, connector, _) = supervise(|nth| match nth {
        1 => Fate::Opens(Life::Mute),
        _ => Fate::Opens(Life::Long),
    });
    supervisor.start();
    sleep(MINUTE * 3 + SECOND * 19).await;
    assert_eq!(supervisor.status().state, State::Unproven);
    sleep(SECOND * 3).await;
    let status = supervisor.status();
    assert_eq!((status.generation, status.charges), (2, 1));
    assert!(status.error.unwrap().contains("did not answer a probe"));
    assert_eq!(connector.seen(|seen| seen.closed.clone()), [1]);
    sleep(MINUTE * 3).await;
    assert_eq!(supervisor.status().state, State::Proven);
}

// Panics.

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_connector_stops_only_its_binding_with_its_message() {
    let (broken, connector, _) = supervise(|_| Fate::Panics("index out of bounds"));
    let (other, _, _) = supervise(|_| Fate::Opens(Life::Long));
    let refused = home(&broken).await.unwrap_err();
    assert_eq!(refused.why, Why::Stopped);
    assert!(refused.to_string().contains("panic: index out of bounds"));
    let status = broken.status();
    assert_eq!(
        (status.state, status.reason),
        (State::Stopped, Reason::Fatal)
    );
    broken.wake();
    sleep(MINUTE * 60).await;
    assert_eq!(connector.attempts(), 1);
    home(&other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_session_stops_its_binding_and_closes_the_session() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Panics("bad frame")));
    supervisor.start();
    settle().await;
    assert_eq!(supervisor.status().state, State::Stopped);
    assert_eq!(supervisor.status().error.unwrap(), "panic: bad frame");
    assert_eq!(connector.seen(|seen| seen.closed.clone()), [1]);
    assert_eq!(home(&supervisor).await.unwrap_err().why, Why::Stopped);
    let refused = supervisor.leave(None).await.unwrap_err();
    assert_eq!(refused.why, Why::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_observer_changes_nothing() {
    let connector = Connector::new(|_| Fate::Opens(Life::Long));
    let options = Options {
        observer: Some(Box::new(|_| panic!("not my day"))),
        ..Options::default()
    };
    let supervisor = Supervisor::spawn(connector, options);
    let live = home(&supervisor).await.unwrap();
    supervisor.proven(live.generation);
    settle().await;
    assert_eq!(supervisor.status().state, State::Proven);
}

// The owner lets the home session go.

#[tokio::test(start_paused = true)]
async fn a_home_session_that_is_let_go_is_its_owners_to_close_and_the_next_call_has_another() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    let live = home(&supervisor).await.unwrap();
    supervisor.proven(live.generation);
    let gone = supervisor.let_go().expect("it was open");
    assert_eq!(gone.generation, live.generation);
    assert_eq!(supervisor.status().state, State::Idle);
    assert!(supervisor.let_go().is_none());
    sleep(MINUTE * 60).await;
    assert_eq!(
        connector.attempts(),
        1,
        "nobody wanted it, and it was not lost"
    );
    assert!(connector.seen(|seen| seen.closed.is_empty()));
    // Its end is nobody's news any more.
    gone.session.kill();
    let next = home(&supervisor).await.unwrap();
    assert!(next.generation > live.generation);
    assert_eq!(supervisor.status().charges, 0);
}

#[tokio::test(start_paused = true)]
async fn letting_go_tells_who_waits_and_gives_the_attempt_up() {
    let (supervisor, connector, _) = supervise(|nth| match nth {
        1 => Fate::Hangs,
        _ => Fate::Opens(Life::Long),
    });
    let waiting = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { home(&supervisor).await }
    });
    connector.attempted(1).await;
    assert!(supervisor.let_go().is_none());
    assert_eq!(waiting.await.unwrap().unwrap_err().why, Why::Closed);
    settle().await;
    assert_eq!(connector.seen(|seen| seen.given_up), 1);
    assert_eq!(
        (supervisor.status().state, supervisor.status().charges),
        (State::Idle, 0)
    );
    home(&supervisor).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_opened_while_it_was_let_go_is_closed() {
    let opens = Arc::new(Notify::new());
    let (supervisor, connector, _) = supervise({
        let opens = opens.clone();
        move |_| Fate::OpensWhen(opens.clone(), Life::Long)
    });
    supervisor.start();
    connector.attempted(1).await;
    opens.notify_one();
    // Not a step in between: the session is there, and the supervisor has not seen it.
    tokio::task::yield_now().await;
    let open = supervisor.let_go();
    settle().await;
    let (left, opened) = connector.seen(|seen| (seen.open.len(), seen.closed.len()));
    assert_eq!(
        left,
        usize::from(open.is_some()),
        "{opened} opened and closed"
    );
    assert_eq!(supervisor.status().state, State::Idle);
}

#[tokio::test(start_paused = true)]
async fn letting_go_of_a_parked_binding_does_not_unpark_it() {
    let (supervisor, connector, _) =
        supervise(|_| Fate::Fails(Cause::Permanent, "no such program"));
    home(&supervisor).await.unwrap_err();
    assert!(supervisor.let_go().is_none());
    assert_eq!(
        (supervisor.status().state, supervisor.status().reason),
        (State::Parked, Reason::Permanent)
    );
    assert_eq!(home(&supervisor).await.unwrap_err().why, Why::Parked);
    assert_eq!(connector.attempts(), 1);
}

// The end.

#[tokio::test(start_paused = true)]
async fn shutdown_is_bounded_and_tells_every_waiter_though_the_connector_never_returns() {
    let (supervisor, connector, _) = supervise(|_| Fate::Hangs);
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let supervisor = supervisor.clone();
            tokio::spawn(async move { home(&supervisor).await })
        })
        .collect();
    connector.attempted(1).await;
    let before = Instant::now();
    supervisor.shutdown(SECOND * 5).await;
    assert!(before.elapsed() <= SECOND * 5);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().unwrap_err().why, Why::Stopped);
    }
    assert_eq!(connector.seen(|seen| seen.given_up), 1);
    assert_eq!(supervisor.status().reason, Reason::Shutdown);
    let before = Instant::now();
    supervisor.shutdown(SECOND * 5).await;
    assert_eq!(
        before.elapsed(),
        Duration::ZERO,
        "again, nothing is left to do"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_bounded_though_the_session_cannot_be_closed() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::CannotBeClosed));
    home(&supervisor).await.unwrap();
    let before = Instant::now();
    supervisor.shutdown(SECOND).await;
    assert_eq!(before.elapsed(), SECOND);
    assert_eq!(connector.seen(|seen| seen.open.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_opens_while_it_shuts_down_is_closed_and_never_handed_out() {
    let released = Arc::new(Notify::new());
    let release = Arc::clone(&released);
    let (supervisor, connector, _) =
        supervise(move |_| Fate::OpensWhen(Arc::clone(&released), Life::Long));
    let waiting = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { home(&supervisor).await }
    });
    connector.attempted(1).await;
    // Both in one breath: the attempt comes through and the binding is shut down.
    release.notify_one();
    supervisor.shutdown(SECOND).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().why, Why::Stopped);
    sleep(MINUTE).await;
    let (open, closed, given_up) =
        connector.seen(|seen| (seen.open.len(), seen.closed.len(), seen.given_up));
    assert_eq!((open, closed, given_up), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_to_go_shuts_the_binding_down() {
    let (supervisor, connector, _) = supervise(|_| Fate::Opens(Life::Long));
    home(&supervisor).await.unwrap();
    let other = supervisor.clone();
    drop(supervisor);
    settle().await;
    assert_eq!(other.status().state, State::Unproven);
    drop(other);
    settle().await;
    assert_eq!(connector.seen(|seen| seen.closed.clone()), [1]);
}

#[test]
fn the_end_of_the_runtime_leaves_nobody_waiting() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let first = runtime();
    let supervisor = first.block_on(async {
        let (supervisor, connector, _) = supervise(|_| Fate::Hangs);
        supervisor.start();
        connector.attempted(1).await;
        supervisor
    });
    drop(first);
    runtime().block_on(async {
        assert_eq!(home(&supervisor).await.unwrap_err().why, Why::Stopped);
        supervisor.shutdown(MINUTE).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_opened_while_many_threads_pull_at_it_is_closed_in_the_end() {
    let policy = Policy {
        max_retries: u32::MAX,
        backoff: Duration::ZERO,
        floor: Duration::ZERO,
        ..Policy::default()
    };
    let (supervisor, connector, _) = supervise_by(policy, |nth| match nth % 5 {
        0 => Fate::Fails(Cause::Transient, "refused"),
        1 => Fate::Opens(Life::Dies(Duration::ZERO)),
        _ => Fate::Opens(Life::Long),
    });
    let pulling: Vec<_> = (0..16)
        .map(|task| {
            let supervisor = supervisor.clone();
            tokio::spawn(async move {
                for turn in 0..200 {
                    if let Ok(live) = home(&supervisor).await {
                        match (task + turn) % 4 {
                            0 => supervisor.proven(live.generation),
                            1 => supervisor
                                .lost(live.generation, failure(Cause::Transient, "timeout")),
                            2 => live.session.kill(),
                            _ => supervisor.wake(),
                        }
                    }
                    if let Ok(leave) = supervisor.leave(None).await {
                        match (task + turn) % 3 {
                            0 => drop(leave),
                            1 => leave.failed(failure(Cause::Transient, "refused")),
                            _ => leave.opened().proven(),
                        }
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in pulling {
        task.await.unwrap();
    }
    assert!(connector.attempts() > 100);
    supervisor.shutdown(MINUTE).await;
    let (attempts, open, closed) =
        connector.seen(|seen| (seen.attempts.len(), seen.open.len(), seen.closed.len()));
    assert_eq!(open, 0);
    assert!(closed > 0 && closed <= attempts);
    let status = supervisor.status();
    assert_eq!((status.state, status.scoped), (State::Stopped, 0));
}
