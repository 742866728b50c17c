//! Calls over stdio: this crate beside a raw ping-pong of the same bytes and beside rmcp, in one run.
//!
//! What is compared is the CPU time of the client's process for each call, and the time that passes. Only the ratios
//! mean anything: each is the median of rounds that take turns, on the machine as it is just then.

mod raw;
mod server;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use mcp_transport::{
    config::StdioConfig,
    session::{RequestOptions, Session, SessionOptions},
    stdio::{Spawner, StdioTransport},
};
use rmcp::{
    RoleClient, ServiceExt, model::CallToolRequestParams, service::RunningService,
    transport::TokioChildProcess,
};

/// Rounds that take turns.
const ROUNDS: usize = 5;

/// What is done in one round: so many batches of so many calls with an answer of so many bytes.
#[derive(Clone, Copy)]
struct Load {
    in_flight: usize,
    batches: usize,
    bytes: usize,
}

/// What a round cost for each call.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    cpu: f64,
    wall: f64,
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return server::serve();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        println!(
            "client's CPU for each call, and times as much as raw; (time that passes, likewise)"
        );
        println!("{:>24} {:>12} {:>24} {:>24}", "", "raw", "ours", "rmcp");
        let load = |in_flight, batches, bytes| Load {
            in_flight,
            batches,
            bytes,
        };
        for (name, load) in [
            ("1 in flight, 100 B", load(1, 3000, 100)),
            ("64 in flight, 100 B", load(64, 200, 100)),
            ("512 in flight, 100 B", load(512, 40, 100)),
            ("1 in flight, 64 KiB", load(1, 500, 64 << 10)),
            ("1 in flight, 1 MiB", load(1, 60, 1 << 20)),
            // rmcp drops what is longer than 16 MiB, and its call never ends.
            ("1 in flight, 15 MiB", load(1, 5, 15 << 20)),
            ("350,000 small blocks", load(1, 3, server::BLOCKS)),
        ] {
            if is_wanted(name) {
                print(name, calls(load).await);
            }
        }
        if is_wanted(CONNECT) {
            print(CONNECT, connects(20).await);
        }
    });
}

const CONNECT: &str = "connect, call, close";

/// Without arguments all is measured, with some only what contains one of them.
fn is_wanted(name: &str) -> bool {
    let mut wanted = std::env::args().skip(1).peekable();
    wanted.peek().is_none() || wanted.any(|part| name.contains(&part))
}

fn print(name: &str, [raw, ours, rmcp]: [Cost; 3]) {
    let beside = |cost: Cost| {
        format!(
            "{:9.1} µs {:5.2} ({:5.2})",
            cost.cpu,
            cost.cpu / raw.cpu,
            cost.wall / raw.wall
        )
    };
    println!(
        "{name:>24} {:9.1} µs {:>24} {:>24}   ours/rmcp {:.2}",
        raw.cpu,
        beside(ours),
        beside(rmcp),
        ours.cpu / rmcp.cpu
    );
}

async fn calls(load: Load) -> [Cost; 3] {
    let mut raw = raw::Client::start();
    let spawner = Spawner::new();
    let ours = open(&spawner).await;
    let rmcp = open_rmcp().await;
    let calls = load.batches * load.in_flight;
    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let mut round_costs = [Cost {
            cpu: 0.0,
            wall: 0.0,
        }; 3];
        let meter = Meter::start();
        raw.calls(load);
        round_costs[0] = meter.stop(calls);
        let meter = Meter::start();
        call_ours(&ours, load).await;
        round_costs[1] = meter.stop(calls);
        let meter = Meter::start();
        call_rmcp(&rmcp, load).await;
        round_costs[2] = meter.stop(calls);
        // The first is to warm up.
        if round > 0 {
            for (costs, cost) in costs.iter_mut().zip(round_costs) {
                costs.push(cost);
            }
        }
    }
    ours.close(Duration::from_secs(4)).await;
    let _ = rmcp.cancel().await;
    costs.map(median)
}

/// Starts, calls once and closes, so many times in each round.
async fn connects(times: usize) -> [Cost; 3] {
    let once = Load {
        in_flight: 1,
        batches: 1,
        bytes: 100,
    };
    let spawner = Spawner::new();
    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let mut round_costs = [Cost {
            cpu: 0.0,
            wall: 0.0,
        }; 3];
        let meter = Meter::start();
        for _ in 0..times {
            raw::Client::start().calls(once);
        }
        round_costs[0] = meter.stop(times);
        let meter = Meter::start();
        for _ in 0..times {
            let session = open(&spawner).await;
            call_ours(&session, once).await;
            session.close(Duration::from_secs(4)).await;
        }
        round_costs[1] = meter.stop(times);
        let meter = Meter::start();
        for _ in 0..times {
            let client = open_rmcp().await;
            call_rmcp(&client, once).await;
            let _ = client.cancel().await;
        }
        round_costs[2] = meter.stop(times);
        if round > 0 {
            for (costs, cost) in costs.iter_mut().zip(round_costs) {
                costs.push(cost);
            }
        }
    }
    costs.map(median)
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    costs[costs.len() / 2]
}

fn this_program() -> String {
    let program = std::env::current_exe().expect("a path");
    program.to_str().expect("UTF-8").to_owned()
}

async fn open(spawner: &Spawner) -> Session {
    let mut config = StdioConfig::new(this_program());
    config.args = vec!["serve".into()];
    Session::open(
        Arc::new(StdioTransport::with_spawner(config, spawner.clone())),
        SessionOptions {
            client_name: "bench".into(),
            client_version: "1".into(),
            connect_deadline: tokio::time::Instant::now() + Duration::from_secs(60),
            handler: Arc::new(()),
        },
    )
    .await
    .expect("it opens")
}

async fn call_ours(session: &Session, load: Load) {
    let params = Bytes::from(raw::params(load.bytes));
    for _ in 0..load.batches {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let calls: Vec<_> = (0..load.in_flight)
            .map(|_| {
                let limits = RequestOptions::until(deadline);
                session.request("tools/call", Some(params.clone()), limits)
            })
            .collect();
        for call in calls {
            assert!(call.await.expect("an answer").len() >= load.bytes);
        }
    }
}

async fn open_rmcp() -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::new(this_program());
    command.arg("serve");
    let transport = TokioChildProcess::new(command).expect("it starts");
    ().serve(transport).await.expect("it opens")
}

async fn call_rmcp(client: &RunningService<RoleClient, ()>, load: Load) {
    for _ in 0..load.batches {
        let calls = (0..load.in_flight).map(|_| {
            let params = CallToolRequestParams::new(raw::tool(load.bytes));
            client.call_tool(params)
        });
        for answer in join_all(calls).await {
            assert!(!answer.expect("an answer").content.is_empty());
        }
    }
}

/// CPU time of this process, and the time that passes.
struct Meter {
    cpu: f64,
    since: Instant,
}

impl Meter {
    fn start() -> Self {
        Self {
            cpu: cpu(),
            since: Instant::now(),
        }
    }

    /// In microseconds for each of so many.
    fn stop(self, of: usize) -> Cost {
        let wall = self.since.elapsed().as_secs_f64();
        Cost {
            cpu: (cpu() - self.cpu) * 1e6 / of as f64,
            wall: wall * 1e6 / of as f64,
        }
    }
}

fn cpu() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills it in; all zero is a value of it too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
