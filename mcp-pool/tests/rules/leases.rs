//! What a lease is: one pin of one session, let go anywhere.

use mcp_pool::{Handle, Lease};

use crate::fake::{Fake, Key, Pool, key, never_opened, pool_of};

#[tokio::test]
async fn a_lease_is_let_go_on_a_thread_without_a_runtime_also_after_its_pool() {
    let (pool, binding) = pool_of(1);
    let fake = Fake::new();
    let scope = key("scope");
    let acquire = || pool.acquire(&scope, &binding, fake.opener());
    let lease = acquire().await.unwrap();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    assert_eq!(pool.counters().busy, 0);

    let lease = acquire().await.unwrap();
    drop(pool);
    std::thread::spawn(move || drop(lease)).join().unwrap();
    fake.closed.wait().await;
}

#[tokio::test]
async fn a_future_that_waits_for_a_session_is_let_go_on_a_thread_without_a_runtime() {
    let (pool, binding) = pool_of(1);
    let fake = Fake::slow_to_open();
    let mut waits = Box::pin({
        let (pool, open) = (pool.clone(), fake.opener());
        async move { pool.acquire(&key("scope"), &binding, open).await }
    });
    tokio::select! {
        biased;
        _ = &mut waits => panic!("it cannot be open yet"),
        () = fake.opening.wait() => {}
    }
    std::thread::spawn(move || drop(waits)).join().unwrap();
    fake.given_up.wait().await;
    assert_eq!(pool.counters().opening, 0);
}

#[tokio::test]
async fn only_the_first_lease_of_a_session_is_fresh() {
    let (pool, binding) = pool_of(2);
    let handle = pool
        .get(&key("scope"), &binding, Fake::new().opener())
        .await
        .unwrap();
    let first = handle.begin().unwrap();
    let second = pool
        .acquire(&key("scope"), &binding, never_opened)
        .await
        .unwrap();
    assert!(first.fresh());
    assert!(!second.fresh());
    assert_eq!(first.id(), second.id());
    assert_eq!(first.handle().id(), handle.id());
    pool.close_all().await;
    let other = pool
        .acquire(&key("scope"), &binding, Fake::new().opener())
        .await
        .unwrap();
    assert!(other.fresh());
    assert!(other.id() > first.id());
}

#[tokio::test]
async fn a_handle_pins_nothing_and_keeps_nothing_alive() {
    let (pool, binding) = pool_of(1);
    let fake = Fake::new();
    let handle = pool
        .get(&key("scope"), &binding, fake.opener())
        .await
        .unwrap();
    assert_eq!(pool.counters().busy, 0);
    drop(pool);
    assert!(fake.retired.is_raised());
    assert!(handle.begin().is_err());
}

#[test]
fn what_is_given_out_may_go_to_any_thread() {
    fn may_go_anywhere<T: Send + Sync + 'static>() {}
    may_go_anywhere::<Pool>();
    may_go_anywhere::<Lease<Fake>>();
    may_go_anywhere::<Handle<Fake>>();
    may_go_anywhere::<Key>();
}
