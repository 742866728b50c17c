//! Something to be measured, and how it is beside others.

use std::{
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

/// Something to be measured, any number of times in a row.
pub(crate) struct Act {
    pub(crate) name: String,
    time: Box<dyn FnMut(u64) -> Duration>,
}

impl Act {
    pub(crate) fn new(name: impl Into<String>, mut once: impl FnMut() + 'static) -> Self {
        Self {
            name: name.into(),
            time: Box::new(move |times| {
                let began = Instant::now();
                for _ in 0..times {
                    once();
                }
                began.elapsed()
            }),
        }
    }

    /// Each of so many threads does it, and is told its number.
    pub(crate) fn by_threads(
        name: impl Into<String>,
        threads: usize,
        once: impl Fn(usize) + Send + Sync + 'static,
    ) -> Self {
        let once = Arc::new(once);
        Self {
            name: name.into(),
            time: Box::new(move |times| together(threads, times, &*once)),
        }
    }

    /// How long it takes so many times.
    pub(crate) fn time(&mut self, times: u64) -> Duration {
        (self.time)(times)
    }
}

/// How long so many threads take for so many times each, from when all of them are ready.
fn together(threads: usize, times: u64, once: &(impl Fn(usize) + Sync)) -> Duration {
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..times {
                        once(thread);
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

/// Prints how long each act takes beside the first one.
///
/// They take turns in many short rounds, and are compared within each round, so that whatever else the machine does
/// meets all alike; of all rounds the middle ratio counts, and the quarters around it tell what it is worth.
pub(crate) fn side_by_side(what: &str, size: usize, times: u64, acts: &mut [Act]) {
    const ROUNDS: usize = 301;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let mut taken = vec![Duration::ZERO; acts.len()];
        // Not always after the same one.
        for turn in 0..acts.len() {
            let act = (round + turn) % acts.len();
            taken[act] = acts[act].time(times);
        }
        rounds.push(taken);
    }
    for (act, Act { name, .. }) in acts.iter().enumerate() {
        let ratio = |taken: &Vec<Duration>| taken[act].div_duration_f64(taken[0]);
        let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let [low, middle, high] = [1, 2, 3].map(|quarter| ratios[quarter * ROUNDS / 4]);
        println!("{what:<12} {size:>8}  {name:<40} {middle:>6.2}  ({low:.2} to {high:.2})");
    }
}
