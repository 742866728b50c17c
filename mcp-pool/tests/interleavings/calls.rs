//! Calls beside calls: one session for each key, whoever comes and goes, and pressure that cuts nobody.

use crate::{
    lease::BeginError,
    pool::{AcquireError, Limits},
    world::{OpenFailed, World, a_while, explore, limits, spawn},
};

#[test]
fn two_first_uses_at_once_make_one_creation() {
    explore(limits(1), async |world: World| {
        let other = world.spawn_call(1);
        let called = world.call(1).await.unwrap();
        let other = other.await.unwrap().unwrap();
        assert_eq!(called.id, other.id);
        assert!(!called.cut && !other.cut);
        assert_eq!(world.opened().len(), 1);
    });
}

#[test]
fn a_creator_that_is_cancelled_at_any_moment_leaves_the_session_to_its_joiner() {
    explore(limits(1), async |world: World| {
        let creator = world.spawn_call(1);
        let joiner = world.spawn_call(1);
        a_while().await;
        creator.abort();
        assert!(!joiner.await.unwrap().unwrap().cut);
        drop(creator.await);
        assert_eq!(world.pool.len(), 1);
    });
}

#[test]
fn whoever_is_cancelled_at_any_moment_leaves_nothing_behind() {
    explore(limits(1), async |world: World| {
        let users = [1, 1, 2].map(|scope| world.spawn_call(scope));
        for user in &users {
            a_while().await;
            user.abort();
        }
        for user in users {
            drop(user.await);
        }
    });
}

#[test]
fn an_eviction_that_races_with_a_call_takes_the_idle_session_or_refuses() {
    explore(limits(1), async |world: World| {
        let id = world.call(1).await.unwrap().id;
        let first = world.opened().remove(0);
        let pressure = [(); 2].map(|()| {
            let (world, first) = (world.clone(), first.clone());
            spawn(async move {
                let lease = world.acquire(2).await?;
                assert!(first.is_closed(), "the victim is closed before any answer");
                Ok(world.run(lease).await)
            })
        });
        // It is pinned at some moment between the admission of the other and its promotion.
        let called = world.call(1).await;
        match called {
            Ok(called) if called.id == id => assert!(!called.cut, "pressure cuts no call"),
            Ok(_) => assert!(first.is_closed(), "it was replaced because it made room"),
            Err(refused) => assert!(matches!(refused, AcquireError::Capacity { .. })),
        }
        for pressed in pressure {
            match pressed.await.unwrap() {
                Ok(pressed) => assert!(!pressed.cut),
                Err(refused) => assert!(matches!(refused, AcquireError::Capacity { .. })),
            }
        }
    });
}

#[test]
fn nobody_has_a_session_before_the_one_that_made_room_is_closed() {
    explore(limits(1), async |world: World| {
        world.call(1).await.unwrap();
        let users = [(); 3].map(|()| {
            let world = world.clone();
            spawn(async move {
                a_while().await;
                let lease = world.acquire(2).await.unwrap();
                assert!(world.opened()[0].is_closed());
                drop(lease);
            })
        });
        for user in users {
            user.await.unwrap();
        }
    });
}

#[test]
fn a_handle_begins_a_call_that_is_not_cut_or_says_that_its_session_is_detached() {
    explore(limits(1), async |world: World| {
        let handle = world.acquire(1).await.unwrap().handle();
        let pressure = world.spawn_call(2);
        a_while().await;
        let begun = handle.begin();
        let detached = matches!(begun, Err(BeginError::Detached(_)));
        if let Ok(lease) = begun {
            assert!(!world.run(lease).await.cut);
        }
        let pressed = pressure.await.unwrap().is_ok();
        let first_has_gone = world.opened()[0].is_closed();
        assert_eq!(first_has_gone, pressed);
        assert!(first_has_gone || !detached);
    });
}

#[test]
fn a_session_whose_creators_met_is_pinned_for_all_of_them_before_it_can_be_evicted() {
    explore(limits(1), async |world: World| {
        let users = [1, 1, 2].map(|scope| world.spawn_call(scope));
        let mut outcomes = Vec::new();
        for user in users {
            outcomes.push(user.await.unwrap());
        }
        assert!(outcomes.iter().flatten().all(|called| !called.cut));
        assert!(outcomes.iter().any(Result::is_ok), "somebody was first");
        for refused in outcomes.into_iter().filter_map(Result::err) {
            assert!(matches!(refused, AcquireError::Capacity { .. }));
        }
    });
}

#[test]
fn an_opening_that_fails_tells_all_who_wait_and_leaves_its_key_to_the_next() {
    explore(limits(1), async |world: World| {
        // Only the first attempt of the first one can fail; the other may have joined it.
        let users = [Err(OpenFailed), Ok(())].map(|opens| {
            let world = world.clone();
            spawn(async move {
                match world.acquire_or_fail(1, opens).await {
                    Ok(lease) => world.run(lease).await,
                    Err(failed) => {
                        assert_eq!(failed, AcquireError::Open(OpenFailed));
                        world.call(1).await.unwrap()
                    }
                }
            })
        });
        for user in users {
            assert!(!user.await.unwrap().cut);
        }
        assert_eq!(world.opened().len(), 1);
    });
}

#[test]
fn openings_that_wait_for_their_turn_all_have_it() {
    let limits = Limits {
        openings: 1,
        ..limits(3)
    };
    explore(limits, async |world: World| {
        let users = [1, 2, 3].map(|scope| world.spawn_call(scope));
        for user in users {
            assert!(!user.await.unwrap().unwrap().cut);
        }
        assert_eq!(world.opened().len(), 3);
    });
}
