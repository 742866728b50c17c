//! The part that waits: openings and closings as tasks, and telling everybody what the registry decided.

use std::{
    any::Any,
    collections::HashMap,
    future::{Future, poll_fn},
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, PoisonError, Weak},
    task::Poll,
    time::Duration,
};

use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::{
    binding::Binding,
    closing::{Closing, Progress},
    event::{Counters, Event, Why},
    key::{PoolKey, SessionId},
    lease::{BeginError, Detached, Lease, Owner, Pin},
    pool::{AcquireError, Limits, Session},
    registry::{
        AllRetired, Begin, Notice, Promotion, Readmission, Registry, Retired, Rules, Target, TurnId,
    },
    runtime::{Instant, Mutex, MutexGuard, Runtime, sleep, timeout},
    time::Timestamp,
};

/// Whoever watches over a pool.
pub(crate) type Observer<K> = Box<dyn Fn(&Event<K>) + Send + Sync>;

/// What a pool, its tasks and its leases have in common.
pub(crate) struct Shared<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    /// Held for the steps of one decision: never while anything is awaited, and never while code of the user's runs,
    /// but for the traits of its keys and the clone of its session.
    state: Mutex<State<K, S, E>>,
    me: Weak<Self>,
    observer: Option<Observer<K>>,
    /// The beginning of the registry's time, if anything depends on time.
    origin: Option<Instant>,
    pub(crate) runtime: Runtime,
    pub(crate) openings: Semaphore,
    pub(crate) closings: Semaphore,
    pub(crate) close_limit: Duration,
}

pub(crate) struct State<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    pub(crate) registry: Registry<K, Arc<Opening<E>>, S>,
    pub(crate) shut: bool,
    /// Those who wait for a place on a session.
    turns: HashMap<TurnId, oneshot::Sender<Turn<S>>>,
    /// The tasks that draining sessions will be closed in.
    draining: HashMap<SessionId, Task<K, S, E>>,
    /// The tasks under way, for those who want to see all of them over.
    tasks: HashMap<u64, Progress>,
    next_task: u64,
    closing: usize,
    panicked: u64,
    overdue: u64,
}

/// What became of a wait for a place on a session: the place, or why there is none.
pub(crate) type Turn<S> = Result<Pin<S>, Why>;

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> State<K, S, E> {
    /// The lease of a session that was pinned for it just now.
    pub(crate) fn lease(&mut self, id: SessionId, owner: Arc<dyn Owner<S>>) -> Option<Lease<S>> {
        let (session, fresh) = self.registry.give(id)?;
        Some(Lease {
            session: session.clone(),
            fresh,
            pin: Pin { id, owner },
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.registry.counters();
        counters.closing = self.closing;
        counters.panicked = self.panicked;
        counters.overdue = self.overdue;
        counters
    }

    pub(crate) fn wait_turn(&mut self, turn: TurnId) -> oneshot::Receiver<Turn<S>> {
        let (sender, receiver) = oneshot::channel();
        self.turns.insert(turn, sender);
        receiver
    }

    pub(crate) fn cancel_turn(&mut self, turn: TurnId) {
        self.registry.cancel_turn(turn);
        self.turns.remove(&turn);
    }

    /// Why a session of this binding that was there a moment ago is not there any more.
    pub(crate) fn gone(&self, binding: Binding) -> AcquireError<E> {
        if self.registry.is_current(binding) {
            AcquireError::Closed
        } else {
            AcquireError::Stale
        }
    }
}

/// The state, locked. When it is let go, whoever the registry has news for is told.
pub(crate) struct Locked<'a, K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    shared: &'a Shared<K, S, E>,
    state: Option<MutexGuard<'a, State<K, S, E>>>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Deref for Locked<'_, K, S, E> {
    type Target = State<K, S, E>;

    fn deref(&self) -> &State<K, S, E> {
        self.state.as_ref().expect("locked until it is dropped")
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> DerefMut for Locked<'_, K, S, E> {
    fn deref_mut(&mut self) -> &mut State<K, S, E> {
        self.state.as_mut().expect("locked until it is dropped")
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Locked<'_, K, S, E> {
    #[inline]
    fn drop(&mut self) {
        // Most of what is decided is news to nobody.
        if let Some(state) = self.state.take().filter(|it| it.registry.has_news()) {
            self.shared.tell_news(state);
        }
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Shared<K, S, E> {
    pub(crate) fn new(
        runtime: Runtime,
        limits: &Limits,
        observer: Option<Observer<K>>,
    ) -> Arc<Self> {
        let rules = Rules::from(limits);
        let timed = rules.idle_ttl.is_some() || rules.max_lifetime.is_some() || limits.keep_time;
        let origin = timed.then(Instant::now);
        let mut registry = Registry::new(rules);
        if observer.is_some() {
            registry.observe();
        }
        let state = State {
            registry,
            shut: false,
            turns: HashMap::new(),
            draining: HashMap::new(),
            tasks: HashMap::new(),
            next_task: 0,
            closing: 0,
            panicked: 0,
            overdue: 0,
        };
        let places = |limit: usize| Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS));
        Arc::new_cyclic(|me| Self {
            state: Mutex::new(state),
            me: me.clone(),
            observer,
            origin,
            runtime,
            openings: places(limits.openings),
            closings: places(limits.closings),
            close_limit: limits.close_limit,
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_, K, S, E> {
        // Nothing that can panic leaves the state half changed.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked {
            shared: self,
            state: Some(state),
        }
    }

    /// Lets the state go, and tells whoever the registry has news for.
    #[cold]
    fn tell_news(&self, mut state: MutexGuard<'_, State<K, S, E>>) {
        let (mut turns, mut openings) = (Vec::new(), Vec::new());
        while let Some(notice) = state.registry.next_notice() {
            match notice {
                Notice::Open(id) => openings.extend(state.registry.opening_of(id).cloned()),
                Notice::Turn(turn, id) => {
                    let owner = self.me.upgrade();
                    let pin = owner.map(|owner| {
                        Ok(Pin {
                            id,
                            owner: owner as Arc<dyn Owner<S>>,
                        })
                    });
                    turns.push((state.turns.remove(&turn), pin));
                }
                Notice::Lost(turn, _, why) => {
                    turns.push((state.turns.remove(&turn), Some(Err(why))));
                }
            }
        }
        let mut events = Vec::new();
        while let Some(event) = state.registry.next_event() {
            events.push(event);
        }
        drop(state);
        for opening in openings {
            opening.go.notify_one();
        }
        for (waits, turn) in turns {
            // Whom nobody waits for any more is let go by being dropped.
            if let (Some(waits), Some(turn)) = (waits, turn) {
                drop(waits.send(turn));
            }
        }
        for event in events {
            self.tell_observer(&event);
        }
    }

    pub(crate) fn keeps_time(&self) -> bool {
        self.origin.is_some()
    }

    /// The registry's time; always its beginning if nothing depends on it.
    pub(crate) fn now(&self) -> Timestamp {
        self.origin.map_or(Timestamp::ZERO, |origin| {
            Timestamp::ZERO.plus(origin.elapsed())
        })
    }

    /// Locks it, with nothing in it that should have gone by now.
    #[inline]
    pub(crate) fn lock_at(self: &Arc<Self>, now: Timestamp) -> Locked<'_, K, S, E> {
        let mut state = self.lock();
        while self.keeps_time() && state.registry.timeout().is_some_and(|due| due <= now) {
            drop(state);
            self.expire(now);
            state = self.lock();
        }
        state
    }

    /// Lets everything go whose time is over.
    fn expire(self: &Arc<Self>, now: Timestamp) {
        drop(self.take_out(AcquireError::Closed, |state| {
            ((), state.registry.expire(now))
        }));
    }

    /// Lets everything go when its time is over, for as long as there is the pool.
    pub(crate) async fn sweep(me: Weak<Self>, longest: Duration) {
        loop {
            let Some(shared) = me.upgrade() else { return };
            let now = shared.now();
            shared.expire(now);
            // What comes meanwhile has longer to go than what is there, or than the whole of a limit.
            let due = shared.lock().registry.timeout();
            let pause = due.map_or(longest, |due| due.since(now).min(longest));
            drop(shared);
            sleep(pause).await;
        }
    }

    fn tell_observer(&self, event: &Event<K>) {
        if let Some(observer) = &self.observer {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| observer(event))) {
                let message = message_of(&*panic);
                tracing::warn!(%message, "the observer of the pool panicked");
            }
        }
    }

    /// Takes something out of the registry and sees to its end: everybody who has to do with it is told before this
    /// returns, and only then does anything begin to wait.
    pub(crate) fn take_out<T>(
        self: &Arc<Self>,
        why: AcquireError<E>,
        take: impl FnOnce(&mut State<K, S, E>) -> (T, AllRetired<K, Arc<Opening<E>>, S>),
    ) -> (T, Closing) {
        let mut state = self.lock();
        let (taken, retired) = take(&mut state);
        let departures: Vec<_> = retired
            .into_iter()
            .map(|retired| Departure::of(retired, self, &mut state))
            .collect();
        drop(state);
        for departure in &departures {
            departure.tell(&why);
        }
        let victims = departures.len();
        let tasks = departures
            .into_iter()
            .filter_map(|departure| departure.begin(self))
            .collect();
        (taken, Closing::of(victims, tasks, self.close_limit))
    }

    pub(crate) fn close_all(self: &Arc<Self>, shut: bool) -> Closing {
        let (earlier, mut closing) = self.take_out(AcquireError::Closed, |state| {
            state.shut |= shut;
            let earlier = state.tasks.values().cloned().collect();
            (earlier, state.registry.close(Target::All))
        });
        closing.wait_also_for(earlier, self.close_limit);
        closing
    }

    /// Lets what is meant drain: no call begins on it, those that run may end within the limit, and then it is closed.
    pub(crate) fn drain(self: &Arc<Self>, target: Target<'_, K>, limit: Duration) -> Closing {
        let mut tasks = Vec::new();
        let (ids, mut closing) = self.take_out(AcquireError::Closed, |state| {
            // The limit is kept here, because the pool's time may stand still.
            let now = self.now();
            let (retired, ids) = state.registry.drain(now, target, Timestamp::NEVER);
            for id in &ids {
                if !state.draining.contains_key(id) {
                    let task = Task::register(self, state, watch::Sender::new(false));
                    state.draining.insert(*id, task);
                }
                tasks.extend(state.draining.get(id).map(|task| task.progress.subscribe()));
            }
            (ids, retired)
        });
        if ids.is_empty() {
            return closing;
        }
        let me = Arc::downgrade(self);
        let mut under_way = tasks.clone();
        self.runtime.spawn(async move {
            let all_left = async {
                for task in &mut under_way {
                    // An error is the end of it.
                    let _ = task.wait_for(|bounded| *bounded).await;
                }
            };
            if timeout(limit, all_left).await.is_err() {
                if let Some(shared) = me.upgrade() {
                    drop(shared.take_out(AcquireError::Closed, |state| {
                        let cut = |id: &SessionId| state.registry.cut_drain(*id);
                        ((), ids.iter().filter_map(cut).collect())
                    }));
                }
            }
        });
        closing.count_also(tasks.len());
        closing.wait_also_for(tasks, limit.saturating_add(self.close_limit));
        closing
    }

    /// Closes a session that was told already, in a task of its own.
    fn close(self: &Arc<Self>, task: Task<K, S, E>, id: SessionId, session: S) {
        self.runtime.spawn(async move {
            let shared = task.shared.clone();
            let _turn = shared.closings.acquire().await;
            let mut overdue = false;
            match timeout(shared.close_limit, contain(|| session.closed())).await {
                Ok(Ok(())) => tracing::debug!(session = id.get(), "session closed"),
                Ok(Err(message)) => {
                    tracing::warn!(session = id.get(), %message, "closing the session panicked");
                }
                Err(_) => {
                    overdue = true;
                    shared.lock().overdue += 1;
                    tracing::warn!(session = id.get(), limit = ?shared.close_limit, "closing the session was given up at the limit");
                }
            }
            drop(task);
            shared.tell_observer(&Event::Closed { id, overdue });
        });
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Owner<S> for Shared<K, S, E> {
    fn begin(self: Arc<Self>, id: SessionId) -> Result<Lease<S>, BeginError> {
        let now = self.now();
        let mut state = self.lock_at(now);
        let lease = match state.registry.begin(now, id) {
            Begin::Begun => state.lease(id, self.clone()),
            Begin::Detached => None,
            Begin::Saturated(calls) => return Err(BeginError::Saturated { id, calls }),
        };
        Ok(lease.ok_or(Detached { id })?)
    }

    fn leave(&self, id: SessionId) {
        let now = self.now();
        let mut state = self.lock();
        let Some(retired) = state.registry.leave(now, id) else {
            return;
        };
        // Its creation was given up, or it was the last call of a session that drains.
        let Some(shared) = self.me.upgrade() else {
            return;
        };
        let departure = Departure::of(retired, &shared, &mut state);
        drop(state);
        departure.tell(&AcquireError::Closed);
        departure.begin(&shared);
    }
}

/// A creation under way, as all who have to do with it see it.
pub(crate) struct Opening<E> {
    /// The answer to all who wait, once there is one; the first word counts.
    answer: watch::Sender<Option<Result<(), AcquireError<E>>>>,
    /// There is a slot for it: open.
    go: Notify,
    /// Nobody needs it any more: stop.
    cancel: Notify,
    /// Of the task that opens it.
    progress: Progress,
}

impl<E: Clone> Opening<E> {
    pub(crate) fn new(progress: Progress) -> Self {
        Self {
            answer: watch::Sender::new(None),
            go: Notify::new(),
            cancel: Notify::new(),
            progress,
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

    /// Nobody is to get it.
    fn stop(&self, why: AcquireError<E>) {
        self.settle(Err(why));
        self.cancel.notify_one();
    }

    pub(crate) async fn answer(&self) -> Result<(), AcquireError<E>> {
        let mut answer = self.answer.subscribe();
        let answer = answer.wait_for(Option::is_some).await;
        answer
            .ok()
            .and_then(|answer| answer.clone())
            .unwrap_or(Err(AcquireError::Closed))
    }
}

/// A task of the pool, registered for as long as it runs, however it ends.
pub(crate) struct Task<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    shared: Arc<Shared<K, S, E>>,
    number: u64,
    closing: bool,
    progress: watch::Sender<bool>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Task<K, S, E> {
    pub(crate) fn register(
        shared: &Arc<Shared<K, S, E>>,
        state: &mut State<K, S, E>,
        progress: watch::Sender<bool>,
    ) -> Self {
        let number = state.next_task;
        state.next_task += 1;
        state.tasks.insert(number, progress.subscribe());
        Self {
            shared: shared.clone(),
            number,
            closing: false,
            progress,
        }
    }

    /// From here on it closes a session.
    fn closes(&mut self, state: &mut State<K, S, E>) {
        self.closing = true;
        state.closing += 1;
        self.is_bounded();
    }

    fn is_bounded(&self) {
        self.progress.send_replace(true);
    }
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Drop for Task<K, S, E> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.tasks.remove(&self.number);
        state.closing -= usize::from(self.closing);
    }
}

/// What left the registry, on its way to its end.
struct Departure<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    id: SessionId,
    opening: Option<Arc<Opening<E>>>,
    session: Option<(S, Task<K, S, E>)>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Departure<K, S, E> {
    /// Its closing is registered in the same step that took it out, so that it is never out of sight.
    fn of(
        retired: Retired<K, Arc<Opening<E>>, S>,
        shared: &Arc<Shared<K, S, E>>,
        state: &mut State<K, S, E>,
    ) -> Self {
        let session = retired.session.map(|session| {
            let drained = state.draining.remove(&retired.id);
            let mut task =
                drained.unwrap_or_else(|| Task::register(shared, state, watch::Sender::new(false)));
            task.closes(state);
            (session, task)
        });
        Self {
            id: retired.id,
            opening: retired.opening,
            session,
        }
    }

    fn tell(&self, why: &AcquireError<E>) {
        if let Some(opening) = &self.opening {
            opening.stop(why.clone());
        }
        if let Some((session, _)) = &self.session {
            tell(session);
        }
    }

    /// Begins its closing, if it is open. Returns what to wait for.
    fn begin(self, shared: &Arc<Shared<K, S, E>>) -> Option<Progress> {
        match self.session {
            Some((session, task)) => {
                let progress = task.progress.subscribe();
                shared.close(task, self.id, session);
                Some(progress)
            }
            None => self.opening.map(|opening| opening.progress.clone()),
        }
    }
}

/// The task that opens a session and brings it into the registry. However it ends, those who wait are answered.
pub(crate) struct Creation<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> {
    pub(crate) id: SessionId,
    pub(crate) opening: Arc<Opening<E>>,
    pub(crate) task: Option<Task<K, S, E>>,
    /// It has to wait for a slot before it may open.
    pub(crate) queued: bool,
    pub(crate) shared: Arc<Shared<K, S, E>>,
}

impl<K: PoolKey, S: Session, E: Clone + Send + Sync + 'static> Creation<K, S, E> {
    pub(crate) async fn run<F, O>(mut self, open: F)
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

    /// Waits for a slot if need be, and for its turn, asks again whether there is room, and opens. `None` if it is not
    /// to open any more.
    async fn open<F, O>(&self, open: F) -> Option<Result<S, AcquireError<E>>>
    where
        F: FnOnce() -> O,
        O: Future<Output = Result<S, E>>,
    {
        let mut queued = self.queued;
        let _turn = loop {
            if queued {
                self.opening.go.notified().await;
            }
            let turn = self.shared.openings.acquire().await;
            let readmission = self.shared.lock().registry.readmit(self.id);
            match readmission {
                Readmission::Open => break turn,
                Readmission::Queued => queued = true,
                Readmission::Full(refusal, _) => return Some(Err(refusal.into())),
                Readmission::Gone => return None,
            }
        };
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
        name(&session, self.id);
        let (promotion, closing) = self.shared.take_out(AcquireError::Closed, |state| {
            let now = self.shared.now();
            let mut promotion = state.registry.promote(now, self.id, session);
            let victim = match &mut promotion {
                Promotion::Promoted { victim } => victim.take(),
                _ => None,
            };
            (promotion, victim.into_iter().collect())
        });
        match promotion {
            Promotion::Promoted { .. } => {
                if closing.victims() > 0 {
                    tracing::debug!(session = self.id.get(), "an idle session made room");
                }
                // The victim's own bound counts from its turn; those who wait here are not held up by the queue too.
                let _ = timeout(self.shared.close_limit, closing).await;
                let arrived = self.shared.lock().registry.arrived(self.id);
                if arrived.is_some() {
                    self.opening.settle(Ok(()));
                }
            }
            Promotion::Full {
                refusal, session, ..
            } => {
                tell(&session);
                self.opening.settle(Err(refusal.into()));
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
        if let Some(mut task) = self.task.take() {
            task.closes(&mut self.shared.lock());
            self.shared.close(task, self.id, session);
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

/// Tells a session its name. One that panics at it is pooled all the same.
fn name<S: Session>(session: &S, id: SessionId) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| session.named(id))) {
        let message = message_of(&*panic);
        tracing::warn!(session = id.get(), %message, "telling the session its name panicked");
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
