//! A pool whose every session is watched, and the orders in which scenarios on it are run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use mcp_pool::{Binding, SessionId};
pub(crate) use shuttle::future::{JoinHandle, spawn, yield_now};
use shuttle::{
    Config, MaxSteps, Runner,
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
};
use tokio::sync::Notify;

use crate::{
    clock,
    lease::Lease,
    pool::{AcquireError, Limits, Session},
    runtime::Runtime,
};

pub(crate) type Key = mcp_pool::Key<u8, u8, u8>;
pub(crate) type Pool = crate::pool::Pool<Key, Watched, OpenFailed>;
pub(crate) type Error = AcquireError<OpenFailed>;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused")]
pub(crate) struct OpenFailed;

pub(crate) fn key(scope: u8) -> Key {
    Key::new(0, 0, scope)
}

pub(crate) fn limits(capacity: usize) -> Limits {
    Limits {
        capacity,
        ..Limits::default()
    }
}

/// A session that knows what was done to it.
#[derive(Debug, Clone)]
pub(crate) struct Watched(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    hangs: AtomicBool,
    told: AtomicBool,
    closed: AtomicBool,
    over: Notify,
    calls: AtomicUsize,
}

impl Watched {
    pub(crate) fn is_told(&self) -> bool {
        self.0.told.load(SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.load(SeqCst)
    }

    /// From now on its closing does not end by itself.
    pub(crate) fn hang(&self) {
        self.0.hangs.store(true, SeqCst);
    }

    /// Until it is closed.
    pub(crate) async fn over(&self) {
        self.0.over.notified().await;
    }
}

impl Session for Watched {
    fn retire(&self) {
        assert!(!self.0.told.swap(true, SeqCst), "it is told once");
    }

    async fn closed(&self) {
        assert!(self.is_told(), "it is told before it is closed");
        yield_now().await;
        if self.0.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        assert!(!self.0.closed.swap(true, SeqCst), "it is closed once");
        self.0.over.notify_one();
    }
}

/// Some steps of everybody, or none.
pub(crate) async fn a_while() {
    for _ in 0..thread_rng().gen_range(0..12) {
        yield_now().await;
    }
}

/// Something that may happen so many times at once, for as long as it does, however it ends.
struct OneOf<'a> {
    count: &'a AtomicUsize,
    others: usize,
}

impl<'a> OneOf<'a> {
    fn many(count: &'a AtomicUsize) -> Self {
        let others = count.fetch_add(1, SeqCst);
        Self { count, others }
    }
}

impl Drop for OneOf<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, SeqCst);
    }
}

/// What a call that ran saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) id: SessionId,
    /// Its session was told to close before it ended.
    pub(crate) cut: bool,
}

/// A pool, the binding of its one server, and what became of what was opened.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) binding: Binding,
    limits: Limits,
    ledger: Arc<Ledger>,
}

#[derive(Default)]
pub(crate) struct Ledger {
    opened: std::sync::Mutex<Vec<Watched>>,
    opening: AtomicUsize,
    /// An opener began.
    began: Notify,
}

impl Ledger {
    /// Everything that was opened, in order.
    pub(crate) fn opened(&self) -> Vec<Watched> {
        self.opened.lock().expect("not poisoned").clone()
    }
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        let pool = Pool::on(Runtime::current(), limits.clone());
        let binding = pool.ensure_binding(&0, &0, 1_u64);
        Self {
            pool,
            binding,
            limits,
            ledger: Arc::default(),
        }
    }

    /// The same, but for who has this binding.
    pub(crate) fn with(&self, binding: Binding) -> Self {
        let world = self.clone();
        Self { binding, ..world }
    }

    pub(crate) fn ledger(&self) -> Arc<Ledger> {
        self.ledger.clone()
    }

    pub(crate) fn opened(&self) -> Vec<Watched> {
        self.ledger.opened()
    }

    /// Until an opener began, if none did since this was asked last.
    pub(crate) async fn an_opening(&self) {
        self.ledger.began.notified().await;
    }

    pub(crate) async fn acquire(&self, scope: u8) -> Result<Lease<Watched>, Error> {
        self.acquire_or_fail(scope, Ok(())).await
    }

    /// As `acquire`, but where it has to be opened that may fail.
    pub(crate) async fn acquire_or_fail(
        &self,
        scope: u8,
        opens: Result<(), OpenFailed>,
    ) -> Result<Lease<Watched>, Error> {
        let (ledger, most) = (self.ledger.clone(), self.limits.openings);
        let open = move || async move {
            let opening = OneOf::many(&ledger.opening);
            assert!(opening.others < most);
            ledger.began.notify_one();
            yield_now().await;
            opens?;
            let session = Watched(Arc::default());
            let mut opened = ledger.opened.lock().expect("not poisoned");
            opened.push(session.clone());
            Ok(session)
        };
        self.pool.acquire(&key(scope), &self.binding, open).await
    }

    /// A call from its beginning to its end.
    pub(crate) async fn call(&self, scope: u8) -> Result<Called, Error> {
        Ok(self.run(self.acquire(scope).await?).await)
    }

    /// The call that this lease is for.
    pub(crate) async fn run(&self, lease: Lease<Watched>) -> Called {
        assert!(self.pool.len() <= self.limits.capacity);
        let call = OneOf::many(&lease.session().0.calls);
        let most = self.limits.calls_per_session;
        assert!(most.is_none_or(|most| call.others < most));
        yield_now().await;
        Called {
            id: lease.id(),
            cut: lease.session().is_told(),
        }
    }

    pub(crate) fn spawn_call(&self, scope: u8) -> JoinHandle<Result<Called, Error>> {
        let world = self.clone();
        spawn(async move { world.call(scope).await })
    }

    /// Nothing is left of what was done but idle sessions, and of these nothing after the shutdown.
    async fn is_at_rest(&self) {
        let counters = self.pool.counters();
        assert_eq!((counters.busy, counters.draining), (0, 0), "{counters:?}");
        assert_eq!(counters.queued_calls, 0, "{counters:?}");
        self.pool.shutdown().await;
        let counters = self.pool.counters();
        assert_eq!((counters.live, counters.opening), (0, 0), "{counters:?}");
        assert_eq!((counters.waiting, counters.closing), (0, 0), "{counters:?}");
        assert_eq!(counters.panicked, 0, "{counters:?}");
        let opened = self.opened();
        let unclosed = opened.iter().filter(|session| !session.is_closed());
        assert_eq!(unclosed.count() as u64, counters.overdue);
    }
}

/// Runs it in orders of two kinds, so many of each: where every step may be anybody's, and where whoever is ahead stays
/// so but for two moments, which finds what takes a long way around.
pub(crate) fn explore(limits: Limits, scenario: impl AsyncFn(World) + Send + Sync + 'static) {
    const ORDERS: usize = 750;
    const SEED: u64 = 4;
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(20_000);
    let scenario = Arc::new(scenario);
    let run = move || {
        clock::reset();
        let (limits, scenario) = (limits.clone(), scenario.clone());
        shuttle::future::block_on(async move {
            let world = World::new(limits);
            scenario(world.clone()).await;
            world.is_at_rest().await;
        });
    };
    let anybody = RandomScheduler::new_from_seed(SEED, ORDERS);
    Runner::new(anybody, config.clone()).run(run.clone());
    let ahead = PctScheduler::new_from_seed(SEED, 3, ORDERS);
    Runner::new(ahead, config).run(run);
}
