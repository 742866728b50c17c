//! One creation per key, shared by all who want it, and none that outlives those who want it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use mcp_pool::{AcquireError, Lease, Limits};
use tokio::task::JoinHandle;

use crate::fake::{
    Error, Fake, Flag, OpenFailed, Opens, Pool, key, never_opened, pool_of, pool_with, until,
};

fn acquire(
    pool: &Pool,
    scope: &'static str,
    open: impl FnOnce() -> Opens + Send + 'static,
) -> JoinHandle<Result<Lease<Fake>, Error>> {
    let pool = pool.clone();
    let binding = pool.binding(&"deployment", &"server").expect("bound");
    tokio::spawn(async move { pool.acquire(&key(scope), &binding, open).await })
}

#[tokio::test]
async fn concurrent_first_uses_make_one_creation() {
    let (pool, _) = pool_of(4);
    let fake = Fake::slow_to_open();
    let users: Vec<_> = (0..20)
        .map(|_| acquire(&pool, "scope", fake.opener()))
        .collect();
    until(|| pool.counters().tally.joined == 19).await;
    fake.may_open.raise();

    let mut ids = Vec::new();
    let mut fresh = 0;
    for user in users {
        let lease = user.await.unwrap().unwrap();
        fresh += usize::from(lease.fresh());
        ids.push(lease.id());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(fake.opened(), 1);
    assert_eq!(fresh, 1, "one of them is told that the session is new");
    assert_eq!(pool.counters().tally.opened, 1);
    assert_eq!(pool.counters().busy, 0);
}

#[tokio::test]
async fn a_cancelled_creator_leaves_the_session_to_the_joiner() {
    let (pool, _) = pool_of(4);
    let fake = Fake::slow_to_open();
    let creator = acquire(&pool, "scope", fake.opener());
    fake.opening.wait().await;
    let joiner = acquire(&pool, "scope", never_opened);
    until(|| pool.counters().tally.joined == 1).await;

    creator.abort();
    assert!(creator.await.unwrap_err().is_cancelled());
    assert!(!fake.given_up.is_raised());
    fake.may_open.raise();

    let lease = joiner.await.unwrap().unwrap();
    assert!(lease.session().is(&fake));
    assert!(lease.fresh(), "it is the first to have the session");
    assert_eq!(pool.counters().busy, 1);
    drop(lease);
    assert_eq!(pool.counters().busy, 0, "the creator left no pin behind");
}

#[tokio::test]
async fn an_opening_that_nobody_waits_for_any_more_is_cancelled() {
    let (pool, _) = pool_of(4);
    let fake = Fake::slow_to_open();
    let users = [
        acquire(&pool, "scope", fake.opener()),
        acquire(&pool, "scope", never_opened),
    ];
    fake.opening.wait().await;
    until(|| pool.counters().tally.joined == 1).await;
    for user in users {
        assert!(!fake.given_up.is_raised());
        user.abort();
        assert!(user.await.unwrap_err().is_cancelled());
    }
    fake.given_up.wait().await;
    assert_eq!(pool.counters().opening, 0);
    assert_eq!(pool.counters().tally.abandoned, 1);
    assert_eq!(pool.len(), 0);

    let next = Fake::new();
    let lease = acquire(&pool, "scope", next.opener()).await.unwrap();
    assert!(lease.unwrap().session().is(&next));
}

#[tokio::test]
async fn a_session_whose_only_user_left_as_it_opened_stays_for_the_next_one() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::slow_to_open();
    let scope = key("scope");
    let mut user = Box::pin(pool.acquire(&scope, &binding, fake.opener()));
    tokio::select! {
        biased;
        _ = &mut user => panic!("it cannot be open yet"),
        () = fake.opening.wait() => {}
    }
    fake.may_open.raise();
    until(|| pool.counters().tally.opened == 1).await;
    assert_eq!(pool.counters().busy, 1);
    drop(user);

    assert_eq!(pool.counters().busy, 0);
    let lease = acquire(&pool, "scope", never_opened)
        .await
        .unwrap()
        .unwrap();
    assert!(lease.session().is(&fake));
    assert!(lease.fresh(), "nobody had it before");
}

#[tokio::test]
async fn an_opening_that_fails_gives_its_error_to_all_and_the_next_one_opens_anew() {
    let (pool, _) = pool_of(4);
    let fake = Fake::slow_to_open();
    let users = [
        acquire(&pool, "scope", fake.failing_opener()),
        acquire(&pool, "scope", never_opened),
    ];
    until(|| pool.counters().tally.joined == 1).await;
    fake.may_open.raise();
    for user in users {
        let error = user.await.unwrap().unwrap_err();
        assert_eq!(error, AcquireError::Open(OpenFailed("refused")));
        assert_eq!(error.to_string(), "refused");
    }
    assert_eq!(pool.counters().opening, 0);
    assert_eq!(pool.counters().tally.failed, 1);
    let next = Fake::new();
    let lease = acquire(&pool, "scope", next.opener()).await.unwrap();
    assert!(lease.unwrap().session().is(&next));
}

#[tokio::test]
async fn an_opener_that_panics_is_contained_and_told_to_all() {
    let (pool, _) = pool_of(4);
    let go = Flag::lowered();
    let gate = go.clone();
    let in_the_future = move || -> Opens {
        Box::pin(async move {
            gate.wait().await;
            panic!("no such server: {}", 7)
        })
    };
    let before_the_future = || -> Opens { panic!("not even a future") };

    let users = [
        acquire(&pool, "scope", in_the_future),
        acquire(&pool, "scope", never_opened),
    ];
    until(|| pool.counters().tally.joined == 1).await;
    go.raise();
    for user in users {
        let error = user.await.unwrap().unwrap_err();
        let message = "no such server: 7".into();
        assert_eq!(error, AcquireError::Panicked { message });
    }
    let error = acquire(&pool, "scope", before_the_future)
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("not even a future"));
    assert_eq!(pool.counters().panicked, 2);

    let fake = Fake::new();
    let lease = acquire(&pool, "scope", fake.opener()).await.unwrap();
    assert!(lease.unwrap().session().is(&fake));
}

#[tokio::test]
async fn openings_are_bounded_in_number_and_wait_in_order() {
    let (pool, _) = pool_with(Limits {
        openings: 2,
        ..Limits::default()
    });
    let order = Arc::new(Mutex::new(Vec::new()));
    let at_once = Arc::new(AtomicUsize::new(0));
    let scopes = ["a", "b", "c", "d", "e"];
    let gates = scopes.map(|_| Flag::lowered());
    let mut users = Vec::new();
    for (scope, gate) in scopes.into_iter().zip(&gates) {
        let (order, at_once, gate) = (order.clone(), at_once.clone(), gate.clone());
        users.push(acquire(&pool, scope, move || -> Opens {
            Box::pin(async move {
                order.lock().unwrap().push(scope);
                let others = at_once.fetch_add(1, Ordering::SeqCst);
                assert!(others < 2, "two at a time");
                gate.wait().await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok(Fake::new())
            })
        }));
        until(|| pool.counters().opening == users.len()).await;
    }
    let begun = || order.lock().unwrap().clone();
    until(|| begun().len() == 2).await;
    assert_eq!(begun(), ["a", "b"]);
    // Those who wait for their turn take no slot and hold up no session that is there.
    assert_eq!(pool.len(), 0);
    gates[1].raise();
    until(|| begun().len() == 3).await;
    assert_eq!(begun(), ["a", "b", "c"]);
    gates.iter().for_each(Flag::raise);
    for user in users {
        drop(user.await.unwrap().unwrap());
    }
    assert_eq!(begun(), scopes);
}

#[tokio::test]
async fn an_opening_that_was_given_up_frees_its_turn_only_when_it_is_gone() {
    let (pool, _) = pool_with(Limits {
        openings: 1,
        ..Limits::default()
    });
    let first = Fake::slow_to_open();
    let user = acquire(&pool, "first", first.opener());
    first.opening.wait().await;
    let gone = first.clone();
    let second = acquire(&pool, "second", move || -> Opens {
        assert!(gone.given_up.is_raised());
        Box::pin(async { Ok(Fake::new()) })
    });
    until(|| pool.counters().opening == 2).await;
    user.abort();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn an_opening_whose_turn_comes_is_admitted_anew_before_it_opens() {
    let (pool, _) = pool_with(Limits {
        capacity: 1,
        openings: 1,
        ..Limits::default()
    });
    let first = Fake::slow_to_open();
    let holder = acquire(&pool, "first", first.opener());
    first.opening.wait().await;
    let creator = acquire(&pool, "second", never_opened);
    until(|| pool.counters().opening == 2).await;
    let joiner = acquire(&pool, "second", never_opened);
    until(|| pool.counters().tally.joined == 1).await;

    first.may_open.raise();
    let lease = holder.await.unwrap().unwrap();

    let full = AcquireError::Capacity {
        capacity: 1,
        busy: 1,
    };
    assert_eq!(creator.await.unwrap().unwrap_err(), full);
    assert_eq!(joiner.await.unwrap().unwrap_err(), full);
    assert_eq!(pool.counters().opening, 0);
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_not_handed_out_before_its_victim_is_closed() {
    let (pool, _) = pool_of(1);
    let victim = Fake::slow_to_close();
    let old = acquire(&pool, "old", victim.opener()).await.unwrap();
    drop(old.unwrap());
    let creator = acquire(&pool, "new", Fake::new().opener());
    victim.retired.wait().await;
    // The one who comes now has to wait for it as well.
    let joiner = acquire(&pool, "new", never_opened);
    until(|| pool.counters().tally.joined == 1).await;
    assert_eq!(pool.len(), 1);
    assert!(!creator.is_finished() && !joiner.is_finished());

    victim.may_close.raise();
    let (creator, joiner) = (creator.await.unwrap(), joiner.await.unwrap());
    assert_eq!(creator.unwrap().id(), joiner.unwrap().id());
    assert!(victim.closed.is_raised());
}

#[tokio::test]
async fn a_creation_that_ends_with_its_runtime_answers_those_who_wait() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let pool = Pool::on(runtime.handle().clone(), Limits::default());
    pool.ensure_binding(&"deployment", &"server", 1u64);
    let fake = Fake::slow_to_open();
    let user = acquire(&pool, "scope", fake.opener());
    fake.opening.wait().await;

    runtime.shutdown_background();

    assert_eq!(user.await.unwrap().unwrap_err(), AcquireError::Closed);
    let late = acquire(&pool, "scope", never_opened).await.unwrap();
    assert_eq!(late.unwrap_err(), AcquireError::Closed);
    assert_eq!(pool.counters().opening, 0);
}
