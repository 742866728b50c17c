//! The interleavings of a few threads that use one registry behind a lock, in the steps in which the pool does it:
//! admit, open, promote, close the victim, arrive, give, release; and close and evict in between.
//!
//! The lock and the waiting are loom's, which tries all orders, up to a number of interruptions, and finds whoever would wait for ever.

use std::collections::{HashMap, HashSet};

use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};
use mcp_pool::{
    Binding, Fingerprint, SessionId, Timestamp,
    registry::{
        Admission, Begin, Notice, Promotion, Readmission, Registry, Retired, Rules, Target, TurnId,
        Want,
    },
};

type Key = mcp_pool::Key<u8, u8, u8>;

const NOW: Timestamp = Timestamp::ZERO;

fn key(scope: u8) -> Key {
    Key::new(0, 0, scope)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Called,
    Refused,
    /// Closed before it was given, or found detached.
    Gone,
}

struct State {
    registry: Registry<Key, (), u8>,
    /// Calls that run on each session, as the callers know it.
    calls: HashMap<SessionId, usize>,
    /// What left by an explicit close or as dead: calls on it may run on.
    cut: HashSet<SessionId>,
    /// The answers of creations: whether those who wait may have the session.
    settled: HashMap<SessionId, bool>,
    /// Creations that may open, which waited for a slot.
    go: HashSet<SessionId>,
    turns: HashMap<TurnId, Option<SessionId>>,
    /// Sessions that are open, wherever they are.
    open: HashSet<SessionId>,
}

struct World {
    state: Mutex<State>,
    changed: Condvar,
    binding: Binding,
    capacity: usize,
}

impl World {
    fn new(rules: Rules) -> Arc<Self> {
        let mut registry = Registry::new(rules);
        let (binding, _) = registry.ensure_binding(&0, &0, Fingerprint(1));
        Arc::new(Self {
            state: Mutex::new(State {
                registry,
                calls: HashMap::new(),
                cut: HashSet::new(),
                settled: HashMap::new(),
                go: HashSet::new(),
                turns: HashMap::new(),
                open: HashSet::new(),
            }),
            changed: Condvar::new(),
            binding,
            capacity: rules.capacity,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Passes on what the registry has to say, as the pool does whenever it lets the lock go.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        while let Some(notice) = state.registry.next_notice() {
            match notice {
                Notice::Open(id) => {
                    state.go.insert(id);
                }
                Notice::Turn(turn, id) => {
                    state.turns.insert(turn, Some(id));
                }
                Notice::Lost(turn, ..) => {
                    state.turns.insert(turn, None);
                }
            }
        }
        assert!(state.registry.live() <= self.capacity);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until there is an answer.
    fn wait<'a, T>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        answer: impl Fn(&State) -> Option<T>,
    ) -> (MutexGuard<'a, State>, T) {
        loop {
            if let Some(answer) = answer(&state) {
                return (state, answer);
            }
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Whatever left: those who wait hear of it, and what was open is closed.
    fn let_go(&self, state: &mut State, retired: impl IntoIterator<Item = Retired<Key, (), u8>>) {
        for retired in retired {
            state.cut.insert(retired.id);
            if retired.opening.is_some() {
                state.settled.entry(retired.id).or_insert(false);
            }
            if retired.session.is_some() {
                assert!(state.open.remove(&retired.id), "it is closed once");
            }
        }
    }

    fn call(&self, scope: u8, patient: bool) -> Outcome {
        let want = if patient {
            Want::PATIENT_CALL
        } else {
            Want::CALL
        };
        let mut state = self.lock();
        if let Some(id) = state.registry.call_live(NOW, &key(scope), self.binding) {
            return self.run(state, id);
        }
        self.unlock(state);
        let mut state = self.lock();
        let admitted = state
            .registry
            .admit(NOW, &key(scope), self.binding, want, |_| ());
        let id = match admitted {
            Err(_) => {
                self.unlock(state);
                return Outcome::Refused;
            }
            Ok(Admission::Live(id)) => return self.run(state, id),
            Ok(Admission::Joined(id)) => {
                self.unlock(state);
                id
            }
            Ok(Admission::Turn(turn, _)) => {
                self.unlock(state);
                let answer = |state: &State| state.turns.get(&turn).copied();
                let (state, given) = self.wait(self.lock(), answer);
                match given {
                    Some(id) if state.registry.opening_of(id).is_some() => {
                        drop(state);
                        id
                    }
                    Some(id) => return self.run(state, id),
                    None => {
                        self.unlock(state);
                        return Outcome::Gone;
                    }
                }
            }
            Ok(Admission::Started(id) | Admission::Queued(id)) => {
                let queued = matches!(admitted, Ok(Admission::Queued(_)));
                self.unlock(state);
                self.create(id, queued);
                id
            }
        };
        let answer = |state: &State| state.settled.get(&id).copied();
        let (state, good) = self.wait(self.lock(), answer);
        if good {
            return self.run(state, id);
        }
        // Its pin is taken back all the same, as by the drop of whoever waited.
        self.leave(state, id);
        Outcome::Gone
    }

    /// What the task of a creation does.
    fn create(&self, id: SessionId, mut queued: bool) {
        loop {
            let mut state = self.lock();
            if queued {
                let may_go = |state: &State| {
                    (state.go.contains(&id) || state.cut.contains(&id)).then_some(())
                };
                (state, ()) = self.wait(state, may_go);
                state.go.remove(&id);
            }
            let readmission = state.registry.readmit(id);
            if let Readmission::Full(..) = readmission {
                state.settled.insert(id, false);
            }
            self.unlock(state);
            match readmission {
                Readmission::Open => break,
                Readmission::Queued => queued = true,
                Readmission::Full(..) | Readmission::Gone => return,
            }
        }
        let mut state = self.lock();
        match state.registry.promote(NOW, id, 0) {
            Promotion::Promoted { victim } => {
                state.open.insert(id);
                if let Some(victim) = victim {
                    let calls = state.calls.get(&victim.id).copied().unwrap_or(0);
                    assert_eq!(calls, 0, "pressure takes idle sessions only");
                    assert!(state.open.remove(&victim.id), "it is closed once");
                }
            }
            Promotion::Full { .. } => {
                state.settled.insert(id, false);
            }
            Promotion::Gone { .. } => {}
        }
        self.unlock(state);
        let mut state = self.lock();
        if state.registry.arrived(id).is_some() {
            state.settled.insert(id, true);
        }
        self.unlock(state);
    }

    /// A call on a session that is pinned for it, from its beginning to its end.
    fn run(&self, mut state: MutexGuard<'_, State>, id: SessionId) -> Outcome {
        if state.registry.give(id).is_none() {
            self.leave(state, id);
            return Outcome::Gone;
        }
        *state.calls.entry(id).or_default() += 1;
        self.unlock(state);
        let mut state = self.lock();
        let kept = state.open.contains(&id) || state.cut.contains(&id);
        assert!(kept, "only a close or an eviction takes it from a call");
        *state.calls.get_mut(&id).unwrap() -= 1;
        self.leave(state, id);
        Outcome::Called
    }

    fn leave(&self, mut state: MutexGuard<'_, State>, id: SessionId) {
        let retired = state.registry.leave(NOW, id);
        self.let_go(&mut state, retired);
        self.unlock(state);
    }

    fn close(&self, target: Target<'_, Key>) {
        let mut state = self.lock();
        let retired = state.registry.close(target);
        self.let_go(&mut state, retired);
        self.unlock(state);
    }

    fn evict(&self, id: SessionId) {
        let mut state = self.lock();
        let retired = state.registry.evict(id);
        self.let_go(&mut state, retired);
        self.unlock(state);
    }

    /// Nothing is left of what the threads did.
    fn is_at_rest(&self) {
        let state = self.lock();
        assert_eq!(state.registry.busy(), 0);
        assert_eq!(state.registry.opening(), 0);
        assert_eq!(state.registry.waiting(), 0);
        assert_eq!(state.registry.queued_calls(), 0);
        assert_eq!(state.registry.live(), state.open.len());
    }
}

fn spawn(
    world: &Arc<World>,
    act: impl FnOnce(&World) -> Outcome + 'static,
) -> thread::JoinHandle<Outcome> {
    let world = world.clone();
    thread::spawn(move || act(&world))
}

/// Tries all orders in which no more threads are interrupted than the bound says: three threads without a bound take
/// longer than anybody waits, and what goes wrong goes wrong with one or two interruptions.
fn explore(bound: Option<usize>, act: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = bound;
    model.check(act);
}

#[test]
fn two_callers_of_one_key_share_one_session_in_every_order() {
    explore(Some(3), || {
        let world = World::new(Rules::with_capacity(1));
        let other = spawn(&world, |world| world.call(1, false));
        assert_eq!(world.call(1, false), Outcome::Called);
        assert_eq!(other.join().unwrap(), Outcome::Called);
        assert_eq!(world.lock().registry.tally().opened, 1);
        world.is_at_rest();
    });
}

#[test]
fn two_callers_of_two_keys_and_one_slot_never_cut_each_other_in_any_order() {
    explore(Some(3), || {
        let world = World::new(Rules::with_capacity(1));
        let other = spawn(&world, |world| world.call(1, false));
        let outcomes = [world.call(2, false), other.join().unwrap()];
        assert!(outcomes.contains(&Outcome::Called), "{outcomes:?}");
        world.is_at_rest();
    });
}

#[test]
fn a_close_at_any_moment_leaves_nothing_to_come_back_to_life() {
    explore(Some(2), || {
        let world = World::new(Rules::with_capacity(1));
        let calls = [1, 1].map(|scope| spawn(&world, move |world| world.call(scope, false)));
        world.close(Target::Scope(&0, &1));
        for call in calls {
            call.join().unwrap();
        }
        world.is_at_rest();
    });
}

#[test]
fn an_eviction_by_identity_at_any_moment_spares_the_replacement() {
    explore(Some(2), || {
        let world = World::new(Rules::with_capacity(1));
        assert_eq!(world.call(1, false), Outcome::Called);
        let dead = world.lock().registry.sessions(NOW)[0].id;
        let evicts = [(); 2].map(|()| {
            spawn(&world, move |world| {
                world.evict(dead);
                Outcome::Gone
            })
        });
        let outcome = world.call(1, false);
        for evict in evicts {
            evict.join().unwrap();
        }
        assert_eq!(outcome, Outcome::Called);
        assert!(!world.lock().registry.is_live(dead));
        world.is_at_rest();
        let mut state = world.lock();
        if let Some(next) = state
            .registry
            .sessions(NOW)
            .first()
            .map(|session| session.id)
        {
            assert_eq!(state.registry.begin(NOW, next), Begin::Begun);
        }
    });
}

#[test]
fn whoever_waits_for_the_only_slot_gets_it_in_every_order() {
    explore(Some(2), || {
        let world = World::new(Rules::with_capacity(1));
        let calls = [1, 2].map(|scope| spawn(&world, move |world| world.call(scope, true)));
        let outcome = world.call(3, true);
        let [one, two] = calls.map(|call| call.join().unwrap());
        assert_eq!([outcome, one, two], [Outcome::Called; 3]);
        world.is_at_rest();
    });
}

#[test]
fn whoever_waits_for_a_place_on_a_session_gets_it_in_every_order() {
    explore(Some(2), || {
        let world = World::new(Rules {
            calls_per_session: Some(1),
            ..Rules::with_capacity(1)
        });
        let calls = [1, 1].map(|scope| spawn(&world, move |world| world.call(scope, true)));
        let outcome = world.call(1, true);
        let [one, two] = calls.map(|call| call.join().unwrap());
        assert_eq!([outcome, one, two], [Outcome::Called; 3]);
        world.is_at_rest();
    });
}
