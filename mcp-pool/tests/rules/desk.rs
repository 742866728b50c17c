//! The pool without tasks, whose host opens and closes the sessions itself.

use std::{collections::HashMap, time::Duration};

use mcp_pool::{
    Action, Binding, Desk, Limits, Refused, SessionId, Ticket, Timestamp, Why, registry::Target,
};

use crate::{
    fake::{Key, key},
    registry_model::Random,
};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.plus(SECOND * u32::try_from(seconds).unwrap())
}

fn desk_with(limits: &Limits) -> (Desk<Key, u32>, Binding) {
    let mut desk = Desk::new(limits);
    let binding = desk.ensure_binding(at(0), &"deployment", &"server", 1u64);
    (desk, binding)
}

fn desk_of(capacity: usize) -> (Desk<Key, u32>, Binding) {
    desk_with(&Limits {
        capacity,
        close_limit: SECOND * 5,
        ..Limits::default()
    })
}

/// Everything that the host is to do now, in words.
fn todo(desk: &mut Desk<Key, u32>, now: Timestamp) -> Vec<String> {
    std::iter::from_fn(|| desk.next(now))
        .map(|action| match action {
            Action::Open { id, key } => format!("open {id} for {}", key.scope),
            Action::Close { id, why, .. } => format!("close {id}: {why:?}"),
            Action::Give {
                token, id, fresh, ..
            } => format!("give {token} {id}{}", if fresh { " fresh" } else { "" }),
            Action::Refuse { token, why, .. } => format!("refuse {token}: {why:?}"),
            other => format!("{other:?}"),
        })
        .collect()
}

/// Opens the session of a scope, and gives it to the token.
fn give(desk: &mut Desk<Key, u32>, binding: Binding, scope: &'static str) -> (Ticket, SessionId) {
    let ticket = desk.acquire(at(0), &key(scope), binding, 99, None);
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    desk.opened(at(0), id);
    assert!(matches!(desk.next(at(0)), Some(Action::Give { .. })));
    (ticket, id)
}

#[test]
fn concurrent_requests_of_one_key_make_one_opening_and_are_answered_together() {
    let (mut desk, binding) = desk_of(1);
    for token in 1..=3 {
        desk.acquire(at(0), &key("a"), binding, token, None);
    }
    assert_eq!(todo(&mut desk, at(0)), ["open 1 for a"]);
    let id = desk.sessions(at(0))[0].id;
    desk.opened(at(0), id);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["give 1 1 fresh", "give 2 1", "give 3 1"]
    );
}

#[test]
fn a_failed_opening_is_told_to_all_who_waited_for_it() {
    let (mut desk, binding) = desk_of(1);
    desk.acquire(at(0), &key("a"), binding, 1, None);
    desk.acquire(at(0), &key("a"), binding, 2, None);
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    desk.failed(at(0), id, -7);
    assert_eq!(
        todo(&mut desk, at(0)),
        [
            "refuse 1: Failed { code: -7 }",
            "refuse 2: Failed { code: -7 }"
        ]
    );
    assert_eq!(desk.counters().opening, 0);
}

#[test]
fn a_full_and_busy_desk_refuses_and_opens_nothing() {
    let (mut desk, binding) = desk_of(1);
    give(&mut desk, binding, "a");
    desk.acquire(at(0), &key("b"), binding, 1, None);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["refuse 1: Capacity { capacity: 1, busy: 1 }"]
    );
}

#[test]
fn an_idle_session_is_closed_before_the_one_that_takes_its_slot_is_given() {
    for overdue in [false, true] {
        let (mut desk, binding) = desk_of(1);
        let (ticket, old) = give(&mut desk, binding, "a");
        desk.release(at(1), ticket);
        desk.acquire(at(1), &key("b"), binding, 1, None);
        let Some(Action::Open { id, .. }) = desk.next(at(1)) else {
            panic!("it is to be opened");
        };
        desk.opened(at(2), id);
        assert_eq!(todo(&mut desk, at(2)), ["close 1: Displaced"]);
        assert_eq!(desk.timeout(), Some(at(7)));
        let now = if overdue { at(7) } else { at(3) };
        if !overdue {
            desk.closed(now, old);
        }
        assert_eq!(todo(&mut desk, now), ["give 1 2 fresh"]);
        assert_eq!(desk.counters().overdue, u64::from(overdue));
        assert_eq!(desk.timeout(), None);
    }
}

#[test]
fn whoever_waits_is_served_in_order_or_refused_at_the_deadline() {
    let (mut desk, binding) = desk_of(1);
    let (ticket, _) = give(&mut desk, binding, "a");
    desk.acquire(at(0), &key("b"), binding, 1, Some(SECOND * 10));
    desk.acquire(at(0), &key("c"), binding, 2, Some(SECOND * 3));
    desk.acquire(at(0), &key("d"), binding, 3, None);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["refuse 3: Capacity { capacity: 1, busy: 1 }"]
    );
    assert_eq!(desk.timeout(), Some(at(3)));
    assert_eq!(
        todo(&mut desk, at(3)),
        ["refuse 2: Capacity { capacity: 1, busy: 1 }"]
    );
    desk.release(at(4), ticket);
    assert_eq!(todo(&mut desk, at(4)), ["open 2 for b"]);
}

#[test]
fn a_request_that_nobody_waits_for_any_more_stops_its_opening() {
    let (mut desk, binding) = desk_of(1);
    let ticket = desk.acquire(at(0), &key("a"), binding, 1, None);
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    desk.release(at(0), ticket);
    assert_eq!(todo(&mut desk, at(0)), ["close 1: Abandoned"]);
    // The host may have opened it before it heard of that.
    desk.opened(at(0), id);
    assert_eq!(desk.counters().closing, 1);
    desk.closed(at(0), id);
    assert_eq!(todo(&mut desk, at(0)), [""; 0]);
    assert_eq!(desk.counters().closing, 0);
}

#[test]
fn a_close_refuses_those_whom_the_host_was_not_told_of_yet() {
    let (mut desk, binding) = desk_of(1);
    desk.acquire(at(0), &key("a"), binding, 1, None);
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    desk.opened(at(0), id);
    desk.close(at(0), Target::All);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["refuse 1: Closed", "close 1: Closed"]
    );
}

#[test]
fn a_stale_binding_opens_nothing_and_its_requests_are_refused_as_stale() {
    let (mut desk, binding) = desk_of(1);
    desk.acquire(at(0), &key("a"), binding, 1, None);
    assert_eq!(todo(&mut desk, at(0)), ["open 1 for a"]);
    desk.ensure_binding(at(0), &"deployment", &"server", 2u64);
    desk.acquire(at(0), &key("a"), binding, 2, None);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["refuse 1: Stale", "close 1: Rebound", "refuse 2: Stale"]
    );
}

#[test]
fn a_drained_session_is_closed_when_its_last_call_ended_or_at_the_limit() {
    for released in [false, true] {
        let (mut desk, binding) = desk_of(1);
        let (ticket, id) = give(&mut desk, binding, "a");
        assert_eq!(desk.drain(at(0), Target::All, SECOND * 9), 1);
        assert_eq!(todo(&mut desk, at(0)), [""; 0]);
        assert_eq!(desk.begin(at(0), id), Err(Refused::Closed));
        assert_eq!(desk.timeout(), Some(at(9)));
        let now = if released { at(1) } else { at(9) };
        if released {
            desk.release(now, ticket);
        }
        assert_eq!(todo(&mut desk, now), ["close 1: Drained"]);
    }
}

#[test]
fn an_idle_session_is_to_be_closed_when_its_time_is_over() {
    let (mut desk, binding) = desk_with(&Limits {
        idle_ttl: Some(SECOND * 60),
        ..Limits::default()
    });
    let (ticket, _) = give(&mut desk, binding, "a");
    assert_eq!(desk.timeout(), None);
    desk.release(at(100), ticket);
    assert_eq!(desk.timeout(), Some(at(160)));
    assert_eq!(todo(&mut desk, at(159)), [""; 0]);
    assert_eq!(todo(&mut desk, at(160)), ["close 1: IdleTooLong"]);
}

#[test]
fn no_more_are_opened_at_a_time_than_may_be() {
    let (mut desk, binding) = desk_with(&Limits {
        openings: 1,
        ..Limits::default()
    });
    for (token, scope) in [(1, "a"), (2, "b")] {
        desk.acquire(at(0), &key(scope), binding, token, None);
    }
    assert_eq!(todo(&mut desk, at(0)), ["open 1 for a"]);
    let id = desk.sessions(at(0))[0].id;
    desk.failed(at(0), id, -7);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["refuse 1: Failed { code: -7 }", "open 2 for b"]
    );
}

#[test]
fn whoever_cancels_is_refused_as_that_unless_it_was_answered_before() {
    let (mut desk, binding) = desk_of(1);
    let waits = desk.acquire(at(0), &key("a"), binding, 1, None);
    assert!(desk.cancel(at(0), waits));
    assert!(!desk.cancel(at(0), waits), "it is answered");
    assert_eq!(todo(&mut desk, at(0)), ["refuse 1: Canceled"]);

    let given = desk.acquire(at(0), &key("a"), binding, 2, None);
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    assert!(desk.opened(at(0), id));
    assert!(!desk.has_session(given), "the host was not told yet");
    assert!(desk.cancel(at(0), given));
    assert_eq!(todo(&mut desk, at(0)), ["refuse 2: Canceled"]);
    assert_eq!(desk.counters().busy, 0);

    let told = desk.acquire(at(0), &key("a"), binding, 3, None);
    assert_eq!(todo(&mut desk, at(0)), ["give 3 2 fresh"]);
    assert!(desk.has_session(told));
    assert!(!desk.cancel(at(0), told));
    assert_eq!(desk.counters().busy, 1, "the call goes on");
}

#[test]
fn a_request_that_is_taken_back_hides_nothing_that_comes_after_it() {
    let (mut desk, binding) = desk_of(2);
    let (ticket, _) = give(&mut desk, binding, "a");
    let again = desk.acquire(at(0), &key("a"), binding, 1, None);
    desk.acquire(at(0), &key("b"), binding, 2, None);
    assert!(desk.release(at(0), again));
    assert_eq!(todo(&mut desk, at(0)), ["open 2 for b"]);
    desk.close(at(0), Target::All);
    assert!(desk.release(at(0), ticket));
    assert_eq!(
        todo(&mut desk, at(0)),
        ["close 1: Closed", "refuse 2: Closed", "close 2: Closed"]
    );
}

#[test]
fn whoever_takes_a_refusal_back_hears_nothing_of_it() {
    let (mut desk, binding) = desk_of(1);
    give(&mut desk, binding, "a");
    let refused = desk.acquire(at(0), &key("b"), binding, 1, None);
    assert!(!desk.cancel(at(0), refused), "its answer stands");
    assert!(desk.release(at(0), refused));
    assert!(!desk.release(at(0), refused));
    assert_eq!(todo(&mut desk, at(0)), [""; 0]);
}

#[test]
fn a_removed_server_takes_its_sessions_along_and_comes_back_as_another() {
    let (mut desk, binding) = desk_of(2);
    let other = desk.ensure_binding(at(0), &"personal", &"server", 1u64);
    give(&mut desk, binding, "a");
    assert!(desk.remove_binding(at(0), &"deployment", &"server"));
    assert!(!desk.remove_binding(at(0), &"deployment", &"server"));
    assert_eq!(desk.binding(&"deployment", &"server"), None);
    assert_eq!(todo(&mut desk, at(0)), ["close 1: Rebound"]);
    assert_eq!(desk.binding(&"personal", &"server"), Some(other));

    let again = desk.ensure_binding(at(0), &"deployment", &"server", 1u64);
    assert_ne!(again, binding);
    desk.acquire(at(0), &key("a"), binding, 1, None);
    desk.acquire(at(0), &key("a"), Binding::STALE, 2, None);
    assert_eq!(
        todo(&mut desk, at(0)),
        ["refuse 1: Stale", "refuse 2: Stale"]
    );
}

#[test]
fn what_is_opened_ahead_of_need_takes_free_slots_only_and_is_given_to_nobody() {
    let (mut desk, binding) = desk_of(1);
    assert_eq!(desk.warm_up(at(0), &key("a"), binding), Ok(()));
    assert_eq!(todo(&mut desk, at(0)), ["open 1 for a"]);
    let id = desk.sessions(at(0))[0].id;
    desk.opened(at(0), id);
    assert_eq!(desk.warm_up(at(0), &key("a"), binding), Ok(()));
    assert_eq!(todo(&mut desk, at(0)), [""; 0]);
    assert_eq!(desk.counters().busy, 0);
    let full = Refused::Capacity {
        capacity: 1,
        busy: 0,
    };
    assert_eq!(desk.warm_up(at(0), &key("b"), binding), Err(full));
    desk.acquire(at(0), &key("a"), binding, 1, None);
    assert_eq!(todo(&mut desk, at(0)), ["give 1 1 fresh"]);
}

#[test]
fn what_was_opened_ahead_of_need_and_finds_no_slot_is_closed() {
    let (mut desk, binding) = desk_of(1);
    assert_eq!(desk.warm_up(at(0), &key("a"), binding), Ok(()));
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    give(&mut desk, binding, "b");
    assert!(desk.opened(at(0), id));
    assert_eq!(todo(&mut desk, at(0)), ["close 1: NoSlot"]);
}

#[test]
fn who_opened_what_nobody_wants_any_more_is_told_by_the_answer_and_not_again() {
    for overdue in [false, true] {
        let (mut desk, binding) = desk_of(1);
        desk.acquire(at(0), &key("a"), binding, 1, None);
        let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
            panic!("it is to be opened");
        };
        desk.close(at(0), Target::All);
        let now = at(if overdue { 9 } else { 0 });
        assert!(!desk.opened(now, id));
        assert_eq!(todo(&mut desk, now), ["refuse 1: Closed"]);
        assert_eq!(desk.closed(now, id), !overdue);
        assert!(!desk.closed(now, id), "it is no more");
    }
}

#[test]
fn a_time_before_the_last_is_taken_as_the_last() {
    let (mut desk, binding) = desk_of(1);
    give(&mut desk, binding, "a");
    assert_eq!(desk.next(at(100)), None);
    desk.acquire(at(0), &key("b"), binding, 1, Some(SECOND * 10));
    assert_eq!(desk.timeout(), Some(at(110)));
}

#[test]
fn no_call_begins_on_a_session_before_the_one_that_made_room_is_closed() {
    let (mut desk, binding) = desk_of(1);
    let (ticket, old) = give(&mut desk, binding, "a");
    desk.release(at(0), ticket);
    desk.acquire(at(0), &key("b"), binding, 1, None);
    let Some(Action::Open { id, .. }) = desk.next(at(0)) else {
        panic!("it is to be opened");
    };
    desk.opened(at(0), id);
    assert_eq!(desk.begin(at(0), id), Err(Refused::Closed));
    desk.closed(at(0), old);
    assert_eq!(todo(&mut desk, at(0)), ["give 1 2 fresh"]);
    assert!(desk.begin(at(0), id).is_ok());
}

/// A host that does as it is told, late and in any order, and finds fault with what it should not be told.
struct Host {
    desk: Desk<Key, u32>,
    random: Random,
    now: u64,
    bindings: Vec<Binding>,
    /// Told to open, and not answered.
    opening: Vec<SessionId>,
    open: Vec<SessionId>,
    closing: Vec<SessionId>,
    /// Requests without an answer.
    asked: HashMap<u32, Ticket>,
    calls: Vec<(Ticket, SessionId)>,
    next_token: u32,
    seen: HashMap<&'static str, usize>,
}

impl Host {
    fn step(&mut self) {
        self.now += self.random.below(3) as u64;
        let now = at(self.now);
        match self.random.below(40) {
            0 => {
                let fingerprint = self.random.below(2) as u64;
                let binding = self
                    .desk
                    .ensure_binding(now, &"deployment", &"server", fingerprint);
                self.bindings.push(binding);
            }
            1 => drop(
                self.desk
                    .close_scope(now, &"deployment", self.random.one_of(&SCOPES)),
            ),
            2 => drop(self.desk.drain(now, Target::All, SECOND * 20)),
            37 => {
                let scope = *self.random.one_of(&SCOPES);
                let binding = *self.bindings.last().unwrap();
                let _ = self.desk.warm_up(now, &key(scope), binding);
            }
            38 if !self.asked.is_empty() => {
                let tokens: Vec<_> = self.asked.keys().copied().collect();
                let ticket = self.asked[self.random.one_of(&tokens)];
                self.desk.cancel(now, ticket);
            }
            39 if self.random.below(3) == 0 => {
                self.desk.remove_binding(now, &"deployment", &"server");
            }
            3 if !self.open.is_empty() => {
                let id = *self.random.one_of(&self.open);
                self.desk.evict(now, id);
            }
            4..=15 => {
                let scope = *self.random.one_of(&SCOPES);
                let binding = *self.bindings.last().unwrap();
                let wait = [None, Some(SECOND * 10)][self.random.below(2)];
                self.next_token += 1;
                let token = self.next_token;
                let ticket = self.desk.acquire(now, &key(scope), binding, token, wait);
                self.asked.insert(token, ticket);
            }
            16..=23 if !self.calls.is_empty() => {
                let which = self.random.below(self.calls.len());
                let (ticket, _) = self.calls.swap_remove(which);
                self.desk.release(now, ticket);
            }
            24 if !self.asked.is_empty() => {
                let tokens: Vec<_> = self.asked.keys().copied().collect();
                let ticket = self.asked.remove(self.random.one_of(&tokens)).unwrap();
                self.desk.release(now, ticket);
            }
            25..=31 if !self.opening.is_empty() => {
                let which = self.random.below(self.opening.len());
                let id = self.opening.swap_remove(which);
                if self.random.below(6) == 0 {
                    self.desk.failed(now, id, -7);
                } else if self.desk.opened(now, id) {
                    self.open.push(id);
                } else {
                    self.closing.push(id);
                }
            }
            32..=36 if !self.closing.is_empty() => {
                let which = self.random.below(self.closing.len());
                let id = self.closing.swap_remove(which);
                self.desk.closed(now, id);
            }
            _ => {}
        }
        if self.random.below(3) > 0 {
            self.obey();
        }
    }

    fn obey(&mut self) {
        let now = at(self.now);
        while let Some(action) = self.desk.next(now) {
            match action {
                Action::Open { id, .. } => self.opening.push(id),
                Action::Close { id, why, .. } => {
                    let known = self.open.len() + self.opening.len();
                    self.open.retain(|open| *open != id);
                    self.opening.retain(|opening| *opening != id);
                    let left = self.open.len() + self.opening.len();
                    assert_eq!(left + 1, known, "{id} is told to close once, and is open");
                    let busy = self.calls.iter().any(|(_, of)| *of == id);
                    let pressure =
                        matches!(why, Why::Displaced | Why::IdleTooLong | Why::LifetimeOver);
                    assert!(!(busy && pressure), "pressure takes idle sessions only");
                    self.closing.push(id);
                    *self.seen.entry("close").or_default() += 1;
                }
                Action::Give {
                    token, ticket, id, ..
                } => {
                    assert!(self.open.contains(&id), "what is given is open");
                    assert_eq!(self.asked.remove(&token), Some(ticket), "answered once");
                    self.calls.push((ticket, id));
                    *self.seen.entry("give").or_default() += 1;
                }
                Action::Refuse { token, ticket, why } => {
                    assert_eq!(self.asked.remove(&token), Some(ticket), "answered once");
                    let why = match why {
                        Refused::Capacity { .. } => "capacity",
                        Refused::Saturated { .. } => "saturated",
                        _ => "other",
                    };
                    *self.seen.entry(why).or_default() += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let counters = self.desk.counters();
        assert!(counters.live <= counters.capacity);
        if let Some(due) = self.desk.timeout() {
            assert!(due > now, "what is due is done");
        }
    }
}

const SCOPES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[test]
fn every_request_is_answered_once_and_nothing_is_left_over_random_histories() {
    let mut seen = HashMap::<_, usize>::new();
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let limits = Limits {
            capacity: 1 + random.below(3),
            openings: 1 + random.below(2),
            calls_per_session: [None, Some(1)][random.below(2)],
            idle_ttl: [None, Some(SECOND * 30)][random.below(2)],
            max_lifetime: [None, Some(SECOND * 100)][random.below(2)],
            close_limit: SECOND * 5,
            ..Limits::default()
        };
        let (desk, binding) = desk_with(&limits);
        let mut host = Host {
            desk,
            random,
            now: 0,
            bindings: vec![binding],
            opening: Vec::new(),
            open: Vec::new(),
            closing: Vec::new(),
            asked: HashMap::new(),
            calls: Vec::new(),
            next_token: 0,
            seen: HashMap::new(),
        };
        for _ in 0..1_000 {
            host.step();
        }
        host.desk.shutdown(at(host.now));
        host.obey();
        assert!(host.asked.is_empty(), "all are answered");
        assert!(host.open.is_empty(), "all are told to close");
        for id in std::mem::take(&mut host.closing) {
            host.desk.closed(at(host.now), id);
        }
        host.obey();
        let counters = host.desk.counters();
        assert_eq!(
            (counters.live, counters.opening, counters.closing),
            (0, 0, 0)
        );
        assert_eq!(host.desk.timeout(), None);
        for (what, times) in host.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in ["give", "close", "capacity", "saturated", "other"] {
        assert!(seen.get(what).is_some_and(|times| *times > 250), "{seen:?}");
    }
}
