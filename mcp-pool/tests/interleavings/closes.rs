//! Closes beside calls: nothing comes back, nothing is closed twice, and whoever waits hears of it.

use crate::{
    clock::let_deadlines_pass,
    pool::{AcquireError, Limits},
    world::{MINUTE, Watched, World, a_while, explore, key, limits, spawn},
};

#[test]
fn a_close_while_a_session_opens_lets_nothing_come_back_to_life() {
    explore(limits(1), async |world: World| {
        let users = [1, 1].map(|scope| world.spawn_call(scope));
        world.an_opening().await;
        world.pool.close_scope(&0, &1).await;
        let sessions = world.pool.snapshot().sessions;
        assert!(sessions.iter().all(|session| session.id.get() == 2));
        for user in users {
            match user.await.unwrap() {
                // The second creation is of whoever came after the close.
                Ok(called) => assert!(called.id.get() == 1 || !called.cut),
                Err(refused) => assert_eq!(refused, AcquireError::Closed),
            }
        }
        assert_eq!(world.pool.counters().tally.closed, 1);
    });
}

#[test]
fn a_shutdown_at_any_moment_leaves_nothing_open() {
    explore(limits(2), async |world: World| {
        let users = [1, 1, 2].map(|scope| world.spawn_call(scope));
        a_while().await;
        world.pool.shutdown().await;
        let opened = world.opened();
        assert!(opened.iter().all(Watched::is_closed));
        for user in users {
            if let Err(refused) = user.await.unwrap() {
                assert_eq!(refused, AcquireError::Closed);
            }
        }
        assert_eq!(
            world.opened().len(),
            opened.len(),
            "nothing opened after it"
        );
    });
}

#[test]
fn a_changed_configuration_at_any_moment_makes_what_opens_stale_for_all_who_wait() {
    explore(limits(2), async |world: World| {
        let users = [1, 1, 2].map(|scope| world.spawn_call(scope));
        a_while().await;
        let (changes, closing) = world.pool.reconcile_bindings(&0, [(0, 2_u64.into())]);
        assert!(world.pool.is_empty());
        let of_new = world.with(changes.bindings[0].1);
        let new = of_new.call(1).await.unwrap();
        assert!(!new.cut, "it is of the new one");
        for user in users {
            match user.await.unwrap() {
                Ok(old) => assert_ne!(old.id, new.id),
                Err(refused) => assert_eq!(refused, AcquireError::Stale),
            }
        }
        closing.await;
        assert_eq!(world.pool.len(), 1, "nothing of the old one comes back");
    });
}

#[test]
fn a_dead_session_is_evicted_once_and_its_replacement_spared() {
    explore(limits(2), async |world: World| {
        let dead = world.call(1).await.unwrap().id;
        let evictions = [(); 2].map(|()| {
            let pool = world.pool.clone();
            spawn(async move { pool.evict(dead).victims() })
        });
        let called = world.call(1).await.unwrap();
        assert!(called.id == dead || !called.cut);
        let mut victims = 0;
        for eviction in evictions {
            victims += eviction.await.unwrap();
        }
        assert_eq!(victims, 1);
        let next = world.call(1).await.unwrap();
        assert!(next.id > dead && !next.cut);
        assert_eq!(world.opened().len(), 2);
    });
}

#[test]
fn a_drain_lets_the_calls_end_that_run_and_closes_then() {
    explore(limits(2), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let old = world.opened().remove(0);
        let running = spawn({
            let world = world.clone();
            async move { world.run(lease).await }
        });
        let newcomer = world.spawn_call(1);
        world.pool.drain_scope(&0, &1, MINUTE).await;
        assert!(old.is_closed());
        assert!(!running.await.unwrap().cut, "it may end");
        assert!(!newcomer.await.unwrap().unwrap().cut);
    });
}

#[test]
fn a_drain_is_over_at_its_limit_whatever_its_calls_do() {
    explore(limits(1), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let deadlines = spawn(let_deadlines_pass(1, MINUTE));
        let drain = world.pool.drain_session(&key(1), MINUTE);
        drain.await;
        assert!(lease.session().is_closed(), "it was cut at the limit");
        drop(lease);
        deadlines.await.unwrap();
    });
}

#[test]
fn a_close_the_limit_of_a_drain_and_the_end_of_its_call_close_it_once() {
    explore(limits(1), async |world: World| {
        let lease = world.acquire(1).await.unwrap();
        let running = spawn({
            let world = world.clone();
            async move { world.run(lease).await }
        });
        drop(spawn(let_deadlines_pass(1, MINUTE)));
        let draining = world.pool.drain_session(&key(1), MINUTE);
        let closing = spawn({
            let pool = world.pool.clone();
            async move { pool.close_session(&key(1)).await }
        });
        draining.await;
        assert!(world.opened()[0].is_closed());
        closing.await.unwrap();
        running.await.unwrap();
    });
}

#[test]
fn the_last_pool_may_go_at_any_moment_and_takes_all_with_it() {
    explore(limits(2), async |world: World| {
        // Another one, of which no clone is kept but by the call.
        drop(world);
        let world = World::new(limits(1));
        let lease = world.acquire(1).await.unwrap();
        let held = lease.session().clone();
        let release = spawn(async move { drop(lease) });
        let call = world.spawn_call(2);
        let ledger = world.ledger();
        drop(world);
        if let Err(refused) = call.await.unwrap() {
            let full = matches!(refused, AcquireError::Capacity { .. });
            assert!(full || refused == AcquireError::Closed);
        }
        for session in ledger.opened() {
            session.over().await;
        }
        assert!(held.is_closed());
        release.await.unwrap();
    });
}

#[test]
fn a_closing_that_hangs_is_given_up_and_holds_up_nobody_for_longer() {
    let limits = Limits {
        closings: 1,
        ..limits(1)
    };
    explore(limits, async |world: World| {
        world.call(1).await.unwrap();
        world.opened()[0].hang();
        drop(spawn(let_deadlines_pass(10, MINUTE)));
        let users = [2, 2].map(|scope| world.spawn_call(scope));
        for user in users {
            assert!(!user.await.unwrap().unwrap().cut);
        }
        world.pool.close_all().await;
        assert_eq!(world.pool.counters().overdue, 1);
        assert!(!world.opened()[0].is_closed() && world.opened()[1].is_closed());
    });
}
