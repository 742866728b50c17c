//! What a session costs that is there already, and what it costs to make room for one, beside what it would cost
//! without the pool's promises: a map behind a mutex, a least-recently-used map behind a mutex, and `deadpool`.
//!
//! Times mean something only beside those of the same run: `make bench` prints them in groups that are to be compared.

#![allow(missing_docs, reason = "what criterion generates has none")]

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    hint::black_box,
    num::NonZeroUsize,
    pin::pin,
    sync::{Arc, Barrier, Mutex},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lru::LruCache;
use mcp_pool::{
    Binding, Fingerprint, Key, Limits, Pool, Session, SessionId, Timestamp,
    registry::{Admission, Promotion, Registry, Rules, Want},
};
use tokio::runtime::Runtime;

const SIZES: [usize; 3] = [256, 10_000, 1_000_000];
const NOW: Timestamp = Timestamp::ZERO;

/// A session of no use, which is shared by reference as real ones are.
#[derive(Clone)]
struct Idle {
    _connection: Arc<()>,
}

impl Idle {
    fn new() -> Self {
        Self {
            _connection: Arc::new(()),
        }
    }
}

impl Session for Idle {
    fn retire(&self) {}

    async fn closed(&self) {}
}

fn key(scope: usize) -> Key {
    Key::new("deployment", "browser", format!("conversation {scope}"))
}

/// Numbers below the bound, each once, in an order that no cache foresees.
fn shuffled(bound: usize) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..bound).collect();
    let mut state = 1_u64;
    for last in (1..bound).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        numbers.swap(last, (state >> 33) as usize % (last + 1));
    }
    numbers
}

/// Keys to look up with, which are not those that are kept.
fn shuffled_keys(bound: usize) -> Vec<Key> {
    shuffled(bound).into_iter().map(key).collect()
}

type Sessions = Registry<Key, (), Idle>;

fn open(registry: &mut Sessions, key: &Key, binding: Binding, session: &Idle) -> SessionId {
    let admitted = registry.admit(NOW, key, binding, Want::CALL, |_| ());
    let Ok(Admission::Started(id)) = admitted else {
        panic!("{admitted:?}");
    };
    let promotion = registry.promote(NOW, id, session.clone());
    assert!(matches!(promotion, Promotion::Promoted { .. }));
    registry.arrived(id);
    id
}

/// A full registry of which so many sessions are busy.
fn registry(size: usize, busy: usize) -> (Sessions, Binding) {
    let mut registry = Registry::new(Rules::with_capacity(size));
    let (binding, _) =
        registry.ensure_binding(&"deployment".into(), &"browser".into(), Fingerprint(1));
    let session = Idle::new();
    for scope in 0..size {
        let id = open(&mut registry, &key(scope), binding, &session);
        if scope >= busy {
            registry.leave(NOW, id);
        }
    }
    (registry, binding)
}

/// The result of a future that has it at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it is there already"),
    }
}

type Conversations = Pool<Key, Idle, Infallible>;

fn pool(runtime: &Runtime, size: usize) -> (Conversations, Binding) {
    let limits = Limits {
        capacity: size,
        ..Limits::default()
    };
    let pool = Pool::on(runtime.handle().clone(), limits);
    let binding = pool.ensure_binding(&"deployment".into(), &"browser".into(), 1_u64);
    runtime.block_on(async {
        for scope in 0..size {
            let open = || async { Ok(Idle::new()) };
            drop(pool.acquire(&key(scope), &binding, open).await);
        }
    });
    assert_eq!(pool.len(), size);
    (pool, binding)
}

async fn never() -> Result<Idle, Infallible> {
    panic!("it is there already")
}

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().expect("a runtime")
}

fn call_on_a_session_that_is_there(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("call");
    for size in SIZES {
        let keys = shuffled_keys(size);
        let session = Idle::new;

        let map: HashMap<Key, Idle> = (0..size).map(|n| (key(n), session())).collect();
        let map = Mutex::new(map);
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("map and mutex", size), |bencher| {
            bencher.iter(|| {
                let key = next.next().expect("a cycle");
                let map = map.lock().expect("not poisoned");
                black_box(map.get(key).expect("it is there").clone())
            });
        });
        drop(map);

        let (registry, binding) = registry(size, 0);
        let registry = Mutex::new(registry);
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("registry and mutex", size), |bencher| {
            bencher.iter(|| {
                let key = next.next().expect("a cycle");
                let mut locked = registry.lock().expect("not poisoned");
                let admitted = locked.admit(NOW, key, binding, Want::CALL, |_| ());
                let Ok(Admission::Live(id)) = admitted else {
                    panic!("{admitted:?}");
                };
                let session = locked.give(id).expect("it is there").0.clone();
                drop(locked);
                black_box(session);
                registry.lock().expect("not poisoned").leave(NOW, id);
            });
        });
        drop(registry);

        let runtime = runtime();
        let (pool, binding) = pool(&runtime, size);
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("pool", size), |bencher| {
            bencher.iter(|| {
                let key = next.next().expect("a cycle");
                let lease = at_once(pool.acquire(key, &binding, never));
                black_box(lease.expect("it is there").session());
            });
        });
        runtime.block_on(pool.shutdown());

        let mut cache = LruCache::new(NonZeroUsize::new(size).expect("a size"));
        for scope in 0..size {
            cache.push(key(scope), session());
        }
        let cache = Mutex::new(cache);
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("lru and mutex", size), |bencher| {
            bencher.iter(|| {
                let key = next.next().expect("a cycle");
                let mut cache = cache.lock().expect("not poisoned");
                black_box(cache.get(key).expect("it is there").clone())
            });
        });
    }
    group.bench_function(BenchmarkId::new("deadpool, no keys", SIZES[0]), |bencher| {
        let pool = deadpool_of(SIZES[0]);
        bencher.iter(|| black_box(at_once(pool.get()).expect("one is idle")));
    });
    group.finish();
}

struct Opens;

impl deadpool::managed::Manager for Opens {
    type Type = Idle;
    type Error = Infallible;

    async fn create(&self) -> Result<Idle, Infallible> {
        Ok(Idle::new())
    }

    async fn recycle(
        &self,
        _: &mut Idle,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

/// All of its sessions are open and idle.
fn deadpool_of(size: usize) -> deadpool::managed::Pool<Opens> {
    let pool = deadpool::managed::Pool::builder(Opens).max_size(size);
    let pool = pool.build().expect("a pool");
    let all: Vec<_> = (0..size).map(|_| at_once(pool.get())).collect();
    drop(all);
    pool
}

fn make_room_for_a_new_session(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("make room");
    for size in SIZES {
        let mut cases = vec![0, 255, size - 1];
        cases.dedup();
        for busy in cases {
            let (registry, binding) = registry(size, busy);
            let registry = Mutex::new(registry);
            let session = Idle::new();
            // More of them than are idle, so that none is there when it comes again.
            let keys: Vec<_> = (size..2 * size - busy + 1_000).map(key).collect();
            let mut next = keys.iter().cycle();
            let name = format!("registry and mutex, {busy} busy");
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let key = next.next().expect("a cycle");
                    let mut registry = registry.lock().expect("not poisoned");
                    let id = open(&mut registry, key, binding, &session);
                    registry.leave(NOW, id);
                });
            });
        }
        let mut cache = LruCache::new(NonZeroUsize::new(size).expect("a size"));
        let session = Idle::new();
        for scope in 0..size {
            cache.push(key(scope), session.clone());
        }
        let cache = Mutex::new(cache);
        let keys: Vec<_> = (size..2 * size + 1_000).map(key).collect();
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("lru and mutex", size), |bencher| {
            bencher.iter(|| {
                let key = next.next().expect("a cycle").clone();
                let mut cache = cache.lock().expect("not poisoned");
                black_box(cache.push(key, session.clone()))
            });
        });
    }
    group.finish();
}

/// How long so many threads take for so many rounds each.
fn together(threads: usize, rounds: u64, act: impl Fn(usize) + Sync) -> Duration {
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, act) = (&start, &act);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..rounds {
                        act(thread);
                    }
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        for thread in running {
            thread.join().expect("it does not panic");
        }
        began.elapsed()
    })
}

fn calls_from_many_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("contention");
    let size = SIZES[0];
    let keys: Vec<_> = (0..size).map(key).collect();
    let runtime = runtime();
    let (pool, binding) = pool(&runtime, size);
    let map: HashMap<Key, Idle> = (0..size).map(|n| (key(n), Idle::new())).collect();
    let map = Mutex::new(map);
    let deadpool = deadpool_of(size);
    for threads in [1, 2, 8] {
        group.bench_function(BenchmarkId::new("map and mutex", threads), |bencher| {
            bencher.iter_custom(|rounds| {
                together(threads, rounds, |thread| {
                    let map = map.lock().expect("not poisoned");
                    black_box(map.get(&keys[thread]).expect("it is there").clone());
                })
            });
        });
        group.bench_function(BenchmarkId::new("pool", threads), |bencher| {
            bencher.iter_custom(|rounds| {
                together(threads, rounds, |thread| {
                    let lease = at_once(pool.acquire(&keys[thread], &binding, never));
                    black_box(lease.expect("it is there").session());
                })
            });
        });
        group.bench_function(BenchmarkId::new("deadpool, no keys", threads), |bencher| {
            bencher.iter_custom(|rounds| {
                together(threads, rounds, |_| {
                    drop(black_box(at_once(deadpool.get()).expect("one is idle")));
                })
            });
        });
    }
    group.finish();
}

/// Something to be measured, in calls.
type Act<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// The best time of each, of rounds that take turns: what else the machine does meets all alike, and the best round
/// of each hardly at all.
fn side_by_side(size: usize, title: &str, mut acts: Vec<Act<'_>>) {
    const CALLS: u32 = 2_000;
    let mut best = vec![Duration::MAX; acts.len()];
    for _ in 0..60 {
        for (best, (_, act)) in best.iter_mut().zip(&mut acts) {
            let began = Instant::now();
            for _ in 0..CALLS {
                act();
            }
            *best = (*best).min(began.elapsed() / CALLS);
        }
    }
    let measure = best[0].as_secs_f64();
    for (best, (name, _)) in best.iter().zip(&acts) {
        let ratio = best.as_secs_f64() / measure;
        println!("{title:<10} {size:>9}  {name:<40} {ratio:>5.2} x  {best:>9.0?}");
    }
}

/// The same as the groups, as ratios: the first of each is what the others are measured by.
fn ratios(_: &mut Criterion) {
    println!("what       sessions  beside which                              ratio");
    for size in SIZES {
        let keys = shuffled_keys(size);
        let map: HashMap<Key, Idle> = (0..size).map(|n| (key(n), Idle::new())).collect();
        let map = Mutex::new(map);
        let (registry, bound) = registry(size, 0);
        let registry = Mutex::new(registry);
        let runtime = runtime();
        let (pool, binding) = pool(&runtime, size);
        let mut cache = LruCache::new(NonZeroUsize::new(size).expect("a size"));
        for scope in 0..size {
            cache.push(key(scope), Idle::new());
        }
        let cache = Mutex::new(cache);
        let [mut a, mut b, mut c, mut d] = [(); 4].map(|()| keys.iter().cycle());
        let look_up: Act<'_> = (
            "map and mutex: look up, clone",
            Box::new(|| {
                let key = a.next().expect("a cycle");
                let map = map.lock().expect("not poisoned");
                black_box(map.get(key).expect("it is there").clone());
            }),
        );
        let on_registry: Act<'_> = (
            "registry and mutex: get, pin, release",
            Box::new(|| {
                let key = b.next().expect("a cycle");
                let mut locked = registry.lock().expect("not poisoned");
                let admitted = locked.admit(NOW, key, bound, Want::CALL, |_| ());
                let Ok(Admission::Live(id)) = admitted else {
                    panic!("{admitted:?}");
                };
                let session = locked.give(id).expect("it is there").0.clone();
                drop(locked);
                black_box(session);
                registry.lock().expect("not poisoned").leave(NOW, id);
            }),
        );
        let on_pool: Act<'_> = (
            "pool: get, pin, release",
            Box::new(|| {
                let key = c.next().expect("a cycle");
                let lease = at_once(pool.acquire(key, &binding, never));
                black_box(lease.expect("it is there").session());
            }),
        );
        let on_lru: Act<'_> = (
            "lru and mutex: get, clone",
            Box::new(|| {
                let key = d.next().expect("a cycle");
                let mut cache = cache.lock().expect("not poisoned");
                black_box(cache.get(key).expect("it is there").clone());
            }),
        );
        side_by_side(size, "call", vec![look_up, on_registry, on_pool, on_lru]);
        if size == SIZES[0] {
            let deadpool = deadpool_of(size);
            let on_deadpool: Act<'_> = (
                "deadpool, no keys: get, return",
                Box::new(|| drop(black_box(at_once(deadpool.get()).expect("one is idle")))),
            );
            let on_pool: Act<'_> = (
                "pool: get, pin, release",
                Box::new(|| {
                    let key = keys.first().expect("a key");
                    let lease = at_once(pool.acquire(key, &binding, never));
                    black_box(lease.expect("it is there").session());
                }),
            );
            side_by_side(size, "one call", vec![on_deadpool, on_pool]);
        }
        runtime.block_on(pool.shutdown());
        make_room_ratios(size);
    }
}

fn make_room_ratios(size: usize) {
    let session = Idle::new();
    let keys: Vec<_> = (size..2 * size + 1_000).map(key).collect();
    let mut cache = LruCache::new(NonZeroUsize::new(size).expect("a size"));
    for scope in 0..size {
        cache.push(key(scope), session.clone());
    }
    let cache = Mutex::new(cache);
    let mut next = keys.iter().cycle();
    let mut acts: Vec<Act<'_>> = vec![(
        "lru and mutex: push, drop the oldest",
        Box::new(|| {
            let key = next.next().expect("a cycle").clone();
            let mut cache = cache.lock().expect("not poisoned");
            black_box(cache.push(key, session.clone()));
        }),
    )];
    let cases = [
        (0, "registry and mutex: none busy"),
        (255, "registry and mutex: 255 busy"),
        (size - 1, "registry and mutex: all but one busy"),
    ];
    for (busy, name) in cases {
        if busy == 255 && size == 256 {
            continue;
        }
        let (registry, binding) = registry(size, busy);
        let registry = Mutex::new(registry);
        let (mut next, session) = (keys.iter().cycle(), session.clone());
        acts.push((
            name,
            Box::new(move || {
                let key = next.next().expect("a cycle");
                let mut registry = registry.lock().expect("not poisoned");
                let id = open(&mut registry, key, binding, &session);
                registry.leave(NOW, id);
            }),
        ));
    }
    side_by_side(size, "make room", acts);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1));
    targets = ratios, call_on_a_session_that_is_there, make_room_for_a_new_session, calls_from_many_threads
}
criterion_main!(benches);
