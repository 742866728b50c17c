//! What a session costs that is there already, and what it costs to make room for one, beside what it would cost
//! without the pool's promises: a map behind a mutex, a least-recently-used map behind a mutex, `deadpool` and `bb8`.
//!
//! Times mean something only beside those of the same run: `make bench` prints first the ratios, and then the times in
//! groups that are to be compared.

#![allow(missing_docs, reason = "what criterion generates has none")]

mod act;
mod ways;

use std::{hint::black_box, time::Duration};

use act::{Act, side_by_side};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ways::{Asked, Idle, Pool, Registry, at_once, bb8, deadpool, key, lock, lru, map, runtime};

const SIZES: [usize; 3] = [256, 10_000, 1_000_000];

const MAP: &str = "map and mutex: look up, clone";
const LRU: &str = "lru and mutex: get, clone";
const REGISTRY: &str = "registry and mutex: get, pin, release";
const POOL: &str = "pool: get, pin, release";
const TIMED_POOL: &str = "pool with limits of time: the same";
const DEADPOOL: &str = "deadpool, no keys: get, return";
const BB8: &str = "bb8, no keys: get, return";

/// A call on a session that is there.
fn calls(size: usize) -> Vec<Act> {
    let asked = Asked::of_all(size);
    let mut acts = vec![
        {
            let (map, mut asked) = (map(size), asked.clone());
            Act::new(MAP, move || {
                let session = lock(&map).get(asked.next()).cloned();
                black_box(session.expect("it is there"));
            })
        },
        {
            let (lru, mut asked) = (lru(size), asked.clone());
            Act::new(LRU, move || {
                let session = lock(&lru).get(asked.next()).cloned();
                black_box(session.expect("it is there"));
            })
        },
        {
            let (registry, mut asked) = (Registry::new(size, 0), asked.clone());
            Act::new(REGISTRY, move || {
                let (id, session) = registry.get(asked.next());
                black_box(session);
                registry.leave(id);
            })
        },
        {
            let (pool, mut asked) = (Pool::new(size, 0), asked.clone());
            Act::new(POOL, move || {
                black_box(pool.get(asked.next()).session());
            })
        },
        {
            let (pool, mut asked) = (Pool::with_limits_of_time(size), asked);
            Act::new(TIMED_POOL, move || {
                black_box(pool.get(asked.next()).session());
            })
        },
    ];
    // They know no keys, so that one size is as good as any other.
    if size == SIZES[0] {
        let pool = deadpool(size);
        acts.push(Act::new(DEADPOOL, move || {
            drop(black_box(at_once(pool.get()).expect("one is idle")));
        }));
        let runtime = runtime();
        let pool = bb8(&runtime, size);
        acts.push(Act::new(BB8, move || {
            // It asks the runtime for a timer.
            let _inside = runtime.enter();
            drop(black_box(at_once(pool.get()).expect("one is idle")));
        }));
    }
    acts
}

/// Calls on sessions that are there, each thread on one of its own.
fn contended_calls(threads: usize) -> Vec<Act> {
    let size = SIZES[0];
    let keys: Vec<_> = (0..threads).map(key).collect();
    vec![
        {
            let (map, keys) = (map(size), keys.clone());
            Act::by_threads(MAP, threads, move |thread| {
                let session = lock(&map).get(&keys[thread]).cloned();
                black_box(session.expect("it is there"));
            })
        },
        {
            let (lru, keys) = (lru(size), keys.clone());
            Act::by_threads(LRU, threads, move |thread| {
                let session = lock(&lru).get(&keys[thread]).cloned();
                black_box(session.expect("it is there"));
            })
        },
        {
            let (pool, keys) = (Pool::new(size, 0), keys);
            Act::by_threads(POOL, threads, move |thread| {
                black_box(pool.get(&keys[thread]).session());
            })
        },
        {
            let pool = deadpool(size);
            Act::by_threads(DEADPOOL, threads, move |_| {
                drop(black_box(at_once(pool.get()).expect("one is idle")));
            })
        },
        {
            let runtime = runtime();
            let pool = bb8(&runtime, size);
            Act::by_threads(BB8, threads, move |_| {
                let _inside = runtime.enter();
                drop(black_box(at_once(pool.get()).expect("one is idle")));
            })
        },
    ]
}

/// A new session where every slot is taken.
fn openings(size: usize) -> Vec<Act> {
    let asked = Asked::of_none(size);
    let mut acts = vec![{
        let (lru, mut asked, session) = (lru(size), asked.clone(), Idle::new());
        Act::new("lru and mutex: push, drop the oldest", move || {
            let key = asked.next().clone();
            black_box(lock(&lru).push(key, session.clone()));
        })
    }];
    let mut cases = vec![(0, "none"), (255, "255"), (size - 1, "all but one")];
    cases.dedup_by_key(|(busy, _)| *busy);
    for (busy, which) in cases {
        let (registry, mut keys, session) = (Registry::new(size, busy), asked.clone(), Idle::new());
        let name = format!("registry and mutex: {which} busy");
        acts.push(Act::new(name, move || {
            let id = registry.open(keys.next(), session.clone());
            registry.leave(id);
        }));
        if size < SIZES[2] {
            let (pool, mut keys) = (Pool::new(size, busy), asked.clone());
            let name = format!("pool, in its tasks: {which} busy");
            acts.push(Act::new(name, move || drop(pool.open(keys.next()))));
        }
    }
    acts
}

/// The ratios to the first of each group.
fn ratios(_: &mut Criterion) {
    println!(
        "what         sessions  beside which                              ratio  (its quarters)"
    );
    for size in SIZES {
        side_by_side("call", size, 2_000, &mut calls(size));
    }
    for threads in [2, 8] {
        let what = format!("{threads} threads");
        side_by_side(&what, SIZES[0], 5_000, &mut contended_calls(threads));
    }
    for size in SIZES {
        side_by_side("make room", size, 200, &mut openings(size));
    }
}

fn times(criterion: &mut Criterion) {
    type Case = (&'static str, usize, fn(usize) -> Vec<Act>);
    let call = SIZES.map(|size| -> Case { ("call", size, calls) });
    let contended =
        [1, 2, 8].map(|threads| -> Case { ("contended call", threads, contended_calls) });
    let opening = SIZES.map(|size| -> Case { ("make room", size, openings) });
    for (what, parameter, acts) in call.into_iter().chain(contended).chain(opening) {
        let mut group = criterion.benchmark_group(what);
        for mut act in acts(parameter) {
            group.bench_function(BenchmarkId::new(&act.name, parameter), |bencher| {
                bencher.iter_custom(|times| act.time(times));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1));
    targets = ratios, times
}
criterion_main!(benches);
