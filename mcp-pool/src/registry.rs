//! Which sessions there are, which are busy, which one has to go and who is next: all of the pool's decisions, none of
//! its waiting.
//!
//! The registry knows no clock, no I/O and no threads. It is told what happened and when, and answers at once; what has
//! to be done outside (open, close, tell somebody) is in the answer. Every operation takes the same few steps however
//! many sessions there are; closing, draining and rebinding take them once per session that goes. Only queues and
//! limits of drains are kept in order of time, which takes a step more each time their number doubles.
//!
//! Times are those of any monotonic clock of the caller's. A time that lies before an earlier one counts as the earlier
//! one. A caller that keeps no time gives [`Timestamp::ZERO`].

mod answers;
#[cfg(test)]
mod cost;
mod expiry;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

pub use answers::{
    Admission, AllRetired, Begin, Full, Notice, Promotion, Purpose, Readmission, Refusal, Retired,
    Rules, Tally, TurnId, Want,
};

use crate::{
    binding::{Binding, Changes, Fingerprint},
    event::{Counters, Event, SessionStatus, Snapshot, Stage, Why},
    key::{PoolKey, SessionId},
    slab::{List, Slab},
    steps::step,
    time::Timestamp,
};
use expiry::Drain;
use waiting::{Turn, Turns};

/// Links of the idle sessions, least recently used first.
const IDLE: usize = 0;
/// Links of the creations of one binding that wait for a slot. They are not idle, so that the links are free.
const QUEUE: usize = IDLE;
/// Links of the draining sessions of one key. They are not idle either.
const SAME_KEY: usize = IDLE;
/// Links of all that belongs to one domain.
const DOMAIN: usize = 1;
/// Links of all that belongs to one binding.
const BINDING: usize = 2;
/// Links of all that belongs to one scope of a domain.
const SCOPE: usize = 3;
/// Links of the idle sessions of one binding, as in `IDLE`. Kept only where servers have a cap.
const SERVER_IDLE: usize = 4;
/// Links of the live sessions, oldest first. Kept only where lives are limited.
const AGE: usize = 5;
const LISTS: usize = 6;

/// A creation under way or a live session: there is at most one of either per key, apart from what drains.
///
/// | opening | session | it is |
/// | --- | --- | --- |
/// | some | none | opening, or waiting for a slot: takes none |
/// | some | some | arriving: has its slot, but those who wait were not answered yet |
/// | none | some | live, or draining |
struct Node<K, O, S> {
    id: SessionId,
    key: K,
    domain: u32,
    binding: u32,
    scope: u32,
    /// Calls in flight, and those who wait for the creation. At 0 a creation is given up, and a session is idle.
    pins: usize,
    /// Whether anybody was given the session yet.
    given: bool,
    /// Whether it waits for a slot before it opens.
    queued: bool,
    /// Whether it was among those who wait for a slot and had its turn.
    served: bool,
    /// Whether all who wait for it would rather wait longer than be refused.
    patient: bool,
    /// Whether nothing idle is to go for it.
    modest: bool,
    /// When it was promoted, got or released last.
    stamp: Timestamp,
    /// When it was promoted.
    born: Timestamp,
    drain: Option<Drain>,
    turns: Turns,
    opening: Option<O>,
    session: Option<S>,
}

struct Domain<K: PoolKey> {
    name: K::Domain,
    bindings: HashMap<K::Server, u32>,
    scopes: HashMap<K::Scope, u32>,
    nodes: List<DOMAIN>,
}

struct Bound<K: PoolKey> {
    domain: u32,
    server: K::Server,
    epoch: u64,
    fingerprint: Fingerprint,
    nodes: List<BINDING>,
    /// How many of them hold a slot.
    live: usize,
    idle: List<SERVER_IDLE>,
    queue: List<QUEUE>,
    /// As which creation it stands among the servers to be served.
    ready: Option<SessionId>,
}

/// What the pool decides with. `O` is whatever the caller keeps of an opening, `S` whatever it keeps of a session;
/// the registry looks into neither.
pub struct Registry<K: PoolKey, O, S> {
    rules: Rules,
    now: Timestamp,
    live: usize,
    queued: usize,
    draining: usize,
    serial: u64,
    epoch: u64,
    turn_serial: u64,
    keys: HashMap<K, u32>,
    nodes: Slab<Node<K, O, S>, LISTS>,
    idle: List<IDLE>,
    by_age: List<AGE>,
    domains: Slab<Domain<K>>,
    domain_names: HashMap<K::Domain, u32>,
    bindings: Slab<Bound<K>>,
    scopes: Slab<List<SCOPE>>,
    turns: Slab<Turn, 1>,
    draining_keys: HashMap<K, List<SAME_KEY>>,
    drain_deadlines: BTreeMap<(Timestamp, SessionId), u32>,
    /// The first in the queue of each server that may have any slot.
    ready: BTreeSet<SessionId>,
    notices: VecDeque<Notice>,
    observed: bool,
    events: VecDeque<Event<K>>,
    tally: Tally,
}

/// What an explicit close or a drain closes.
#[derive(Debug)]
pub enum Target<'a, K: PoolKey> {
    /// One scope of a domain, over all servers.
    Scope(&'a K::Domain, &'a K::Scope),
    /// One server of a domain, over all scopes.
    Server(&'a K::Domain, &'a K::Server),
    /// One key, whatever is under it, and what drains of it.
    Session(&'a K),
    /// One key, if this very session is under it.
    SessionIfCurrent(&'a K, SessionId),
    /// This very session, also while it drains, or this very creation.
    Id(SessionId),
    /// One domain.
    Domain(&'a K::Domain),
    /// Everything.
    All,
}

impl<K: PoolKey, O, S> Registry<K, O, S> {
    /// An empty registry with these rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            now: Timestamp::ZERO,
            live: 0,
            queued: 0,
            draining: 0,
            serial: 0,
            epoch: 0,
            turn_serial: 0,
            keys: HashMap::new(),
            nodes: Slab::new(),
            idle: List::new(),
            by_age: List::new(),
            domains: Slab::new(),
            domain_names: HashMap::new(),
            bindings: Slab::new(),
            scopes: Slab::new(),
            turns: Slab::new(),
            draining_keys: HashMap::new(),
            drain_deadlines: BTreeMap::new(),
            ready: BTreeSet::new(),
            notices: VecDeque::new(),
            observed: false,
            events: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Keeps what happens from now on, for [`next_event`](Self::next_event).
    pub fn observe(&mut self) {
        self.observed = true;
    }

    /// What happened, in order; nothing if it is not [observed](Self::observe).
    pub fn next_event(&mut self) -> Option<Event<K>> {
        self.events.pop_front()
    }

    /// The rules that it keeps.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// How many slots are taken.
    pub fn live(&self) -> usize {
        self.live
    }

    /// How many slots are taken by sessions with a call in flight.
    pub fn busy(&self) -> usize {
        self.live - self.idle.len()
    }

    /// How many sessions drain. They are busy.
    pub fn draining(&self) -> usize {
        self.draining
    }

    /// How many creations are under way, those that wait for a slot not counted. They take no slot.
    pub fn opening(&self) -> usize {
        self.nodes.len() - self.live - self.queued
    }

    /// How many creations wait for a slot.
    pub fn waiting(&self) -> usize {
        self.queued
    }

    /// How often what was decided, since the beginning.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Its sums. Those of what waits and of what panicked are the caller's, and 0 here.
    pub fn counters(&self) -> Counters {
        Counters {
            capacity: self.rules.capacity,
            live: self.live(),
            busy: self.busy(),
            draining: self.draining(),
            opening: self.opening(),
            waiting: self.waiting(),
            queued_calls: self.queued_calls(),
            tally: self.tally(),
            ..Counters::default()
        }
    }

    /// All of it at one moment. Looks at every session.
    pub fn snapshot(&self, now: Timestamp) -> Snapshot<K> {
        Snapshot {
            counters: self.counters(),
            sessions: self.sessions(now),
        }
    }

    /// Every session and creation as it stands, oldest first. Looks at all of them.
    pub fn sessions(&self, now: Timestamp) -> Vec<SessionStatus<K>> {
        let status = |node: &Node<K, O, S>| {
            let stage = match (&node.opening, &node.session) {
                (_, None) if node.queued => Stage::Waiting,
                (_, None) => Stage::Opening,
                (Some(_), Some(_)) => Stage::Arriving,
                (None, Some(_)) if node.drain.is_some() => Stage::Draining,
                (None, Some(_)) => Stage::Live,
            };
            let live = node.session.is_some();
            let idle = live && node.pins == 0;
            SessionStatus {
                id: node.id,
                key: node.key.clone(),
                stage,
                calls: node.pins,
                queue: node.turns.len(),
                age: live.then(|| now.since(node.born)),
                idle_for: idle.then(|| now.since(node.stamp)),
            }
        };
        let mut sessions: Vec<_> = self.nodes.iter().map(|(_, node)| status(node)).collect();
        sessions.sort_by_key(|session| session.id);
        sessions
    }

    /// Makes this the configuration of the server. The same again changes nothing; another begins a new binding, and
    /// what belonged to the old one is returned, detached.
    pub fn ensure_binding(
        &mut self,
        domain: &K::Domain,
        server: &K::Server,
        fingerprint: Fingerprint,
    ) -> (Binding, AllRetired<K, O, S>) {
        let domain = self.domain_slot(domain);
        let (binding, _, retired) = self.bind(domain, server, fingerprint);
        self.serve();
        (binding, retired)
    }

    /// Makes these the servers of the domain, and no others. A server is to be given once.
    pub fn reconcile_bindings(
        &mut self,
        domain: &K::Domain,
        servers: impl IntoIterator<Item = (K::Server, Fingerprint)>,
    ) -> (Changes<K::Server>, AllRetired<K, O, S>) {
        let mut changes = Changes::default();
        let mut all_retired = Vec::new();
        let domain = self.domain_slot(domain);
        let mut unnamed: HashSet<K::Server> =
            self.domains[domain].bindings.keys().cloned().collect();
        for (server, fingerprint) in servers {
            unnamed.remove(&server);
            let (binding, change, retired) = self.bind(domain, &server, fingerprint);
            all_retired.extend(retired);
            match change {
                Change::Added => changes.added.push(server.clone()),
                Change::Changed => changes.changed.push(server.clone()),
                Change::None => changes.unchanged.push(server.clone()),
            }
            changes.bindings.push((server, binding));
        }
        for server in unnamed {
            all_retired.extend(self.unbind(domain, &server).unwrap_or_default());
            changes.removed.push(server);
        }
        self.forget_if_empty(domain);
        self.serve();
        (changes, all_retired)
    }

    /// The domain has this server no more. Returns what belonged to it, detached, or `None` if it had no such server.
    pub fn remove_binding(
        &mut self,
        domain: &K::Domain,
        server: &K::Server,
    ) -> Option<AllRetired<K, O, S>> {
        let domain = *self.domain_names.get(domain)?;
        let retired = self.unbind(domain, server)?;
        self.forget_if_empty(domain);
        self.serve();
        Some(retired)
    }

    /// The current binding of a server, or `None` if the domain has no such server (any more).
    pub fn binding(&self, domain: &K::Domain, server: &K::Server) -> Option<Binding> {
        let domain = &self.domains[*self.domain_names.get(domain)?];
        let slot = *domain.bindings.get(server)?;
        let epoch = self.bindings[slot].epoch;
        Some(Binding { slot, epoch })
    }

    /// Whether the binding is the current one of its server.
    pub fn is_current(&self, binding: Binding) -> bool {
        self.bindings
            .get(binding.slot)
            .is_some_and(|bound| bound.epoch == binding.epoch)
    }

    /// Somebody wants the session of this key. A live one is had, busy or not; a creation under way is joined; else one
    /// is begun if a slot is free or idle, and `opening` makes what is kept of it. Nobody overtakes those who wait.
    pub fn admit(
        &mut self,
        now: Timestamp,
        key: &K,
        binding: Binding,
        want: Want,
        opening: impl FnOnce(SessionId) -> O,
    ) -> Result<Admission, Refusal> {
        self.tick(now);
        step();
        let known = self.keys.get(key).copied();
        let current = self.is_current(binding)
            && match known {
                Some(slot) => self.nodes[slot].binding == binding.slot,
                None => self.is_of(binding.slot, key),
            };
        if !current {
            self.tally.stale += 1;
            return Err(Refusal::Stale);
        }
        let admitted = match known {
            Some(slot) if self.nodes[slot].opening.is_some() => self.join(slot, want),
            Some(slot) => self.reuse(slot, want),
            None => self.create(key, binding.slot, want, opening),
        };
        if let Err(refusal) = admitted {
            match refusal {
                Refusal::Saturated { .. } => self.tally.saturated += 1,
                _ => self.tally.refused += 1,
            }
            self.tell(|| Event::Refused { key: key.clone() });
        }
        admitted
    }

    /// Begins a call on the session of this key if it is live and may have one more, as [`admit`](Self::admit) does.
    /// `None` says nothing of why not, and nothing happened then.
    pub fn call_live(&mut self, now: Timestamp, key: &K, binding: Binding) -> Option<SessionId> {
        self.tick(now);
        step();
        let slot = *self.keys.get(key)?;
        let node = &self.nodes[slot];
        let live = node.opening.is_none();
        let current = node.binding == binding.slot && self.is_current(binding);
        if !(live && current && self.has_place(slot).is_ok()) {
            return None;
        }
        let id = node.id;
        self.pin_slot(slot);
        self.tally.reused += 1;
        Some(id)
    }

    fn reuse(&mut self, slot: u32, want: Want) -> Result<Admission, Refusal> {
        let id = self.nodes[slot].id;
        match want.purpose {
            Purpose::Call => {
                if let Err(calls) = self.has_place(slot) {
                    return self.take_turn(slot, want, calls);
                }
                self.pin_slot(slot);
            }
            Purpose::Look => {
                let node = &mut self.nodes[slot];
                node.stamp = self.now;
                if node.pins == 0 {
                    self.idle_no_more(slot);
                    self.idle_from_now(slot);
                }
            }
            Purpose::WarmUp => {}
        }
        self.tally.reused += 1;
        Ok(Admission::Live(id))
    }

    fn join(&mut self, slot: u32, want: Want) -> Result<Admission, Refusal> {
        let node = &self.nodes[slot];
        let id = node.id;
        if node.queued && !want.patient {
            let refusal = self.has_room(node.binding).err();
            return Err(refusal.unwrap_or_else(|| Refusal::Full(self.full())));
        }
        if want.purpose == Purpose::Call {
            if let Err(calls) = self.has_place(slot) {
                return self.take_turn(slot, want, calls);
            }
        }
        self.tally.joined += 1;
        self.pin_slot(slot);
        let node = &mut self.nodes[slot];
        node.patient &= want.patient;
        node.modest &= want.purpose == Purpose::WarmUp;
        Ok(Admission::Joined(id))
    }

    fn take_turn(&mut self, slot: u32, want: Want, calls: usize) -> Result<Admission, Refusal> {
        if !want.patient {
            return Err(Refusal::Saturated { calls });
        }
        let id = self.nodes[slot].id;
        Ok(Admission::Turn(self.wait_turn(slot), id))
    }

    fn create(
        &mut self,
        key: &K,
        binding: u32,
        want: Want,
        opening: impl FnOnce(SessionId) -> O,
    ) -> Result<Admission, Refusal> {
        let overtakes = self.would_overtake(binding);
        let queues = want.patient && (overtakes || !self.has_unclaimed_room(binding));
        if !queues {
            self.has_room(binding)?;
            let slot_is_free = self.has_free_slot(binding);
            if overtakes || (want.purpose == Purpose::WarmUp && !slot_is_free) {
                return Err(Refusal::Full(self.full()));
            }
        }
        self.tally.started += 1;
        let id = self.start(key.clone(), binding, want, opening);
        if queues {
            self.enqueue(id.slot);
            return Ok(Admission::Queued(id));
        }
        self.touched(binding);
        self.tell(|| Event::Opening {
            id,
            key: key.clone(),
        });
        Ok(Admission::Started(id))
    }

    /// The turn of this creation has come: may it still open? If every slot became busy meanwhile it ends here, or goes
    /// back to those who wait if all who want it are patient.
    pub fn readmit(&mut self, id: SessionId) -> Readmission<O> {
        let Some(slot) = self.opening_slot(id) else {
            return Readmission::Gone;
        };
        if self.nodes[slot].queued {
            return Readmission::Queued;
        }
        let Err(refusal) = self.has_room(self.nodes[slot].binding) else {
            return Readmission::Open;
        };
        if self.nodes[slot].patient {
            self.nodes[slot].served = true;
            self.enqueue(slot);
            return Readmission::Queued;
        }
        self.tally.refused += 1;
        let retired = self.remove(slot, Why::NoSlot);
        self.serve();
        match retired.opening {
            Some(opening) => Readmission::Full(refusal, opening),
            None => Readmission::Gone,
        }
    }

    /// The creation opened its session: it gets a slot now, if need be that of the least recently used idle session (of
    /// its own server, if that has all it may have). It is pinned for all who wait, before anything else can evict it.
    pub fn promote(&mut self, now: Timestamp, id: SessionId, session: S) -> Promotion<K, O, S> {
        self.tick(now);
        let Some(slot) = self.opening_slot(id) else {
            return Promotion::Gone { session };
        };
        if self.nodes[slot].queued {
            self.dequeue(slot);
        }
        let node = &self.nodes[slot];
        let (binding, modest) = (node.binding, node.modest);
        let mut room = self.has_room(binding);
        if modest && !self.has_free_slot(binding) {
            room = Err(Refusal::Full(self.full()));
        }
        if let Err(refusal) = room {
            self.tally.refused_late += 1;
            let retired = self.remove(slot, Why::NoSlot);
            self.serve();
            return match retired.opening {
                Some(opening) => Promotion::Full {
                    refusal,
                    opening,
                    session,
                },
                None => Promotion::Gone { session },
            };
        }
        let bound = &self.bindings[binding];
        let most = self.rules.sessions_per_server;
        let idle = if most.is_some_and(|most| bound.live >= most) {
            bound.idle.front()
        } else if self.live >= self.rules.capacity {
            self.idle.front()
        } else {
            None
        };
        let victim = idle.map(|idle| {
            self.tally.displaced += 1;
            self.remove(idle, Why::Displaced)
        });
        self.tally.opened += 1;
        self.live += 1;
        self.bindings[binding].live += 1;
        let node = &mut self.nodes[slot];
        node.session = Some(session);
        node.stamp = self.now;
        node.born = self.now;
        if self.rules.max_lifetime.is_some() {
            self.by_age.push_back(&mut self.nodes, slot);
        }
        self.touched(binding);
        if self.observed {
            let key = self.nodes[slot].key.clone();
            self.tell(|| Event::Opened { id, key });
        }
        self.serve();
        Promotion::Promoted { victim }
    }

    /// The promoted session may be handed out: from now on it is met as live. Returns what was kept of the opening, or
    /// `None` if the session was detached meanwhile.
    pub fn arrived(&mut self, id: SessionId) -> Option<O> {
        let slot = self.slot(id)?;
        let node = &mut self.nodes[slot];
        node.session.as_ref()?;
        node.opening.take()
    }

    /// The creation ended without a session. Returns what was kept of it, or `None` if it is no more.
    pub fn fail(&mut self, id: SessionId) -> Option<O> {
        let slot = self.opening_slot(id)?;
        self.tally.failed += 1;
        let opening = self.remove(slot, Why::Failed).opening;
        self.serve();
        opening
    }

    /// A call begins on this very session, if it is still pooled and may have one more. If it has begun it must be
    /// followed by one [`leave`](Self::leave).
    pub fn begin(&mut self, now: Timestamp, id: SessionId) -> Begin {
        self.tick(now);
        let slot = self.slot(id).filter(|slot| {
            let node = &self.nodes[*slot];
            node.session.is_some() && node.drain.is_none()
        });
        let Some(slot) = slot else {
            return Begin::Detached;
        };
        if let Err(calls) = self.has_place(slot) {
            self.tally.saturated += 1;
            return Begin::Saturated(calls);
        }
        self.pin_slot(slot);
        Begin::Begun
    }

    /// The session, for somebody who pinned it, and whether this is the first time that it is given to anybody.
    /// `None` if it is detached, or not open yet.
    pub fn give(&mut self, id: SessionId) -> Option<(&S, bool)> {
        let slot = self.slot(id)?;
        let node = &mut self.nodes[slot];
        let session = node.session.as_ref()?;
        let first = !std::mem::replace(&mut node.given, true);
        Some((session, first))
    }

    /// The opening, if the creation is under way or its session was not handed out yet.
    pub fn opening_of(&self, id: SessionId) -> Option<&O> {
        self.nodes[self.slot(id)?].opening.as_ref()
    }

    /// Whether this session is live (arriving or handed out).
    pub fn is_live(&self, id: SessionId) -> bool {
        self.slot(id)
            .is_some_and(|slot| self.nodes[slot].session.is_some())
    }

    /// What this session is pooled under, if it still is.
    pub fn key_of(&self, id: SessionId) -> Option<&K> {
        Some(&self.nodes[self.slot(id)?].key)
    }

    /// A call ended, or somebody waits no more: takes back one pin of this very session, and of no other. If it was the
    /// last one of a creation, the creation is given up and returned; if it was that of a draining session, that is.
    pub fn leave(&mut self, now: Timestamp, id: SessionId) -> Option<Retired<K, O, S>> {
        self.tick(now);
        let slot = self.slot(id)?;
        let node = &mut self.nodes[slot];
        debug_assert!(node.pins > 0, "a pin is taken back once");
        node.pins = node.pins.saturating_sub(1);
        node.stamp = self.now;
        if !node.turns.is_empty() {
            self.give_turns(slot);
        }
        let node = &self.nodes[slot];
        if node.pins > 0 {
            return None;
        }
        let retired = if node.session.is_none() {
            self.tally.abandoned += 1;
            self.remove(slot, Why::Abandoned)
        } else if node.drain.is_some() {
            let why = self.count_drained(slot);
            self.remove(slot, why)
        } else {
            let binding = node.binding;
            self.idle_from_now(slot);
            self.touched(binding);
            self.serve();
            return None;
        };
        self.serve();
        Some(retired)
    }

    /// The session is dead. Another one under the same key is not touched.
    pub fn evict(&mut self, id: SessionId) -> Option<Retired<K, O, S>> {
        let slot = self
            .slot(id)
            .filter(|slot| self.nodes[*slot].session.is_some())?;
        self.tally.evicted += 1;
        let retired = self.remove(slot, Why::Dead);
        self.serve();
        Some(retired)
    }

    /// Closes all that is meant, busy or not, sessions and creations alike.
    pub fn close(&mut self, target: Target<'_, K>) -> AllRetired<K, O, S> {
        let meant = self.meant(target);
        let retired: Vec<_> = meant
            .into_iter()
            .map(|slot| self.remove(slot, Why::Closed))
            .collect();
        self.tally.closed += retired.len() as u64;
        self.serve();
        retired
    }

    /// Where all that is meant is.
    fn meant(&self, target: Target<'_, K>) -> Vec<u32> {
        let domain_of = |name| self.domain_names.get(name).map(|slot| &self.domains[*slot]);
        match target {
            Target::Session(key) => {
                step();
                let mut meant: Vec<u32> = self.keys.get(key).copied().into_iter().collect();
                if let Some(draining) = self.draining_keys.get(key) {
                    meant.extend(self.listed(draining));
                }
                meant
            }
            Target::SessionIfCurrent(key, id) => {
                step();
                let slot = self.keys.get(key).copied();
                let slot = slot.filter(|slot| self.nodes[*slot].id == id);
                slot.into_iter().collect()
            }
            Target::Id(id) => self.slot(id).into_iter().collect(),
            Target::Scope(domain, scope) => {
                let scope = domain_of(domain).and_then(|domain| domain.scopes.get(scope));
                scope.map_or_else(Vec::new, |scope| self.listed(&self.scopes[*scope]))
            }
            Target::Server(domain, server) => {
                let binding = domain_of(domain).and_then(|domain| domain.bindings.get(server));
                binding.map_or_else(Vec::new, |slot| self.listed(&self.bindings[*slot].nodes))
            }
            Target::Domain(domain) => {
                domain_of(domain).map_or_else(Vec::new, |domain| self.listed(&domain.nodes))
            }
            Target::All => self.nodes.iter().map(|(slot, _)| slot).collect(),
        }
    }

    fn listed<const LIST: usize>(&self, list: &List<LIST>) -> Vec<u32> {
        std::iter::successors(list.front(), |slot| list.next(&self.nodes, *slot)).collect()
    }

    fn tick(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    fn tell(&mut self, event: impl FnOnce() -> Event<K>) {
        if self.observed {
            self.events.push_back(event());
        }
    }

    fn full(&self) -> Full {
        Full {
            capacity: self.rules.capacity,
            busy: self.busy(),
        }
    }

    /// Whether nothing idle would have to go for a session of this server.
    fn has_free_slot(&self, binding: u32) -> bool {
        let live = self.bindings[binding].live;
        self.live < self.rules.capacity
            && self
                .rules
                .sessions_per_server
                .is_none_or(|most| live < most)
    }

    /// Whether the binding is that of the key's domain and server.
    fn is_of(&self, binding: u32, key: &K) -> bool {
        let bound = &self.bindings[binding];
        bound.server == *key.server() && self.domains[bound.domain].name == *key.domain()
    }

    /// Where the session or creation of this id is, if it is still pooled.
    fn slot(&self, id: SessionId) -> Option<u32> {
        let node = self.nodes.get(id.slot)?;
        (node.id == id).then_some(id.slot)
    }

    /// Where the creation of this id is, if it is still under way.
    fn opening_slot(&self, id: SessionId) -> Option<u32> {
        self.slot(id)
            .filter(|slot| self.nodes[*slot].session.is_none())
    }

    fn pin_slot(&mut self, slot: u32) {
        let node = &mut self.nodes[slot];
        node.pins += 1;
        node.stamp = self.now;
        if node.pins == 1 && node.session.is_some() {
            let binding = node.binding;
            self.idle_no_more(slot);
            self.touched(binding);
        }
    }

    fn idle_from_now(&mut self, slot: u32) {
        self.idle.push_back(&mut self.nodes, slot);
        if self.rules.sessions_per_server.is_some() {
            let binding = self.nodes[slot].binding;
            let idle = &mut self.bindings[binding].idle;
            idle.push_back(&mut self.nodes, slot);
        }
    }

    fn idle_no_more(&mut self, slot: u32) {
        self.idle.remove(&mut self.nodes, slot);
        if self.rules.sessions_per_server.is_some() {
            let binding = self.nodes[slot].binding;
            self.bindings[binding].idle.remove(&mut self.nodes, slot);
        }
    }

    fn start(
        &mut self,
        key: K,
        binding: u32,
        want: Want,
        opening: impl FnOnce(SessionId) -> O,
    ) -> SessionId {
        self.serial += 1;
        let id = SessionId::new(self.serial, self.nodes.next_slot());
        let domain = self.bindings[binding].domain;
        step();
        let scope = match self.domains[domain].scopes.get(key.scope()) {
            Some(scope) => *scope,
            None => {
                let scope = self.scopes.insert(List::new());
                step();
                self.domains[domain]
                    .scopes
                    .insert(key.scope().clone(), scope);
                scope
            }
        };
        let slot = self.nodes.insert(Node {
            id,
            key: key.clone(),
            domain,
            binding,
            scope,
            pins: 1,
            given: false,
            queued: false,
            served: false,
            patient: want.patient,
            modest: want.purpose == Purpose::WarmUp,
            stamp: self.now,
            born: self.now,
            drain: None,
            turns: Turns::new(),
            opening: Some(opening(id)),
            session: None,
        });
        step();
        self.keys.insert(key, slot);
        self.domains[domain].nodes.push_back(&mut self.nodes, slot);
        self.bindings[binding]
            .nodes
            .push_back(&mut self.nodes, slot);
        self.scopes[scope].push_back(&mut self.nodes, slot);
        id
    }

    /// Takes a node out of everything.
    fn remove(&mut self, slot: u32, why: Why) -> Retired<K, O, S> {
        let node = &self.nodes[slot];
        let (domain, binding, scope) = (node.domain, node.binding, node.scope);
        let (live, idle, drain) = (node.session.is_some(), node.pins == 0, node.drain);
        let (queued, waited_for) = (node.queued, !node.turns.is_empty());
        match drain {
            Some(drain) => self.end_drain(slot, drain),
            None => {
                step();
                self.keys.remove(&self.nodes[slot].key);
            }
        }
        if queued {
            self.dequeue(slot);
        }
        if waited_for {
            self.lose_turns(slot, why);
        }
        if live {
            self.live -= 1;
            self.bindings[binding].live -= 1;
            if drain.is_none() && idle {
                self.idle_no_more(slot);
            }
            if drain.is_none() && self.rules.max_lifetime.is_some() {
                self.by_age.remove(&mut self.nodes, slot);
            }
        }
        self.domains[domain].nodes.remove(&mut self.nodes, slot);
        self.bindings[binding].nodes.remove(&mut self.nodes, slot);
        self.scopes[scope].remove(&mut self.nodes, slot);
        let node = self.nodes.remove(slot).expect("a filled slot");
        if self.scopes[scope].is_empty() {
            self.scopes.remove(scope);
            step();
            self.domains[domain].scopes.remove(node.key.scope());
        }
        self.touched(binding);
        let (id, key) = (node.id, node.key);
        self.tell(|| Event::Retired {
            id,
            key: key.clone(),
            why,
        });
        Retired {
            id,
            key,
            why,
            opening: node.opening,
            session: node.session,
        }
    }

    fn domain_slot(&mut self, name: &K::Domain) -> u32 {
        if let Some(slot) = self.domain_names.get(name) {
            return *slot;
        }
        let slot = self.domains.insert(Domain {
            name: name.clone(),
            bindings: HashMap::new(),
            scopes: HashMap::new(),
            nodes: List::new(),
        });
        self.domain_names.insert(name.clone(), slot);
        slot
    }

    /// Domains come and go with their servers, so that one domain per person does not pile up.
    fn forget_if_empty(&mut self, domain: u32) {
        if self.domains[domain].bindings.is_empty() {
            let name = &self.domains[domain].name;
            self.domain_names.remove(name);
            self.domains.remove(domain);
        }
    }

    fn bind(
        &mut self,
        domain: u32,
        server: &K::Server,
        fingerprint: Fingerprint,
    ) -> (Binding, Change, AllRetired<K, O, S>) {
        let known = self.domains[domain].bindings.get(server).copied();
        if let Some(slot) = known {
            let bound = &self.bindings[slot];
            if bound.fingerprint == fingerprint {
                let epoch = bound.epoch;
                return (Binding { slot, epoch }, Change::None, Vec::new());
            }
        }
        self.epoch += 1;
        let epoch = self.epoch;
        let Some(slot) = known else {
            let slot = self.bindings.insert(Bound {
                domain,
                server: server.clone(),
                epoch,
                fingerprint,
                nodes: List::new(),
                live: 0,
                idle: List::new(),
                queue: List::new(),
                ready: None,
            });
            self.domains[domain].bindings.insert(server.clone(), slot);
            return (Binding { slot, epoch }, Change::Added, Vec::new());
        };
        let retired = self.retire_binding(slot);
        let bound = &mut self.bindings[slot];
        bound.epoch = epoch;
        bound.fingerprint = fingerprint;
        (Binding { slot, epoch }, Change::Changed, retired)
    }

    fn unbind(&mut self, domain: u32, server: &K::Server) -> Option<AllRetired<K, O, S>> {
        let binding = self.domains[domain].bindings.remove(server)?;
        let retired = self.retire_binding(binding);
        self.bindings.remove(binding);
        Some(retired)
    }

    fn retire_binding(&mut self, slot: u32) -> AllRetired<K, O, S> {
        let meant = self.listed(&self.bindings[slot].nodes);
        let retired: Vec<_> = meant
            .into_iter()
            .map(|slot| self.remove(slot, Why::Rebound))
            .collect();
        self.tally.rebound += retired.len() as u64;
        retired
    }
}

/// What [`Registry::bind`] did.
enum Change {
    Added,
    Changed,
    None,
}

impl<K: PoolKey, O, S> std::fmt::Debug for Registry<K, O, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("rules", &self.rules)
            .field("live", &self.live())
            .field("busy", &self.busy())
            .field("opening", &self.opening())
            .finish_non_exhaustive()
    }
}
