//! Those who wait for room beside those who leave it: all have it, or are refused, and nobody is forgotten.

use crate::{
    clock::{Instant, let_deadlines_pass},
    pool::{AcquireError, Limits},
    world::{MINUTE, World, a_while, explore, limits, spawn, yield_now},
};

fn patient(capacity: usize) -> Limits {
    Limits {
        wait: Some(MINUTE),
        ..limits(capacity)
    }
}

#[test]
fn all_who_wait_for_the_only_slot_have_it() {
    explore(patient(1), async |world: World| {
        let users = [1, 2, 3].map(|scope| world.spawn_call(scope));
        for user in users {
            assert!(!user.await.unwrap().unwrap().cut);
        }
    });
}

#[test]
fn whoever_waits_for_a_slot_has_it_or_is_refused_at_the_deadline() {
    explore(patient(1), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        drop(spawn(let_deadlines_pass(1, MINUTE)));
        let began = Instant::now();
        let waits = world.spawn_call(2);
        a_while().await;
        drop(lease);
        match waits.await.unwrap() {
            Ok(called) => assert!(!called.cut),
            Err(refused) => {
                assert!(matches!(refused, AcquireError::Capacity { .. }));
                assert_eq!(began.elapsed(), MINUTE);
            }
        }
        let counters = world.pool.counters();
        assert_eq!((counters.waiting, counters.opening), (0, 0));
    });
}

#[test]
fn whoever_waits_for_a_slot_hears_of_a_close_and_the_slot_is_not_lost() {
    explore(patient(1), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let closed = world.spawn_call(2);
        let served = world.spawn_call(3);
        drop(spawn({
            let pool = world.pool.clone();
            async move { pool.close_scope(&0, &2).await }
        }));
        drop(lease);
        match closed.await.unwrap() {
            Ok(_) => {}
            Err(refused) => assert_eq!(refused, AcquireError::Closed),
        }
        assert!(!served.await.unwrap().unwrap().cut);
    });
}

#[test]
fn whoever_gives_up_waiting_for_a_slot_leaves_it_to_the_next() {
    explore(patient(1), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let gives_up = world.spawn_call(2);
        while world.pool.counters().waiting == 0 {
            yield_now().await;
        }
        let release = spawn(async move { drop(lease) });
        gives_up.abort();
        assert!(!world.call(3).await.unwrap().cut);
        release.await.unwrap();
        drop(gives_up.await);
    });
}

#[test]
fn all_who_wait_for_a_slot_in_vain_are_refused_at_the_deadline() {
    explore(patient(1), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        drop(spawn(let_deadlines_pass(2, MINUTE * 2)));
        // The second one joins the first, or comes after it.
        let users = [2, 2].map(|scope| world.spawn_call(scope));
        for user in users {
            let refused = user.await.unwrap().unwrap_err();
            assert!(matches!(refused, AcquireError::Capacity { .. }));
        }
        assert_eq!(world.opened().len(), 1, "nothing was opened for them");
        drop(lease);
    });
}

fn one_call_each() -> Limits {
    Limits {
        calls_per_session: Some(1),
        ..patient(1)
    }
}

#[test]
fn all_who_wait_for_a_place_on_a_session_have_it_one_after_the_other() {
    explore(one_call_each(), async |world: World| {
        let users = [1; 3].map(|scope| world.spawn_call(scope));
        for user in users {
            assert!(!user.await.unwrap().unwrap().cut);
        }
        assert_eq!(world.opened().len(), 1);
    });
}

#[test]
fn whoever_gives_up_waiting_for_a_place_leaves_it_to_the_next() {
    explore(one_call_each(), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let gives_up = world.spawn_call(1);
        while world.pool.counters().queued_calls == 0 {
            yield_now().await;
        }
        let release = spawn(async move { drop(lease) });
        gives_up.abort();
        assert!(!world.call(1).await.unwrap().cut);
        release.await.unwrap();
        drop(gives_up.await);
    });
}

#[test]
fn whoever_waits_for_a_place_has_it_or_is_refused_at_the_deadline() {
    explore(one_call_each(), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        drop(spawn(let_deadlines_pass(1, MINUTE)));
        let began = Instant::now();
        let waits = world.spawn_call(1);
        a_while().await;
        drop(lease);
        match waits.await.unwrap() {
            Ok(called) => assert!(!called.cut),
            Err(refused) => {
                assert_eq!(refused, AcquireError::Saturated { calls: 1 });
                assert_eq!(began.elapsed(), MINUTE);
            }
        }
    });
}

#[test]
fn all_who_wait_for_a_place_in_vain_are_refused_at_the_deadline() {
    explore(one_call_each(), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        drop(spawn(let_deadlines_pass(2, MINUTE * 2)));
        let users = [1, 1].map(|scope| world.spawn_call(scope));
        for user in users {
            let refused = user.await.unwrap().unwrap_err();
            assert_eq!(refused, AcquireError::Saturated { calls: 1 });
        }
        drop(lease);
    });
}

#[test]
fn whoever_gives_up_waiting_is_forgotten_at_once() {
    explore(one_call_each(), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let users = [1, 2].map(|scope| world.spawn_call(scope));
        for user in &users {
            a_while().await;
            user.abort();
        }
        for user in users {
            assert!(user.await.is_err(), "it had no room");
        }
        let counters = world.pool.counters();
        assert_eq!((counters.waiting, counters.queued_calls), (0, 0));
        drop(lease);
    });
}

#[test]
fn whoever_waits_for_a_place_on_a_session_that_goes_has_one_on_its_replacement() {
    explore(one_call_each(), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let dead = lease.id();
        let waits = world.spawn_call(1);
        let evicts = spawn({
            let pool = world.pool.clone();
            async move { drop(pool.evict(dead)) }
        });
        let called = waits.await.unwrap().unwrap();
        evicts.await.unwrap();
        assert!(called.id > dead, "the old one had no place");
        drop(lease);
        assert!(!called.cut);
    });
}

#[test]
fn an_expiry_at_any_moment_cuts_no_call() {
    let limits = Limits {
        idle_ttl: Some(MINUTE),
        ..limits(2)
    };
    explore(limits, async |world: World| {
        drop(spawn(let_deadlines_pass(3, MINUTE * 3)));
        let users = [1, 1, 2].map(|scope| world.spawn_call(scope));
        for user in users {
            assert!(!user.await.unwrap().unwrap().cut);
        }
    });
}

#[test]
fn the_end_of_a_life_at_any_moment_cuts_no_call_and_begins_none() {
    let limits = Limits {
        max_lifetime: Some(MINUTE),
        ..limits(3)
    };
    explore(limits, async |world: World| {
        drop(spawn(let_deadlines_pass(2, MINUTE * 2)));
        let lease = world.acquire(1).await.unwrap();
        let (id, handle, born) = (lease.id(), lease.handle(), Instant::now());
        let other = world.spawn_call(1);
        a_while().await;
        if born.elapsed() >= MINUTE {
            assert!(handle.begin().is_err());
        }
        assert!(!world.run(lease).await.cut);
        let other = other.await.unwrap().unwrap();
        assert!(!other.cut && other.id >= id);
    });
}
