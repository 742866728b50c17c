//! The pool as its users see it.

use std::{fmt, future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};

use crate::{
    binding::{Binding, Changes, Fingerprint},
    closing::Closing,
    event::{Counters, Event, Snapshot, Why},
    key::{PoolKey, SessionId},
    lease::{Handle, Lease, Owner, Pin},
    registry::{Admission, Full, Purpose, Refusal, Rules, Target, TurnId, Want},
    runtime::{AbortHandle, Instant, Runtime, timeout_at},
    tasks::{self, Creation, Locked, Observer, Opening, Shared, State, Task},
};

/// What the pool lends out. Clones are the same session.
pub trait Session: Clone + Send + Sync + 'static {
    /// The name that the pool has for it. Called once, in a task of the pool, when it has opened and before it takes a
    /// slot, which may still be refused: before the observer hears that it opened. Does nothing unless you want to know.
    fn named(&self, id: SessionId) {
        let _ = id;
    }

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
    /// How many live sessions there may be, over all domains. 256 by default.
    pub capacity: usize,
    /// How many sessions are opened at a time, at least 1; further openings wait in order. 16 by default.
    pub openings: usize,
    /// How many sessions are closed at a time, at least 1; further closings wait in order. 32 by default.
    pub closings: usize,
    /// How long one closing may take from when its turn came, and how long a new session waits for the one whose slot
    /// it took. To be longer than what a session needs that closes by force. 5 seconds by default.
    pub close_limit: Duration,
    /// How many live sessions one server of one domain may have. Where it has all of them, only its own idle sessions
    /// make room for its new ones. `None`, the default, is no cap.
    pub sessions_per_server: Option<usize>,
    /// How many calls may be in flight on one session. `None`, the default, is no cap.
    pub calls_per_session: Option<usize>,
    /// How long whoever wants to begin a call waits for a slot, or for a place on its session, where there is none;
    /// then it is refused. What the slot is for may take longer. Those who wait are served in order of arrival among
    /// those whom a slot can serve, and newcomers do not overtake them. `None`, the default, is not at all.
    pub wait: Option<Duration>,
    /// How long a session may be idle, counted from when it was opened, got or released last: a call that takes longer
    /// is never cut. `None`, the default, is for ever.
    pub idle_ttl: Option<Duration>,
    /// How long a session may live. When it has, it is closed if it is idle; else no call begins on it any more, and it
    /// is closed when the last one ended. `None`, the default, is for ever.
    pub max_lifetime: Option<Duration>,
    /// Whether to keep time also where neither limit of time is set, so that [`Pool::snapshot`] knows how old and how
    /// long idle sessions are. It costs a look at the clock for each call, twice. Off by default.
    pub keep_time: bool,
}

impl From<&Limits> for Rules {
    fn from(limits: &Limits) -> Self {
        Self {
            capacity: limits.capacity,
            sessions_per_server: limits.sessions_per_server,
            calls_per_session: limits.calls_per_session,
            idle_ttl: limits.idle_ttl,
            max_lifetime: limits.max_lifetime,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: 256,
            openings: 16,
            closings: 32,
            close_limit: Duration::from_secs(5),
            sessions_per_server: None,
            calls_per_session: None,
            wait: None,
            idle_ttl: None,
            max_lifetime: None,
            keep_time: false,
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
    /// Every slot that this server may have is taken by a session with a call in flight, as in `Capacity`.
    #[error(
        "the server is at capacity: {busy} of the {capacity} sessions that it may have have a call in flight"
    )]
    ServerCapacity {
        /// How many slots the server may have.
        capacity: usize,
        /// How many of them are busy.
        busy: usize,
    },
    /// The session has all the calls that it may have at a time.
    #[error("the session has {calls} calls in flight, as many as it may have")]
    Saturated {
        /// How many that is.
        calls: usize,
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

impl<E> From<Refusal> for AcquireError<E> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full(Full { capacity, busy }) => Self::Capacity { capacity, busy },
            Refusal::ServerFull(Full { capacity, busy }) => Self::ServerCapacity { capacity, busy },
            Refusal::Saturated { calls } => Self::Saturated { calls },
            Refusal::Stale => Self::Stale,
        }
    }
}

/// A pool of sessions of type `S` under keys of type `K`, whose opening fails with `E`.
///
/// Clones are the same pool. When the last one goes, every session is told to close, as by
/// [`shutdown`](Self::shutdown).
pub struct Pool<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    guard: Arc<Guard<K, S, E>>,
    wait: Option<Duration>,
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
        Self::build(runtime, &limits, None)
    }

    /// As [`on`](Self::on), with an observer that is told what happens. It is called in the task or on the thread that
    /// made it happen, under no lock, so that it may use the pool; where several make things happen at a time it may be
    /// called by several. It must not wait.
    pub fn observed(
        runtime: Runtime,
        limits: Limits,
        observer: impl Fn(&Event<K>) + Send + Sync + 'static,
    ) -> Self {
        Self::build(runtime, &limits, Some(Box::new(observer)))
    }

    fn build(runtime: Runtime, limits: &Limits, observer: Option<Observer<K>>) -> Self {
        // The clock is read on the runtime, whose time may be that of a test.
        let _on_runtime = runtime.enter();
        let shared = Shared::new(runtime.clone(), limits, observer);
        let longest = [limits.idle_ttl, limits.max_lifetime].into_iter().flatten();
        let sweep = longest.min().map(|longest| {
            let sweep = Shared::sweep(Arc::downgrade(&shared), longest);
            runtime.spawn(sweep).abort_handle()
        });
        Self {
            guard: Arc::new(Guard { shared, sweep }),
            wait: limits.wait,
        }
    }

    /// The same pool, where whoever wants to begin a call waits so long for room, instead of [`Limits::wait`].
    #[must_use]
    pub fn waiting(&self, wait: Option<Duration>) -> Self {
        Self {
            guard: self.guard.clone(),
            wait,
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
        let fingerprint = fingerprint.into();
        let (binding, _) = self.shared().take_out(AcquireError::Stale, |state| {
            state.registry.ensure_binding(domain, server, fingerprint)
        });
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
        self.shared().take_out(AcquireError::Stale, |state| {
            state.registry.reconcile_bindings(domain, servers)
        })
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
    #[expect(
        clippy::manual_async_fn,
        reason = "without the promise of Send the compiler cannot prove it for keys that hold a reference"
    )]
    pub fn acquire<F, O>(
        &self,
        key: &K,
        binding: &Binding,
        open: F,
    ) -> impl Future<Output = Result<Lease<S>, AcquireError<E>>> + Send
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        async move {
            match self.call_at_once(key, *binding) {
                Some(lease) => Ok(lease),
                None => self.call_later(key, *binding, open).await,
            }
        }
    }

    /// The lease of a session that is there and may have one more call: all that most calls need.
    // Inlined, so that the lease is made where it is to be: each move of it costs as much as a tenth of the call.
    #[inline(always)]
    fn call_at_once(&self, key: &K, binding: Binding) -> Option<Lease<S>> {
        let now = self.shared().now();
        let (id, session, fresh) = {
            let mut state = self.shared().lock_at(now);
            if state.shut {
                return None;
            }
            let id = state.registry.call_live(now, key, binding)?;
            let (session, fresh) = state.registry.give(id)?;
            (id, session.clone(), fresh)
        };
        let owner = self.owner();
        Some(Lease {
            session,
            fresh,
            pin: Pin { id, owner },
        })
    }

    /// The lease of a session that may have to be waited for, or opened. In a box, so that calls which need nothing of
    /// it do not carry it about.
    fn call_later<'a, F, O>(&'a self, key: &'a K, binding: Binding, open: F) -> Later<'a, S, E>
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        Box::pin(async move {
            let deadline = self.wait.map(deadline_after);
            let want = Want {
                purpose: Purpose::Call,
                patient: deadline.is_some(),
            };
            let mut open = Some(open);
            let pin = loop {
                match self.admit(key, binding, want, &mut open)? {
                    Entry::Live(lease) => return Ok(lease),
                    Entry::Known(_) => return Err(AcquireError::Closed),
                    Entry::Waits(pin, opening) => {
                        self.opened(&opening, pin.id, deadline).await?;
                        break pin;
                    }
                    Entry::Turn(mut turn) => match turn.wait(deadline).await {
                        Some(Ok(pin)) => {
                            if let Some(opening) = &turn.opening {
                                opening.answer().await?;
                            }
                            break pin;
                        }
                        Some(Err(Why::Closed | Why::Rebound)) => {
                            return Err(self.lock().gone(binding));
                        }
                        // Its error is for all who waited for the session, in whichever way.
                        Some(Err(Why::Failed | Why::NoSlot)) => {
                            if let Some(opening) = &turn.opening {
                                opening.answer().await?;
                            }
                        }
                        Some(Err(_)) => {}
                        None => {
                            self.lock().registry.count_overdue_turn();
                            let calls = turn.calls;
                            return Err(AcquireError::Saturated { calls });
                        }
                    },
                }
            };
            // The answer was good, but what it was about may be closed again by now.
            let mut state = self.lock();
            let given = state.registry.give(pin.id);
            let given = given.map(|(session, fresh)| (session.clone(), fresh));
            let gone = state.gone(binding);
            drop(state);
            let (session, fresh) = given.ok_or(gone)?;
            Ok(Lease {
                session,
                fresh,
                pin,
            })
        })
    }

    /// As [`acquire`](Self::acquire), but keeps nothing: the session may be gone before a call
    /// [begins](Handle::begin) on it.
    #[expect(
        clippy::manual_async_fn,
        reason = "without the promise of Send the compiler cannot prove it for keys that hold a reference"
    )]
    pub fn get<F, O>(
        &self,
        key: &K,
        binding: &Binding,
        open: F,
    ) -> impl Future<Output = Result<Handle<S>, AcquireError<E>>> + Send
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        async move {
            let id = self.look(key, *binding, Want::LOOK, open).await?;
            Ok(Handle {
                id,
                owner: Arc::downgrade(&self.owner()),
            })
        }
    }

    /// Opens the session of this key before it is needed, if it is not there and there is a free slot for it: nothing
    /// idle has to go for it, and nobody who waits for a slot is overtaken.
    #[expect(
        clippy::manual_async_fn,
        reason = "without the promise of Send the compiler cannot prove it for keys that hold a reference"
    )]
    pub fn warm_up<F, O>(
        &self,
        key: &K,
        binding: &Binding,
        open: F,
    ) -> impl Future<Output = Result<SessionId, AcquireError<E>>> + Send
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        async move { self.look(key, *binding, Want::WARM_UP, open).await }
    }

    async fn look<F, O>(
        &self,
        key: &K,
        binding: Binding,
        want: Want,
        open: F,
    ) -> Result<SessionId, AcquireError<E>>
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        let (pin, opening) = match self.admit(key, binding, want, &mut Some(open))? {
            Entry::Known(id) => return Ok(id),
            Entry::Live(lease) => return Ok(lease.id()),
            Entry::Turn(_) => return Err(AcquireError::Closed),
            Entry::Waits(pin, opening) => (pin, opening),
        };
        opening.answer().await?;
        let state = self.lock();
        let live = state.registry.is_live(pin.id);
        let gone = state.gone(binding);
        drop(state);
        if live { Ok(pin.id) } else { Err(gone) }
    }

    /// The answer of a creation, with no more patience for the slot that it may have to wait for.
    async fn opened(
        &self,
        opening: &Opening<E>,
        id: SessionId,
        deadline: Option<Instant>,
    ) -> Result<(), AcquireError<E>> {
        let mut answer = pin!(opening.answer());
        if let Some(deadline) = deadline {
            match timeout_at(deadline, &mut answer).await {
                Ok(answer) => return answer,
                Err(_) => {
                    if let Some(refusal) = self.lock().registry.lose_patience(id) {
                        return Err(refusal.into());
                    }
                }
            }
        }
        answer.await
    }

    /// The session is dead: it leaves the pool at once and is told to close. Another one that took its place is not
    /// touched, nor is anything if it was gone already.
    pub fn evict(&self, id: SessionId) -> Closing {
        let evict = |state: &mut State<K, S, E>| {
            let retired = state.registry.evict(id);
            ((), retired.into_iter().collect())
        };
        self.shared().take_out(AcquireError::Closed, evict).1
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

    /// Closes this very session, also while it drains, or this very creation.
    pub fn close_id(&self, id: SessionId) -> Closing {
        self.close(Target::Id(id))
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

    /// As [`close_scope`](Self::close_scope), but calls that run may end: no call begins any more on what the scope
    /// has, what has no call in flight is closed at once, and the rest when its last call ended, at the latest at the
    /// limit. Until then it keeps its slot; whoever comes meanwhile has a new session opened.
    pub fn drain_scope(&self, domain: &K::Domain, scope: &K::Scope, limit: Duration) -> Closing {
        self.drain(Target::Scope(domain, scope), limit)
    }

    /// As [`close_server`](Self::close_server), in the manner of [`drain_scope`](Self::drain_scope).
    pub fn drain_server(&self, domain: &K::Domain, server: &K::Server, limit: Duration) -> Closing {
        self.drain(Target::Server(domain, server), limit)
    }

    /// As [`close_session`](Self::close_session), in the manner of [`drain_scope`](Self::drain_scope).
    pub fn drain_session(&self, key: &K, limit: Duration) -> Closing {
        self.drain(Target::Session(key), limit)
    }

    /// As [`close_session_if_current`](Self::close_session_if_current), in the manner of
    /// [`drain_scope`](Self::drain_scope).
    pub fn drain_session_if_current(&self, key: &K, id: SessionId, limit: Duration) -> Closing {
        self.drain(Target::SessionIfCurrent(key, id), limit)
    }

    /// As [`close_id`](Self::close_id), in the manner of [`drain_scope`](Self::drain_scope).
    pub fn drain_id(&self, id: SessionId, limit: Duration) -> Closing {
        self.drain(Target::Id(id), limit)
    }

    /// As [`close_domain`](Self::close_domain), in the manner of [`drain_scope`](Self::drain_scope).
    pub fn drain_domain(&self, domain: &K::Domain, limit: Duration) -> Closing {
        self.drain(Target::Domain(domain), limit)
    }

    /// As [`close_all`](Self::close_all), in the manner of [`drain_scope`](Self::drain_scope).
    pub fn drain_all(&self, limit: Duration) -> Closing {
        self.drain(Target::All, limit)
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
        self.lock().counters()
    }

    /// All of the pool at this moment, for a status page: looks at every session, under the lock.
    pub fn snapshot(&self) -> Snapshot<K> {
        let now = self.shared().now();
        let state = self.lock();
        let mut snapshot = state.registry.snapshot(now);
        snapshot.counters = state.counters();
        drop(state);
        if !self.shared().keeps_time() {
            for session in &mut snapshot.sessions {
                session.age = None;
                session.idle_for = None;
            }
        }
        snapshot
    }

    fn drain(&self, target: Target<'_, K>, limit: Duration) -> Closing {
        self.shared().drain(target, limit)
    }

    fn close(&self, target: Target<'_, K>) -> Closing {
        let close = |state: &mut State<K, S, E>| ((), state.registry.close(target));
        self.shared().take_out(AcquireError::Closed, close).1
    }

    /// Finds the session, or joins its creation, which is begun if need be; only then is `open` taken.
    fn admit<F, O>(
        &self,
        key: &K,
        binding: Binding,
        want: Want,
        open: &mut Option<F>,
    ) -> Result<Entry<K, S, E>, AcquireError<E>>
    where
        F: FnOnce() -> O + Send + 'static,
        O: Future<Output = Result<S, E>> + Send + 'static,
    {
        let mut started = None;
        let now = self.shared().now();
        let mut state = self.shared().lock_at(now);
        if state.shut {
            return Err(AcquireError::Closed);
        }
        let admission = state.registry.admit(now, key, binding, want, |_| {
            let (sender, progress) = watch::channel(false);
            started = Some(sender);
            Arc::new(Opening::new(progress))
        })?;
        let (id, queued) = match admission {
            Admission::Live(id) if want.purpose == Purpose::Call => {
                let lease = state.lease(id, self.owner());
                return lease.map(Entry::Live).ok_or(AcquireError::Closed);
            }
            Admission::Live(id) => return Ok(Entry::Known(id)),
            Admission::Turn(turn, id) => {
                return Ok(Entry::Turn(Turn {
                    turn,
                    answer: state.wait_turn(turn),
                    opening: state.registry.opening_of(id).cloned(),
                    calls: state.registry.rules().calls_per_session.unwrap_or_default(),
                    shared: self.shared().clone(),
                }));
            }
            Admission::Joined(id) | Admission::Started(id) => (id, false),
            Admission::Queued(id) => (id, true),
        };
        let opening = state
            .registry
            .opening_of(id)
            .expect("what was joined or started just now")
            .clone();
        let task = started.map(|progress| Task::register(self.shared(), &mut state, progress));
        drop(state);
        let pin = Pin {
            id,
            owner: self.owner(),
        };
        if let Some((task, open)) = task.and_then(|task| Some((task, open.take()?))) {
            let creation = Creation {
                id,
                opening: opening.clone(),
                task: Some(task),
                queued,
                shared: self.shared().clone(),
            };
            self.shared().runtime.spawn(creation.run(open));
        }
        Ok(Entry::Waits(pin, opening))
    }

    fn shared(&self) -> &Arc<Shared<K, S, E>> {
        &self.guard.shared
    }

    fn owner(&self) -> Arc<dyn Owner<S>> {
        self.shared().clone()
    }

    fn lock(&self) -> Locked<'_, K, S, E> {
        self.shared().lock()
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Clone for Pool<K, S, E> {
    fn clone(&self) -> Self {
        Self {
            guard: self.guard.clone(),
            wait: self.wait,
        }
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> fmt::Debug for Pool<K, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.counters()).finish()
    }
}

/// The end of a limit, for limits of any length.
fn deadline_after(limit: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + limit.min(30 * YEAR)
}

/// What the last clone of a pool takes with it. Tasks and leases hold the shared part without it.
struct Guard<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    shared: Arc<Shared<K, S, E>>,
    sweep: Option<AbortHandle>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Guard<K, S, E> {
    fn drop(&mut self) {
        if let Some(sweep) = &self.sweep {
            sweep.abort();
        }
        drop(self.shared.close_all(true));
    }
}

/// A lease that is there later.
type Later<'a, S, E> =
    std::pin::Pin<Box<dyn Future<Output = Result<Lease<S>, AcquireError<E>>> + Send + 'a>>;

/// How somebody who asked for a session goes on.
enum Entry<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    Live(Lease<S>),
    Known(SessionId),
    Waits(Pin<S>, Arc<Opening<E>>),
    Turn(Turn<K, S, E>),
}

/// A wait for a place on a session that has all the calls it may have. Dropped, it is taken back.
struct Turn<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    turn: TurnId,
    answer: oneshot::Receiver<tasks::Turn<S>>,
    /// Of the session, if it was under way when the wait began.
    opening: Option<Arc<Opening<E>>>,
    calls: usize,
    shared: Arc<Shared<K, S, E>>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Turn<K, S, E> {
    /// What became of it, or `None` if nothing did before the deadline.
    async fn wait(&mut self, deadline: Option<Instant>) -> Option<tasks::Turn<S>> {
        let answer = &mut self.answer;
        let answer = match deadline {
            Some(deadline) => timeout_at(deadline, answer).await.ok()?,
            None => answer.await,
        };
        Some(answer.unwrap_or(Err(Why::Closed)))
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Turn<K, S, E> {
    fn drop(&mut self) {
        self.shared.lock().cancel_turn(self.turn);
    }
}
