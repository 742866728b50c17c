//! Everything at once, from several threads.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_pool::{AcquireError, Limits};

use crate::{
    fake::{Fake, OpenFailed, key, pool_with},
    registry_model::Random,
};

const SCOPES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Acquires, calls, cancels, closes, evicts and rebinds from eight tasks on four threads, and then looks at what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_open_pinned_or_running_after_a_storm_of_everything() {
    storm(Limits {
        capacity: 3,
        openings: 2,
        closings: 2,
        ..Limits::default()
    })
    .await;
}

/// The same with every limit set, so tightly that each is met.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_open_pinned_waiting_or_running_after_a_storm_within_tight_limits() {
    storm(Limits {
        capacity: 3,
        openings: 2,
        closings: 2,
        sessions_per_server: Some(2),
        calls_per_session: Some(1),
        wait: Some(Duration::from_secs(60)),
        idle_ttl: Some(Duration::from_micros(200)),
        max_lifetime: Some(Duration::from_millis(1)),
        ..Limits::default()
    })
    .await;
}

async fn storm(limits: Limits) {
    let (pool, _) = pool_with(limits);
    let opened = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..8)
        .map(|seed| {
            let (pool, opened) = (pool.clone(), opened.clone());
            tokio::spawn(async move {
                let mut random = Random::new(seed);
                for step in 0..400 {
                    let scope = *random.one_of(&SCOPES);
                    match random.below(20) {
                        0 => pool.close_scope(&"deployment", &scope).await,
                        1 => drop(pool.close_all()),
                        3 => drop(pool.drain_all(Duration::from_millis(1))),
                        2 => {
                            let fingerprint = random.below(2) as u64;
                            pool.ensure_binding(&"deployment", &"server", fingerprint);
                        }
                        _ => {}
                    }
                    let Some(binding) = pool.binding(&"deployment", &"server") else {
                        panic!("the server is never removed");
                    };
                    let (opened, fails, pauses) =
                        (opened.clone(), random.below(8) == 0, random.below(3));
                    let open = move || async move {
                        for _ in 0..pauses {
                            tokio::task::yield_now().await;
                        }
                        if fails {
                            return Err(OpenFailed("refused"));
                        }
                        let fake = Fake::new();
                        opened.lock().unwrap().push(fake.clone());
                        Ok(fake)
                    };
                    let key = key(scope);
                    let acquired = pool.acquire(&key, &binding, open);
                    let patience = random.below(6);
                    let acquired = tokio::select! {
                        acquired = acquired => acquired,
                        () = async { for _ in 0..patience { tokio::task::yield_now().await } } => continue,
                    };
                    match acquired {
                        Ok(lease) => {
                            for _ in 0..random.below(4) {
                                tokio::task::yield_now().await;
                            }
                            if step % 7 == 0 {
                                drop(pool.evict(lease.id()));
                            }
                            assert!(pool.len() <= 3);
                        }
                        Err(AcquireError::Panicked { message }) => panic!("{message}"),
                        Err(_) => {}
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let counters = pool.counters();
    assert_eq!(
        (counters.waiting, counters.queued_calls),
        (0, 0),
        "{counters:?}"
    );
    assert_eq!(counters.busy, 0, "{counters:?}");
    pool.shutdown().await;
    let counters = pool.counters();
    assert_eq!((counters.live, counters.opening), (0, 0), "{counters:?}");
    assert_eq!(counters.closing, 0, "{counters:?}");
    let opened = opened.lock().unwrap();
    assert!(opened.len() > 100, "the storm was one");
    assert!(opened.iter().all(|fake| fake.closed.is_raised()));
}
