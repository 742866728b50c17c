//! Which sessions there are, which are busy, and which one has to go: all of the pool's decisions, none of its waiting.
//!
//! The registry knows no clock, no I/O and no threads. It is told what happened and answers at once; what has to be
//! done outside (open, close, tell somebody) is in the answer. Every operation takes the same few steps however many
//! sessions there are; closing and rebinding take them once per session that goes.

use std::collections::{HashMap, HashSet};

use crate::{
    binding::{Binding, Changes, Fingerprint},
    key::{PoolKey, SessionId},
    slab::{List, Slab},
};

/// Links of the idle sessions, least recently used first.
const IDLE: usize = 0;
/// Links of all that belongs to one domain.
const DOMAIN: usize = 1;
/// Links of all that belongs to one binding.
const BINDING: usize = 2;
/// Links of all that belongs to one scope of a domain.
const SCOPE: usize = 3;
const LISTS: usize = 4;

/// A creation under way or a live session: there is at most one of either per key.
///
/// | opening | session | it is |
/// | --- | --- | --- |
/// | some | none | opening: takes no slot |
/// | some | some | arriving: has its slot, but those who wait were not answered yet |
/// | none | some | live |
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
}

/// What the pool decides with. `O` is whatever the caller keeps of an opening, `S` whatever it keeps of a session;
/// the registry looks into neither.
pub struct Registry<K: PoolKey, O, S> {
    capacity: usize,
    live: usize,
    serial: u64,
    epoch: u64,
    keys: HashMap<K, u32>,
    nodes: Slab<Node<K, O, S>, LISTS>,
    idle: List<IDLE>,
    domains: Slab<Domain<K>>,
    domain_names: HashMap<K::Domain, u32>,
    bindings: Slab<Bound<K>>,
    scopes: Slab<List<SCOPE>>,
    tally: Tally,
}

/// How often what was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// A live session was there already.
    pub reused: u64,
    /// A creation was under way already.
    pub joined: u64,
    /// A creation was begun.
    pub started: u64,
    /// A creation ended with a session that took a slot.
    pub opened: u64,
    /// A creation ended with an error or a panic.
    pub failed: u64,
    /// A creation was given up because nobody waited for it any more.
    pub abandoned: u64,
    /// Refused before anything opened, because every slot was busy.
    pub refused: u64,
    /// Refused after it opened, because every slot had become busy meanwhile.
    pub refused_late: u64,
    /// Refused because the binding was not the current one.
    pub stale: u64,
    /// An idle session was closed because its slot was needed.
    pub displaced: u64,
    /// A session was evicted as dead.
    pub evicted: u64,
    /// A session or a creation was closed by an explicit close.
    pub closed: u64,
    /// A session or a creation was detached because its server's configuration changed or went.
    pub rebound: u64,
}

/// The answer to [`Registry::admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The session is live. It is not pinned by this.
    Live(SessionId),
    /// A creation is under way (or its session about to be handed out); the caller is now one of those who wait, and
    /// must [`leave`](Registry::leave) when it waits no more.
    Joined(SessionId),
    /// A creation was begun, as in `Joined`, and is to be opened.
    Started(SessionId),
}

/// Why [`Registry::admit`] refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Every slot is taken by a busy session.
    Full(Full),
    /// The binding is not the current one of the key's domain and server.
    Stale,
}

/// Every slot is taken by a busy session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// How many slots there are.
    pub capacity: usize,
    /// How many of them are taken by busy sessions.
    pub busy: usize,
}

/// The answer to [`Registry::promote`].
#[derive(Debug, PartialEq, Eq)]
pub enum Promotion<O, S> {
    /// The session has a slot. Those who wait are to be answered once [`Registry::arrived`] was called, and that only
    /// when the victim, if there is one, was closed.
    Promoted {
        /// The least recently used idle session, which had to go for it.
        victim: Option<Retired<O, S>>,
    },
    /// Every slot is busy: the session has to be closed and those who wait refused.
    Full {
        /// The numbers for the error.
        full: Full,
        /// What was kept of the opening.
        opening: O,
        /// The session that found no slot.
        session: S,
    },
    /// The creation was closed or given up while it opened: the session has to be closed.
    Gone {
        /// The session that nobody waits for.
        session: S,
    },
}

/// What left the registry: it holds no slot any more, and nothing brings it back.
#[derive(Debug, PartialEq, Eq)]
pub struct Retired<O, S> {
    /// Its name.
    pub id: SessionId,
    /// There if somebody may still wait for the creation: they have to be told, and the opening has to stop.
    pub opening: Option<O>,
    /// There if it was open: it has to be closed.
    pub session: Option<S>,
}

/// What an explicit close closes.
#[derive(Debug)]
pub enum Target<'a, K: PoolKey> {
    /// One scope of a domain, over all servers.
    Scope(&'a K::Domain, &'a K::Scope),
    /// One server of a domain, over all scopes.
    Server(&'a K::Domain, &'a K::Server),
    /// One key, whatever is under it.
    Session(&'a K),
    /// One key, if this very session is under it.
    SessionIfCurrent(&'a K, SessionId),
    /// One domain.
    Domain(&'a K::Domain),
    /// Everything.
    All,
}

/// Everything that left the registry in one step.
pub type AllRetired<O, S> = Vec<Retired<O, S>>;

impl<K: PoolKey, O, S> Registry<K, O, S> {
    /// An empty registry with so many slots for live sessions.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            live: 0,
            serial: 0,
            epoch: 0,
            keys: HashMap::new(),
            nodes: Slab::new(),
            idle: List::new(),
            domains: Slab::new(),
            domain_names: HashMap::new(),
            bindings: Slab::new(),
            scopes: Slab::new(),
            tally: Tally::default(),
        }
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many slots are taken.
    pub fn live(&self) -> usize {
        self.live
    }

    /// How many slots are taken by sessions with a call in flight.
    pub fn busy(&self) -> usize {
        self.live - self.idle.len()
    }

    /// How many creations are under way. They take no slot.
    pub fn opening(&self) -> usize {
        self.nodes.len() - self.live
    }

    /// How often what was decided, since the beginning.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Makes this the configuration of the server. The same again changes nothing; another begins a new binding, and
    /// what belonged to the old one is returned, detached.
    pub fn ensure_binding(
        &mut self,
        domain: &K::Domain,
        server: &K::Server,
        fingerprint: Fingerprint,
    ) -> (Binding, AllRetired<O, S>) {
        let domain = self.domain_slot(domain);
        let (binding, _, retired) = self.bind(domain, server, fingerprint);
        (binding, retired)
    }

    /// Makes these the servers of the domain, and no others. A server is to be given once.
    pub fn reconcile_bindings(
        &mut self,
        domain: &K::Domain,
        servers: impl IntoIterator<Item = (K::Server, Fingerprint)>,
    ) -> (Changes<K::Server>, AllRetired<O, S>) {
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
            let binding = self.domains[domain]
                .bindings
                .remove(&server)
                .expect("a server that was listed");
            all_retired.extend(self.retire_binding(binding));
            self.bindings.remove(binding);
            changes.removed.push(server);
        }
        self.forget_if_empty(domain);
        (changes, all_retired)
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
    /// is begun if a slot is free or idle, and `opening` makes what is kept of it.
    pub fn admit(
        &mut self,
        key: &K,
        binding: Binding,
        opening: impl FnOnce(SessionId) -> O,
    ) -> Result<Admission, Refusal> {
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
        if let Some(slot) = known {
            let node = &mut self.nodes[slot];
            let id = node.id;
            if node.opening.is_some() {
                self.tally.joined += 1;
                self.pin_slot(slot);
                return Ok(Admission::Joined(id));
            }
            self.tally.reused += 1;
            if node.pins == 0 {
                self.idle.remove(&mut self.nodes, slot);
                self.idle.push_back(&mut self.nodes, slot);
            }
            return Ok(Admission::Live(id));
        }
        if let Err(full) = self.has_room() {
            self.tally.refused += 1;
            return Err(Refusal::Full(full));
        }
        self.tally.started += 1;
        Ok(Admission::Started(self.start(
            key.clone(),
            binding.slot,
            opening,
        )))
    }

    /// The turn of this creation has come: may it still open? If every slot became busy meanwhile it ends here.
    ///
    /// `None` if the creation is no more.
    pub fn readmit(&mut self, id: SessionId) -> Option<Result<(), (Full, O)>> {
        let slot = self.opening_slot(id)?;
        let Err(full) = self.has_room() else {
            return Some(Ok(()));
        };
        self.tally.refused += 1;
        let opening = self.remove(slot).opening?;
        Some(Err((full, opening)))
    }

    /// The creation opened its session: it gets a slot now, if need be that of the least recently used idle session.
    /// It is pinned for all who wait, before anything else can evict it.
    pub fn promote(&mut self, id: SessionId, session: S) -> Promotion<O, S> {
        let Some(slot) = self.opening_slot(id) else {
            return Promotion::Gone { session };
        };
        let mut victim = None;
        if self.live >= self.capacity {
            match self.idle.front() {
                Some(idle) => {
                    self.tally.displaced += 1;
                    victim = Some(self.remove(idle));
                }
                None => {
                    self.tally.refused_late += 1;
                    let full = self.full();
                    let retired = self.remove(slot);
                    return match retired.opening {
                        Some(opening) => Promotion::Full {
                            full,
                            opening,
                            session,
                        },
                        None => Promotion::Gone { session },
                    };
                }
            }
        }
        self.tally.opened += 1;
        self.live += 1;
        self.nodes[slot].session = Some(session);
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
        self.remove(slot).opening
    }

    /// A call begins on this very session, if it is still pooled. Must be followed by one [`leave`](Self::leave).
    pub fn pin(&mut self, id: SessionId) -> bool {
        let slot = self
            .slot(id)
            .filter(|slot| self.nodes[*slot].session.is_some());
        if let Some(slot) = slot {
            self.pin_slot(slot);
        }
        slot.is_some()
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

    /// A call ended, or somebody waits no more: takes back one pin of this very session, and of no other. If it was the
    /// last one of a creation, the creation is given up and returned.
    pub fn leave(&mut self, id: SessionId) -> Option<Retired<O, S>> {
        let slot = self.slot(id)?;
        let node = &mut self.nodes[slot];
        debug_assert!(node.pins > 0, "a pin is taken back once");
        node.pins = node.pins.saturating_sub(1);
        if node.pins > 0 {
            return None;
        }
        if node.session.is_some() {
            self.idle.push_back(&mut self.nodes, slot);
            return None;
        }
        self.tally.abandoned += 1;
        Some(self.remove(slot))
    }

    /// The session is dead. Another one under the same key is not touched.
    pub fn evict(&mut self, id: SessionId) -> Option<Retired<O, S>> {
        let slot = self
            .slot(id)
            .filter(|slot| self.nodes[*slot].session.is_some())?;
        self.tally.evicted += 1;
        Some(self.remove(slot))
    }

    /// Closes all that is meant, busy or not, sessions and creations alike.
    pub fn close(&mut self, target: Target<'_, K>) -> AllRetired<O, S> {
        let retired = match target {
            Target::Session(key) => {
                let slot = self.keys.get(key).copied();
                slot.map(|slot| self.remove(slot)).into_iter().collect()
            }
            Target::SessionIfCurrent(key, id) => {
                let slot = self.keys.get(key).copied();
                slot.filter(|slot| self.nodes[*slot].id == id)
                    .map(|slot| self.remove(slot))
                    .into_iter()
                    .collect()
            }
            Target::Scope(domain, scope) => self.drain(|registry| {
                let domain = *registry.domain_names.get(domain)?;
                let scope = *registry.domains[domain].scopes.get(scope)?;
                registry.scopes[scope].front()
            }),
            Target::Server(domain, server) => match self.binding(domain, server) {
                Some(binding) => {
                    self.drain(|registry| registry.bindings[binding.slot].nodes.front())
                }
                None => Vec::new(),
            },
            Target::Domain(domain) => match self.domain_names.get(domain).copied() {
                Some(domain) => self.drain(|registry| registry.domains[domain].nodes.front()),
                None => Vec::new(),
            },
            Target::All => {
                let domains: Vec<u32> = self.domain_names.values().copied().collect();
                domains
                    .into_iter()
                    .flat_map(|domain| {
                        self.drain(|registry| registry.domains[domain].nodes.front())
                    })
                    .collect()
            }
        };
        self.tally.closed += retired.len() as u64;
        retired
    }

    fn full(&self) -> Full {
        Full {
            capacity: self.capacity,
            busy: self.busy(),
        }
    }

    fn has_room(&self) -> Result<(), Full> {
        if self.live < self.capacity || !self.idle.is_empty() {
            Ok(())
        } else {
            Err(self.full())
        }
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
        if node.pins == 1 && node.session.is_some() {
            self.idle.remove(&mut self.nodes, slot);
        }
    }

    fn start(&mut self, key: K, binding: u32, opening: impl FnOnce(SessionId) -> O) -> SessionId {
        self.serial += 1;
        let id = SessionId::new(self.serial, self.nodes.next_slot());
        let domain = self.bindings[binding].domain;
        let scope = match self.domains[domain].scopes.get(key.scope()) {
            Some(scope) => *scope,
            None => {
                let scope = self.scopes.insert(List::new());
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
            opening: Some(opening(id)),
            session: None,
        });
        self.keys.insert(key, slot);
        self.domains[domain].nodes.push_back(&mut self.nodes, slot);
        self.bindings[binding]
            .nodes
            .push_back(&mut self.nodes, slot);
        self.scopes[scope].push_back(&mut self.nodes, slot);
        id
    }

    /// Takes a node out of everything.
    fn remove(&mut self, slot: u32) -> Retired<O, S> {
        let node = &self.nodes[slot];
        let (domain, binding, scope) = (node.domain, node.binding, node.scope);
        if node.session.is_some() {
            self.live -= 1;
            if node.pins == 0 {
                self.idle.remove(&mut self.nodes, slot);
            }
        }
        self.domains[domain].nodes.remove(&mut self.nodes, slot);
        self.bindings[binding].nodes.remove(&mut self.nodes, slot);
        self.scopes[scope].remove(&mut self.nodes, slot);
        let node = self.nodes.remove(slot).expect("a filled slot");
        self.keys.remove(&node.key);
        if self.scopes[scope].is_empty() {
            self.scopes.remove(scope);
            self.domains[domain].scopes.remove(node.key.scope());
        }
        Retired {
            id: node.id,
            opening: node.opening,
            session: node.session,
        }
    }

    /// Removes what `next` points at until there is nothing left.
    fn drain(&mut self, next: impl Fn(&Self) -> Option<u32>) -> AllRetired<O, S> {
        std::iter::from_fn(|| next(self).map(|slot| self.remove(slot))).collect()
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
    ) -> (Binding, Change, AllRetired<O, S>) {
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

    fn retire_binding(&mut self, slot: u32) -> AllRetired<O, S> {
        let retired = self.drain(|registry| registry.bindings[slot].nodes.front());
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
            .field("capacity", &self.capacity)
            .field("live", &self.live())
            .field("busy", &self.busy())
            .field("opening", &self.opening())
            .finish_non_exhaustive()
    }
}
