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
