//! Explicit closes: all are told at once, nothing comes back, and nothing that hangs holds anybody up.

use mcp_pool::{AcquireError, BeginError, Binding, Detached, Limits};
use tokio::time::Instant;

use crate::fake::{
    CLOSE_LIMIT, Call, CallError, Ends, Fake, Key, Pool, key, never_opened, pool_of, pool_with,
    until,
};

async fn open(pool: &Pool, binding: &Binding, key: &Key, fake: &Fake) {
    let opened = pool.get(key, binding, fake.opener()).await;
    opened.expect("a session");
}

#[tokio::test]
async fn a_close_during_an_opening_lets_nothing_come_back_to_life() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::slow_to_open();
    let users: Vec<_> = (0..2)
        .map(|_| {
            let (pool, open) = (pool.clone(), fake.opener());
            tokio::spawn(async move { pool.acquire(&key("scope"), &binding, open).await })
        })
        .collect();
    fake.opening.wait().await;
    until(|| pool.counters().tally.joined == 1).await;

    let closing = pool.close_scope(&"deployment", &"scope");
    assert_eq!(closing.victims(), 1);
    assert_eq!(pool.counters().opening, 0);
    closing.await;
    assert!(fake.given_up.is_raised(), "its end is awaited");

    fake.may_open.raise();
    for user in users {
        assert_eq!(user.await.unwrap().unwrap_err(), AcquireError::Closed);
    }
    assert_eq!(pool.len(), 0);
}

#[tokio::test]
async fn what_an_opening_opened_as_it_was_closed_is_closed() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::new();
    let (opened, closer) = (fake.clone(), pool.clone());
    let scope = key("scope");
    let late = pool.acquire(&scope, &binding, move || async move {
        // The close comes after the last point where the opening could have been cancelled.
        drop(closer.close_all());
        Ok(opened)
    });
    assert_eq!(late.await.unwrap_err(), AcquireError::Closed);
    fake.closed.wait().await;
    assert_eq!(pool.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_close_while_the_victim_of_a_promotion_closes_lets_nobody_have_the_session() {
    let (pool, binding) = pool_of(1);
    let (victim, new) = (Fake::slow_to_close(), Fake::new());
    open(&pool, &binding, &key("old"), &victim).await;
    let user = tokio::spawn({
        let (pool, open) = (pool.clone(), new.opener());
        async move { pool.acquire(&key("new"), &binding, open).await }
    });
    victim.retired.wait().await;
    assert_eq!(pool.len(), 1);

    pool.close_session(&key("new")).await;

    assert!(new.closed.is_raised());
    assert_eq!(user.await.unwrap().unwrap_err(), AcquireError::Closed);
    assert_eq!(pool.len(), 0);
}

#[tokio::test]
async fn a_close_between_answer_and_hand_out_refuses_the_session() {
    let (pool, binding) = pool_of(1);
    let fake = Fake::slow_to_open();
    let scope = key("scope");
    let acquired = pool.acquire(&scope, &binding, fake.opener());
    let mut acquired = std::pin::pin!(acquired);
    tokio::select! {
        biased;
        _ = &mut acquired => panic!("it cannot be open yet"),
        () = fake.opening.wait() => {}
    }
    fake.may_open.raise();
    until(|| pool.len() == 1).await;
    pool.close_all().await;
    assert_eq!(acquired.await.unwrap_err(), AcquireError::Closed);
    assert!(fake.closed.is_raised());
}

#[tokio::test]
async fn all_victims_are_told_before_any_is_awaited() {
    let (pool, binding) = pool_with(Limits {
        closings: 1,
        ..Limits::default()
    });
    let fakes = [(); 3].map(|()| Fake::slow_to_close());
    for (scope, fake) in ["a", "b", "c"].into_iter().zip(&fakes) {
        open(&pool, &binding, &key(scope), fake).await;
    }
    let closing = pool.close_server(&"deployment", &"server");
    assert_eq!(closing.victims(), 3);
    assert!(fakes.iter().all(|fake| fake.retired.is_raised()));
    assert_eq!(pool.len(), 0);
    fakes.iter().for_each(|fake| fake.may_close.raise());
    closing.await;
    assert!(fakes.iter().all(|fake| fake.closed.is_raised()));
}

#[tokio::test]
async fn a_close_that_is_not_awaited_closes_all_the_same() {
    let (pool, binding) = pool_of(4);
    let fakes = [Fake::new(), Fake::new()];
    open(&pool, &binding, &key("a"), &fakes[0]).await;
    open(&pool, &binding, &key("b"), &fakes[1]).await;
    drop(pool.close_all());
    for fake in &fakes {
        assert!(fake.retired.is_raised());
        fake.closed.wait().await;
    }
}

#[tokio::test]
async fn a_close_that_is_cancelled_halfway_still_tells_and_closes_the_rest() {
    let (pool, binding) = pool_with(Limits {
        closings: 1,
        ..Limits::default()
    });
    let (first, rest) = (Fake::slow_to_close(), [Fake::new(), Fake::new()]);
    open(&pool, &binding, &key("first"), &first).await;
    for (scope, fake) in ["a", "b"].into_iter().zip(&rest) {
        open(&pool, &binding, &key(scope), fake).await;
    }
    let closing = tokio::spawn(async move { pool.close_all().await });
    first.closing.wait().await;
    closing.abort();
    assert!(closing.await.unwrap_err().is_cancelled());
    assert!(rest.iter().all(|fake| fake.retired.is_raised()));
    assert!(rest.iter().all(|fake| !fake.closing.is_raised()));
    first.may_close.raise();
    for fake in &rest {
        fake.closed.wait().await;
    }
}

#[tokio::test]
async fn a_session_that_panics_when_told_does_not_keep_the_others_from_being_told() {
    let (pool, binding) = pool_of(4);
    let fakes = [Fake::new(), Fake::new(), Fake::new()];
    for (scope, fake) in ["a", "b", "c"].into_iter().zip(&fakes) {
        open(&pool, &binding, &key(scope), fake).await;
    }
    fakes[0].panics_when_told.raise();
    pool.close_all().await;
    assert!(fakes.iter().all(|fake| fake.closed.is_raised()));
}

#[tokio::test(start_paused = true)]
async fn a_closing_that_hangs_is_bounded_and_holds_up_no_other() {
    let (pool, binding) = pool_with(Limits {
        closings: 2,
        close_limit: CLOSE_LIMIT,
        ..Limits::default()
    });
    let hangs = Fake::slow_to_close();
    open(&pool, &binding, &key("hangs"), &hangs).await;
    let others = [(); 8].map(|()| Fake::new());
    let scopes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (scope, fake) in scopes.into_iter().zip(&others) {
        open(&pool, &binding, &key(scope), fake).await;
    }
    let began = Instant::now();
    let closing = pool.close_all();
    for fake in &others {
        fake.closed.wait().await;
    }
    assert_eq!(began.elapsed().as_nanos(), 0);
    closing.await;
    assert_eq!(began.elapsed().as_secs(), CLOSE_LIMIT.as_secs());
    assert!(!hangs.closed.is_raised());
    assert_eq!(pool.counters().overdue, 1);
    assert_eq!(pool.counters().closing, 0);
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_hangs_holds_up_its_successor_for_the_limit_and_no_longer() {
    let (pool, binding) = pool_with(Limits {
        capacity: 1,
        closings: 1,
        close_limit: CLOSE_LIMIT,
        ..Limits::default()
    });
    let hanging = [(); 3].map(|()| Fake::slow_to_close());
    // Two closings hang already, so that the third does not even get its turn in time.
    for fake in &hanging[..2] {
        open(&pool, &binding, &key("old"), fake).await;
        drop(pool.close_session(&key("old")));
    }
    open(&pool, &binding, &key("old"), &hanging[2]).await;
    let began = Instant::now();
    open(&pool, &binding, &key("new"), &Fake::new()).await;
    assert_eq!(began.elapsed().as_secs(), CLOSE_LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn closing_everything_waits_also_for_closings_that_began_before() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::slow_to_close();
    open(&pool, &binding, &key("scope"), &fake).await;
    drop(pool.close_session(&key("scope")));
    let mut all = pool.close_all();
    assert_eq!(all.victims(), 0);
    tokio::select! {
        biased;
        () = &mut all => panic!("one closing is still under way"),
        () = fake.closing.wait() => {}
    }
    fake.may_close.raise();
    all.await;
    assert!(fake.closed.is_raised());
}

#[tokio::test]
async fn closings_are_bounded_in_number_and_wait_in_order() {
    let (pool, binding) = pool_with(Limits {
        closings: 2,
        ..Limits::default()
    });
    let fakes = [(); 4].map(|()| Fake::slow_to_close());
    for (scope, fake) in ["a", "b", "c", "d"].into_iter().zip(&fakes) {
        open(&pool, &binding, &key(scope), fake).await;
    }
    let closing = tokio::spawn(pool.close_all());
    let begun = || fakes.each_ref().map(|fake| fake.closing.is_raised());
    fakes[1].closing.wait().await;
    assert_eq!(pool.counters().closing, 4);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(begun(), [true, true, false, false]);
    fakes[0].may_close.raise();
    fakes[2].closing.wait().await;
    assert_eq!(begun(), [true, true, true, false]);
    fakes.iter().for_each(|fake| fake.may_close.raise());
    closing.await.unwrap();
    assert!(fakes.iter().all(|fake| fake.closed.is_raised()));
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_no_longer_than_the_limit_for_an_opener_that_does_not_stop() {
    struct Stuck(std::sync::mpsc::Receiver<()>);
    impl Drop for Stuck {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }
    // The opener blocks a thread of another runtime as it is dropped.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let pool = Pool::on(runtime.handle().clone(), Limits::default());
    let binding = pool.ensure_binding(&"deployment", &"server", 1u64);
    let (let_go, stuck) = std::sync::mpsc::channel();
    let fake = Fake::slow_to_open();
    let user = tokio::spawn({
        let (pool, open) = (pool.clone(), fake.opener());
        let stuck = Stuck(stuck);
        async move {
            let open = move || async move {
                let _stuck = stuck;
                open().await
            };
            pool.acquire(&key("scope"), &binding, open).await
        }
    });
    fake.opening.wait().await;
    let began = Instant::now();
    pool.close_all().await;
    assert_eq!(began.elapsed(), Limits::default().close_limit);
    assert_eq!(user.await.unwrap().unwrap_err(), AcquireError::Closed);
    let_go.send(()).unwrap();
    runtime.shutdown_background();
}

#[tokio::test]
async fn each_close_takes_what_is_meant_and_nothing_else() {
    let keys = [
        Key::new("deployment", "server", "a"),
        Key::new("deployment", "server", "b"),
        Key::new("deployment", "other", "a"),
        Key::new("personal", "server", "a"),
    ];
    type Close = fn(&Pool) -> mcp_pool::Closing;
    let cases: [(Close, &[usize]); 7] = [
        (|pool| pool.close_scope(&"deployment", &"a"), &[0, 2]),
        (|pool| pool.close_server(&"deployment", &"server"), &[0, 1]),
        (|pool| pool.close_session(&key("b")), &[1]),
        (|pool| pool.close_domain(&"deployment"), &[0, 1, 2]),
        (|pool| pool.close_domain(&"nobody's"), &[]),
        (|pool| pool.close_all(), &[0, 1, 2, 3]),
        (|pool| pool.close_scope(&"personal", &"b"), &[]),
    ];
    for (close, meant) in cases {
        let (pool, _) = pool_of(8);
        let fakes = [(); 4].map(|()| Fake::new());
        for (key, fake) in keys.iter().zip(&fakes) {
            let binding = pool.ensure_binding(&key.domain, &key.server, 1u64);
            open(&pool, &binding, key, fake).await;
        }
        let closing = close(&pool);
        assert_eq!(closing.victims(), meant.len());
        closing.await;
        let closed: Vec<_> = (0..4).filter(|i| fakes[*i].closed.is_raised()).collect();
        assert_eq!(closed, meant);
        assert_eq!(pool.len(), 4 - meant.len());
    }
}

#[tokio::test]
async fn a_session_that_drains_is_closed_by_its_name_and_the_one_that_took_its_key_is_not() {
    let (pool, binding) = pool_of(4);
    let (old, new) = (Fake::new(), Fake::new());
    let lease = pool.acquire(&key("scope"), &binding, old.opener()).await;
    let lease = lease.unwrap();
    let id = lease.id();
    assert_eq!(old.name(), Some(id));
    drop(pool.drain_id(id, CLOSE_LIMIT));
    open(&pool, &binding, &key("scope"), &new).await;
    assert!(!old.retired.is_raised());
    pool.close_id(id).await;
    assert!(old.closed.is_raised() && !new.retired.is_raised());
    assert_eq!(pool.close_id(id).victims(), 0);
    drop(lease);
}

#[tokio::test]
async fn a_late_word_about_a_dead_session_spares_its_replacement() {
    let (pool, binding) = pool_of(4);
    let (old, new) = (Fake::new(), Fake::new());
    let first = pool
        .acquire(&key("scope"), &binding, old.opener())
        .await
        .unwrap();
    pool.evict(first.id()).await;
    assert!(old.closed.is_raised());
    let second = pool
        .acquire(&key("scope"), &binding, new.opener())
        .await
        .unwrap();

    assert_eq!(pool.evict(first.id()).victims(), 0);
    let late = pool.close_session_if_current(&key("scope"), first.id());
    assert_eq!(late.victims(), 0);

    assert_ne!(first.id(), second.id());
    assert!(!new.retired.is_raised());
    assert_eq!(pool.counters().tally.evicted, 1);
}

#[tokio::test]
async fn after_the_shutdown_nothing_is_opened_or_had() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::new();
    let lease = pool
        .acquire(&key("scope"), &binding, fake.opener())
        .await
        .unwrap();
    let call = Call::with(lease, Ends::Well).await;
    pool.shutdown().await;
    assert!(fake.closed.is_raised());
    assert_eq!(call.finish().await, Err(CallError::Closed));
    let late = pool.acquire(&key("scope"), &binding, never_opened).await;
    assert_eq!(late.unwrap_err(), AcquireError::Closed);
    pool.shutdown().await;
}

#[tokio::test]
async fn the_last_clone_of_a_pool_takes_its_sessions_with_it() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::new();
    let lease = pool
        .acquire(&key("scope"), &binding, fake.opener())
        .await
        .unwrap();
    let clone = pool.clone();
    drop(pool);
    assert!(!fake.retired.is_raised());
    drop(clone);
    assert!(fake.retired.is_raised());
    let handle = lease.handle();
    drop(lease);
    fake.closed.wait().await;
    let detached = Detached { id: handle.id() };
    assert_eq!(handle.begin().unwrap_err(), BeginError::Detached(detached));
}
