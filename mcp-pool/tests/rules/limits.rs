//! The limits of time, the caps, the queue for a slot, and warming up.

use std::time::Duration;

use mcp_pool::{AcquireError, BeginError, Limits, Stage};
use tokio::time::{Instant, sleep};

use crate::fake::{CLOSE_LIMIT, Fake, key, never_opened, pool_of, pool_with, until};

const MINUTE: Duration = Duration::from_secs(60);

fn limits(capacity: usize) -> Limits {
    Limits {
        capacity,
        close_limit: CLOSE_LIMIT,
        ..Limits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_closed_when_its_time_since_the_last_release_is_over() {
    let (pool, binding) = pool_with(Limits {
        idle_ttl: Some(MINUTE),
        ..limits(4)
    });
    let fake = Fake::new();
    let scope = key("scope");
    let lease = pool.acquire(&scope, &binding, fake.opener()).await.unwrap();
    sleep(MINUTE / 2).await;
    drop(lease);
    let released = Instant::now();
    fake.closed.wait().await;
    assert!(released.elapsed() >= MINUTE);
    assert!(released.elapsed() < MINUTE + Duration::from_millis(10));
    assert_eq!(pool.counters().tally.idle_too_long, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_longer_than_the_idle_time_is_never_cut() {
    let (pool, binding) = pool_with(Limits {
        idle_ttl: Some(MINUTE),
        ..limits(4)
    });
    let fake = Fake::new();
    let scope = key("scope");
    let lease = pool.acquire(&scope, &binding, fake.opener()).await.unwrap();
    sleep(MINUTE * 100).await;
    assert!(!fake.retired.is_raised());
    drop(lease);
    let again = pool.acquire(&scope, &binding, never_opened).await.unwrap();
    assert!(again.session().is(&fake));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_got_in_time_lives_on() {
    let (pool, binding) = pool_with(Limits {
        idle_ttl: Some(MINUTE),
        ..limits(4)
    });
    let fake = Fake::new();
    let scope = key("scope");
    drop(pool.acquire(&scope, &binding, fake.opener()).await.unwrap());
    for _ in 0..10 {
        sleep(MINUTE * 2 / 3).await;
        pool.get(&scope, &binding, never_opened).await.unwrap();
    }
    assert!(!fake.retired.is_raised());
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_that_lived_long_enough_is_closed() {
    let (pool, binding) = pool_with(Limits {
        max_lifetime: Some(MINUTE),
        ..limits(4)
    });
    let fake = Fake::new();
    let scope = key("scope");
    drop(pool.acquire(&scope, &binding, fake.opener()).await.unwrap());
    let opened = Instant::now();
    fake.closed.wait().await;
    assert!(opened.elapsed() >= MINUTE);
    assert_eq!(pool.counters().tally.lifetime_over, 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_that_lived_long_enough_ends_its_calls_and_begins_none() {
    let (pool, binding) = pool_with(Limits {
        max_lifetime: Some(MINUTE),
        ..limits(4)
    });
    let (old, new) = (Fake::new(), Fake::new());
    let scope = key("scope");
    let lease = pool.acquire(&scope, &binding, old.opener()).await.unwrap();
    let handle = lease.handle();
    sleep(MINUTE * 2).await;
    assert!(!old.retired.is_raised());
    assert!(matches!(handle.begin(), Err(BeginError::Detached(_))));
    let next = pool.acquire(&scope, &binding, new.opener()).await.unwrap();
    assert!(next.session().is(&new));
    assert_eq!((pool.len(), pool.counters().draining), (2, 1));
    drop(lease);
    old.closed.wait().await;
    assert!(!new.retired.is_raised());
    assert_eq!((pool.len(), pool.counters().draining), (1, 0));
}

#[tokio::test]
async fn a_server_at_its_cap_makes_room_with_its_own_idle_session_and_no_other() {
    let (pool, binding) = pool_with(Limits {
        sessions_per_server: Some(1),
        ..limits(4)
    });
    let other = pool.ensure_binding(&"deployment", &"other", 1u64);
    let (elsewhere, first, second) = (Fake::new(), Fake::new(), Fake::new());
    let other_key = mcp_pool::Key::new("deployment", "other", "scope");
    drop(pool.acquire(&other_key, &other, elsewhere.opener()).await);
    drop(pool.acquire(&key("first"), &binding, first.opener()).await);
    let busy = pool
        .acquire(&key("second"), &binding, second.opener())
        .await;
    let _busy = busy.unwrap();
    assert!(first.closed.is_raised());
    assert!(!elsewhere.retired.is_raised());
    let refused = pool.acquire(&key("third"), &binding, never_opened).await;
    let expected = AcquireError::ServerCapacity {
        capacity: 1,
        busy: 1,
    };
    assert_eq!(refused.unwrap_err(), expected);
}

#[tokio::test]
async fn a_session_with_all_the_calls_it_may_have_begins_no_other() {
    let (pool, binding) = pool_with(Limits {
        calls_per_session: Some(2),
        ..limits(4)
    });
    let fake = Fake::new();
    let scope = key("scope");
    let first = pool.acquire(&scope, &binding, fake.opener()).await.unwrap();
    let second = first.handle().begin().unwrap();
    let refused = pool.acquire(&scope, &binding, never_opened).await;
    assert_eq!(refused.unwrap_err(), AcquireError::Saturated { calls: 2 });
    let (id, calls) = (first.id(), 2);
    let expected = BeginError::Saturated { id, calls };
    assert_eq!(first.handle().begin().unwrap_err(), expected);
    drop(second);
    drop(pool.acquire(&scope, &binding, never_opened).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_place_on_a_session_has_it_in_order_or_is_refused_in_time() {
    let (pool, binding) = pool_with(Limits {
        calls_per_session: Some(1),
        wait: Some(MINUTE),
        ..limits(4)
    });
    let fake = Fake::new();
    let scope = key("scope");
    let lease = pool.acquire(&scope, &binding, fake.opener()).await.unwrap();
    let wait = |pool: &crate::fake::Pool| {
        let (pool, scope) = (pool.clone(), scope.clone());
        tokio::spawn(async move { pool.acquire(&scope, &binding, never_opened).await })
    };
    let first = wait(&pool);
    until(|| pool.counters().queued_calls == 1).await;
    let second = wait(&pool);
    until(|| pool.counters().queued_calls == 2).await;
    drop(lease);
    let first = first.await.unwrap().unwrap();
    assert!(!second.is_finished());
    let began = Instant::now();
    let refused = second.await.unwrap().unwrap_err();
    assert_eq!(refused, AcquireError::Saturated { calls: 1 });
    assert!(began.elapsed() >= MINUTE - Duration::from_secs(1));
    drop(first);
    assert_eq!(pool.counters().queued_calls, 0);
    assert_eq!(pool.counters().busy, 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_slot_has_it_in_order_of_arrival() {
    let (pool, binding) = pool_with(Limits {
        wait: Some(MINUTE),
        ..limits(1)
    });
    let other = pool.ensure_binding(&"deployment", &"other", 1u64);
    let busy = Fake::new();
    let lease = pool.acquire(&key("busy"), &binding, busy.opener()).await;
    let mut lease = lease.unwrap();
    // Some of one server, some of another: it is one order.
    let waiting = [
        (binding, key("first")),
        (other, mcp_pool::Key::new("deployment", "other", "second")),
        (other, mcp_pool::Key::new("deployment", "other", "third")),
        (binding, key("fourth")),
    ];
    let fakes = waiting.each_ref().map(|_| Fake::new());
    let mut users = Vec::new();
    for ((binding, key), fake) in waiting.into_iter().zip(&fakes) {
        let (waits, open) = (pool.clone(), fake.opener());
        users.push(tokio::spawn(async move {
            waits.acquire(&key, &binding, open).await
        }));
        until(|| pool.counters().waiting == users.len()).await;
    }
    let opened = || fakes.each_ref().map(Fake::opened);
    for (place, user) in users.into_iter().enumerate() {
        assert_eq!(opened().iter().sum::<usize>(), place);
        drop(lease);
        lease = user.await.unwrap().unwrap();
        assert!(lease.session().is(&fakes[place]));
    }
    assert!(busy.closed.is_raised());
}

#[tokio::test(start_paused = true)]
async fn whoever_waited_for_a_slot_in_vain_is_refused_at_the_deadline() {
    let (pool, binding) = pool_with(Limits {
        wait: Some(MINUTE),
        ..limits(1)
    });
    let busy = Fake::new();
    let lease = pool.acquire(&key("busy"), &binding, busy.opener()).await;
    let began = Instant::now();
    let refused = pool.acquire(&key("other"), &binding, never_opened).await;
    let expected = AcquireError::Capacity {
        capacity: 1,
        busy: 1,
    };
    assert_eq!(refused.unwrap_err(), expected);
    assert_eq!(began.elapsed(), MINUTE);
    assert_eq!(pool.counters().waiting, 0);
    drop(lease);
}

#[tokio::test]
async fn a_newcomer_does_not_overtake_those_who_wait_also_where_a_session_is_idle() {
    let (pool, binding) = pool_with(limits(1));
    let patient = pool.waiting(Some(MINUTE));
    let (busy, first, second) = (Fake::new(), Fake::slow_to_open(), Fake::new());
    let lease = pool.acquire(&key("busy"), &binding, busy.opener()).await;
    let wait = |scope, fake: &Fake| {
        let (pool, open) = (patient.clone(), fake.opener());
        tokio::spawn(async move { pool.acquire(&key(scope), &binding, open).await })
    };
    let first_waits = wait("first", &first);
    until(|| pool.counters().waiting == 1).await;
    let second_waits = wait("second", &second);
    until(|| pool.counters().waiting == 2).await;
    drop(lease);
    first.opening.wait().await;

    // The first one opens for the slot of the one that is idle now; the second one still waits.
    assert_eq!((pool.counters().busy, pool.counters().waiting), (0, 1));
    let hasty = pool.acquire(&key("hasty"), &binding, never_opened).await;
    assert!(matches!(hasty, Err(AcquireError::Capacity { .. })));
    let late = Fake::new();
    let late_waits = wait("late", &late);
    until(|| pool.counters().waiting == 2).await;

    first.may_open.raise();
    drop(first_waits.await.unwrap().unwrap());
    let lease = second_waits.await.unwrap().unwrap();
    assert!(lease.session().is(&second));
    assert_eq!(late.opened(), 0);
    drop(lease);
    assert!(late_waits.await.unwrap().unwrap().session().is(&late));
}

#[tokio::test]
async fn a_server_at_its_cap_does_not_hold_up_those_who_wait_for_another() {
    let (pool, binding) = pool_with(Limits {
        sessions_per_server: Some(1),
        wait: Some(MINUTE),
        ..limits(2)
    });
    let other = pool.ensure_binding(&"deployment", &"other", 1u64);
    let other_key = |scope| mcp_pool::Key::new("deployment", "other", scope);
    let (a, b, late) = (Fake::new(), Fake::new(), Fake::new());
    let _a = pool.acquire(&key("a"), &binding, a.opener()).await.unwrap();
    let lease_b = pool.acquire(&other_key("b"), &other, b.opener()).await;
    let blocked = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire(&key("blocked"), &binding, never_opened).await }
    });
    until(|| pool.counters().waiting == 1).await;
    let served = tokio::spawn({
        let (pool, open, key) = (pool.clone(), late.opener(), other_key("late"));
        async move { pool.acquire(&key, &other, open).await }
    });
    until(|| pool.counters().waiting == 2).await;
    drop(lease_b);
    assert!(served.await.unwrap().unwrap().session().is(&late));
    assert!(!blocked.is_finished());
    // A close reaches those who wait as it reaches those who open.
    pool.close_scope(&"deployment", &"blocked").await;
    assert_eq!(blocked.await.unwrap().unwrap_err(), AcquireError::Closed);
}

#[tokio::test]
async fn whoever_gives_up_waiting_leaves_nothing_behind() {
    let (pool, binding) = pool_with(Limits {
        calls_per_session: Some(1),
        wait: Some(MINUTE),
        ..limits(1)
    });
    let fake = Fake::new();
    let lease = pool.acquire(&key("busy"), &binding, fake.opener()).await;
    for scope in ["busy", "other"] {
        let waits = tokio::spawn({
            let pool = pool.clone();
            async move { pool.acquire(&key(scope), &binding, never_opened).await }
        });
        until(|| pool.counters().waiting + pool.counters().queued_calls == 1).await;
        waits.abort();
        until(|| pool.counters().waiting + pool.counters().queued_calls == 0).await;
    }
    drop(lease);
    assert_eq!((pool.counters().busy, pool.counters().opening), (0, 0));
    let again = pool.acquire(&key("busy"), &binding, never_opened).await;
    drop(again.unwrap());
}

#[tokio::test]
async fn warming_up_opens_a_session_that_is_idle_then() {
    let (pool, binding) = pool_of(2);
    let fake = Fake::new();
    let scope = key("scope");
    let id = pool.warm_up(&scope, &binding, fake.opener()).await.unwrap();
    assert_eq!((pool.len(), pool.counters().busy), (1, 0));
    let lease = pool.acquire(&scope, &binding, never_opened).await.unwrap();
    assert_eq!(lease.id(), id);
}

#[tokio::test]
async fn nothing_idle_has_to_go_for_a_session_that_is_only_warmed_up() {
    let (pool, binding) = pool_of(1);
    let idle = Fake::new();
    drop(pool.acquire(&key("idle"), &binding, idle.opener()).await);
    let refused = pool.warm_up(&key("other"), &binding, never_opened).await;
    assert!(matches!(refused, Err(AcquireError::Capacity { .. })));
    assert!(!idle.retired.is_raised());

    // Nor if the slot was taken while it opened.
    pool.close_all().await;
    let slow = Fake::slow_to_open();
    let warms = tokio::spawn({
        let (pool, open) = (pool.clone(), slow.opener());
        async move { pool.warm_up(&key("other"), &binding, open).await }
    });
    slow.opening.wait().await;
    let idle = Fake::new();
    drop(pool.acquire(&key("idle"), &binding, idle.opener()).await);
    slow.may_open.raise();
    let refused = warms.await.unwrap();
    assert!(matches!(refused, Err(AcquireError::Capacity { .. })));
    slow.closed.wait().await;
    assert!(!idle.retired.is_raised());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_every_session_and_how_it_stands() {
    let (pool, binding) = pool_with(Limits {
        keep_time: true,
        ..limits(3)
    });
    let (busy, idle, slow) = (Fake::new(), Fake::new(), Fake::slow_to_open());
    let lease = pool.acquire(&key("busy"), &binding, busy.opener()).await;
    drop(pool.acquire(&key("idle"), &binding, idle.opener()).await);
    sleep(MINUTE).await;
    let opens = tokio::spawn({
        let (pool, open) = (pool.clone(), slow.opener());
        async move { pool.acquire(&key("slow"), &binding, open).await }
    });
    slow.opening.wait().await;
    let snapshot = pool.snapshot();
    assert_eq!(snapshot.counters, pool.counters());
    let seen: Vec<_> = snapshot
        .sessions
        .iter()
        .map(|it| (it.key.scope, it.stage, it.calls, it.age, it.idle_for))
        .collect();
    let minute = Some(MINUTE);
    assert_eq!(
        seen,
        [
            ("busy", Stage::Live, 1, minute, None),
            ("idle", Stage::Live, 0, minute, minute),
            ("slow", Stage::Opening, 1, None, None),
        ]
    );
    slow.may_open.raise();
    drop((lease, opens.await));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_may_be_as_long_as_time_is() {
    let (pool, binding) = pool_with(Limits {
        wait: Some(Duration::MAX),
        ..limits(1)
    });
    let (first, second) = (Fake::new(), Fake::new());
    let lease = pool.acquire(&key("first"), &binding, first.opener()).await;
    let waits = tokio::spawn({
        let (pool, open) = (pool.clone(), second.opener());
        async move { pool.acquire(&key("second"), &binding, open).await }
    });
    sleep(MINUTE * 60 * 24 * 365).await;
    assert_eq!(pool.counters().waiting, 1);
    drop(lease);
    assert!(waits.await.unwrap().unwrap().session().is(&second));
}
