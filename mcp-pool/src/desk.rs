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
    slab::{List, Slab},
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
    /// It is refused, pins nothing, and still has to be told.
    Refused(Refused),
}

struct Request<K: PoolKey, T> {
    ticket: Ticket,
    /// Whose it is, until the host was told of the answer. Nobody's, if the session is opened ahead of need.
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
    /// Which session waits for its end.
    successor: Option<SessionId>,
}

/// What the host is to be told, if it is still so when its turn comes.
enum Word {
    /// How this request is answered.
    Answer(Ticket),
    /// That this session is to be closed.
    Close(SessionId),
}

/// Links of the requests that stand on one session or creation, in order, and were not answered to the host.
const UNTOLD: usize = 0;

type Requests<K, T> = Slab<Request<K, T>, 1>;

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
    /// Who waits for each creation, or has its session and was not told.
    untold: HashMap<SessionId, List<UNTOLD>>,
    /// Creations that may open as soon as it is their turn.
    to_open: VecDeque<SessionId>,
    /// Those that the host was told to open, and has not answered.
    opening: BTreeSet<SessionId>,
    leaving: HashMap<SessionId, Leaving>,
    leaving_deadlines: BTreeSet<(Timestamp, SessionId)>,
    /// What is to be closed, until the host knows.
    to_close: HashMap<SessionId, (K, Why)>,
    words: VecDeque<Word>,
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
            untold: HashMap::new(),
            to_open: VecDeque::new(),
            opening: BTreeSet::new(),
            leaving: HashMap::new(),
            leaving_deadlines: BTreeSet::new(),
            to_close: HashMap::new(),
            words: VecDeque::new(),
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
        let stand = admission.unwrap_or_else(Stand::Refused);
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
        if wait.is_some() && matches!(stand, Stand::Waits(_) | Stand::Turn(_)) {
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
            if let Some(stand) = self.forget(ticket.slot) {
                self.give_up(now, stand);
            }
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
        let stand = self.requests[ticket.slot].stand;
        if matches!(stand, Stand::Refused(_)) {
            return false;
        }
        self.refuse(ticket.slot, Refused::Canceled);
        self.give_up(now, stand);
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
            self.to_close.remove(&id);
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
        let changed = if self.registry.evict(id).is_some() {
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
        loop {
            let Some(word) = self.words.pop_front() else {
                let open = self.open_next(now);
                if open.is_some() || self.words.is_empty() {
                    return open;
                }
                continue;
            };
            let action = match word {
                Word::Answer(ticket) => self.answer(ticket),
                Word::Close(id) => {
                    let close = self.to_close.remove(&id);
                    close.map(|(key, why)| Action::Close { id, key, why })
                }
            };
            if action.is_some() {
                return action;
            }
        }
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

    /// Takes back what a request that stood like this had of the registry.
    fn give_up(&mut self, now: Timestamp, stand: Stand) {
        match stand {
            Stand::Waits(id) | Stand::Has(id) => self.leave(now, id),
            Stand::Turn(turn) => {
                self.turns.remove(&turn);
                self.registry.cancel_turn(turn);
            }
            Stand::Refused(_) => {}
        }
        self.hear(now);
    }

    /// What the host is told of this request, unless it is over.
    fn answer(&mut self, ticket: Ticket) -> Option<Action<K, T>> {
        if !self.is_known(ticket) || self.has_session(ticket) {
            return None;
        }
        let slot = ticket.slot;
        let token = self.requests[slot].token.take()?;
        match self.requests[slot].stand {
            Stand::Has(id) => {
                self.unlist(slot);
                self.requests[slot].told = true;
                let fresh = self.registry.give(id).is_some_and(|(_, first)| first);
                Some(Action::Give {
                    token,
                    ticket,
                    id,
                    fresh,
                })
            }
            Stand::Refused(why) => {
                self.requests.remove(slot);
                Some(Action::Refuse { token, ticket, why })
            }
            Stand::Waits(_) | Stand::Turn(_) => unreachable!("it is not answered yet"),
        }
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
            self.queue_opening(id);
        }
        Ok(match admission {
            Admission::Live(id) => Stand::Has(id),
            Admission::Joined(id) | Admission::Started(id) | Admission::Queued(id) => {
                Stand::Waits(id)
            }
            Admission::Turn(turn, _) => Stand::Turn(turn),
        })
    }

    fn queue_opening(&mut self, id: SessionId) {
        // Those that were given up are not looked for, but must not pile up behind openings that hang.
        if self.to_open.len() > 2 * self.registry.opening() + 16 {
            self.to_open
                .retain(|id| self.registry.opening_of(*id).is_some());
        }
        self.to_open.push_back(id);
    }

    /// Lists a request where it has to be found.
    fn stands(&mut self, slot: u32, stand: Stand) {
        self.requests[slot].stand = stand;
        match stand {
            Stand::Waits(id) => self.list(slot, id),
            Stand::Has(id) => {
                self.list(slot, id);
                self.give(slot, id);
            }
            Stand::Turn(turn) => {
                self.turns.insert(turn, slot);
            }
            Stand::Refused(_) => {
                let ticket = self.requests[slot].ticket;
                self.words.push_back(Word::Answer(ticket));
            }
        }
    }

    fn list(&mut self, slot: u32, id: SessionId) {
        let untold = self.untold.entry(id).or_insert_with(List::new);
        untold.push_back(&mut self.requests, slot);
    }

    /// Takes a request out of the list that it is in, if it is in one.
    fn unlist(&mut self, slot: u32) {
        let request = &self.requests[slot];
        let (Stand::Waits(id) | Stand::Has(id)) = request.stand else {
            return;
        };
        if request.told {
            return;
        }
        if let Some(untold) = self.untold.get_mut(&id) {
            untold.remove(&mut self.requests, slot);
            if untold.is_empty() {
                self.untold.remove(&id);
            }
        }
    }

    /// Who stands on this session and was not told, in order.
    fn listed(&self, id: SessionId) -> Vec<u32> {
        let untold = self.untold.get(&id);
        untold.map_or_else(Vec::new, |untold| {
            let next = |slot: &u32| untold.next(&self.requests, *slot);
            std::iter::successors(untold.front(), next).collect()
        })
    }

    /// A request that is listed has its session, and is to be told so.
    fn give(&mut self, slot: u32, id: SessionId) {
        let request = &mut self.requests[slot];
        request.stand = Stand::Has(id);
        let (ticket, deadline) = (request.ticket, request.deadline);
        self.deadlines.remove(&(deadline, ticket.serial));
        self.words.push_back(Word::Answer(ticket));
    }

    /// A request is over. Returns how it stood.
    fn forget(&mut self, slot: u32) -> Option<Stand> {
        self.unlist(slot);
        let request = self.requests.remove(slot)?;
        self.deadlines
            .remove(&(request.deadline, request.ticket.serial));
        Some(request.stand)
    }

    /// Refuses a request that pins nothing any more, and was not told that it has a session.
    fn refuse(&mut self, slot: u32, why: Refused) {
        self.unlist(slot);
        let request = &mut self.requests[slot];
        let before = std::mem::replace(&mut request.stand, Stand::Refused(why));
        let (ticket, deadline) = (request.ticket, request.deadline);
        self.deadlines.remove(&(deadline, ticket.serial));
        if self.requests[slot].token.is_none() {
            self.requests.remove(slot);
        } else if !matches!(before, Stand::Has(_)) {
            self.words.push_back(Word::Answer(ticket));
        }
    }

    fn refuse_all(&mut self, id: SessionId, why: Refused) {
        for slot in self.listed(id) {
            self.refuse(slot, why);
        }
    }

    /// The session may be given to all who wait for it.
    fn arrive(&mut self, now: Timestamp, id: SessionId) {
        if self.registry.arrived(id).is_none() {
            return;
        }
        for slot in self.listed(id) {
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
        for Retired {
            id,
            key,
            why,
            session,
            ..
        } in retired
        {
            self.refuse_all(id, refused_for(why));
            // What the host was never told to open it need not close.
            if self.opening.remove(&id) || session.is_some() {
                self.close_one(now, id, key, why);
            }
        }
        self.hear(now);
        victims
    }

    fn close_one(&mut self, now: Timestamp, id: SessionId, key: K, why: Why) {
        let deadline = now.plus(self.close_limit);
        let successor = None;
        self.leaving.insert(
            id,
            Leaving {
                deadline,
                successor,
            },
        );
        self.leaving_deadlines.insert((deadline, id));
        self.to_close.insert(id, (key, why));
        self.words.push_back(Word::Close(id));
    }

    /// The host says that the closing of this session is over, maybe before it was told of it.
    fn closed_as_told(&mut self, now: Timestamp, id: SessionId) -> bool {
        self.to_close.remove(&id);
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

    /// The next creation whose turn it is to open, if one more may be opened at a time and nothing else has to be told
    /// before.
    fn open_next(&mut self, now: Timestamp) -> Option<Action<K, T>> {
        while self.words.is_empty() && self.opening.len() < self.openings {
            let id = self.to_open.pop_front()?;
            match self.registry.readmit(id) {
                Readmission::Open => {
                    let key = self.registry.key_of(id).cloned();
                    let key = key.expect("a creation that may open");
                    self.opening.insert(id);
                    return Some(Action::Open { id, key });
                }
                Readmission::Full(refusal, ()) => {
                    self.refuse_all(id, refusal.into());
                    self.hear(now);
                }
                Readmission::Queued | Readmission::Gone => {}
            }
        }
        None
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
            Stand::Has(_) | Stand::Refused(_) => {}
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
                self.refuse(slot, refusal.into());
                self.leave(now, id);
            }
        }
    }

    /// What became of those who waited for room.
    fn hear(&mut self, now: Timestamp) {
        while let Some(notice) = self.registry.next_notice() {
            match notice {
                Notice::Open(id) => self.queue_opening(id),
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
