//! What a supervisor knows, and what it decides without waiting.

use std::{collections::VecDeque, error::Error, mem, sync::Arc};

use tokio::{sync::oneshot, time::Instant};

use super::{
    Connect, Failure, Leave, Live, Options, Status, Unavailable, Why,
    clock::Clock,
    gate::{GatePass, SharedGate},
    leave::Granted,
    place::Place,
};
use crate::{
    action::{Action, Outlook, Refusal},
    budget::Budget,
    gate::Urgency,
    openings::Side,
    time::Timestamp,
    transition::{Reason, State, Transition},
};

pub(super) type HomeAnswer<C> = Result<Live<<C as Connect>::Session>, Unavailable>;
pub(super) type LeaveAnswer<C> = Result<Leave<C>, Unavailable>;

/// The budget, who waits for what, and what is to be done about it.
///
/// It is used under a lock and calls nothing foreign but a session's `clone`: answers go into an outbox and work into [`Orders`], for whoever
/// holds no lock.
pub(super) struct Desk<C: Connect> {
    budget: Budget,
    clock: Clock,
    place: Place,
    home: Option<(u64, C::Session)>,
    callers: Vec<Caller<HomeAnswer<C>>>,
    openers: VecDeque<Caller<LeaveAnswer<C>>>,
    /// When the first opener may be served; `None` if that depends on something else than time.
    serve_at: Option<Timestamp>,
    error: Option<Arc<dyn Error + Send + Sync>>,
    orders: Orders<C::Session>,
    outbox: Vec<Delivery<C>>,
    stop_by: Option<Instant>,
    /// When to see whether what is open lives and what is not can be opened.
    check_at: Option<Timestamp>,
}

struct Caller<A> {
    deadline: Option<Timestamp>,
    /// The generation that it does not want.
    other_than: Option<u64>,
    answer: oneshot::Sender<A>,
}

impl<A> Caller<A> {
    fn gives_up_before(&self, at: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline < at)
    }
}

/// An answer on its way to whoever waits for it.
pub(super) enum Delivery<C: Connect> {
    Home(oneshot::Sender<HomeAnswer<C>>, HomeAnswer<C>),
    Leave(
        oneshot::Sender<LeaveAnswer<C>>,
        Result<Granted, Unavailable>,
    ),
}

/// Work for the driver.
pub(super) struct Orders<S> {
    /// The attempt to open the home session is given up, before another is begun.
    pub(super) give_up: bool,
    pub(super) connect: Option<Granted>,
    pub(super) probe: Option<(u64, S)>,
    /// Whether it lives is to be asked.
    pub(super) check: Option<(u64, S)>,
    pub(super) close: Vec<S>,
    pub(super) transitions: Vec<Transition>,
    /// How urgently to queue at the gate for home and for scoped openings.
    pub(super) asks: [(Side, Option<Urgency>); 2],
    /// When to come again if nothing happens before.
    pub(super) wake_at: Option<Instant>,
    /// The generation of the open home session.
    pub(super) home: Option<u64>,
    /// It is over.
    pub(super) stopped: bool,
}

impl<S> Orders<S> {
    fn none() -> Self {
        Self {
            give_up: false,
            connect: None,
            probe: None,
            check: None,
            close: Vec::new(),
            transitions: Vec::new(),
            asks: [(Side::Home, None), (Side::Scoped, None)],
            wake_at: None,
            home: None,
            stopped: false,
        }
    }
}

/// An answer now, or a place in the queue.
pub(super) enum Served<T, A> {
    Now(T),
    Later(oneshot::Receiver<A>),
}

impl<C: Connect> Desk<C> {
    pub(super) fn new(options: &Options, clock: Clock) -> Self {
        Self {
            budget: match &options.restore {
                Some(snapshot) => {
                    Budget::restore(options.policy.clone(), options.seed, clock.now(), snapshot)
                }
                None => Budget::new(options.policy.clone(), options.seed),
            },
            clock,
            place: Place::new(options.gate.as_ref()),
            home: None,
            callers: Vec::new(),
            openers: VecDeque::new(),
            serve_at: None,
            error: None,
            orders: Orders::none(),
            outbox: Vec::new(),
            stop_by: None,
            check_at: None,
        }
    }

    /// The gate, and the binding's number there.
    pub(super) fn gate(&self) -> Option<(SharedGate, u64)> {
        self.place.gate()
    }

    pub(super) fn budget_mut(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// The home session, if it is open and not the one that is not wanted.
    pub(super) fn ready(&self, other_than: Option<u64>) -> Option<Live<C::Session>> {
        let (generation, session) = self.home.as_ref()?;
        (other_than != Some(*generation)).then(|| Live {
            session: session.clone(),
            generation: *generation,
        })
    }

    /// A call wants the home session.
    pub(super) fn ask_home(
        &mut self,
        now: Timestamp,
        deadline: Option<Instant>,
        other_than: Option<u64>,
    ) -> Result<Served<Live<C::Session>, HomeAnswer<C>>, Unavailable> {
        if let Some(live) = self.ready(other_than) {
            return Ok(Served::Now(live));
        }
        let deadline = deadline.map(|at| self.clock.at(at));
        match self.budget.outlook(now) {
            Outlook::Waiting(Some(at)) if deadline.is_some_and(|deadline| deadline < at) => {
                return Err(self.unavailable_until(now, Why::Waiting, Some(at)));
            }
            Outlook::Parked(_) => {
                self.budget.knock(now);
                return Err(self.unavailable(now, Why::Parked));
            }
            Outlook::Stopped => return Err(self.unavailable(now, Why::Stopped)),
            Outlook::Open { .. } | Outlook::Connecting | Outlook::Waiting(_) => {}
        }
        let (answer, later) = oneshot::channel();
        self.callers.push(Caller {
            deadline,
            other_than,
            answer,
        });
        Ok(Served::Later(later))
    }

    /// A scope wants leave to open its session.
    pub(super) fn ask_leave(
        &mut self,
        now: Timestamp,
        deadline: Option<Instant>,
    ) -> Result<Served<Granted, LeaveAnswer<C>>, Unavailable> {
        let deadline = deadline.map(|at| self.clock.at(at));
        self.openers.retain(|opener| !opener.answer.is_closed());
        if self.openers.is_empty() {
            match self.leave(now) {
                Some(Ok(granted)) => return Ok(Served::Now(granted)),
                Some(Err(refusal)) => match refusal {
                    Refusal::Wait(Some(at)) if deadline.is_some_and(|deadline| deadline < at) => {
                        return Err(self.unavailable_until(now, Why::Waiting, Some(at)));
                    }
                    Refusal::Wait(_) => {}
                    Refusal::Parked(_) => return Err(self.unavailable(now, Why::Parked)),
                    Refusal::Stopped => return Err(self.unavailable(now, Why::Stopped)),
                },
                None => {}
            }
        }
        let (answer, later) = oneshot::channel();
        self.openers.push_back(Caller {
            deadline,
            other_than: None,
            answer,
        });
        Ok(Served::Later(later))
    }

    /// The home session is open. `false`: nobody wants it any more, and it is closed.
    pub(super) fn connected(
        &mut self,
        now: Timestamp,
        generation: u64,
        session: C::Session,
    ) -> bool {
        let wanted = self.budget.opened(now, generation);
        if wanted {
            self.home = Some((generation, session));
        } else {
            self.orders.close.push(session);
        }
        wanted
    }

    /// The attempt to open the home session failed: all who wait for it are told at once.
    pub(super) fn attempt_failed(&mut self, now: Timestamp, generation: u64, failure: Failure) {
        if self.budget.lost(now, generation, failure.loss) {
            self.error = Some(failure.error);
            self.observe();
            let why = if self.is_stopped() {
                Why::Stopped
            } else {
                Why::Failed
            };
            self.refuse_callers(now, why);
        }
    }

    /// A session is gone. The home session of that generation is closed, and of no other.
    pub(super) fn lost(&mut self, now: Timestamp, generation: u64, failure: Failure) {
        if self.budget.lost(now, generation, failure.loss) {
            self.error = Some(failure.error);
            self.observe();
            if let Some((_, session)) = self.home.take_if(|(home, _)| *home == generation) {
                self.orders.close.push(session);
            }
        }
    }

    /// The home session is gone, if it is of that generation.
    pub(super) fn home_lost(&mut self, now: Timestamp, generation: u64, failure: Failure) {
        if self.home_generation() == Some(generation) {
            self.lost(now, generation, failure);
        }
    }

    /// The owner lets the home session go, which is the caller's to close then.
    pub(super) fn let_go(&mut self, now: Timestamp) -> Option<Live<C::Session>> {
        let generation = self.budget.let_go(now)?;
        let open = self.home.take();
        if open.is_none() && self.orders.connect.take().is_none() {
            self.orders.give_up = true;
        }
        let (generation, session) = open.filter(|(open, _)| *open == generation)?;
        Some(Live {
            session,
            generation,
        })
    }

    /// Who waits for the home session is told that the owner lets it go.
    pub(super) fn dismiss_callers(&mut self) {
        for caller in mem::take(&mut self.callers) {
            let answer = Err(Unavailable {
                why: Why::Closed,
                reason: self.budget.standing().reason,
                next_try: None,
                error: None,
            });
            self.outbox.push(Delivery::Home(caller.answer, answer));
        }
    }

    /// Something panicked; that is the end of the binding.
    pub(super) fn panicked(&mut self, now: Timestamp, failure: Failure) {
        if !self.is_stopped() {
            self.error = Some(failure.error);
            self.budget.stop(now, Reason::Fatal);
        }
    }

    /// Connections may have died unseen.
    pub(super) fn check(&mut self, now: Timestamp) {
        let at = now.plus(self.budget.check_delay());
        self.check_at = Some(self.check_at.map_or(at, |before| before.min(at)));
    }

    /// The owner shuts it down; whatever is still open then is cut.
    pub(super) fn shut_down(&mut self, now: Timestamp, by: Instant) {
        self.budget.stop(now, Reason::Shutdown);
        self.stop_by = Some(self.stop_by.map_or(by, |before| before.min(by)));
    }

    pub(super) fn stop_by(&self) -> Option<Instant> {
        self.stop_by
    }

    pub(super) fn home_generation(&self) -> Option<u64> {
        self.home.as_ref().map(|(generation, _)| *generation)
    }

    pub(super) fn status(&self, now: Timestamp) -> Status {
        let standing = self.budget.standing();
        Status {
            state: standing.state,
            reason: standing.reason,
            attempt: standing.attempt,
            charges: standing.charges,
            generation: standing.generation,
            next_try: standing.next_try.map(|at| at.since(now)),
            scoped: self.budget.open_scoped(),
            error: self.error.as_ref().map(ToString::to_string),
            counters: *self.budget.counters(),
        }
    }

    pub(super) fn unavailable(&self, now: Timestamp, why: Why) -> Unavailable {
        self.unavailable_until(now, why, self.budget.standing().next_try)
    }

    fn unavailable_until(
        &self,
        now: Timestamp,
        why: Why,
        next_try: Option<Timestamp>,
    ) -> Unavailable {
        let parked_for = self.budget.parked_for().filter(|_| why == Why::Parked);
        Unavailable {
            why,
            reason: parked_for.unwrap_or(self.budget.standing().reason),
            next_try: next_try.map(|at| at.since(now)),
            error: self.error.clone(),
        }
    }

    /// Draws the consequences of whatever happened.
    pub(super) fn settle(&mut self, now: Timestamp) {
        self.callers.retain(|caller| !caller.answer.is_closed());
        self.openers.retain(|opener| !opener.answer.is_closed());
        self.budget.attend(now, !self.callers.is_empty());
        if self.check_at.take_if(|at| *at <= now).is_some() {
            match &self.home {
                Some(home) => self.orders.check = Some(home.clone()),
                None => self.budget.check(now),
            }
        }
        if self.callers.is_empty() {
            // Who is waited for goes before a home session that nobody waits for.
            self.serve_openers(now);
        }
        self.act(now);
        self.observe();
        self.serve_callers(now);
        self.serve_openers(now);
        self.observe();
        if self.is_stopped() {
            self.orders.connect = None;
            self.orders.probe = None;
            self.orders.check = None;
            self.check_at = None;
            self.orders
                .close
                .extend(self.home.take().map(|(_, session)| session));
        }
    }

    pub(super) fn take_outbox(&mut self) -> Vec<Delivery<C>> {
        mem::take(&mut self.outbox)
    }

    pub(super) fn take_orders(&mut self) -> Orders<C::Session> {
        let asks = [Side::Home, Side::Scoped].map(|side| (side, self.place.asks(side)));
        // What is due and queues at the gate needs no timer.
        let budget = match asks[0].1 {
            Some(_) => None,
            None => self.budget.timeout(),
        };
        let at = [budget, self.serve_at, self.check_at];
        Orders {
            asks,
            wake_at: at
                .into_iter()
                .flatten()
                .min()
                .map(|at| self.clock.instant(at)),
            home: self.home_generation(),
            stopped: self.is_stopped(),
            ..mem::replace(&mut self.orders, Orders::none())
        }
    }

    fn is_stopped(&self) -> bool {
        self.budget.standing().state == State::Stopped
    }

    /// Takes up what the budget says is due. A home session that is wanted and may be opened at once is therefore
    /// never seen to wait; a loss is, for it is observed where it happens.
    fn act(&mut self, now: Timestamp) {
        while let Some(urgency) = self.budget.due(now) {
            let Some(pass) = self.place.enter(Side::Home, urgency) else {
                return;
            };
            if let Some(Action::Connect(attempt)) = self.budget.poll(now) {
                self.orders.connect = Some((attempt, pass));
            }
        }
        self.place.refrain(Side::Home);
        while let Some(Action::Probe { .. }) = self.budget.poll(now) {
            self.orders.probe = self.home.clone();
        }
    }

    /// Leave for a scoped opening, through the gate; `None`: it queues there.
    fn leave(&mut self, now: Timestamp) -> Option<Result<Granted, Refusal>> {
        let pass = match self.budget.may_leave(now) {
            Ok(()) => self.place.enter(Side::Scoped, Urgency::Awaited)?,
            Err(_) => {
                self.place.refrain(Side::Scoped);
                None
            }
        };
        Some(self.budget.leave(now).map(|attempt| (attempt, pass)))
    }

    /// An opening's turn at the gate came.
    pub(super) fn admitted(&mut self, side: Side, pass: GatePass) {
        self.place.admitted(side, pass);
    }

    fn observe(&mut self) {
        self.orders.transitions.extend(self.budget.transition());
    }

    fn serve_callers(&mut self, now: Timestamp) {
        match self.budget.outlook(now) {
            Outlook::Open { generation } => {
                let (served, kept): (Vec<_>, Vec<_>) = mem::take(&mut self.callers)
                    .into_iter()
                    .partition(|caller| caller.other_than != Some(generation));
                self.callers = kept;
                for caller in served {
                    if let Some(live) = self.ready(None) {
                        self.outbox.push(Delivery::Home(caller.answer, Ok(live)));
                    }
                }
            }
            Outlook::Waiting(Some(at)) => {
                let (late, kept): (Vec<_>, Vec<_>) = mem::take(&mut self.callers)
                    .into_iter()
                    .partition(|caller| caller.gives_up_before(at));
                self.callers = kept;
                for caller in late {
                    let answer = Err(self.unavailable_until(now, Why::Waiting, Some(at)));
                    self.outbox.push(Delivery::Home(caller.answer, answer));
                }
            }
            Outlook::Connecting | Outlook::Waiting(None) => {}
            Outlook::Parked(_) => {
                if !self.callers.is_empty() {
                    self.budget.knock(now);
                    self.refuse_callers(now, Why::Parked);
                }
            }
            Outlook::Stopped => self.refuse_callers(now, Why::Stopped),
        }
    }

    fn refuse_callers(&mut self, now: Timestamp, why: Why) {
        for caller in mem::take(&mut self.callers) {
            let answer = Err(self.unavailable(now, why));
            self.outbox.push(Delivery::Home(caller.answer, answer));
        }
    }

    fn serve_openers(&mut self, now: Timestamp) {
        self.serve_at = None;
        while !self.openers.is_empty() {
            let Some(leave) = self.leave(now) else {
                return;
            };
            match leave {
                Ok(granted) => {
                    if let Some(opener) = self.openers.pop_front() {
                        self.outbox
                            .push(Delivery::Leave(opener.answer, Ok(granted)));
                    }
                }
                Err(Refusal::Wait(at)) => {
                    self.serve_at = at;
                    let Some(at) = at else { return };
                    let mut kept = VecDeque::with_capacity(self.openers.len());
                    for opener in mem::take(&mut self.openers) {
                        if opener.gives_up_before(at) {
                            let answer = Err(self.unavailable_until(now, Why::Waiting, Some(at)));
                            self.outbox.push(Delivery::Leave(opener.answer, answer));
                        } else {
                            kept.push_back(opener);
                        }
                    }
                    self.openers = kept;
                    return;
                }
                Err(Refusal::Parked(_)) => return self.refuse_openers(now, Why::Parked),
                Err(Refusal::Stopped) => return self.refuse_openers(now, Why::Stopped),
            }
        }
        self.place.refrain(Side::Scoped);
    }

    fn refuse_openers(&mut self, now: Timestamp, why: Why) {
        for opener in mem::take(&mut self.openers) {
            let answer = Err(self.unavailable(now, why));
            self.outbox.push(Delivery::Leave(opener.answer, answer));
        }
    }
}
