//! The pool as its users see it.

use std::{
    fmt,
    future::Future,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::{runtime::Handle as Runtime, sync::watch};

use crate::{
    binding::{Binding, Changes, Fingerprint},
    closing::Closing,
    key::{PoolKey, SessionId},
    lease::{Handle, Lease, Owner, Pin},
    registry::{Admission, Full, Refusal, Tally, Target},
    tasks::{Creation, Opening, Shared, State, Task},
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
    /// How long one closing may take from when its turn came, and how long a new session waits for the one whose slot
    /// it took. To be longer than what a session needs that closes by force.
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
        let shared = Shared::new(runtime, &limits);
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
        let close = |state: &mut State<K, S, E>| ((), state.registry.close(target));
        self.shared().take_out(AcquireError::Closed, close).1
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
            let (sender, progress) = watch::channel(false);
            started = Some(sender);
            Arc::new(Opening::new(progress))
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
        let task = started.map(|progress| Task::register(self.shared(), &mut state, progress));
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
