//! What an operation costs, in counted steps: as much at every size.

use std::time::Duration;

use super::*;
use crate::{key::Key, steps::count};

type Numbered = Key<u32, u32, u32>;
type Sessions = Registry<Numbered, (), ()>;

const SIZES: [u32; 3] = [256, 10_000, 1_000_000];

fn key(scope: u32) -> Numbered {
    Key {
        domain: 0,
        server: 0,
        scope,
    }
}

/// Every rule at work, in a registry whose every slot is taken by an idle session.
fn full_of_idle(size: u32) -> (Sessions, Binding, Vec<SessionId>) {
    let mut registry = Registry::new(Rules {
        capacity: size as usize,
        sessions_per_server: Some(size as usize),
        calls_per_session: Some(1),
        idle_ttl: Some(Duration::from_secs(1)),
        max_lifetime: Some(Duration::from_secs(10)),
    });
    let (binding, _) = registry.ensure_binding(&0, &0, Fingerprint(1));
    let ids = (0..size)
        .map(|scope| {
            let id = open(&mut registry, binding, scope);
            registry.leave(at(0), id);
            id
        })
        .collect();
    (registry, binding, ids)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.plus(Duration::from_secs(seconds))
}

/// Opens a session, which is pinned then.
fn open(registry: &mut Sessions, binding: Binding, scope: u32) -> SessionId {
    let admitted = registry.admit(at(0), &key(scope), binding, Want::CALL, |_| ());
    let Ok(Admission::Started(id)) = admitted else {
        panic!("{admitted:?}");
    };
    assert_eq!(registry.readmit(id), Readmission::Open);
    let promotion = registry.promote(at(0), id, ());
    assert!(matches!(promotion, Promotion::Promoted { .. }));
    registry.arrived(id);
    id
}

fn call(registry: &mut Sessions, binding: Binding, scope: u32) {
    let admitted = registry.admit(at(0), &key(scope), binding, Want::CALL, |_| ());
    let Ok(Admission::Live(id)) = admitted else {
        panic!("{admitted:?}");
    };
    registry.give(id);
    registry.leave(at(0), id);
    assert_eq!(registry.call_live(at(0), &key(scope), binding), Some(id));
    registry.leave(at(0), id);
}

/// The steps of each operation where there are so many sessions.
fn costs(size: u32) -> Vec<(&'static str, u64)> {
    let (mut registry, binding, ids) = full_of_idle(size);
    let middle = ids[size as usize / 2];
    let mut costs = Vec::new();

    let (steps, ()) = count(|| call(&mut registry, binding, size / 2));
    costs.push(("two calls on a session that is there", steps));

    let (steps, newest) = count(|| open(&mut registry, binding, size));
    costs.push(("an opening where all are idle", steps));
    assert!(!registry.is_live(ids[0]), "the oldest made room");
    registry.leave(at(0), newest);

    let (steps, _) = count(|| {
        registry.evict(ids[1]);
        registry.close(Target::Session(&key(2)));
        registry.close(Target::Scope(&0, &3));
        registry.drain(at(0), Target::Scope(&0, &4), at(1));
        registry.timeout()
    });
    costs.push(("an eviction, two closes and a drain of one", steps));
    assert_eq!(registry.live(), size as usize - 4);
    let busy = (1..=4).map(|n| open(&mut registry, binding, size + n));
    assert_eq!(busy.count(), 4);

    for id in &ids[6..] {
        assert_eq!(registry.begin(at(0), *id), Begin::Begun);
    }
    registry.begin(at(0), newest);
    assert_eq!(registry.busy(), size as usize - 1);
    let (steps, newest) = count(|| open(&mut registry, binding, size + 5));
    costs.push(("an opening where all but one are busy", steps));
    assert!(!registry.is_live(ids[5]), "the only idle one made room");

    let other = key(size + 6);
    let (steps, refused) = count(|| registry.admit(at(0), &other, binding, Want::CALL, |_| ()));
    costs.push(("a refusal where all are busy", steps));
    assert!(matches!(refused, Err(Refusal::ServerFull(_))));

    let (steps, _) = count(|| {
        let queued = registry.admit(at(0), &other, binding, Want::PATIENT_CALL, |_| ());
        assert!(matches!(queued, Ok(Admission::Queued(_))), "{queued:?}");
        registry.leave(at(0), middle);
        let Some(Notice::Open(id)) = registry.next_notice() else {
            panic!("there is room for it");
        };
        registry.fail(id);
    });
    costs.push(("a wait for a slot, and its end", steps));

    registry.leave(at(1), newest);
    let (steps, retired) = count(|| registry.expire(at(1)));
    costs.push(("the end of one idle session's time", steps));
    assert_eq!(retired.len(), 1);
    costs
}

#[test]
fn every_operation_takes_the_same_steps_at_every_size() {
    let few = costs(SIZES[0]);
    assert!(few.iter().all(|(_, steps)| *steps > 0), "{few:?}");
    for size in &SIZES[1..] {
        assert_eq!(costs(*size), few, "{size} sessions");
    }
}
