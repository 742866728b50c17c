//! Random histories of the registry beside a model of it that is too simple to be wrong.

use std::{collections::HashMap, time::Duration};

use mcp_pool::{
    Binding, Event, SessionId, Stage, Timestamp, Why,
    registry::{
        Admission, Begin, Full, Notice, Promotion, Purpose, Readmission, Refusal, Registry, Rules,
        Target, TurnId, Want,
    },
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

type Retired = mcp_pool::registry::Retired<Key, Tag, Tag>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Opening,
    Arriving,
    Live,
    Draining(Why, u64),
}

impl State {
    fn has_slot(self) -> bool {
        !matches!(self, State::Queued | State::Opening)
    }

    fn stage(self, unanswered: bool) -> Stage {
        match self {
            State::Queued => Stage::Waiting,
            State::Opening => Stage::Opening,
            _ if unanswered => Stage::Arriving,
            State::Arriving | State::Live => Stage::Live,
            State::Draining(..) => Stage::Draining,
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    id: SessionId,
    tag: Tag,
    key: Key,
    state: State,
    /// Those who wait were not answered yet.
    opening: bool,
    pins: usize,
    given: bool,
    patient: bool,
    modest: bool,
    turns: Vec<TurnId>,
    /// In which step it was promoted, got or released last.
    used: usize,
    /// At what time that was.
    stamp: u64,
    born: u64,
}

/// Everything in one list, looked through from the beginning each time.
struct Model {
    rules: Rules,
    entries: Vec<Entry>,
    /// Fingerprint and binding.
    bindings: HashMap<(&'static str, &'static str), (u64, Binding)>,
    notices: Vec<Notice>,
    events: Vec<Event<Key>>,
    step: usize,
    now: u64,
}

fn of_server(key: &Key) -> impl Fn(&&Entry) -> bool + use<> {
    let (domain, server) = (key.domain, key.server);
    move |entry| entry.key.domain == domain && entry.key.server == server
}

impl Model {
    fn find(&mut self, id: SessionId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    fn current(&mut self, key: &Key) -> Option<&mut Entry> {
        let drains = |entry: &Entry| matches!(entry.state, State::Draining(..));
        self.entries
            .iter_mut()
            .find(|e| e.key == *key && !drains(e))
    }

    fn count(&self, what: impl Fn(&&Entry) -> bool) -> usize {
        self.entries.iter().filter(what).count()
    }

    fn live(&self) -> usize {
        self.count(|entry| entry.state.has_slot())
    }

    fn idle(&self) -> Vec<&Entry> {
        let idle = |entry: &&Entry| entry.state.has_slot() && entry.pins == 0;
        let mut idle: Vec<_> = self.entries.iter().filter(idle).collect();
        idle.sort_by_key(|entry| entry.used);
        idle
    }

    fn full(&self) -> Refusal {
        Refusal::Full(Full {
            capacity: self.rules.capacity,
            busy: self.live() - self.idle().len(),
        })
    }

    fn live_of(&self, key: &Key) -> usize {
        let server = of_server(key);
        self.count(|entry| server(entry) && entry.state.has_slot())
    }

    fn idle_of(&self, key: &Key) -> Option<SessionId> {
        let server = of_server(key);
        let idle = self.idle().into_iter().find(|entry| server(entry));
        idle.map(|entry| entry.id)
    }

    fn has_room(&self, key: &Key) -> Result<(), Refusal> {
        let live = self.live_of(key);
        if let Some(most) = self.rules.sessions_per_server {
            if live >= most && self.idle_of(key).is_none() {
                let (capacity, busy) = (most, live);
                return Err(Refusal::ServerFull(Full { capacity, busy }));
            }
        }
        if self.live() < self.rules.capacity || !self.idle().is_empty() {
            return Ok(());
        }
        Err(self.full())
    }

    fn has_free_slot(&self, key: &Key) -> bool {
        let most = self.rules.sessions_per_server;
        self.live() < self.rules.capacity && most.is_none_or(|most| self.live_of(key) < most)
    }

    /// Needs a slot, or will.
    fn claims(entry: &Entry) -> bool {
        entry.state == State::Opening || (entry.state.has_slot() && entry.pins > 0)
    }

    fn has_unclaimed_slot(&self) -> bool {
        self.count(|entry| Self::claims(entry)) < self.rules.capacity
    }

    fn server_has_unclaimed(&self, key: &Key) -> bool {
        let server = of_server(key);
        let claims = self.count(|entry| server(entry) && Self::claims(entry));
        let most = self.rules.sessions_per_server;
        most.is_none_or(|most| claims < most)
    }

    fn would_overtake(&self, key: &Key) -> bool {
        let server = of_server(key);
        let mut queued = self.entries.iter().filter(|e| e.state == State::Queued);
        queued.any(|e| server(&e) || self.server_has_unclaimed(&e.key))
    }

    /// The first of those who wait whom an unclaimed slot can serve, until there is none.
    fn serve(&mut self) {
        while self.has_unclaimed_slot() {
            let servable =
                |e: &&Entry| e.state == State::Queued && self.server_has_unclaimed(&e.key);
            let first = self.entries.iter().filter(servable).map(|e| e.id).min();
            let Some(id) = first else { return };
            let entry = self.find(id).expect("it was found");
            entry.state = State::Opening;
            let key = entry.key.clone();
            self.events.push(Event::Opening { id, key });
            self.notices.push(Notice::Open(id));
        }
    }

    fn has_place(&self, pins: usize) -> bool {
        self.rules.calls_per_session.is_none_or(|most| pins < most)
    }

    /// Takes out whatever is meant, and says what should come out of the registry for it.
    fn take(&mut self, why: Why, meant: impl Fn(&Entry) -> bool) -> Vec<Retired> {
        let (gone, kept) = self.entries.drain(..).partition(|entry| meant(entry));
        self.entries = kept;
        let gone: Vec<Entry> = gone;
        for entry in &gone {
            let lost = |turn: &TurnId| Notice::Lost(*turn, entry.id, why);
            self.notices.extend(entry.turns.iter().map(lost));
            let (id, key) = (entry.id, entry.key.clone());
            self.events.push(Event::Retired { id, key, why });
        }
        gone.into_iter()
            .map(|entry| Retired {
                id: entry.id,
                key: entry.key,
                why,
                opening: entry.opening.then_some(entry.tag),
                session: entry.state.has_slot().then_some(entry.tag),
            })
            .collect()
    }

    /// From now on no call begins on it.
    fn let_drain(&mut self, id: SessionId, why: Why, deadline: u64) {
        let entry = self.find(id).expect("it is there");
        match entry.state {
            State::Draining(_, sooner) if sooner <= deadline => return,
            State::Draining(..) => return entry.state = State::Draining(why, deadline),
            _ => entry.state = State::Draining(why, deadline),
        }
        let turns = std::mem::take(&mut entry.turns);
        let key = entry.key.clone();
        self.events.push(Event::Draining { id, key, why });
        let lost = |turn| Notice::Lost(turn, id, why);
        self.notices.extend(turns.into_iter().map(lost));
    }
}

fn sorted(mut retired: Vec<Retired>) -> Vec<Retired> {
    retired.sort_by_key(|retired| retired.id);
    retired
}

/// What is to be opened in order, and the rest in the order of the turns.
fn sorted_notices(notices: Vec<Notice>) -> (Vec<Notice>, Vec<Notice>) {
    let opens = |notice: &Notice| matches!(notice, Notice::Open(_));
    let (opens, mut rest): (Vec<_>, Vec<_>) = notices.into_iter().partition(opens);
    rest.sort_by_key(|notice| match notice {
        Notice::Turn(turn, _) | Notice::Lost(turn, ..) => Some(*turn),
        Notice::Open(_) => None,
    });
    (opens, rest)
}

/// In no order that means anything: several of one step may come in any.
fn sorted_events(events: Vec<Event<Key>>) -> Vec<String> {
    let mut events: Vec<_> = events.iter().map(|event| format!("{event:?}")).collect();
    events.sort();
    events
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
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
    turns: Vec<TurnId>,
    next_tag: Tag,
    happened: Happened,
}

/// What the registry keeps no tally of.
#[derive(Default)]
struct Happened {
    notices: u64,
    impatience: u64,
    cut_drains: u64,
    called_live: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let rules = Rules {
            capacity: [0, 1, 1, 2, 2, 3, 4, 5][random.below(8)],
            sessions_per_server: [None, None, Some(1), Some(2)][random.below(4)],
            calls_per_session: [None, None, Some(1), Some(2)][random.below(4)],
            idle_ttl: [None, Some(Duration::from_nanos(20))][random.below(2)],
            max_lifetime: [None, Some(Duration::from_nanos(60))][random.below(2)],
        };
        let mut registry = Registry::new(rules);
        registry.observe();
        Self {
            random,
            registry,
            model: Model {
                rules,
                entries: Vec::new(),
                bindings: HashMap::new(),
                notices: Vec::new(),
                events: Vec::new(),
                step: 0,
                now: 0,
            },
            ids: Vec::new(),
            had: Vec::new(),
            pins: Vec::new(),
            turns: Vec::new(),
            next_tag: 0,
            happened: Happened::default(),
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
        self.model.step += 1;
        self.model.now += self.random.below(4) as u64;
        match self.random.below(90) {
            0..=1 => self.ensure_binding(),
            2 => self.reconcile(),
            3 => self.close(),
            4..=5 => self.evict(),
            6..=30 => self.admit(),
            31..=34 => self.begin(),
            35..=54 => self.leave(),
            55..=56 => self.readmit(),
            57..=58 => self.fail(),
            59..=66 => self.promote(),
            67..=73 => self.arrived(),
            74 => self.give(),
            75 => self.drain(),
            76..=77 => self.expire(),
            78 => self.cancel_turn(),
            79 => self.lose_patience(),
            _ => self.cut_drain(),
        }
        self.model.serve();
        self.hear();
        self.agree();
    }

    /// Those who waited hear what they should.
    fn hear(&mut self) {
        let notices: Vec<_> = std::iter::from_fn(|| self.registry.next_notice()).collect();
        for notice in &notices {
            match notice {
                Notice::Turn(turn, id) => {
                    self.turns.retain(|waits| waits != turn);
                    self.pins.push(*id);
                }
                Notice::Lost(turn, ..) => self.turns.retain(|waits| waits != turn),
                Notice::Open(_) => {}
            }
        }
        let expected = std::mem::take(&mut self.model.notices);
        self.happened.notices += notices.len() as u64;
        assert_eq!(sorted_notices(notices), sorted_notices(expected));
        let events: Vec<_> = std::iter::from_fn(|| self.registry.next_event()).collect();
        let expected = std::mem::take(&mut self.model.events);
        assert_eq!(sorted_events(events), sorted_events(expected));
    }

    /// What can be seen of the registry at any time.
    fn agree(&self) {
        let Self {
            registry, model, ..
        } = self;
        assert_eq!(registry.live(), model.live());
        assert!(registry.live() <= model.rules.capacity);
        assert_eq!(registry.busy(), model.live() - model.idle().len());
        let waiting = model.count(|entry| entry.state == State::Queued);
        assert_eq!(registry.waiting(), waiting);
        assert_eq!(
            registry.opening(),
            model.entries.len() - model.live() - waiting
        );
        let draining = model.count(|entry| matches!(entry.state, State::Draining(..)));
        assert_eq!(registry.draining(), draining);
        assert_eq!(registry.queued_calls(), self.turns.len());
        assert_eq!(registry.timeout().map(Timestamp::as_nanos), self.timeout());
        self.agree_on_each();
        for domain in DOMAINS {
            for server in SERVERS {
                let bound = model.bindings.get(&(domain, server)).map(|bound| bound.1);
                assert_eq!(registry.binding(&domain, &server), bound);
            }
        }
        for id in &self.ids {
            let entry = model.entries.iter().find(|entry| entry.id == *id);
            let state = entry.map(|entry| entry.state);
            assert_eq!(registry.is_live(*id), state.is_some_and(State::has_slot));
            assert_eq!(
                registry.opening_of(*id).copied(),
                entry.filter(|entry| entry.opening).map(|entry| entry.tag)
            );
        }
    }

    /// What a status page shows.
    fn agree_on_each(&self) {
        let now = self.model.now;
        let snapshot = self.registry.snapshot(at(now));
        assert_eq!(snapshot.counters, self.registry.counters());
        let seen = snapshot.sessions.into_iter();
        let seen = seen.map(|it| {
            (
                it.id,
                it.key,
                it.stage,
                it.calls,
                it.queue,
                it.age,
                it.idle_for,
            )
        });
        let since = |then| Duration::from_nanos(now - then);
        let mut expected: Vec<_> = self.model.entries.iter().collect();
        expected.sort_by_key(|entry| entry.id);
        let expected = expected.into_iter().map(|entry| {
            let live = entry.state.has_slot();
            (
                entry.id,
                entry.key.clone(),
                entry.state.stage(entry.opening),
                entry.pins,
                entry.turns.len(),
                live.then(|| since(entry.born)),
                (live && entry.pins == 0).then(|| since(entry.stamp)),
            )
        });
        assert_eq!(seen.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    fn timeout(&self) -> Option<u64> {
        let Model { rules, entries, .. } = &self.model;
        let nanos = |limit: Duration| limit.as_nanos() as u64;
        let mut times = Vec::new();
        for entry in entries {
            match entry.state {
                State::Draining(_, deadline) => times.push(deadline),
                State::Arriving | State::Live => {
                    times.extend(rules.max_lifetime.map(|most| entry.born + nanos(most)));
                    let idle = rules.idle_ttl.filter(|_| entry.pins == 0);
                    times.extend(idle.map(|most| entry.stamp + nanos(most)));
                }
                State::Queued | State::Opening => {}
            }
        }
        times.into_iter().min().filter(|time| *time < u64::MAX)
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
    fn bind(&mut self, key: &Key, fingerprint: u64, binding: Binding) -> Vec<Retired> {
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
        let meant = of_server(key);
        self.model.take(Why::Rebound, |entry| meant(&entry))
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
                expected.extend(self.model.take(Why::Rebound, meant));
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
        let want = Want {
            purpose: *self.random.one_of(&[
                Purpose::Call,
                Purpose::Call,
                Purpose::Call,
                Purpose::Look,
                Purpose::WarmUp,
            ]),
            patient: self.random.below(2) == 0,
        };
        let (step, now) = (self.model.step, self.model.now);
        if want == Want::CALL && self.random.below(2) == 0 {
            return self.call_live(&key, binding, current == Some(binding));
        }
        let admission = self.registry.admit(at(now), &key, binding, want, |_| tag);
        if current != Some(binding) {
            return assert_eq!(admission, Err(Refusal::Stale));
        }
        if admission.is_err() {
            let key = key.clone();
            self.model.events.push(Event::Refused { key });
        }
        let calls = want.purpose == Purpose::Call;
        let most = self.model.rules.calls_per_session;
        let refusal = self.model.has_room(&key).err();
        let refusal_or_full = refusal.unwrap_or_else(|| self.model.full());
        if let Some(entry) = self.model.current(&key) {
            let id = entry.id;
            if entry.state == State::Queued && !want.patient {
                assert_eq!(admission, Err(refusal_or_full));
            } else if calls && most.is_some_and(|most| entry.pins >= most) {
                if !want.patient {
                    let calls = entry.pins;
                    return assert_eq!(admission, Err(Refusal::Saturated { calls }));
                }
                let Ok(Admission::Turn(turn, of)) = admission else {
                    panic!("{admission:?} where a turn was to be waited for");
                };
                assert_eq!(of, id);
                entry.turns.push(turn);
                self.turns.push(turn);
            } else if entry.state == State::Live {
                assert_eq!(admission, Ok(Admission::Live(id)));
                if want.purpose != Purpose::WarmUp {
                    (entry.used, entry.stamp) = (step, now);
                }
                if calls {
                    entry.pins += 1;
                    self.pins.push(id);
                }
            } else {
                assert_eq!(admission, Ok(Admission::Joined(id)));
                entry.pins += 1;
                (entry.used, entry.stamp) = (step, now);
                entry.patient &= want.patient;
                entry.modest &= want.purpose == Purpose::WarmUp;
                self.pins.push(id);
            }
            return;
        }
        let model = &mut self.model;
        let overtakes = model.would_overtake(&key);
        let unclaimed = model.has_unclaimed_slot() && model.server_has_unclaimed(&key);
        let state = if want.patient && (overtakes || !unclaimed) {
            State::Queued
        } else {
            let immodest = want.purpose != Purpose::WarmUp || model.has_free_slot(&key);
            if refusal.is_some() || overtakes || !immodest {
                return assert_eq!(admission, Err(refusal_or_full));
            }
            State::Opening
        };
        let id = match (admission, state) {
            (Ok(Admission::Started(id)), State::Opening) => id,
            (Ok(Admission::Queued(id)), State::Queued) => id,
            other => panic!("{other:?}"),
        };
        assert!(
            self.ids.iter().all(|old| *old < id),
            "ids are not used again"
        );
        let event = match state {
            State::Queued => Event::Waiting {
                id,
                key: key.clone(),
            },
            _ => Event::Opening {
                id,
                key: key.clone(),
            },
        };
        model.events.push(event);
        self.ids.push(id);
        self.pins.push(id);
        model.entries.push(Entry {
            id,
            tag,
            key,
            state,
            opening: true,
            pins: 1,
            given: false,
            patient: want.patient,
            modest: want.purpose == Purpose::WarmUp,
            turns: Vec::new(),
            used: step,
            stamp: now,
            born: now,
        });
    }

    /// As an admission, but it does nothing where that would do something else.
    fn call_live(&mut self, key: &Key, binding: Binding, current: bool) {
        let (step, now) = (self.model.step, self.model.now);
        let called = self.registry.call_live(at(now), key, binding);
        let most = self.model.rules.calls_per_session;
        let entry = self.model.current(key).filter(|entry| {
            current && entry.state == State::Live && most.is_none_or(|most| entry.pins < most)
        });
        assert_eq!(called, entry.as_ref().map(|entry| entry.id));
        if let Some(entry) = entry {
            entry.pins += 1;
            (entry.used, entry.stamp) = (step, now);
            self.pins.push(entry.id);
            self.happened.called_live += 1;
        }
    }

    fn begin(&mut self) {
        let Some(id) = self.id() else { return };
        let (step, now) = (self.model.step, self.model.now);
        let begin = self.registry.begin(at(now), id);
        let most = self.model.rules.calls_per_session;
        let entry = self.model.find(id);
        let open = |e: &&mut Entry| matches!(e.state, State::Arriving | State::Live);
        let Some(entry) = entry.filter(open) else {
            return assert_eq!(begin, Begin::Detached);
        };
        if most.is_some_and(|most| entry.pins >= most) {
            return assert_eq!(begin, Begin::Saturated(entry.pins));
        }
        assert_eq!(begin, Begin::Begun);
        entry.pins += 1;
        (entry.used, entry.stamp) = (step, now);
        self.pins.push(id);
    }

    /// The end of a call or of a wait, be its session still there or not.
    fn leave(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let which = self.random.below(self.pins.len());
        let id = self.pins.swap_remove(which);
        let (step, now) = (self.model.step, self.model.now);
        let retired = self.registry.leave(at(now), id);
        let Some(entry) = self.model.find(id) else {
            return assert_eq!(retired, None);
        };
        entry.pins -= 1;
        (entry.used, entry.stamp) = (step, now);
        let (mut pins, waiting) = (entry.pins, entry.turns.clone());
        let mut given = 0;
        while given < waiting.len() && self.model.has_place(pins) {
            self.model.notices.push(Notice::Turn(waiting[given], id));
            given += 1;
            pins += 1;
        }
        let entry = self.model.find(id).expect("it was found");
        entry.pins = pins;
        entry.turns.drain(..given);
        let why = match entry.state {
            _ if pins > 0 => None,
            State::Queued | State::Opening => Some(Why::Abandoned),
            State::Draining(why, _) => Some(why),
            State::Arriving | State::Live => None,
        };
        let expected = why.and_then(|why| self.model.take(why, |entry| entry.id == id).pop());
        assert_eq!(retired, expected);
    }

    fn readmit(&mut self) {
        let Some(id) = self.id() else { return };
        let readmitted = self.registry.readmit(id);
        let entry = self.model.find(id).cloned();
        let Some(entry) = entry.filter(|entry| !entry.state.has_slot()) else {
            return assert_eq!(readmitted, Readmission::Gone);
        };
        if entry.state == State::Queued {
            return assert_eq!(readmitted, Readmission::Queued);
        }
        match self.model.has_room(&entry.key) {
            Ok(()) => assert_eq!(readmitted, Readmission::Open),
            Err(_) if entry.patient => {
                assert_eq!(readmitted, Readmission::Queued);
                let key = entry.key;
                self.model.find(id).expect("it was found").state = State::Queued;
                self.model.events.push(Event::Waiting { id, key });
            }
            Err(refusal) => {
                assert_eq!(readmitted, Readmission::Full(refusal, entry.tag));
                self.model.take(Why::NoSlot, |entry| entry.id == id);
            }
        }
    }

    fn fail(&mut self) {
        let Some(id) = self.id() else { return };
        let opening = |entry: &Entry| entry.id == id && !entry.state.has_slot();
        let expected = self.model.take(Why::Failed, opening).pop();
        let expected = expected.and_then(|retired| retired.opening);
        assert_eq!(self.registry.fail(id), expected);
    }

    fn promote(&mut self) {
        let Some(id) = self.id() else { return };
        let (step, now) = (self.model.step, self.model.now);
        let entry = self.model.find(id).cloned();
        let Some(entry) = entry.filter(|entry| !entry.state.has_slot()) else {
            let session = 0;
            let promotion = self.registry.promote(at(now), id, session);
            return assert_eq!(promotion, Promotion::Gone { session });
        };
        let promotion = self.registry.promote(at(now), id, entry.tag);
        let mut room = self.model.has_room(&entry.key);
        if entry.modest && !self.model.has_free_slot(&entry.key) {
            room = Err(self.model.full());
        }
        if let Err(refusal) = room {
            self.model.take(Why::NoSlot, |entry| entry.id == id);
            let (opening, session) = (entry.tag, entry.tag);
            let expected = Promotion::Full {
                refusal,
                opening,
                session,
            };
            return assert_eq!(promotion, expected);
        }
        let mut oldest = None;
        let most = self.model.rules.sessions_per_server;
        if most.is_some_and(|most| self.model.live_of(&entry.key) == most) {
            oldest = self.model.idle_of(&entry.key);
        } else if self.model.live() == self.model.rules.capacity {
            oldest = Some(self.model.idle()[0].id);
        }
        let victim = oldest.and_then(|oldest| {
            let taken = self.model.take(Why::Displaced, |entry| entry.id == oldest);
            taken.into_iter().next()
        });
        assert_eq!(promotion, Promotion::Promoted { victim });
        let entry = self.model.find(id).expect("it is there");
        entry.state = State::Arriving;
        (entry.used, entry.stamp, entry.born) = (step, now, now);
        let key = entry.key.clone();
        self.model.events.push(Event::Opened { id, key });
    }

    fn arrived(&mut self) {
        let Some(id) = self.id() else { return };
        let arriving = self.model.find(id);
        let arriving = arriving.filter(|entry| entry.state.has_slot());
        let mut expected = None;
        if let Some(entry) = arriving.filter(|entry| entry.opening) {
            entry.opening = false;
            if entry.state == State::Arriving {
                entry.state = State::Live;
            }
            expected = Some(entry.tag);
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
        let entry = entry.filter(|entry| entry.state.has_slot());
        let expected = entry.map(|entry| (entry.tag, !std::mem::replace(&mut entry.given, true)));
        assert_eq!(given, expected);
    }

    fn evict(&mut self) {
        let Some(id) = self.id() else { return };
        let meant = |entry: &Entry| entry.id == id && entry.state.has_slot();
        let expected = self.model.take(Why::Dead, meant).pop();
        assert_eq!(self.registry.evict(id), expected);
    }

    fn cancel_turn(&mut self) {
        if self.turns.is_empty() {
            return;
        }
        let which = self.random.below(self.turns.len());
        let turn = self.turns.swap_remove(which);
        assert!(self.registry.cancel_turn(turn));
        assert!(!self.registry.cancel_turn(turn));
        for entry in &mut self.model.entries {
            entry.turns.retain(|waits| *waits != turn);
        }
    }

    fn lose_patience(&mut self) {
        let Some(id) = self.id() else { return };
        let refused = self.registry.lose_patience(id);
        let entry = self.model.find(id);
        let Some(entry) = entry.filter(|entry| !entry.state.has_slot()) else {
            return assert_eq!(refused, None);
        };
        if entry.state == State::Opening {
            entry.patient = false;
            return assert_eq!(refused, None);
        }
        let key = entry.key.clone();
        let refusal = self.model.has_room(&key).err();
        let refusal = refusal.unwrap_or_else(|| self.model.full());
        assert_eq!(refused, Some(refusal));
        self.model.events.push(Event::Refused { key });
        self.happened.impatience += 1;
    }

    fn cut_drain(&mut self) {
        let drains = |entry: &&Entry| matches!(entry.state, State::Draining(..));
        let draining = self.model.entries.iter().find(drains).map(|entry| entry.id);
        let Some(id) = draining.or_else(|| self.id()) else {
            return;
        };
        let cut = self.registry.cut_drain(id);
        let why = self.model.find(id).and_then(|entry| match entry.state {
            State::Draining(why, _) => Some(why),
            _ => None,
        });
        let expected = why.and_then(|why| self.model.take(why, |entry| entry.id == id).pop());
        self.happened.cut_drains += u64::from(cut.is_some());
        assert_eq!(cut, expected);
    }

    /// A random target, and what it means.
    fn target(&mut self) -> (Key, Option<SessionId>, usize) {
        (self.key(), self.id(), self.random.below(9))
    }

    fn close(&mut self) {
        let (key, id, kind) = self.target();
        let Some((target, meant)) = target_of(&key, id, kind) else {
            return;
        };
        let retired = self.registry.close(target);
        let expected = self.model.take(Why::Closed, meant);
        assert_eq!(sorted(retired), sorted(expected));
    }

    fn drain(&mut self) {
        let (key, id, kind) = self.target();
        let Some((target, meant)) = target_of(&key, id, kind) else {
            return;
        };
        let now = self.model.now;
        let deadline = [now + 5, now + 30, u64::MAX][self.random.below(3)];
        let (retired, mut draining) = self.registry.drain(at(now), target, at(deadline));
        let busy = |entry: &Entry| entry.pins > 0 && !entry.opening;
        let expected = self
            .model
            .take(Why::Drained, |entry| meant(entry) && !busy(entry));
        assert_eq!(sorted(retired), sorted(expected));
        let entries = self.model.entries.iter().filter(|entry| meant(entry));
        let mut expected: Vec<_> = entries.map(|entry| entry.id).collect();
        expected.sort();
        draining.sort();
        assert_eq!(draining, expected);
        for id in expected {
            self.model.let_drain(id, Why::Drained, deadline);
        }
    }

    fn expire(&mut self) {
        let now = self.model.now;
        let retired = self.registry.expire(at(now));
        let rules = self.model.rules;
        let over = move |since: u64, limit: Option<Duration>| {
            limit.is_some_and(|limit| since + limit.as_nanos() as u64 <= now)
        };
        let idle = |e: &Entry| e.state.has_slot() && e.pins == 0;
        let mut expected = self.model.take(Why::IdleTooLong, |entry| {
            idle(entry) && over(entry.stamp, rules.idle_ttl)
        });
        expected.extend(self.model.take(Why::LifetimeOver, |entry| {
            idle(entry) && over(entry.born, rules.max_lifetime)
        }));
        let old = |entry: &&Entry| {
            matches!(entry.state, State::Arriving | State::Live)
                && over(entry.born, rules.max_lifetime)
        };
        let old: Vec<_> = self
            .model
            .entries
            .iter()
            .filter(old)
            .map(|e| e.id)
            .collect();
        for id in old {
            self.model.let_drain(id, Why::LifetimeOver, u64::MAX);
        }
        for why in [Why::Drained, Why::LifetimeOver] {
            expected.extend(self.model.take(
                why,
                |entry| matches!(entry.state, State::Draining(w, at) if w == why && at <= now),
            ));
        }
        assert_eq!(sorted(retired), sorted(expected));
    }
}

type Meant = Box<dyn Fn(&Entry) -> bool>;

fn target_of(key: &Key, id: Option<SessionId>, kind: usize) -> Option<(Target<'_, Key>, Meant)> {
    let Key {
        domain,
        server,
        scope,
    } = *key;
    let key_of_entry = key.clone();
    let of_domain = move |entry: &Entry| entry.key.domain == domain;
    Some(match kind {
        0 => (Target::All, Box::new(|_| true)),
        1 => (Target::Domain(&key.domain), Box::new(of_domain)),
        2..=3 => (
            Target::Server(&key.domain, &key.server),
            Box::new(move |entry| of_domain(entry) && entry.key.server == server),
        ),
        4..=5 => (
            Target::Scope(&key.domain, &key.scope),
            Box::new(move |entry| of_domain(entry) && entry.key.scope == scope),
        ),
        6 => (
            Target::Session(key),
            Box::new(move |entry| entry.key == key_of_entry),
        ),
        7 => {
            let id = id?;
            (Target::Id(id), Box::new(move |entry| entry.id == id))
        }
        _ => {
            let id = id?;
            let drains = |entry: &Entry| matches!(entry.state, State::Draining(..));
            (
                Target::SessionIfCurrent(key, id),
                Box::new(move |entry| {
                    entry.key == key_of_entry && entry.id == id && !drains(entry)
                }),
            )
        }
    })
}

#[test]
fn the_registry_does_what_the_model_does_over_random_histories() {
    let mut happened = [0; 21];
    for seed in 0..400 {
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
            tally.saturated,
            tally.waited,
            tally.idle_too_long,
            tally.lifetime_over,
            tally.drained,
            history.happened.notices,
            history.happened.impatience,
            history.happened.cut_drains,
            history.happened.called_live,
        ];
        for (sum, count) in happened.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    // It is worth something only if everything happened often.
    assert!(happened.iter().all(|sum| *sum > 200), "{happened:?}");
}
