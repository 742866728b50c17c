//! What is said of others in the crate's documentation: what they do when every session has a call in flight.

use std::{convert::Infallible, num::NonZeroUsize, time::Duration};

use mcp_pool::{AcquireError, Key, Limits, Pool, Session};

/// A session, and whether it is one that its holder still may call.
#[derive(Clone)]
struct Shared(std::sync::Arc<()>);

impl Session for Shared {
    fn retire(&self) {}

    async fn closed(&self) {}
}

#[tokio::test]
async fn when_all_are_busy_this_pool_refuses_and_cuts_nobody() {
    let pool = Pool::new(Limits {
        capacity: 1,
        ..Limits::default()
    });
    let binding = pool.ensure_binding(&"d".into(), &"s".into(), 1_u64);
    let open = || async { Ok::<_, Infallible>(Shared(std::sync::Arc::default())) };
    let first: Key = Key::new("d", "s", "first");
    let lease = pool.acquire(&first, &binding, open).await.unwrap();
    let refused = pool
        .acquire(&Key::new("d", "s", "second"), &binding, open)
        .await;
    assert!(matches!(refused, Err(AcquireError::Capacity { .. })));
    let again = pool.acquire(&first, &binding, open).await.unwrap();
    assert_eq!(again.id(), lease.id());
}

#[tokio::test(start_paused = true)]
async fn when_all_are_busy_this_pool_waits_in_order_and_no_longer_than_it_is_told_to() {
    let minute = Duration::from_secs(60);
    let pool = Pool::new(Limits {
        capacity: 1,
        wait: Some(minute),
        ..Limits::default()
    });
    let binding = pool.ensure_binding(&"d".into(), &"s".into(), 1_u64);
    let open = || async { Ok::<_, Infallible>(Shared(std::sync::Arc::default())) };
    let keys: [Key; 3] = ["busy", "first", "second"].map(|scope| Key::new("d", "s", scope));
    let [busy, first, second] = keys.each_ref().map(|key| pool.acquire(key, &binding, open));
    let busy = busy.await.unwrap();
    let began = tokio::time::Instant::now();
    let order = std::cell::RefCell::new(Vec::new());
    let note = async |who, lease| {
        let lease: Result<mcp_pool::Lease<Shared>, _> = lease;
        order.borrow_mut().push((who, lease.is_ok()));
        // The last one has it for longer than the other waits.
        tokio::time::sleep(minute).await;
    };
    tokio::join!(
        async { note("first", first.await).await },
        async { note("second", second.await).await },
        async {
            tokio::time::sleep(minute / 2).await;
            drop(busy);
        },
    );
    assert_eq!(*order.borrow(), [("first", true), ("second", false)]);
    assert_eq!(began.elapsed(), minute * 2);
}

#[test]
fn when_all_are_busy_a_least_recently_used_map_drops_a_busy_one() {
    let mut map = lru::LruCache::new(NonZeroUsize::MIN);
    let busy = Shared(std::sync::Arc::default());
    map.push("first", busy.clone());
    let evicted = map.push("second", Shared(std::sync::Arc::default()));
    let (whose, evicted) = evicted.unwrap();
    assert_eq!(whose, "first");
    assert_eq!(
        std::sync::Arc::strong_count(&evicted.0),
        2,
        "a call holds it"
    );
}

struct Opens;

impl deadpool::managed::Manager for Opens {
    type Type = ();
    type Error = Infallible;

    async fn create(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn recycle(
        &self,
        (): &mut (),
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

impl bb8::ManageConnection for Opens {
    type Connection = ();
    type Error = Infallible;

    async fn connect(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn is_valid(&self, (): &mut ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, (): &mut ()) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_are_busy_bb8_waits_for_half_a_minute_unless_told_otherwise() {
    let pool = bb8::Pool::builder().max_size(1).build(Opens).await.unwrap();
    let busy = pool.get().await.unwrap();
    let began = tokio::time::Instant::now();
    let refused = pool.get().await;
    assert!(matches!(refused, Err(bb8::RunError::TimedOut)));
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    drop(busy);
    assert!(pool.get().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn when_all_are_busy_deadpool_waits_for_ever_unless_told_otherwise() {
    let pool = deadpool::managed::Pool::<Opens>::builder(Opens).max_size(1);
    let pool = pool.build().unwrap();
    let busy = pool.get().await.unwrap();
    let year = Duration::from_secs(365 * 24 * 3_600);
    assert!(tokio::time::timeout(year, pool.get()).await.is_err());
    drop(busy);
    assert!(pool.get().await.is_ok());
}
