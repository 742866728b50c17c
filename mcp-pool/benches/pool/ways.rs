//! The ways to keep sessions that are measured beside each other: all with the same keys, hashed by the same hasher, and
//! the same sessions, of which each call has a clone.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    num::NonZeroUsize,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use lru::LruCache;
use mcp_pool::{
    Binding, Fingerprint, Key, Limits, Session, SessionId, Timestamp,
    registry::{Admission, Promotion, Rules, Want},
};
use tokio::runtime::Runtime;

const NOW: Timestamp = Timestamp::ZERO;

/// A session of no use, which is shared by reference as real ones are.
#[derive(Clone)]
pub(crate) struct Idle {
    _connection: Arc<()>,
}

impl Idle {
    pub(crate) fn new() -> Self {
        Self {
            _connection: Arc::new(()),
        }
    }
}

impl Session for Idle {
    fn retire(&self) {}

    async fn closed(&self) {}
}

pub(crate) fn key(scope: usize) -> Key {
    Key::new("deployment", "browser", format!("conversation {scope}"))
}

/// Keys to ask with, over and over again.
#[derive(Clone)]
pub(crate) struct Asked {
    keys: Arc<[Key]>,
    next: usize,
}

impl Asked {
    /// For each session that is kept an equal key, in an order that no cache foresees.
    pub(crate) fn of_all(size: usize) -> Self {
        let mut scopes: Vec<_> = (0..size).collect();
        let mut state = 1_u64;
        for last in (1..size).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            scopes.swap(last, (state >> 33) as usize % (last + 1));
        }
        Self::new(scopes.into_iter())
    }

    /// More of them than there are slots, so that none is there when it comes again.
    pub(crate) fn of_none(size: usize) -> Self {
        Self::new(size..2 * size + 1_000)
    }

    fn new(scopes: impl Iterator<Item = usize>) -> Self {
        Self {
            keys: scopes.map(key).collect(),
            next: 0,
        }
    }

    pub(crate) fn next(&mut self) -> &Key {
        let key = &self.keys[self.next];
        self.next += 1;
        if self.next == self.keys.len() {
            self.next = 0;
        }
        key
    }
}

pub(crate) fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a future that has it at once.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it is there already"),
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().expect("a runtime")
}

pub(crate) fn map(size: usize) -> Mutex<HashMap<Key, Idle>> {
    Mutex::new((0..size).map(|scope| (key(scope), Idle::new())).collect())
}

pub(crate) fn lru(size: usize) -> Mutex<LruCache<Key, Idle>> {
    let mut cache = LruCache::new(NonZeroUsize::new(size).expect("a size"));
    for scope in 0..size {
        cache.push(key(scope), Idle::new());
    }
    Mutex::new(cache)
}

/// The decisions of the pool behind a mutex, without its waiting.
pub(crate) struct Registry {
    inner: Mutex<mcp_pool::registry::Registry<Key, (), Idle>>,
    binding: Binding,
}

impl Registry {
    /// All slots are taken, so many by busy sessions.
    pub(crate) fn new(size: usize, busy: usize) -> Self {
        let mut inner = mcp_pool::registry::Registry::new(Rules::with_capacity(size));
        let (binding, _) =
            inner.ensure_binding(&"deployment".into(), &"browser".into(), Fingerprint(1));
        let registry = Self {
            inner: Mutex::new(inner),
            binding,
        };
        for scope in 0..size {
            let id = registry.open(&key(scope), Idle::new());
            if scope >= busy {
                registry.leave(id);
            }
        }
        registry
    }

    pub(crate) fn open(&self, key: &Key, session: Idle) -> SessionId {
        let mut inner = lock(&self.inner);
        let admitted = inner.admit(NOW, key, self.binding, Want::CALL, |_| ());
        let Ok(Admission::Started(id)) = admitted else {
            panic!("{admitted:?}");
        };
        let promotion = inner.promote(NOW, id, session);
        assert!(matches!(promotion, Promotion::Promoted { .. }));
        inner.arrived(id);
        id
    }

    pub(crate) fn get(&self, key: &Key) -> (SessionId, Idle) {
        let mut inner = lock(&self.inner);
        let admitted = inner.admit(NOW, key, self.binding, Want::CALL, |_| ());
        let Ok(Admission::Live(id)) = admitted else {
            panic!("{admitted:?}");
        };
        (id, inner.give(id).expect("it is there").0.clone())
    }

    pub(crate) fn leave(&self, id: SessionId) {
        lock(&self.inner).leave(NOW, id);
    }
}

type Lease = mcp_pool::Lease<Idle>;

/// The whole pool, and what it runs on.
pub(crate) struct Pool {
    inner: mcp_pool::Pool<Key, Idle, Infallible>,
    binding: Binding,
    _busy: Vec<Lease>,
    runtime: Runtime,
}

impl Pool {
    /// All slots are taken, so many by busy sessions.
    pub(crate) fn new(size: usize, busy: usize) -> Self {
        let limits = Limits {
            capacity: size,
            ..Limits::default()
        };
        Self::within(limits, busy)
    }

    /// All are idle, and the time of each is counted, though it is never over.
    pub(crate) fn with_limits_of_time(size: usize) -> Self {
        let year = Duration::from_secs(365 * 24 * 3_600);
        let limits = Limits {
            capacity: size,
            idle_ttl: Some(year),
            max_lifetime: Some(year),
            ..Limits::default()
        };
        Self::within(limits, 0)
    }

    fn within(limits: Limits, busy: usize) -> Self {
        let size = limits.capacity;
        let runtime = runtime();
        let inner = mcp_pool::Pool::on(runtime.handle().clone(), limits);
        let binding = inner.ensure_binding(&"deployment".into(), &"browser".into(), 1_u64);
        let mut pool = Self {
            inner,
            binding,
            _busy: Vec::new(),
            runtime,
        };
        let mut leases = (0..size).map(|scope| pool.open(&key(scope)));
        let busy = leases.by_ref().take(busy).collect();
        leases.for_each(drop);
        pool._busy = busy;
        assert_eq!(pool.inner.len(), size);
        pool
    }

    pub(crate) fn open(&self, key: &Key) -> Lease {
        let open = || async { Ok(Idle::new()) };
        let opened = self.inner.acquire(key, &self.binding, open);
        self.runtime.block_on(opened).expect("there is room")
    }

    pub(crate) fn get(&self, key: &Key) -> Lease {
        let never = || async { panic!("it is there already") };
        at_once(self.inner.acquire(key, &self.binding, never)).expect("it is there")
    }
}

pub(crate) struct Opens;

impl deadpool::managed::Manager for Opens {
    type Type = Idle;
    type Error = Infallible;

    async fn create(&self) -> Result<Idle, Infallible> {
        Ok(Idle::new())
    }

    async fn recycle(
        &self,
        _: &mut Idle,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

/// All of its sessions are open and idle.
pub(crate) fn deadpool(size: usize) -> deadpool::managed::Pool<Opens> {
    let pool = deadpool::managed::Pool::builder(Opens).max_size(size);
    let pool = pool.build().expect("a pool");
    let all: Vec<_> = (0..size).map(|_| at_once(pool.get())).collect();
    drop(all);
    pool
}

impl bb8::ManageConnection for Opens {
    type Connection = Idle;
    type Error = Infallible;

    async fn connect(&self) -> Result<Idle, Infallible> {
        Ok(Idle::new())
    }

    async fn is_valid(&self, _: &mut Idle) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Idle) -> bool {
        false
    }
}

/// All of its sessions are open and idle. To be asked inside of the runtime.
pub(crate) fn bb8(runtime: &Runtime, size: usize) -> bb8::Pool<Opens> {
    let max = u32::try_from(size).expect("not so many");
    runtime.block_on(async {
        let pool = bb8::Pool::builder().max_size(max).build(Opens).await;
        let pool = pool.expect("a pool");
        let mut all = Vec::new();
        for _ in 0..size {
            all.push(pool.get().await.expect("one more"));
        }
        drop(all);
        pool
    })
}
