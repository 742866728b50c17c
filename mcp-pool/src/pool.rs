//! The part that waits: runs openings and closings as tasks, and tells everybody what the registry decided.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin as Pinned, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime::Handle as Runtime,
    sync::{Notify, Semaphore, watch},
    time::{Instant, timeout},
};

use crate::{
    binding::{Binding, Changes, Fingerprint},
    key::{PoolKey, SessionId},
    lease::{Handle, Lease, Owner, Pin},
    registry::{Admission, Full, Promotion, Refusal, Registry, Retired, Tally, Target},
};

/// What the pool lends out. Clones are the same session.
pub trait Session: Clone + Send + Sync + 'static {
    /// The pool lets the session go: calls in flight are to end as closed, and the closing is to begin. Returns at
    /// once. Called once, from any thread, also outside of a runtime.
    fn retire(&self);

    /// Completes when the session is closed. Called once, after [`retire`](Self::retire), in a task of the pool; it may
    /// do the work of the closing itself. Dropped if it is not done within [`Limits::close_limit`].
    fn closed(&self) -> impl Future<Output = ()> + Send;
}

/// The bounds of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How many live sessions there may be, over all domains.
    pub capacity: usize,
    /// How many sessions are opened at a time, at least 1; further openings wait in order.
    pub openings: usize,
    /// How many sessions are closed at a time, at least 1; further closings wait in order.
    pub closings: usize,
    /// How long one closing may take from when its turn came.
    pub close_limit: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: 256,
            openings: 16,
            closings: 32,
            close_limit: Duration::from_secs(5),
        }
    }
}

/// Why there is no session. Whoever joined a creation gets the same answer as the one who began it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError<E> {
    /// Every slot is taken by a session with a call in flight. Nothing was opened, or what was opened is closed.
    #[error(
        "the pool is at capacity: {busy} of {capacity} sessions have a call in flight, none is idle"
    )]
    Capacity {
        /// How many slots there are.
        capacity: usize,
        /// How many of them are busy.
        busy: usize,
    },
    /// The opener's own error.
    #[error(transparent)]
    Open(E),
    /// The opener panicked.
    #[error("opening the session panicked: {message}")]
    Panicked {
        /// What the panic said, if it said anything.
        message: Arc<str>,
    },
    /// The binding is not, or no longer, the current one of the key's domain and server.
    #[error("the configuration of this server changed or was removed: ask for its binding again")]
    Stale,
    /// The session was closed before it could be handed out, or the pool is shut down.
    #[error("the session was closed while it opened, or the pool is shut down")]
    Closed,
}

impl<E> From<Full> for AcquireError<E> {
    fn from(Full { capacity, busy }: Full) -> Self {
        Self::Capacity { capacity, busy }
    }
}

/// How a pool is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// How many slots there are.
    pub capacity: usize,
    /// Slots taken.
    pub live: usize,
    /// Slots taken by sessions with a call in flight.
    pub busy: usize,
    /// Creations under way, those that wait for their turn among them.
    pub opening: usize,
    /// Closings under way, those that wait for their turn among them.
    pub closing: usize,
    /// Openers that panicked.
    pub panicked: u64,
    /// Closings that were given up at the limit.
    pub overdue: u64,
    /// How often what was decided.
    pub tally: Tally,
}

/// A pool of sessions of type `S` under keys of type `K`, whose opening fails with `E`.
///
/// Clones are the same pool. When the last one goes, every session is told to close, as by
/// [`shutdown`](Self::shutdown).
pub struct Pool<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    guard: Arc<Guard<K, S, E>>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Pool<K, S, E> {
    /// A pool whose tasks run on the current tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(limits: Limits) -> Self {
        Self::on(Runtime::current(), limits)
    }

    /// A pool whose tasks run on this runtime, which must have its timer enabled.
    pub fn on(runtime: Runtime, limits: Limits) -> Self {
        let state = State {
            registry: Registry::new(limits.capacity),
            shut: false,
            tasks: HashMap::new(),
            next_task: 0,
            closing: 0,
            panicked: 0,
            overdue: 0,
        };
        let places = |limit: usize| Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS));
        let shared = Shared {
            state: Mutex::new(state),
            runtime,
            openings: places(limits.openings),
            closings: places(limits.closings),
            close_limit: limits.close_limit,
        };
        Self {
            guard: Arc::new(Guard(Arc::new(shared))),
        }
    }

    /// Makes this the configuration of the server, and returns its binding. The same fingerprint again is the same
    /// binding; another one makes the old binding stale and detaches its sessions, which are told to close.
    ///
    /// For whoever speaks for the configuration. Others ask for the [`binding`](Self::binding), so that something old
    /// can't be brought back by somebody who missed a change.
    pub fn ensure_binding(
        &self,
        domain: &K::Domain,
        server: &K::Server,
        fingerprint: impl Into<Fingerprint>,
    ) -> Binding {
        let (binding, retired) =
            self.lock()
                .registry
                .ensure_binding(domain, server, fingerprint.into());
        drop(self.shared().retire(retired, AcquireError::Stale));
        binding
    }

    /// Makes these the servers of a domain, and no others, each given once: sessions of changed and removed ones are
    /// detached and told to close, all others are untouched.
    pub fn reconcile_bindings(
        &self,
        domain: &K::Domain,
        servers: impl IntoIterator<Item = (K::Server, Fingerprint)>,
    ) -> (Changes<K::Server>, Closing) {
        // The iterator is the caller's code: it must not run under the lock.
        let servers: Vec<_> = servers.into_iter().collect();
        let (changes, retired) = self.lock().registry.reconcile_bindings(domain, servers);
        (changes, self.shared().retire(retired, AcquireError::Stale))
    }

    /// The current binding of a server, or `None` if the domain has no such server.
    pub fn binding(&self, domain: &K::Domain, server: &K::Server) -> Option<Binding> {
        self.lock().registry.binding(domain, server)
    }

    /// The session of this key for one call: a live one, that of a creation under way, or that which `open` opens.
    ///
    /// `open` runs in a task of the pool, and only if there is neither: dropping this future leaves the creation to
    /// those who joined it, and gives it up (the opener's future is dropped) if there is nobody. An opener that has
    /// something open when it is dropped must close it.
    pub async fn acquire<F, O>(
        &self,
        key: &K,
        binding: &Binding,
        open: F,
    ) -> Result<Lease<S>, AcquireError<E>>
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        let owner = self.owner();
        let pin = match self.admit(key, *binding, open, |state, id| state.begin(id, owner))? {
            Entry::Live(lease) => return lease.ok_or(AcquireError::Closed),
            Entry::Waits(pin, opening) => {
                opening.answer().await?;
                pin
            }
        };
        // The answer was good, but what it was about may be closed again by now.
        let mut state = self.lock();
        let given = state.registry.give(pin.id);
        let given = given.map(|(session, fresh)| (session.clone(), fresh));
        let gone = state.gone(*binding);
        drop(state);
        let (session, fresh) = given.ok_or(gone)?;
        Ok(Lease {
            session,
            fresh,
            pin,
        })
    }

    /// As [`acquire`](Self::acquire), but keeps nothing: the session may be gone before a call
    /// [begins](Handle::begin) on it.
    pub async fn get<F, O>(
        &self,
        key: &K,
        binding: &Binding,
        open: F,
    ) -> Result<Handle<S>, AcquireError<E>>
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        let id = match self.admit(key, *binding, open, |_, id| id)? {
            Entry::Live(id) => id,
            Entry::Waits(pin, opening) => {
                opening.answer().await?;
                let state = self.lock();
                let live = state.registry.is_live(pin.id);
                let gone = state.gone(*binding);
                drop(state);
                if !live {
                    return Err(gone);
                }
                pin.id
            }
        };
        Ok(Handle {
            id,
            owner: Arc::downgrade(&self.owner()),
        })
    }

    /// The session is dead: it leaves the pool at once and is told to close. Another one that took its place is not
    /// touched, nor is anything if it was gone already.
    pub fn evict(&self, id: SessionId) -> Closing {
        let retired = self.lock().registry.evict(id);
        let retired = retired.into_iter().collect();
        self.shared().retire(retired, AcquireError::Closed)
    }

    /// Closes what one scope of a domain has, over all servers.
    pub fn close_scope(&self, domain: &K::Domain, scope: &K::Scope) -> Closing {
        self.close(Target::Scope(domain, scope))
    }

    /// Closes what one server of a domain has, over all scopes. Its binding stays.
    pub fn close_server(&self, domain: &K::Domain, server: &K::Server) -> Closing {
        self.close(Target::Server(domain, server))
    }

    /// Closes whatever is under this key.
    pub fn close_session(&self, key: &K) -> Closing {
        self.close(Target::Session(key))
    }

    /// Closes this very session, if it is what is under this key.
    pub fn close_session_if_current(&self, key: &K, id: SessionId) -> Closing {
        self.close(Target::SessionIfCurrent(key, id))
    }

    /// Closes what a domain has. Its bindings stay.
    pub fn close_domain(&self, domain: &K::Domain) -> Closing {
        self.close(Target::Domain(domain))
    }

    /// Closes everything; the pool goes on. Its end is also that of the closings that were under way before.
    pub fn close_all(&self) -> Closing {
        self.shared().close_all(false)
    }

    /// Closes everything, as [`close_all`](Self::close_all), and refuses whatever comes after as closed.
    pub fn shutdown(&self) -> Closing {
        self.shared().close_all(true)
    }

    /// How many live sessions there are.
    pub fn len(&self) -> usize {
        self.lock().registry.live()
    }

    /// Whether there is no live session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the pool is doing.
    pub fn counters(&self) -> Counters {
        let state = self.lock();
        Counters {
            capacity: state.registry.capacity(),
            live: state.registry.live(),
            busy: state.registry.busy(),
            opening: state.registry.opening(),
            closing: state.closing,
            panicked: state.panicked,
            overdue: state.overdue,
            tally: state.registry.tally(),
        }
    }

    fn close(&self, target: Target<'_, K>) -> Closing {
        let retired = self.lock().registry.close(target);
        self.shared().retire(retired, AcquireError::Closed)
    }

    /// Finds the session or joins its creation, which is begun if need be. `live` runs under the lock.
    fn admit<F, O, T>(
        &self,
        key: &K,
        binding: Binding,
        open: F,
        live: impl FnOnce(&mut State<K, S, E>, SessionId) -> T,
    ) -> Result<Entry<T, S, E>, AcquireError<E>>
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        let mut started = None;
        let mut state = self.lock();
        if state.shut {
            return Err(AcquireError::Closed);
        }
        let admission = state.registry.admit(key, binding, |_| {
            let (over, until_over) = watch::channel(false);
            started = Some(over);
            Arc::new(Opening::new(until_over))
        });
        let id = match admission {
            Err(Refusal::Full(full)) => return Err(full.into()),
            Err(Refusal::Stale) => return Err(AcquireError::Stale),
            Ok(Admission::Live(id)) => return Ok(Entry::Live(live(&mut state, id))),
            Ok(Admission::Joined(id) | Admission::Started(id)) => id,
        };
        let opening = state
            .registry
            .opening_of(id)
            .expect("what was joined or started just now")
            .clone();
        let task = started.map(|over| Task::register(self.shared(), &mut state, over));
        drop(state);
        let pin = Pin {
            id,
            owner: self.owner(),
        };
        if let Some(task) = task {
            let creation = Creation {
                id,
                opening: opening.clone(),
                task: Some(task),
                shared: self.shared().clone(),
            };
            self.shared().runtime.spawn(creation.run(open));
        }
        Ok(Entry::Waits(pin, opening))
    }

    fn shared(&self) -> &Arc<Shared<K, S, E>> {
        &self.guard.0
    }

    fn owner(&self) -> Arc<dyn Owner<S>> {
        self.shared().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<K, S, E>> {
        self.shared().lock()
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Clone for Pool<K, S, E> {
    fn clone(&self) -> Self {
        Self {
            guard: self.guard.clone(),
        }
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> fmt::Debug for Pool<K, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.counters()).finish()
    }
}

/// What the last clone of a pool takes with it. Tasks and leases hold the shared part without it.
struct Guard<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static>(Arc<Shared<K, S, E>>);

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Guard<K, S, E> {
    fn drop(&mut self) {
        drop(self.0.close_all(true));
    }
}

/// How somebody who asked for a session goes on.
enum Entry<T, S, E> {
    Live(T),
    Waits(Pin<S>, Arc<Opening<E>>),
}

struct Shared<K: PoolKey, S, E> {
    /// Held for the steps of one decision: never while anything is awaited, and never while code of the user's runs,
    /// but for the traits of its keys and the clone of its session.
    state: Mutex<State<K, S, E>>,
    runtime: Runtime,
    openings: Semaphore,
    closings: Semaphore,
    close_limit: Duration,
}

struct State<K: PoolKey, S, E> {
    registry: Registry<K, Arc<Opening<E>>, S>,
    shut: bool,
    /// The tasks under way, for those who want to see all of them over.
    tasks: HashMap<u64, watch::Receiver<bool>>,
    next_task: u64,
    closing: usize,
    panicked: u64,
    overdue: u64,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> State<K, S, E> {
    fn begin(&mut self, id: SessionId, owner: Arc<dyn Owner<S>>) -> Option<Lease<S>> {
        let (session, fresh) = {
            if !self.registry.pin(id) {
                return None;
            }
            self.registry.give(id)?
        };
        Some(Lease {
            session: session.clone(),
            fresh,
            pin: Pin { id, owner },
        })
    }

    /// Why a session of this binding that was there a moment ago is not there any more.
    fn gone(&self, binding: Binding) -> AcquireError<E> {
        if self.registry.is_current(binding) {
            AcquireError::Closed
        } else {
            AcquireError::Stale
        }
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Shared<K, S, E> {
    fn lock(&self) -> MutexGuard<'_, State<K, S, E>> {
        // Nothing that can panic leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_all(self: &Arc<Self>, shut: bool) -> Closing {
        let mut state = self.lock();
        state.shut |= shut;
        let retired = state.registry.close(Target::All);
        let earlier: Vec<_> = state.tasks.values().cloned().collect();
        drop(state);
        let mut closing = self.retire(retired, AcquireError::Closed);
        closing.wait_for(earlier, self.close_limit);
        closing
    }

    /// Tells everybody who has to do with what left the registry, and only then begins to wait for any of it.
    fn retire(
        self: &Arc<Self>,
        retired: Vec<Retired<Arc<Opening<E>>, S>>,
        why: AcquireError<E>,
    ) -> Closing {
        for gone in &retired {
            if let Some(opening) = &gone.opening {
                opening.settle(Err(why.clone()));
                opening.cancel.notify_one();
            }
            if let Some(session) = &gone.session {
                tell(session);
            }
        }
        let victims = retired.len();
        let mut tasks = Vec::with_capacity(victims);
        for gone in retired {
            match (gone.session, gone.opening) {
                (Some(session), _) => tasks.push(self.close(gone.id, session)),
                (None, Some(opening)) => tasks.push(opening.over.clone()),
                (None, None) => {}
            }
        }
        let mut closing = Closing {
            victims,
            rest: Vec::new(),
        };
        closing.wait_for(tasks, self.close_limit);
        closing
    }

    /// Closes a session that was told already, in a task of its own.
    fn close(self: &Arc<Self>, id: SessionId, session: S) -> watch::Receiver<bool> {
        let (over, until_over) = watch::channel(true);
        let task = Task::register(self, &mut self.lock(), over);
        self.close_as(task, id, session);
        until_over
    }

    fn close_as(self: &Arc<Self>, mut task: Task<K, S, E>, id: SessionId, session: S) {
        task.is_a_closing();
        self.runtime.spawn(async move {
            let shared = task.shared.clone();
            let _turn = shared.closings.acquire().await;
            match timeout(shared.close_limit, contain(|| session.closed())).await {
                Ok(Ok(())) => tracing::debug!(session = id.get(), "session closed"),
                Ok(Err(message)) => {
                    tracing::warn!(session = id.get(), %message, "closing the session panicked");
                }
                Err(_) => {
                    shared.lock().overdue += 1;
                    tracing::warn!(session = id.get(), limit = ?shared.close_limit, "closing the session was given up at the limit");
                }
            }
            drop(task);
        });
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Owner<S> for Shared<K, S, E> {
    fn begin(self: Arc<Self>, id: SessionId) -> Option<Lease<S>> {
        let owner = self.clone();
        self.lock().begin(id, owner)
    }

    fn leave(&self, id: SessionId) {
        let abandoned = self.lock().registry.leave(id);
        if let Some(opening) = abandoned.and_then(|retired| retired.opening) {
            opening.settle(Err(AcquireError::Closed));
            opening.cancel.notify_one();
        }
    }
}

/// A creation under way, as all who have to do with it see it.
struct Opening<E> {
    /// The answer to all who wait, once there is one; the first word counts.
    answer: watch::Sender<Option<Result<(), AcquireError<E>>>>,
    /// Nobody needs it any more: stop.
    cancel: Notify,
    /// See [`Task::over`].
    over: watch::Receiver<bool>,
}

impl<E: Clone> Opening<E> {
    fn new(over: watch::Receiver<bool>) -> Self {
        Self {
            answer: watch::Sender::new(None),
            cancel: Notify::new(),
            over,
        }
    }

    fn settle(&self, answer: Result<(), AcquireError<E>>) {
        self.answer.send_if_modified(|settled| {
            let first = settled.is_none();
            if first {
                *settled = Some(answer);
            }
            first
        });
    }

    async fn answer(&self) -> Result<(), AcquireError<E>> {
        let mut answer = self.answer.subscribe();
        let answer = answer.wait_for(Option::is_some).await;
        answer
            .ok()
            .and_then(|answer| answer.clone())
            .unwrap_or(Err(AcquireError::Closed))
    }
}

/// A task of the pool, registered for as long as it runs, however it ends.
struct Task<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    shared: Arc<Shared<K, S, E>>,
    number: u64,
    closing: bool,
    /// True once the rest of the task is bounded by itself; dropped when it is over.
    over: watch::Sender<bool>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Task<K, S, E> {
    fn register(
        shared: &Arc<Shared<K, S, E>>,
        state: &mut State<K, S, E>,
        over: watch::Sender<bool>,
    ) -> Self {
        let number = state.next_task;
        state.next_task += 1;
        state.tasks.insert(number, over.subscribe());
        Self {
            shared: shared.clone(),
            number,
            closing: false,
            over,
        }
    }

    fn is_a_closing(&mut self) {
        self.closing = true;
        self.shared.lock().closing += 1;
        self.is_bounded();
    }

    fn is_bounded(&self) {
        self.over.send_replace(true);
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Task<K, S, E> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.tasks.remove(&self.number);
        state.closing -= usize::from(self.closing);
    }
}

/// The task that opens a session and brings it into the registry. However it ends, those who wait are answered.
struct Creation<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    id: SessionId,
    opening: Arc<Opening<E>>,
    task: Option<Task<K, S, E>>,
    shared: Arc<Shared<K, S, E>>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Creation<K, S, E> {
    async fn run<F, O>(mut self, open: F)
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        let opened = tokio::select! {
            biased;
            () = self.opening.cancel.notified() => None,
            opened = self.open(open) => opened,
        };
        if let Some(task) = &self.task {
            task.is_bounded();
        }
        match opened {
            // It left the registry, and all were told by whoever took it out.
            None => {}
            Some(Err(error)) => self.fail(error),
            Some(Ok(session)) => self.promote(session).await,
        }
    }

    /// Waits for its turn, asks again whether there is room, and opens. `None` if it is not to open any more.
    async fn open<F, O>(&self, open: F) -> Option<Result<S, AcquireError<E>>>
    where
        F: FnOnce() -> O,
        O: Future<Output = Result<S, E>>,
    {
        let _turn = self.shared.openings.acquire().await;
        let readmitted = self.shared.lock().registry.readmit(self.id);
        if let Err((full, _)) = readmitted? {
            return Some(Err(full.into()));
        }
        Some(match contain(open).await {
            Ok(opened) => opened.map_err(AcquireError::Open),
            Err(message) => {
                self.shared.lock().panicked += 1;
                tracing::error!(session = self.id.get(), %message, "opening the session panicked");
                Err(AcquireError::Panicked { message })
            }
        })
    }

    fn fail(&self, error: AcquireError<E>) {
        // Out of the registry first: whoever hears the error may try again at once.
        let _opening = self.shared.lock().registry.fail(self.id);
        self.opening.settle(Err(error));
    }

    async fn promote(&mut self, session: S) {
        let promotion = self.shared.lock().registry.promote(self.id, session);
        match promotion {
            Promotion::Promoted { victim } => {
                if let Some(victim) = victim {
                    tracing::debug!(
                        session = victim.id.get(),
                        "idle session closed to make room"
                    );
                    let closing = self.shared.retire(vec![victim], AcquireError::Closed);
                    // Its own bound counts from its turn; those who wait here are not held up by the queue too.
                    let _ = timeout(self.shared.close_limit, closing).await;
                }
                let arrived = self.shared.lock().registry.arrived(self.id);
                if arrived.is_some() {
                    self.opening.settle(Ok(()));
                }
            }
            Promotion::Full { full, session, .. } => {
                tell(&session);
                self.opening.settle(Err(full.into()));
                self.dispose(session);
            }
            Promotion::Gone { session } => {
                tell(&session);
                self.dispose(session);
            }
        }
    }

    /// Closes what it opened for nobody. Its own end is then that of the closing.
    fn dispose(&mut self, session: S) {
        if let Some(task) = self.task.take() {
            self.shared.close_as(task, self.id, session);
        }
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Creation<K, S, E> {
    /// What is left to do if the task was cut off, because the runtime ended or something in it panicked on its way out.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let left = state.registry.fail(self.id);
        let left = left.or_else(|| state.registry.arrived(self.id));
        drop(state);
        if left.is_some() {
            self.opening.settle(Err(AcquireError::Closed));
        }
    }
}

/// Tells a session to close. One that panics at it must not keep the others from being told.
fn tell<S: Session>(session: &S) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| session.retire())) {
        let message = message_of(&*panic);
        tracing::warn!(%message, "telling the session to close panicked");
    }
}

/// Runs a future of the user's, and turns a panic of it into what it said.
async fn contain<O: Future>(make: impl FnOnce() -> O) -> Result<O::Output, Arc<str>> {
    let future = catch_unwind(AssertUnwindSafe(make)).map_err(|panic| message_of(&*panic))?;
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(message_of(&*panic))),
        }
    })
    .await
}

fn message_of(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
        .into()
}

/// The end of what was closed, for whoever wants to wait for it.
///
/// Everything was told to close before this was returned, and is closed whether or not it is awaited. Awaited, it
/// completes when every closing is over, or was given up at [`Limits::close_limit`] from its turn. To be awaited
/// inside a tokio runtime.
#[derive(Default)]
pub struct Closing {
    victims: usize,
    rest: Vec<Pinned<Box<dyn Future<Output = ()> + Send>>>,
}

impl Closing {
    /// How many sessions, and creations under way, were taken out of the pool.
    pub fn victims(&self) -> usize {
        self.victims
    }

    fn wait_for(&mut self, tasks: Vec<watch::Receiver<bool>>, limit: Duration) {
        if tasks.is_empty() {
            return;
        }
        self.rest.push(Box::pin(async move {
            let began = Instant::now();
            for mut task in tasks {
                // Only an opener that does not stop when it is dropped is not bounded by itself.
                let patience = limit.saturating_sub(began.elapsed());
                let bounded = timeout(patience, task.wait_for(|bounded| *bounded)).await;
                match bounded.map(|ended| ended.is_ok()) {
                    Ok(true) => while task.changed().await.is_ok() {},
                    Ok(false) => {}
                    Err(_) => tracing::warn!("an opener did not stop when it was told to"),
                }
            }
        }));
    }
}

impl Future for Closing {
    type Output = ();

    fn poll(mut self: Pinned<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.rest
            .retain_mut(|rest| rest.as_mut().poll(context).is_pending());
        if self.rest.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing")
            .field("victims", &self.victims)
            .finish_non_exhaustive()
    }
}
