//! The pool without tasks: the host opens and closes the sessions itself, and is told which.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    time::Duration,
};

use crate::{
    binding::{Binding, Changes, Fingerprint},
    event::{Counters, Event, SessionStatus, Why},
    key::{PoolKey, SessionId},
    pool::Limits,
    registry::{
        Admission, AllRetired, Begin, Notice, Promotion, Purpose, Readmission, Refusal, Registry,
        Retired, Rules, Target, TurnId, Want,
    },
    slab::Slab,
    time::Timestamp,
};

/// Names one request for a session, and then the call that it was granted. Not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    serial: u64,
    slot: u32,
}

impl Ticket {
    /// The number alone: unique within its desk, never 0, rising in order of the requests.
    pub fn get(self) -> u64 {
        self.serial
    }
}

/// What the host has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<K, T> {
    /// Open this session, and say [`opened`](Desk::opened) or [`failed`](Desk::failed).
    Open {
        /// The session to be.
        id: SessionId,
        /// What it is for.
        key: K,
    },
    /// Close this session, or stop opening it, whichever it is by now, and say [`closed`](Desk::closed) when that is
    /// over. Calls on it are to end as closed. It is said once of each session, here or by the answer of
    /// [`opened`](Desk::opened).
    Close {
        /// The session.
        id: SessionId,
        /// What it was for.
        key: K,
        /// Why it has to go.
        why: Why,
    },
    /// Somebody who asked may call this session, and says [`release`](Desk::release) when that call ended.
    Give {
        /// Whose request it was.
        token: T,
        /// The request, now the call.
        ticket: Ticket,
        /// The session to call.
        id: SessionId,
        /// Whether it is the first that is given this session.
        fresh: bool,
    },
    /// Somebody who asked gets no session. The ticket is no more.
    Refuse {
        /// Whose request it was.
        token: T,
        /// The request.
        ticket: Ticket,
        /// Why not.
        why: Refused,
    },
}

/// Why somebody got no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Every slot is taken by a session with a call in flight, or the next to become idle belongs to those who wait.
    #[error("the pool is at capacity: {busy} of {capacity} sessions have a call in flight")]
    Capacity {
        /// How many slots there are.
        capacity: usize,
        /// How many of them are busy.
        busy: usize,
    },
    /// Every slot that this server may have is taken by a session with a call in flight.
    #[error("the server is at capacity: {busy} of its {capacity} sessions have a call in flight")]
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
    /// The host could not open the session.
    #[error("the session could not be opened")]
    Failed {
        /// The host's own word for why, as [`failed`](Desk::failed) was given it.
        code: i32,
    },
    /// The binding is not, or no longer, the current one of the key's domain and server.
    #[error("the configuration of this server changed or was removed")]
    Stale,
    /// The session was closed before it could be given, or the desk is shut down.
    #[error("the session was closed before it could be given, or the pool is shut down")]
    Closed,
    /// Whoever asked [cancelled](Desk::cancel) the request.
    #[error("the request was cancelled")]
    Canceled,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full(full) => Self::Capacity {
                capacity: full.capacity,
                busy: full.busy,
            },
            Refusal::ServerFull(full) => Self::ServerCapacity {
                capacity: full.capacity,
                busy: full.busy,
            },
            Refusal::Saturated { calls } => Self::Saturated { calls },
            Refusal::Stale => Self::Stale,
        }
    }
}

/// How far a request is.
#[derive(Debug, Clone, Copy)]
enum Stand {
    /// It waits for this creation, which it pins.
    Waits(SessionId),
    /// It waits for a place on this session.
    Turn(TurnId),
    /// It has this session, which it pins, and may still have to be told.
    Has(SessionId),
}

struct Request<K: PoolKey, T> {
    ticket: Ticket,
    /// Whose it is, until it is answered. Nobody's, if the session is opened ahead of need.
    token: Option<T>,
    key: K,
    binding: Binding,
    stand: Stand,
    /// Whether the host was told that it has its session.
    told: bool,
    /// Until when it waits for room.
    deadline: Timestamp,
}

/// What is kept of a session that is to be closed.
struct Leaving {
    deadline: Timestamp,
    /// Whether the host was told to close it.
    told: bool,
    /// Which session waits for its end.
    successor: Option<SessionId>,
}

type Requests<K, T> = Slab<Request<K, T>>;

/// The pool for a host that opens and closes its sessions itself: the same [rules](crate#the-rules), in one place and
/// on one thread at a time, with no task, no callback and no clock of its own.
///
/// The host says what happened and when; whatever may follow from it comes out of [`next`](Self::next), which is to be
/// asked until it says nothing, after every word of the host's and when the [`timeout`](Self::timeout) is over. A time
/// that lies before the last one is taken as the last.
///
/// ```
/// use mcp_pool::{Action, Desk, Key, Limits, Timestamp};
///
/// let mut desk: Desk<Key, &str> = Desk::new(&Limits::default());
/// let now = Timestamp::ZERO; // of the host's monotonic clock
/// let binding = desk.ensure_binding(now, &"deployment".into(), &"browser".into(), 0xC0FFEE_u64);
/// let key = Key::new("deployment", "browser", "conversation 7");
///
/// let ticket = desk.acquire(now, &key, binding, "the host's token", None);
/// let Some(Action::Open { id, .. }) = desk.next(now) else { panic!() };
/// desk.opened(now, id); // once the host has opened it
/// let Some(Action::Give { token, fresh: true, .. }) = desk.next(now) else { panic!() };
/// assert_eq!(token, "the host's token");
/// desk.release(now, ticket); // its call ended
///
/// desk.close_scope(now, &key.domain, &key.scope);
/// assert!(matches!(desk.next(now), Some(Action::Close { id: closes, .. }) if closes == id));
/// desk.closed(now, id);
/// assert_eq!(desk.next(now), None);
/// ```
pub struct Desk<K: PoolKey, T> {
    registry: Registry<K, (), ()>,
    now: Timestamp,
    openings: usize,
    close_limit: Duration,
    shut: bool,
    requests: Requests<K, T>,
    serial: u64,
    deadlines: BTreeMap<(Timestamp, u64), u32>,
    turns: HashMap<TurnId, u32>,
    /// Who waits for each creation, in order.
    waiting: HashMap<SessionId, Vec<u32>>,
    /// Creations that may open as soon as it is their turn.
    to_open: VecDeque<SessionId>,
    /// Those that the host was told to open, and has not answered.
    opening: BTreeSet<SessionId>,
    leaving: HashMap<SessionId, Leaving>,
    leaving_deadlines: BTreeSet<(Timestamp, SessionId)>,
    actions: VecDeque<Action<K, T>>,
    overdue: u64,
    /// What the host said of the last opening that failed.
    last_failure: i32,
}

impl<K: PoolKey, T> Desk<K, T> {
    /// A desk with these bounds. [`wait`](Limits::wait), [`closings`](Limits::closings) and
    /// [`keep_time`](Limits::keep_time) do not concern it: each request says how long it waits, the host closes as many
    /// at a time as it likes, and time is always kept.
    pub fn new(limits: &Limits) -> Self {
        Self {
            registry: Registry::new(Rules::from(limits)),
            now: Timestamp::ZERO,
            openings: limits.openings.max(1),
            close_limit: limits.close_limit,
            shut: false,
            requests: Slab::new(),
            serial: 0,
            deadlines: BTreeMap::new(),
            turns: HashMap::new(),
            waiting: HashMap::new(),
            to_open: VecDeque::new(),
            opening: BTreeSet::new(),
            leaving: HashMap::new(),
            leaving_deadlines: BTreeSet::new(),
            actions: VecDeque::new(),
            overdue: 0,
            last_failure: 0,
        }
    }

    /// As [`Pool::ensure_binding`](crate::Pool::ensure_binding).
    pub fn ensure_binding(
        &mut self,
        now: Timestamp,
        domain: &K::Domain,
        server: &K::Server,
        fingerprint: impl Into<Fingerprint>,
    ) -> Binding {
        let now = self.tick(now);
        let (binding, retired) = self
            .registry
            .ensure_binding(domain, server, fingerprint.into());
        self.let_go(now, retired);
        binding
    }

    /// As [`Pool::reconcile_bindings`](crate::Pool::reconcile_bindings).
    pub fn reconcile_bindings(
        &mut self,
        now: Timestamp,
        domain: &K::Domain,
        servers: impl IntoIterator<Item = (K::Server, Fingerprint)>,
    ) -> Changes<K::Server> {
        let now = self.tick(now);
        let (changes, retired) = self.registry.reconcile_bindings(domain, servers);
        self.let_go(now, retired);
        changes
    }

    /// The domain has this server no more: its binding is stale for ever, and what belonged to it has to go. Returns
    /// whether there was one.
    pub fn remove_binding(
        &mut self,
        now: Timestamp,
        domain: &K::Domain,
        server: &K::Server,
    ) -> bool {
        let now = self.tick(now);
        let removed = self.registry.remove_binding(domain, server);
        let was_there = removed.is_some();
        self.let_go(now, removed.unwrap_or_default());
        was_there
    }

    /// The current binding of a server, or `None` if the domain has no such server.
    pub fn binding(&self, domain: &K::Domain, server: &K::Server) -> Option<Binding> {
        self.registry.binding(domain, server)
    }

    /// Somebody wants to call the session of this key. Answered by [`Give`](Action::Give) or
    /// [`Refuse`](Action::Refuse), exactly once, unless it is [released](Self::release) before. `wait` is how long it
    /// waits for a slot, or for a place on the session; `None` is not at all.
    pub fn acquire(
        &mut self,
        now: Timestamp,
        key: &K,
        binding: Binding,
        token: T,
        wait: Option<Duration>,
    ) -> Ticket {
        let now = self.tick(now);
        self.expire(now);
        let ticket = self.next_ticket();
        let want = Want {
            purpose: Purpose::Call,
            patient: wait.is_some(),
        };
        let admission = if self.shut {
            Err(Refused::Closed)
        } else {
            self.admit(now, key, binding, want)
        };
        let stand = match admission {
            Ok(stand) => stand,
            Err(why) => {
                self.actions
                    .push_back(Action::Refuse { token, ticket, why });
                return ticket;
            }
        };
        let deadline = wait.map_or(Timestamp::NEVER, |wait| now.plus(wait));
        let slot = self.requests.insert(Request {
            ticket,
            token: Some(token),
            key: key.clone(),
            binding,
            stand,
            told: false,
            deadline,
        });
        if wait.is_some() && !matches!(stand, Stand::Has(_)) {
            self.deadlines.insert((deadline, ticket.serial), slot);
        }
        self.stands(slot, stand);
        self.hear(now);
        ticket
    }

    /// Has the session of this key opened ahead of need, if a slot is free: nothing idle has to go for it. Nobody is
    /// given it, and nobody is told if it fails.
    ///
    /// # Errors
    /// As those of [`acquire`](Self::acquire) that are known at once: [`Refused::Capacity`],
    /// [`Refused::ServerCapacity`], [`Refused::Stale`], [`Refused::Closed`].
    pub fn warm_up(&mut self, now: Timestamp, key: &K, binding: Binding) -> Result<(), Refused> {
        let now = self.tick(now);
        self.expire(now);
        if self.shut {
            return Err(Refused::Closed);
        }
        let stand @ Stand::Waits(_) = self.admit(now, key, binding, Want::WARM_UP)? else {
            // It is there, and not pinned.
            return Ok(());
        };
        let ticket = self.next_ticket();
        let slot = self.requests.insert(Request {
            ticket,
            token: None,
            key: key.clone(),
            binding,
            stand,
            told: false,
            deadline: Timestamp::NEVER,
        });
        self.stands(slot, stand);
        Ok(())
    }

    /// The call ended; or, if it was not given a session yet, whoever asked waits no more, and hears nothing more of the
    /// request. Returns whether there was such a request.
    pub fn release(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        let now = self.tick(now);
        let known = self.is_known(ticket);
        if known {
            self.withdraw(now, ticket);
        } else {
            self.take_refusal(ticket);
        }
        known
    }

    /// Whoever asked waits no more, and is refused as [`Canceled`](Refused::Canceled). Returns whether that is so: if the
    /// request was answered before, also if the host was not told of a refusal yet, that answer stands.
    pub fn cancel(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        let now = self.tick(now);
        if !self.is_known(ticket) || self.has_session(ticket) {
            return false;
        }
        if let Some(token) = self.withdraw(now, ticket) {
            let why = Refused::Canceled;
            self.actions
                .push_back(Action::Refuse { token, ticket, why });
        }
        true
    }

    /// Whether the host was told that this request has its session, and has not [released](Self::release) it.
    pub fn has_session(&self, ticket: Ticket) -> bool {
        self.is_known(ticket) && self.requests[ticket.slot].told
    }

    /// One more call on this very session, for whoever has a call on it or knows it: the answer comes at once.
    ///
    /// # Errors
    /// [`Refused::Closed`] if no call begins on it any more, or none could be given yet; [`Refused::Saturated`] if it has
    /// all it may have.
    pub fn begin(&mut self, now: Timestamp, id: SessionId) -> Result<Ticket, Refused> {
        let now = self.tick(now);
        self.expire(now);
        if self.registry.opening_of(id).is_some() {
            return Err(Refused::Closed);
        }
        match self.registry.begin(now, id) {
            Begin::Begun => {}
            Begin::Detached => return Err(Refused::Closed),
            Begin::Saturated(calls) => return Err(Refused::Saturated { calls }),
        }
        let key = self.registry.key_of(id).cloned();
        let key = key.expect("a session that a call began on");
        let binding = self.registry.binding(key.domain(), key.server());
        let ticket = self.next_ticket();
        self.requests.insert(Request {
            ticket,
            token: None,
            key,
            binding: binding.expect("a pooled session is of a current binding"),
            stand: Stand::Has(id),
            told: true,
            deadline: Timestamp::NEVER,
        });
        Ok(ticket)
    }

    /// The host opened this session. Returns whether the desk took it: if not, nobody wants it any more, and the host is
    /// told so by this answer, if not before by [`Close`](Action::Close), and says [`closed`](Self::closed) once it is.
    pub fn opened(&mut self, now: Timestamp, id: SessionId) -> bool {
        let now = self.tick(now);
        self.expire(now);
        if !self.opening.remove(&id) {
            self.told_to_close(id);
            return false;
        }
        let key = self.registry.key_of(id).cloned();
        match self.registry.promote(now, id, ()) {
            Promotion::Promoted {
                victim: Some(victim),
            } => {
                let old = victim.id;
                self.let_go(now, vec![victim]);
                // Closed before anybody has the new one, unless it takes too long.
                match self.leaving.get_mut(&old) {
                    Some(leaving) => leaving.successor = Some(id),
                    None => self.arrive(now, id),
                }
            }
            Promotion::Promoted { victim: None } => self.arrive(now, id),
            Promotion::Full { refusal, .. } => {
                self.refuse_all(id, refusal.into());
                let key = key.expect("a creation that was promoted");
                self.close_one(now, id, key, Why::NoSlot);
            }
            // It was told to close when it left.
            Promotion::Gone { .. } => {}
        }
        self.hear(now);
        true
    }

    /// The host could not open this session: all who wait for it are refused, with the host's own word for why. Returns
    /// whether that changed anything.
    pub fn failed(&mut self, now: Timestamp, id: SessionId, code: i32) -> bool {
        let now = self.tick(now);
        self.expire(now);
        self.last_failure = code;
        let changed = if self.opening.remove(&id) {
            self.registry.fail(id);
            self.refuse_all(id, Refused::Failed { code });
            true
        } else {
            // It was to be stopped, and that is over then.
            self.closed_as_told(now, id)
        };
        self.hear(now);
        changed
    }

    /// Whether the host was told to open this session, and not yet to stop, and has not answered.
    pub fn is_opening(&self, id: SessionId) -> bool {
        self.opening.contains(&id)
    }

    /// This session is closed, as the host was told, or on its own: then it leaves the pool, as by
    /// [`Pool::evict`](crate::Pool::evict), and there is nothing to close. Returns whether that changed anything.
    pub fn closed(&mut self, now: Timestamp, id: SessionId) -> bool {
        let now = self.tick(now);
        self.expire(now);
        let changed = if let Some(retired) = self.registry.evict(id) {
            self.take_back(std::slice::from_ref(&retired));
            self.refuse_all(id, Refused::Closed);
            true
        } else {
            self.closed_as_told(now, id)
        };
        self.hear(now);
        changed
    }

    /// The session is dead: it leaves the pool and is to be closed. Returns whether it had not left already.
    pub fn evict(&mut self, now: Timestamp, id: SessionId) -> bool {
        let now = self.tick(now);
        let retired = self.registry.evict(id);
        self.let_go(now, retired.into_iter().collect()) > 0
    }

    /// As [`Pool::close_scope`](crate::Pool::close_scope). Returns how many have to go.
    pub fn close_scope(&mut self, now: Timestamp, domain: &K::Domain, scope: &K::Scope) -> usize {
        self.close(now, Target::Scope(domain, scope))
    }

    /// Closes what is meant, as the pool's closes do. Returns how many have to go.
    pub fn close(&mut self, now: Timestamp, target: Target<'_, K>) -> usize {
        let now = self.tick(now);
        let retired = self.registry.close(target);
        self.let_go(now, retired)
    }

    /// Lets what is meant drain, as the pool's drains do, each at most for the limit. Returns how many have to go.
    pub fn drain(&mut self, now: Timestamp, target: Target<'_, K>, limit: Duration) -> usize {
        let now = self.tick(now);
        let (retired, draining) = self.registry.drain(now, target, now.plus(limit));
        self.let_go(now, retired) + draining.len()
    }

    /// Closes everything, and refuses whatever comes after as closed.
    pub fn shutdown(&mut self, now: Timestamp) -> usize {
        self.shut = true;
        self.close(now, Target::All)
    }

    /// What the host has to do next, or `None` if there is nothing to do before the [`timeout`](Self::timeout) or the
    /// host's next word.
    pub fn next(&mut self, now: Timestamp) -> Option<Action<K, T>> {
        let now = self.tick(now);
        self.expire(now);
        if self.actions.is_empty() {
            self.open_next(now);
        }
        let mut action = self.actions.pop_front()?;
        match &mut action {
            Action::Give {
                ticket, id, fresh, ..
            } => {
                self.requests[ticket.slot].told = true;
                *fresh = self.registry.give(*id).is_some_and(|(_, first)| first);
            }
            Action::Close { id, .. } => {
                if let Some(leaving) = self.leaving.get_mut(id) {
                    leaving.told = true;
                }
            }
            Action::Open { .. } | Action::Refuse { .. } => {}
        }
        Some(action)
    }

    /// The latest time that it was told.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// When [`next`](Self::next) is to be asked again even if the host has nothing to say.
    pub fn timeout(&self) -> Option<Timestamp> {
        let wait = self.deadlines.first_key_value().map(|((at, _), _)| *at);
        let close = self.leaving_deadlines.first().map(|(at, _)| *at);
        let times = [self.registry.timeout(), wait, close];
        let soonest = times.into_iter().flatten().min();
        soonest.filter(|at| *at < Timestamp::NEVER)
    }

    /// How the pool is doing. Nothing is known of panics here, and what is overdue was not closed in time by the host.
    pub fn counters(&self) -> Counters {
        Counters {
            capacity: self.registry.rules().capacity,
            live: self.registry.live(),
            busy: self.registry.busy(),
            draining: self.registry.draining(),
            opening: self.registry.opening(),
            waiting: self.registry.waiting(),
            queued_calls: self.registry.queued_calls(),
            closing: self.leaving.len(),
            panicked: 0,
            overdue: self.overdue,
            tally: self.registry.tally(),
        }
    }

    /// Every session and creation, oldest first, for a status page.
    pub fn sessions(&self, now: Timestamp) -> Vec<SessionStatus<K>> {
        self.registry.sessions(self.now.max(now))
    }

    /// Keeps what happens from now on, for [`next_event`](Self::next_event).
    pub fn observe(&mut self) {
        self.registry.observe();
    }

    /// What happened, in order; nothing if it is not [observed](Self::observe).
    pub fn next_event(&mut self) -> Option<Event<K>> {
        self.registry.next_event()
    }

    /// The clock of the pool goes forward only.
    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    fn next_ticket(&mut self) -> Ticket {
        self.serial += 1;
        Ticket {
            serial: self.serial,
            slot: self.requests.next_slot(),
        }
    }

    fn is_known(&self, ticket: Ticket) -> bool {
        let request = self.requests.get(ticket.slot);
        request.is_some_and(|request| request.ticket == ticket)
    }

    /// Takes a known request and what it pins back. Returns whose it was, if the host was not told of its session yet.
    fn withdraw(&mut self, now: Timestamp, ticket: Ticket) -> Option<T> {
        let told = self.requests[ticket.slot].told;
        let (stand, mut token) = self.forget(ticket.slot)?;
        match stand {
            Stand::Has(id) => {
                if !told {
                    token = self.take_gift(ticket);
                }
                self.leave(now, id);
            }
            Stand::Waits(id) => {
                if let Some(waiting) = self.waiting.get_mut(&id) {
                    waiting.retain(|slot| *slot != ticket.slot);
                }
                self.leave(now, id);
            }
            Stand::Turn(turn) => {
                self.turns.remove(&turn);
                self.registry.cancel_turn(turn);
            }
        }
        self.hear(now);
        token
    }

    /// What the host has not taken yet it does not get any more.
    fn take_gift(&mut self, given: Ticket) -> Option<T> {
        let is_it = |action: &Action<K, T>| matches!(action, Action::Give { ticket, .. } if *ticket == given);
        let at = self.actions.iter().position(is_it)?;
        match self.actions.remove(at) {
            Some(Action::Give { token, .. }) => Some(token),
            _ => None,
        }
    }

    fn take_refusal(&mut self, refused: Ticket) {
        self.actions.retain(
            |action| !matches!(action, Action::Refuse { ticket, .. } if *ticket == refused),
        );
    }

    /// Asks the registry, and says how the request stands then.
    fn admit(
        &mut self,
        now: Timestamp,
        key: &K,
        binding: Binding,
        want: Want,
    ) -> Result<Stand, Refused> {
        let admission = self.registry.admit(now, key, binding, want, |_| ())?;
        if let Admission::Started(id) = admission {
            self.to_open.push_back(id);
        }
        Ok(match admission {
            Admission::Live(id) => Stand::Has(id),
            Admission::Joined(id) | Admission::Started(id) | Admission::Queued(id) => {
                Stand::Waits(id)
            }
            Admission::Turn(turn, _) => Stand::Turn(turn),
        })
    }

    /// Lists a request where it has to be found.
    fn stands(&mut self, slot: u32, stand: Stand) {
        self.requests[slot].stand = stand;
        match stand {
            Stand::Has(id) => self.give(slot, id),
            Stand::Waits(id) => self.waiting.entry(id).or_default().push(slot),
            Stand::Turn(turn) => {
                self.turns.insert(turn, slot);
            }
        }
    }

    fn give(&mut self, slot: u32, id: SessionId) {
        let request = &mut self.requests[slot];
        request.stand = Stand::Has(id);
        let (ticket, deadline) = (request.ticket, request.deadline);
        if let Some(token) = request.token.take() {
            self.actions.push_back(Action::Give {
                token,
                ticket,
                id,
                // Whoever takes it first is the first.
                fresh: false,
            });
        }
        self.deadlines.remove(&(deadline, ticket.serial));
    }

    /// A request is over. Returns how it stood, and whose it was if it was not given yet.
    fn forget(&mut self, slot: u32) -> Option<(Stand, Option<T>)> {
        let request = self.requests.remove(slot)?;
        self.deadlines
            .remove(&(request.deadline, request.ticket.serial));
        Some((request.stand, request.token))
    }

    /// Refuses a request that pins nothing any more.
    fn refuse(&mut self, slot: u32, why: Refused) {
        let ticket = self.requests[slot].ticket;
        if let Some((_, Some(token))) = self.forget(slot) {
            self.actions
                .push_back(Action::Refuse { token, ticket, why });
        }
    }

    fn refuse_all(&mut self, id: SessionId, why: Refused) {
        for slot in self.waiting.remove(&id).unwrap_or_default() {
            self.refuse(slot, why);
        }
    }

    /// The session may be given to all who wait for it.
    fn arrive(&mut self, now: Timestamp, id: SessionId) {
        if self.registry.arrived(id).is_none() {
            return;
        }
        for slot in self.waiting.remove(&id).unwrap_or_default() {
            if self.requests[slot].token.is_some() {
                self.give(slot, id);
            } else {
                // It was opened ahead of need.
                self.forget(slot);
                self.leave(now, id);
            }
        }
        self.hear(now);
    }

    fn leave(&mut self, now: Timestamp, id: SessionId) {
        let retired = self.registry.leave(now, id);
        self.let_go(now, retired.into_iter().collect());
    }

    /// These left the registry. Returns how many they are.
    fn let_go(&mut self, now: Timestamp, retired: AllRetired<K, (), ()>) -> usize {
        let victims = retired.len();
        self.take_back(&retired);
        for Retired {
            id,
            key,
            why,
            opening,
            session,
        } in retired
        {
            if opening.is_some() {
                self.refuse_all(id, refused_for(why));
            }
            // What the host was never told to open it need not close.
            if self.opening.remove(&id) || session.is_some() {
                self.close_one(now, id, key, why);
            }
        }
        self.hear(now);
        victims
    }

    /// Refuses those who were to be given one of these, and whom the host was not told of yet.
    fn take_back(&mut self, retired: &[Retired<K, (), ()>]) {
        let given = |action: &Action<K, T>| matches!(action, Action::Give { .. });
        if retired.is_empty() || !self.actions.iter().any(given) {
            return;
        }
        let gone: HashMap<_, _> = retired.iter().map(|it| (it.id, it.why)).collect();
        for action in std::mem::take(&mut self.actions) {
            let action = match action {
                Action::Give {
                    token, ticket, id, ..
                } if gone.contains_key(&id) => {
                    self.forget(ticket.slot);
                    let why = refused_for(gone[&id]);
                    Action::Refuse { token, ticket, why }
                }
                action => action,
            };
            self.actions.push_back(action);
        }
    }

    fn close_one(&mut self, now: Timestamp, id: SessionId, key: K, why: Why) {
        let deadline = now.plus(self.close_limit);
        let successor = None;
        self.leaving.insert(
            id,
            Leaving {
                deadline,
                told: false,
                successor,
            },
        );
        self.leaving_deadlines.insert((deadline, id));
        self.actions.push_back(Action::Close { id, key, why });
    }

    /// The host knows that this session is to be closed: it need not be told (again).
    fn told_to_close(&mut self, id: SessionId) {
        // Of one that was given up before the host was told, nothing is kept but the action.
        let told = match self.leaving.get_mut(&id) {
            Some(leaving) => std::mem::replace(&mut leaving.told, true),
            None => false,
        };
        if !told {
            self.actions.retain(
                |action| !matches!(action, Action::Close { id: closes, .. } if *closes == id),
            );
        }
    }

    /// The host says that the closing of this session is over, maybe before it was told of it.
    fn closed_as_told(&mut self, now: Timestamp, id: SessionId) -> bool {
        self.told_to_close(id);
        self.over(now, id)
    }

    /// The closing of this session is over, or was given up.
    fn over(&mut self, now: Timestamp, id: SessionId) -> bool {
        let Some(leaving) = self.leaving.remove(&id) else {
            return false;
        };
        self.leaving_deadlines.remove(&(leaving.deadline, id));
        if let Some(successor) = leaving.successor {
            self.arrive(now, successor);
        }
        true
    }

    /// Opens the next creation whose turn it is, if one more may be opened at a time.
    fn open_next(&mut self, now: Timestamp) {
        while self.actions.is_empty() && self.opening.len() < self.openings {
            let Some(id) = self.to_open.pop_front() else {
                return;
            };
            match self.registry.readmit(id) {
                Readmission::Open => {
                    let key = self.registry.key_of(id).cloned();
                    let key = key.expect("a creation that may open");
                    self.opening.insert(id);
                    self.actions.push_back(Action::Open { id, key });
                }
                Readmission::Full(refusal, ()) => {
                    self.refuse_all(id, refusal.into());
                    self.hear(now);
                }
                Readmission::Queued | Readmission::Gone => {}
            }
        }
    }

    /// Lets everything happen whose time has come.
    fn expire(&mut self, now: Timestamp) {
        if self.timeout().is_none_or(|due| due > now) {
            return;
        }
        let retired = self.registry.expire(now);
        self.let_go(now, retired);
        while let Some((deadline, id)) = self.leaving_deadlines.first().copied() {
            if deadline > now {
                break;
            }
            self.overdue += 1;
            self.over(now, id);
        }
        while let Some(((deadline, serial), slot)) = self.deadlines.first_key_value() {
            if *deadline > now {
                break;
            }
            let (key, slot) = ((*deadline, *serial), *slot);
            self.deadlines.remove(&key);
            self.lose_patience(now, slot);
        }
    }

    /// The deadline of this request has come. It is refused if it still waits for room.
    fn lose_patience(&mut self, now: Timestamp, slot: u32) {
        match self.requests[slot].stand {
            Stand::Has(_) => {}
            Stand::Turn(turn) => {
                self.turns.remove(&turn);
                if self.registry.cancel_turn(turn) {
                    self.registry.count_overdue_turn();
                    let calls = self.registry.rules().calls_per_session;
                    let calls = calls.unwrap_or_default();
                    self.refuse(slot, Refused::Saturated { calls });
                }
            }
            Stand::Waits(id) => {
                let Some(refusal) = self.registry.lose_patience(id) else {
                    return;
                };
                if let Some(waiting) = self.waiting.get_mut(&id) {
                    waiting.retain(|other| *other != slot);
                }
                self.refuse(slot, refusal.into());
                self.leave(now, id);
            }
        }
    }

    /// What became of those who waited for room.
    fn hear(&mut self, now: Timestamp) {
        while let Some(notice) = self.registry.next_notice() {
            match notice {
                Notice::Open(id) => self.to_open.push_back(id),
                Notice::Turn(turn, id) => match self.turns.remove(&turn) {
                    None => self.leave(now, id),
                    Some(slot) if self.registry.opening_of(id).is_some() => {
                        self.stands(slot, Stand::Waits(id));
                    }
                    Some(slot) => self.stands(slot, Stand::Has(id)),
                },
                Notice::Lost(turn, _, why) => {
                    if let Some(slot) = self.turns.remove(&turn) {
                        self.lost(now, slot, why);
                    }
                }
            }
        }
    }

    /// The session that this request waited for a place on is gone.
    fn lost(&mut self, now: Timestamp, slot: u32, why: Why) {
        let refused = match why {
            Why::Closed | Why::Rebound => refused_for(why),
            Why::Failed => Refused::Failed {
                code: self.last_failure,
            },
            // Its key may have another.
            _ => {
                let request = &self.requests[slot];
                let (key, binding) = (request.key.clone(), request.binding);
                match self.admit(now, &key, binding, Want::PATIENT_CALL) {
                    Ok(stand) => return self.stands(slot, stand),
                    Err(refused) => refused,
                }
            }
        };
        self.refuse(slot, refused);
    }
}

/// What those hear whose session left for this reason.
fn refused_for(why: Why) -> Refused {
    match why {
        Why::Rebound => Refused::Stale,
        _ => Refused::Closed,
    }
}

impl<K: PoolKey, T> fmt::Debug for Desk<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Desk").field(&self.counters()).finish()
    }
}
