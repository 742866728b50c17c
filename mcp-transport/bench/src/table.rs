//! What a round costs, and the lines that are printed of it.

use std::time::{Duration, Instant};

/// Rounds that take turns.
pub(crate) const ROUNDS: usize = 7;

/// What each call of a round cost, in microseconds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Cost {
    cpu: f64,
    wall: f64,
}

/// CPU time of this process, and the time that passes.
pub(crate) struct Meter {
    cpu: Duration,
    since: Instant,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self {
            cpu: cpu(),
            since: Instant::now(),
        }
    }

    /// For each of so many calls.
    pub(crate) fn stop(self, calls: usize) -> Cost {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / calls as f64;
        Cost {
            cpu: each(cpu() - self.cpu),
            wall: each(self.since.elapsed()),
        }
    }
}

fn cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one time there.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The costs of raw, ours and rmcp in each round.
#[derive(Default)]
pub(crate) struct Line([Vec<Cost>; 3]);

impl Line {
    /// Adds a round; the first is to warm up.
    pub(crate) fn add(&mut self, round: usize, costs: [Cost; 3]) {
        if round > 0 {
            for (all, cost) in self.0.iter_mut().zip(costs) {
                all.push(cost);
            }
        }
    }

    pub(crate) fn print(self, name: &str) {
        let [raw, ours, rmcp] = self.0.map(median);
        let beside = |cost: Cost| {
            format!(
                "{:9.1} µs {:5.2} ({:5.2})",
                cost.cpu,
                cost.cpu / raw.cpu,
                cost.wall / raw.wall
            )
        };
        println!(
            "{name:>30} {:9.1} µs {:>24} {:>24}   {:.2}",
            raw.cpu,
            beside(ours),
            beside(rmcp),
            ours.cpu / rmcp.cpu
        );
    }
}

pub(crate) fn print_heading(title: &str) {
    println!(
        "\n{title}: the client's CPU for each call, and how often raw's (the time that passes, likewise)"
    );
    println!(
        "{:>30} {:>12} {:>24} {:>24}   ours/rmcp",
        "", "raw", "ours", "rmcp"
    );
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    costs[costs.len() / 2]
}
