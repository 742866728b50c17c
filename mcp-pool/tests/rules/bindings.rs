//! A server as one domain sees it: what is stale opens nothing and never comes back.

use mcp_pool::{AcquireError, Fingerprint};

use crate::fake::{Fake, Key, key, never_opened, pool_of, until};

#[tokio::test]
async fn the_same_configuration_again_is_the_same_binding_and_touches_nothing() {
    let (pool, binding) = pool_of(4);
    let fake = Fake::new();
    pool.get(&key("scope"), &binding, fake.opener())
        .await
        .unwrap();
    assert_eq!(pool.ensure_binding(&"deployment", &"server", 1u64), binding);
    assert_eq!(pool.binding(&"deployment", &"server"), Some(binding));
    assert!(!fake.retired.is_raised());
}

#[tokio::test]
async fn a_changed_configuration_detaches_that_bindings_sessions_and_no_others() {
    let (pool, binding) = pool_of(4);
    let other = pool.ensure_binding(&"deployment", &"other", 1u64);
    let elsewhere = pool.ensure_binding(&"personal", &"server", 1u64);
    let fakes = [Fake::new(), Fake::new(), Fake::new()];
    let keys = [
        (key("scope"), binding),
        (Key::new("deployment", "other", "scope"), other),
        (Key::new("personal", "server", "scope"), elsewhere),
    ];
    for ((key, binding), fake) in keys.iter().zip(&fakes) {
        pool.get(key, binding, fake.opener()).await.unwrap();
    }

    let new = pool.ensure_binding(&"deployment", &"server", 2u64);

    assert!(new.epoch() > binding.epoch());
    assert!(fakes[0].retired.is_raised());
    assert!(!fakes[1].retired.is_raised() && !fakes[2].retired.is_raised());
    assert_eq!(pool.len(), 2);
    let stale = pool.acquire(&key("scope"), &binding, never_opened).await;
    assert_eq!(stale.unwrap_err(), AcquireError::Stale);
    let lease = pool
        .acquire(&key("scope"), &new, Fake::new().opener())
        .await
        .unwrap();
    // Nor does the stale one get what the current one opened.
    let stale = pool.acquire(&key("scope"), &binding, never_opened).await;
    assert_eq!(stale.unwrap_err(), AcquireError::Stale);
    drop(lease);
    assert_eq!(pool.counters().tally.stale, 2);
    assert_eq!(pool.counters().tally.rebound, 1);
}

#[tokio::test]
async fn a_creation_under_way_of_a_binding_that_becomes_stale_fails_as_stale_for_all() {
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

    let (_, closing) = pool.reconcile_bindings(&"deployment", []);
    closing.await;

    assert!(fake.given_up.is_raised());
    for user in users {
        assert_eq!(user.await.unwrap().unwrap_err(), AcquireError::Stale);
    }
    assert_eq!(pool.len(), 0);
    assert_eq!(pool.counters().opening, 0);
}

#[tokio::test]
async fn a_server_that_was_removed_and_added_again_begins_a_new_epoch() {
    let (pool, first) = pool_of(4);
    let fake = Fake::new();
    let handle = pool
        .get(&key("scope"), &first, fake.opener())
        .await
        .unwrap();
    let (changes, closing) = pool.reconcile_bindings(&"deployment", []);
    closing.await;
    assert_eq!(changes.removed, ["server"]);
    assert!(fake.closed.is_raised());
    assert_eq!(pool.binding(&"deployment", &"server"), None);
    let gone = pool.acquire(&key("scope"), &first, never_opened).await;
    assert_eq!(gone.unwrap_err(), AcquireError::Stale);

    let second = pool.ensure_binding(&"deployment", &"server", 1u64);

    assert!(second.epoch() > first.epoch());
    let revived = pool.acquire(&key("scope"), &first, never_opened).await;
    assert_eq!(revived.unwrap_err(), AcquireError::Stale);
    assert!(handle.begin().is_err());
    pool.get(&key("scope"), &second, Fake::new().opener())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_reconciliation_says_what_it_did_and_leaves_the_rest_alone() {
    let (pool, _) = pool_of(8);
    let at = |fingerprint: u64| Fingerprint::from(fingerprint);
    let (first, _) =
        pool.reconcile_bindings(&"d", [("kept", at(1)), ("old", at(1)), ("gone", at(1))]);
    assert_eq!(first.added, ["kept", "old", "gone"]);
    let fakes = [Fake::new(), Fake::new(), Fake::new()];
    for ((server, binding), fake) in first.bindings.iter().zip(&fakes) {
        let key = Key::new("d", *server, "scope");
        pool.get(&key, binding, fake.opener()).await.unwrap();
    }

    let (second, closing) =
        pool.reconcile_bindings(&"d", [("new", at(1)), ("kept", at(1)), ("old", at(2))]);

    assert_eq!(second.added, ["new"]);
    assert_eq!(second.changed, ["old"]);
    assert_eq!(second.removed, ["gone"]);
    assert_eq!(second.unchanged, ["kept"]);
    assert_eq!(second.bindings[1], first.bindings[0]);
    assert_eq!(closing.victims(), 2);
    closing.await;
    let closed = fakes.each_ref().map(|fake| fake.closed.is_raised());
    assert_eq!(closed, [false, true, true]);
    assert!(
        pool.binding(&"deployment", &"server").is_some(),
        "other domains are not meant"
    );
}

#[tokio::test]
async fn a_binding_opens_nothing_under_the_key_of_another_server_or_domain() {
    let (pool, binding) = pool_of(4);
    pool.ensure_binding(&"deployment", &"other", 1u64);
    for key in [
        Key::new("deployment", "other", "scope"),
        Key::new("personal", "server", "scope"),
    ] {
        let refused = pool.acquire(&key, &binding, never_opened).await;
        assert_eq!(refused.unwrap_err(), AcquireError::Stale);
    }
}
