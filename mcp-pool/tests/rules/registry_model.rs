//! Random histories of the registry beside a model of it that is too simple to be wrong.

use std::collections::HashMap;

use mcp_pool::{
    Binding, SessionId,
    registry::{Admission, Full, Promotion, Refusal, Registry, Retired, Target},
};

use crate::fake::Key;

/// SplitMix64: small, seeded, good enough to wander about.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    pub(crate) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// What is kept of an opening and of a session, for the sake of the test: a number that tells whose it is.
type Tag = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Arriving,
    Live,
}

#[derive(Debug, Clone)]
struct Entry {
    id: SessionId,
    tag: Tag,
    key: Key,
    state: State,
    pins: usize,
    given: bool,
    /// When it was got or released last.
    used: usize,
}

/// Everything in one list, looked through from the beginning each time.
struct Model {
    capacity: usize,
    entries: Vec<Entry>,
    /// Fingerprint and binding.
    bindings: HashMap<(&'static str, &'static str), (u64, Binding)>,
    now: usize,
}

impl Model {
    fn find(&mut self, id: SessionId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    fn live(&self) -> usize {
        let live = |entry: &&Entry| entry.state != State::Opening;
        self.entries.iter().filter(live).count()
    }

    fn idle(&self) -> Vec<&Entry> {
        let idle = |entry: &&Entry| entry.state != State::Opening && entry.pins == 0;
        let mut idle: Vec<_> = self.entries.iter().filter(idle).collect();
        idle.sort_by_key(|entry| entry.used);
        idle
    }

    fn full(&self) -> Full {
        Full {
            capacity: self.capacity,
            busy: self.live() - self.idle().len(),
        }
    }

    fn has_room(&self) -> bool {
        self.live() < self.capacity || !self.idle().is_empty()
    }

    /// Takes out whatever is meant, and says what should come out of the registry for it.
    fn take(&mut self, meant: impl Fn(&Entry) -> bool) -> Vec<Retired<Tag, Tag>> {
        let (gone, kept) = self.entries.drain(..).partition(|entry| meant(entry));
        self.entries = kept;
        let gone: Vec<Entry> = gone;
        gone.into_iter()
            .map(|entry| Retired {
                id: entry.id,
                opening: (entry.state != State::Live).then_some(entry.tag),
                session: (entry.state != State::Opening).then_some(entry.tag),
            })
            .collect()
    }
}

fn sorted(mut retired: Vec<Retired<Tag, Tag>>) -> Vec<Retired<Tag, Tag>> {
    retired.sort_by_key(|retired| retired.id);
    retired
}

const DOMAINS: [&str; 2] = ["deployment", "personal"];
const SERVERS: [&str; 2] = ["files", "browser"];
const SCOPES: [&str; 3] = ["a", "b", "c"];

struct History {
    random: Random,
    registry: Registry<Key, Tag, Tag>,
    model: Model,
    /// Ids that were ever heard of, dead ones too.
    ids: Vec<SessionId>,
    /// Bindings that were ever had.
    had: Vec<Binding>,
    pins: Vec<SessionId>,
    next_tag: Tag,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let capacity = [0, 1, 1, 2, 2, 3, 4, 5][random.below(8)];
        Self {
            random,
            registry: Registry::new(capacity),
            model: Model {
                capacity,
                entries: Vec::new(),
                bindings: HashMap::new(),
                now: 0,
            },
            ids: Vec::new(),
            had: Vec::new(),
            pins: Vec::new(),
            next_tag: 0,
        }
    }

    fn key(&mut self) -> Key {
        let random = &mut self.random;
        Key {
            domain: *random.one_of(&DOMAINS),
            server: *random.one_of(&SERVERS),
            scope: *random.one_of(&SCOPES),
        }
    }

    /// Mostly the one that is there, so that something happens; else any that was ever heard of.
    fn id(&mut self) -> Option<SessionId> {
        if self.random.below(4) > 0 && !self.model.entries.is_empty() {
            return Some(self.random.one_of(&self.model.entries).id);
        }
        (!self.ids.is_empty()).then(|| *self.random.one_of(&self.ids))
    }

    fn step(&mut self) {
        self.model.now += 1;
        match self.random.below(64) {
            0..=1 => self.ensure_binding(),
            2 => self.reconcile(),
            3 => self.close(),
            4..=5 => self.evict(),
            6..=22 => self.admit(),
            23..=26 => self.pin(),
            27..=42 => self.leave(),
            43 => self.readmit(),
            44..=45 => self.fail(),
            46..=54 => self.promote(),
            55..=61 => self.arrived(),
            _ => self.give(),
        }
        self.agree();
    }

    /// What can be seen of the registry at any time.
    fn agree(&self) {
        let Self {
            registry, model, ..
        } = self;
        assert_eq!(registry.live(), model.live());
        assert!(registry.live() <= model.capacity);
        assert_eq!(registry.busy(), model.live() - model.idle().len());
        assert_eq!(registry.opening(), model.entries.len() - model.live());
        for domain in DOMAINS {
            for server in SERVERS {
                let bound = model.bindings.get(&(domain, server)).map(|bound| bound.1);
                assert_eq!(registry.binding(&domain, &server), bound);
            }
        }
        for id in &self.ids {
            let entry = model.entries.iter().find(|entry| entry.id == *id);
            let state = entry.map(|entry| entry.state);
            assert_eq!(
                registry.is_live(*id),
                matches!(state, Some(State::Arriving | State::Live))
            );
            assert_eq!(
                registry.opening_of(*id).copied(),
                entry
                    .filter(|entry| entry.state != State::Live)
                    .map(|entry| entry.tag)
            );
        }
    }

    fn ensure_binding(&mut self) {
        let key = self.key();
        let fingerprint = self.random.below(3) as u64;
        let (binding, retired) =
            self.registry
                .ensure_binding(&key.domain, &key.server, fingerprint.into());
        let expected = self.bind(&key, fingerprint, binding);
        assert_eq!(sorted(retired), sorted(expected));
    }

    /// The model's side of a binding.
    fn bind(&mut self, key: &Key, fingerprint: u64, binding: Binding) -> Vec<Retired<Tag, Tag>> {
        let known = self.model.bindings.get(&(key.domain, key.server)).copied();
        if let Some((old, same)) = known {
            if old == fingerprint {
                assert_eq!(binding, same);
                return Vec::new();
            }
        }
        assert!(
            self.had.iter().all(|had| had.epoch() < binding.epoch()),
            "epochs rise and never repeat"
        );
        self.had.push(binding);
        self.model
            .bindings
            .insert((key.domain, key.server), (fingerprint, binding));
        self.model
            .take(|entry| entry.key.domain == key.domain && entry.key.server == key.server)
    }

    fn reconcile(&mut self) {
        let domain = *self.random.one_of(&DOMAINS);
        let servers: Vec<_> = SERVERS
            .into_iter()
            .filter(|_| self.random.below(3) > 0)
            .collect();
        let fingerprint = self.random.below(2) as u64;
        let wanted = servers.iter().map(|server| (*server, fingerprint.into()));
        let (changes, retired) = self.registry.reconcile_bindings(&domain, wanted);
        let mut expected = Vec::new();
        for (server, binding) in &changes.bindings {
            let known = self.model.bindings.get(&(domain, *server)).copied();
            let list = match known {
                None => &changes.added,
                Some((old, _)) if old == fingerprint => &changes.unchanged,
                Some(_) => &changes.changed,
            };
            assert!(list.contains(server));
            let key = Key::new(domain, *server, "");
            expected.extend(self.bind(&key, fingerprint, *binding));
        }
        for server in SERVERS {
            let gone = !servers.contains(&server)
                && self.model.bindings.remove(&(domain, server)).is_some();
            assert_eq!(changes.removed.contains(&server), gone);
            if gone {
                let meant = |e: &Entry| e.key.domain == domain && e.key.server == server;
                expected.extend(self.model.take(meant));
            }
        }
        assert_eq!(sorted(retired), sorted(expected));
    }

    fn admit(&mut self) {
        let key = self.key();
        let current = self.model.bindings.get(&(key.domain, key.server));
        let current = current.map(|bound| bound.1);
        let binding = match current {
            Some(binding) if self.random.below(8) > 0 => binding,
            _ if self.had.is_empty() => return,
            _ => *self.random.one_of(&self.had),
        };
        self.next_tag += 1;
        let tag = self.next_tag;
        let admission = self.registry.admit(&key, binding, |_| tag);
        let now = self.model.now;
        let has_room = self.model.has_room();
        let full = self.model.full();
        let known = self.model.entries.iter_mut().find(|e| e.key == key);
        match (current == Some(binding), known) {
            (false, _) => assert_eq!(admission, Err(Refusal::Stale)),
            (true, Some(entry)) if entry.state == State::Live => {
                assert_eq!(admission, Ok(Admission::Live(entry.id)));
                entry.used = now;
            }
            (true, Some(entry)) => {
                assert_eq!(admission, Ok(Admission::Joined(entry.id)));
                entry.pins += 1;
                self.pins.push(entry.id);
            }
            (true, None) if !has_room => assert_eq!(admission, Err(Refusal::Full(full))),
            (true, None) => {
                let Ok(Admission::Started(id)) = admission else {
                    panic!("{admission:?} where a creation was to begin");
                };
                assert!(
                    self.ids.iter().all(|old| *old < id),
                    "ids are not used again"
                );
                self.ids.push(id);
                self.pins.push(id);
                self.model.entries.push(Entry {
                    id,
                    tag,
                    key,
                    state: State::Opening,
                    pins: 1,
                    given: false,
                    used: now,
                });
            }
        }
    }

    fn pin(&mut self) {
        let Some(id) = self.id() else { return };
        let entry = self.model.find(id);
        let entry = entry.filter(|entry| entry.state != State::Opening);
        assert_eq!(self.registry.pin(id), entry.is_some());
        if let Some(entry) = entry {
            entry.pins += 1;
            self.pins.push(id);
        }
    }

    /// The end of a call or of a wait, be its session still there or not.
    fn leave(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let which = self.random.below(self.pins.len());
        let id = self.pins.swap_remove(which);
        let now = self.model.now;
        let retired = self.registry.leave(id);
        let Some(entry) = self.model.find(id) else {
            return assert_eq!(retired, None);
        };
        entry.pins -= 1;
        if entry.pins == 0 {
            entry.used = now;
        }
        let abandoned = entry.pins == 0 && entry.state == State::Opening;
        let expected = self.model.take(|entry| abandoned && entry.id == id).pop();
        assert_eq!(retired, expected);
    }

    fn readmit(&mut self) {
        let Some(id) = self.id() else { return };
        let readmitted = self.registry.readmit(id);
        let (has_room, full) = (self.model.has_room(), self.model.full());
        match self.model.find(id).map(|entry| (entry.state, entry.tag)) {
            Some((State::Opening, _)) if has_room => assert_eq!(readmitted, Some(Ok(()))),
            Some((State::Opening, tag)) => {
                assert_eq!(readmitted, Some(Err((full, tag))));
                self.model.take(|entry| entry.id == id);
            }
            _ => assert_eq!(readmitted, None),
        }
    }

    fn fail(&mut self) {
        let Some(id) = self.id() else { return };
        let opening = |entry: &Entry| entry.id == id && entry.state == State::Opening;
        let expected = self.model.take(opening).pop();
        let expected = expected.and_then(|retired| retired.opening);
        assert_eq!(self.registry.fail(id), expected);
    }

    fn promote(&mut self) {
        let Some(id) = self.id() else { return };
        let entry = self.model.find(id).cloned();
        let Some(entry) = entry.filter(|entry| entry.state == State::Opening) else {
            let session = 0;
            let promotion = self.registry.promote(id, session);
            return assert_eq!(promotion, Promotion::Gone { session });
        };
        let promotion = self.registry.promote(id, entry.tag);
        let full = self.model.full();
        if !self.model.has_room() {
            self.model.take(|entry| entry.id == id);
            let (opening, session) = (entry.tag, entry.tag);
            let expected = Promotion::Full {
                full,
                opening,
                session,
            };
            return assert_eq!(promotion, expected);
        }
        let mut victim = None;
        if self.model.live() == self.model.capacity {
            let oldest = self.model.idle()[0].id;
            victim = self.model.take(|entry| entry.id == oldest).pop();
        }
        assert_eq!(promotion, Promotion::Promoted { victim });
        self.model.find(id).expect("it is there").state = State::Arriving;
    }

    fn arrived(&mut self) {
        let Some(id) = self.id() else { return };
        let arriving = self.model.find(id);
        let arriving = arriving.filter(|entry| entry.state == State::Arriving);
        let expected = arriving.as_ref().map(|entry| entry.tag);
        if let Some(entry) = arriving {
            entry.state = State::Live;
        }
        assert_eq!(self.registry.arrived(id), expected);
    }

    fn give(&mut self) {
        let Some(id) = self.id() else { return };
        let given = self
            .registry
            .give(id)
            .map(|(session, first)| (*session, first));
        let entry = self.model.find(id);
        let entry = entry.filter(|entry| entry.state != State::Opening);
        let expected = entry.map(|entry| (entry.tag, !std::mem::replace(&mut entry.given, true)));
        assert_eq!(given, expected);
    }

    fn evict(&mut self) {
        let Some(id) = self.id() else { return };
        let meant = |entry: &Entry| entry.id == id && entry.state != State::Opening;
        let expected = self.model.take(meant).pop();
        assert_eq!(self.registry.evict(id), expected);
    }

    fn close(&mut self) {
        let key = self.key();
        let id = self.id();
        let (retired, expected) = match self.random.below(8) {
            0 => (self.registry.close(Target::All), self.model.take(|_| true)),
            1 => (
                self.registry.close(Target::Domain(&key.domain)),
                self.model.take(|entry| entry.key.domain == key.domain),
            ),
            2..=3 => (
                self.registry
                    .close(Target::Server(&key.domain, &key.server)),
                self.model
                    .take(|entry| entry.key.domain == key.domain && entry.key.server == key.server),
            ),
            4..=5 => (
                self.registry.close(Target::Scope(&key.domain, &key.scope)),
                self.model
                    .take(|entry| entry.key.domain == key.domain && entry.key.scope == key.scope),
            ),
            6 => (
                self.registry.close(Target::Session(&key)),
                self.model.take(|entry| entry.key == key),
            ),
            _ => {
                let Some(id) = id else { return };
                (
                    self.registry.close(Target::SessionIfCurrent(&key, id)),
                    self.model.take(|entry| entry.key == key && entry.id == id),
                )
            }
        };
        assert_eq!(sorted(retired), sorted(expected));
    }
}

#[test]
fn the_registry_does_what_the_model_does_over_random_histories() {
    let mut happened = [0; 12];
    for seed in 0..200 {
        let mut history = History::new(seed);
        for _ in 0..1_000 {
            history.step();
        }
        let tally = history.registry.tally();
        let counts = [
            tally.reused,
            tally.joined,
            tally.opened,
            tally.failed,
            tally.abandoned,
            tally.refused,
            tally.refused_late,
            tally.stale,
            tally.displaced,
            tally.evicted,
            tally.closed,
            tally.rebound,
        ];
        for (sum, count) in happened.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    // It is worth something only if everything happened often.
    assert!(happened.iter().all(|sum| *sum > 250), "{happened:?}");
}
