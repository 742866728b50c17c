//! Calls over stdio.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use mcp_transport::{
    config::StdioConfig,
    session::{RequestOptions, Session, SessionOptions},
    stdio::{SigpipeOff, Spawner, StdioTransport},
};
use rmcp::{
    RoleClient, ServiceExt, model::CallToolRequestParams, service::RunningService,
    transport::TokioChildProcess,
};
use tokio::time::Instant;

use crate::{
    is_wanted, runtime,
    stdio_raw::{self as raw, Client},
    stdio_server as server,
    table::{Line, Meter, ROUNDS, print_heading},
    this_program,
};

/// What is done in one round: so many batches of so many calls with an answer of so many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    pub(crate) batches: usize,
    pub(crate) bytes: usize,
}

const fn load(in_flight: usize, batches: usize, bytes: usize) -> Load {
    Load {
        in_flight,
        batches,
        bytes,
    }
}

const LINES: [(&str, Load); 7] = [
    ("stdio, 1 in flight, 100 B", load(1, 3000, 100)),
    ("stdio, 64 in flight, 100 B", load(64, 200, 100)),
    ("stdio, 512 in flight, 100 B", load(512, 40, 100)),
    ("stdio, 64 KiB", load(1, 500, 64 << 10)),
    ("stdio, 1 MiB", load(1, 60, 1 << 20)),
    // rmcp drops what is longer than 16 MiB, and its call never ends.
    ("stdio, 15 MiB", load(1, 5, 15 << 20)),
    ("stdio, 350,000 small blocks", load(1, 3, server::BLOCKS)),
];
const CONNECT: &str = "stdio, connect, call, close";

pub(crate) fn measure() {
    if !LINES
        .iter()
        .map(|(name, _)| *name)
        .chain([CONNECT])
        .any(is_wanted)
    {
        return;
    }
    print_heading("stdio");
    // What a thread that drives sessions does, as the documentation of it says.
    let _off = SigpipeOff::new();
    runtime().block_on(async {
        for (name, load) in LINES {
            if is_wanted(name) {
                calls(load).await.print(name);
            }
        }
        if is_wanted(CONNECT) {
            connects(20).await.print(CONNECT);
        }
    });
}

async fn calls(load: Load) -> Line {
    let mut raw = Client::start();
    let spawner = Spawner::new();
    let ours = open(&spawner).await;
    let rmcp = open_rmcp().await;
    let calls = load.batches * load.in_flight;
    let mut line = Line::default();
    for round in 0..=ROUNDS {
        let meter = Meter::start();
        raw.calls(load);
        let raw_cost = meter.stop(calls);
        let meter = Meter::start();
        call_ours(&ours, load).await;
        let our_cost = meter.stop(calls);
        let meter = Meter::start();
        call_rmcp(&rmcp, load).await;
        line.add(round, [raw_cost, our_cost, meter.stop(calls)]);
    }
    ours.close(Duration::from_secs(4)).await;
    let _ = rmcp.cancel().await;
    line
}

/// Starts, calls once and closes, so many times in each round.
async fn connects(times: usize) -> Line {
    let once = load(1, 1, 100);
    let spawner = Spawner::new();
    let mut line = Line::default();
    for round in 0..=ROUNDS {
        let meter = Meter::start();
        for _ in 0..times {
            Client::start().calls(once);
        }
        let raw_cost = meter.stop(times);
        let meter = Meter::start();
        for _ in 0..times {
            let session = open(&spawner).await;
            call_ours(&session, once).await;
            session.close(Duration::from_secs(4)).await;
        }
        let our_cost = meter.stop(times);
        let meter = Meter::start();
        for _ in 0..times {
            let client = open_rmcp().await;
            call_rmcp(&client, once).await;
            let _ = client.cancel().await;
        }
        line.add(round, [raw_cost, our_cost, meter.stop(times)]);
    }
    line
}

pub(crate) async fn open(spawner: &Spawner) -> Session {
    let mut config = StdioConfig::new(this_program());
    config.args = vec!["serve-stdio".into()];
    Session::open(
        Arc::new(StdioTransport::with_spawner(config, spawner.clone())),
        SessionOptions {
            client_name: "bench".into(),
            client_version: "1".into(),
            connect_deadline: Instant::now() + Duration::from_secs(60),
            handler: Arc::new(()),
        },
    )
    .await
    .expect("it opens")
}

/// Calls as a host does that has a task for each of its calls.
pub(crate) async fn call_ours(session: &Session, load: Load) {
    let session = session.clone();
    let params = Bytes::from(raw::params(load.bytes));
    let calls = async move {
        for _ in 0..load.batches {
            let deadline = Instant::now() + Duration::from_secs(60);
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
    };
    tokio::spawn(calls).await.expect("no panic");
}

pub(crate) async fn open_rmcp() -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::new(this_program());
    command.arg("serve-stdio");
    let transport = TokioChildProcess::new(command).expect("it starts");
    ().serve(transport).await.expect("it opens")
}

pub(crate) async fn call_rmcp(client: &RunningService<RoleClient, ()>, load: Load) {
    let client = client.peer().clone();
    let calls = async move {
        for _ in 0..load.batches {
            let calls = (0..load.in_flight).map(|_| {
                let params = CallToolRequestParams::new(raw::tool(load.bytes));
                client.call_tool(params)
            });
            for answer in join_all(calls).await {
                assert!(!answer.expect("an answer").content.is_empty());
            }
        }
    };
    tokio::spawn(calls).await.expect("no panic");
}
