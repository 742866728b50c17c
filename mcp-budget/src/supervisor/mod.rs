//! Drives one budget in real time.
//!
//! [`desk`] decides under a lock and waits for nothing, [`driver`] waits, and what is here passes word between them
//! and the callers.

mod alive;
mod clock;
mod connect;
mod desk;
mod driver;
mod gate;
mod leave;
mod place;
mod sentry;
mod unavailable;

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher, Hasher},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, timeout, timeout_at},
};

pub use self::{
    alive::keep_alive,
    connect::{Connect, Failure, Session},
    gate::SharedGate,
    leave::{Leave, Scoped},
    unavailable::{Unavailable, Why},
};
use self::{
    clock::Clock,
    desk::{Delivery, Desk, Served},
    leave::Ledger,
};
use crate::{
    counters::Counters,
    policy::Policy,
    snapshot::Snapshot,
    time::Timestamp,
    transition::{Reason, State, Transition},
};

/// Called with every [`Transition`] of a binding.
pub type Observer = Box<dyn Fn(&Transition) + Send + Sync>;

/// How a [`Supervisor`] works.
pub struct Options {
    /// The budget's constants.
    pub policy: Policy,
    /// Where the binding stood when the host ended, if that was kept; see [`Supervisor::snapshot`].
    pub restore: Option<Snapshot>,
    /// What the delays are spread by; random by default. The same seed spreads alike.
    pub seed: u64,
    /// Called on the supervisor's task, in order, with every transition; it should not block. A panic in it is
    /// logged and changes nothing.
    pub observer: Option<Observer>,
    /// Where openings wait their turn, shared with the other bindings of the client; by default none.
    pub gate: Option<SharedGate>,
    /// How long closing one session may take before it is cut. Default 3.8 s.
    pub close_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            seed: RandomState::new().build_hasher().finish(),
            observer: None,
            gate: None,
            restore: None,
            close_limit: Duration::from_millis(3800),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("policy", &self.policy)
            .field("seed", &self.seed)
            .field("close_limit", &self.close_limit)
            .finish_non_exhaustive()
    }
}

/// Which home session a call wants, and until when it waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Want {
    /// Until when it waits; without one, until the binding is parked or stopped or an attempt fails.
    pub deadline: Option<Instant>,
    /// A session that did not serve: one of another generation is wanted. Tell [`Supervisor::lost`] first.
    pub other_than: Option<u64>,
}

/// An open home session.
#[derive(Clone)]
pub struct Live<S> {
    /// The session.
    pub session: S,
    /// Its generation, by which it is told [`Supervisor::proven`] or [`Supervisor::lost`].
    pub generation: u64,
}

impl<S> fmt::Debug for Live<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// Where a binding stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// What brought it there.
    pub reason: Reason,
    /// Attempts since the last proof, the present one counted.
    pub attempt: u32,
    /// Charges taken from the budget.
    pub charges: u32,
    /// The home session's generation, or that of the last one; 0 if there was none.
    pub generation: u64,
    /// How long from now the next attempt is, if one is planned.
    pub next_try: Option<Duration>,
    /// Scoped sessions that are open.
    pub scoped: usize,
    /// The last error of an attempt or session.
    pub error: Option<String>,
    /// What was counted since it is supervised.
    pub counters: Counters,
}

/// Holds and reconnects the home session of one binding, and gives leave to open scoped ones, as its budget allows.
///
/// Clones are the same supervisor. When the last is dropped the binding is shut down in the background, as by
/// [`shutdown`](Self::shutdown) with the close limit.
///
/// ```
/// use std::time::Duration;
/// use mcp_budget::{Attempt, Connect, Failure, Options, Session, Supervisor, Want};
///
/// struct Server;
/// #[derive(Clone)]
/// struct Connection;
///
/// impl Connect for Server {
///     type Session = Connection;
///     async fn connect(&self, _: Attempt) -> Result<Connection, Failure> {
///         Ok(Connection) // or Err(Failure::new(Cause::Transient, error))
///     }
/// }
///
/// impl Session for Connection {
///     async fn ended(&self) -> Failure {
///         std::future::pending().await // until the connection breaks
///     }
///     async fn probe(&self) -> Result<(), Failure> {
///         Ok(()) // a ping
///     }
///     async fn close(&self) {}
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let supervisor = Supervisor::spawn(Server, Options::default());
/// let live = supervisor.session(Want::default()).await?; // connects
/// // … a call on `live.session` was answered:
/// supervisor.proven(live.generation);
/// supervisor.shutdown(Duration::from_secs(4)).await;
/// # Ok(())
/// # }
/// ```
pub struct Supervisor<C: Connect> {
    shared: Arc<Shared<C>>,
    _last: Arc<Handle<C>>,
}

impl<C: Connect> Supervisor<C> {
    /// Starts to supervise; nothing is opened before it is needed.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    pub fn spawn(connector: C, options: Options) -> Self {
        let clock = Clock::start();
        let desk = Desk::new(&options, clock);
        let shared = Arc::new_cyclic(|me| Shared {
            me: me.clone(),
            clock,
            desk: Mutex::new(desk),
            changed: Notify::new(),
            done: watch::Sender::new(false),
        });
        driver::spawn(Arc::new(connector), Arc::clone(&shared), options);
        Self {
            _last: Arc::new(Handle(Arc::clone(&shared))),
            shared,
        }
    }

    /// Opens the home session now, if it may be, and keeps it. No wake for a parked binding.
    pub fn start(&self) {
        self.shared.with(|desk, now| desk.budget_mut().hold(now));
    }

    /// Whether the home session is wanted even when no call needs it, as for a subscription: then it is opened again
    /// after a routine end too.
    pub fn keep_open(&self, keep: bool) {
        self.shared
            .with(|desk, now| desk.budget_mut().keep_open(now, keep));
    }

    /// The home session. Opens it if there is none, waits for it, and shares one recovery with all who wait. The
    /// session need not be proven.
    ///
    /// # Errors
    /// At once, if the binding is parked or stopped, if the next try lies beyond the deadline, or when the attempt
    /// that is waited for fails; and at the deadline.
    pub async fn session(&self, want: Want) -> Result<Live<C::Session>, Unavailable> {
        // The way of nearly every call wakes nobody.
        let ready = self.shared.look(|desk, _| desk.ready(want.other_than));
        if let Some(live) = ready {
            return Ok(live);
        }
        let served = self
            .shared
            .with(|desk, now| desk.ask_home(now, want.deadline, want.other_than))?;
        match served {
            Served::Now(live) => Ok(live),
            Served::Later(answer) => self.wait(answer, want.deadline).await,
        }
    }

    /// Leave to open one scoped session. Waits its turn, in order.
    ///
    /// # Errors
    /// At once, if the binding is parked or stopped or the next try lies beyond the deadline; and at the deadline.
    pub async fn leave(&self, deadline: Option<Instant>) -> Result<Leave<C>, Unavailable> {
        let served = self
            .shared
            .with(|desk, now| desk.ask_leave(now, deadline))?;
        match served {
            Served::Now(granted) => Ok(Leave::new(granted, Arc::clone(&self.shared))),
            Served::Later(answer) => self.wait(answer, deadline).await,
        }
    }

    /// A request of the host's was answered on the home session of this generation, also with an error. Every answer
    /// may be told; the first counts.
    pub fn proven(&self, generation: u64) {
        self.shared.proven(generation);
    }

    /// The home session of this generation is no more, as a call saw: it is closed, and replaced when it may be. An
    /// old generation changes nothing.
    pub fn lost(&self, generation: u64, failure: Failure) {
        self.shared
            .with(|desk, now| desk.home_lost(now, generation, failure));
    }

    /// The owner's explicit close: takes the home session out, which the caller closes then, gives up an attempt to open
    /// it, and tells all who wait for it, as [`Why::Closed`]. It costs nothing and ends no delay and no parking; the next
    /// call has it opened again, as does [`keep_open`](Self::keep_open).
    pub fn let_go(&self) -> Option<Live<C::Session>> {
        self.shared.with(|desk, now| {
            let open = desk.let_go(now);
            desk.dismiss_callers();
            open
        })
    }

    /// The host says to try now: ends waiting and parking for one attempt, which still keeps the floor.
    pub fn wake(&self) {
        self.shared.with(|desk, now| desk.budget_mut().wake(now));
    }

    /// Connections may have died unseen, as after the machine slept or the network changed: an open home session is
    /// asked whether it lives, and what waits or is parked is tried, at some time within [`Policy::check_spread`] and
    /// through the gate. With a gate this happens by itself when the machine slept.
    pub fn check(&self) {
        self.shared.with(|desk, now| desk.check(now));
    }

    /// Another policy from now on; delays that run already keep their length.
    pub fn set_policy(&self, policy: Policy) {
        self.shared
            .with(|desk, _| desk.budget_mut().set_policy(policy));
    }

    /// What of the binding may be kept over the host's end, for [`Options::restore`]. Take it before the shutdown.
    pub fn snapshot(&self) -> Snapshot {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        self.shared.look(|desk, now| {
            let budget = desk.budget_mut();
            budget.snapshot(now, since_epoch.unwrap_or_default())
        })
    }

    /// Where the binding stands now.
    pub fn status(&self) -> Status {
        self.shared.look(|desk, now| desk.status(now))
    }

    /// Ends it: every waiter is told at once, attempts are given up, the home session is closed, and what is not
    /// closed within the limit is cut. Returns when that is done or the limit is over. May be called again.
    pub async fn shutdown(&self, limit: Duration) {
        let mut done = self.shared.done.subscribe();
        self.shared
            .with(|desk, now| desk.shut_down(now, deadline_after(limit)));
        let _ = timeout(limit, done.wait_for(|done| *done)).await;
    }

    async fn wait<T>(
        &self,
        answer: oneshot::Receiver<Result<T, Unavailable>>,
        deadline: Option<Instant>,
    ) -> Result<T, Unavailable> {
        let mut waiting = Waiting {
            answer,
            shared: &self.shared,
        };
        let answered = match deadline {
            Some(deadline) => timeout_at(deadline, &mut waiting.answer).await,
            None => Ok((&mut waiting.answer).await),
        };
        let unavailable = |why| Err(self.shared.look(|desk, now| desk.unavailable(now, why)));
        match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unavailable(Why::Stopped),
            Err(_) => unavailable(Why::Deadline),
        }
    }
}

/// The end of a limit, for limits of any length.
fn deadline_after(limit: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + limit.min(YEAR)
}

impl<C: Connect> Clone for Supervisor<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            _last: Arc::clone(&self._last),
        }
    }
}

impl<C: Connect> fmt::Debug for Supervisor<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// What all clones of a supervisor share; the last to go shuts down.
struct Handle<C: Connect>(Arc<Shared<C>>);

impl<C: Connect> Drop for Handle<C> {
    fn drop(&mut self) {
        self.0
            .with(|desk, now| desk.budget_mut().stop(now, Reason::Shutdown));
    }
}

/// A place in a queue, given up when it is dropped.
struct Waiting<'a, C: Connect, A> {
    answer: oneshot::Receiver<A>,
    shared: &'a Shared<C>,
}

impl<C: Connect, A> Drop for Waiting<'_, C, A> {
    fn drop(&mut self) {
        self.answer.close();
        // The desk clears away who does not listen, and the next in the queue moves up.
        self.shared.with(|_, _| ());
    }
}

/// The desk, and whom to tell that something changed.
struct Shared<C: Connect> {
    me: Weak<Self>,
    clock: Clock,
    desk: Mutex<Desk<C>>,
    changed: Notify,
    /// The driver has ended.
    done: watch::Sender<bool>,
}

impl<C: Connect> Shared<C> {
    /// Looks, and changes nothing that has consequences.
    fn look<R>(&self, look: impl FnOnce(&mut Desk<C>, Timestamp) -> R) -> R {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        look(&mut desk, now)
    }

    /// Changes something, draws the consequences, and has the driver see to them.
    fn with<R>(&self, change: impl FnOnce(&mut Desk<C>, Timestamp) -> R) -> R {
        let result = self.with_quietly(change);
        self.changed.notify_one();
        result
    }

    /// The same for the driver, who need not be told.
    fn with_quietly<R>(&self, change: impl FnOnce(&mut Desk<C>, Timestamp) -> R) -> R {
        let (result, outbox) = self.look(|desk, now| {
            let result = change(desk, now);
            desk.settle(now);
            (result, desk.take_outbox())
        });
        // What nobody takes is dropped here, where no lock is held.
        for delivery in outbox {
            match delivery {
                Delivery::Home(to, answer) => drop(to.send(answer)),
                Delivery::Leave(to, answer) => {
                    if let Some(me) = self.me.upgrade() {
                        drop(to.send(answer.map(|granted| Leave::new(granted, me))));
                    }
                }
            }
        }
        result
    }
}

impl<C: Connect> Ledger for Shared<C> {
    fn opened(&self, generation: u64) {
        self.with(|desk, now| desk.budget_mut().opened(now, generation));
    }

    fn proven(&self, generation: u64) {
        // Told with every answer of a session, and news only once.
        if self.look(|desk, now| desk.budget_mut().proven(now, generation)) {
            self.with(|_, _| ());
        }
    }

    fn lost(&self, generation: u64, failure: Failure) {
        self.with(|desk, now| desk.lost(now, generation, failure));
    }

    fn closed(&self, generation: u64) {
        self.with(|desk, now| desk.budget_mut().closed(now, generation));
    }
}
