//! Calls over Streamable HTTP.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use mcp_transport::{
    http::{HttpClient, HttpConfig, HttpTransport},
    session::{Session, SessionOptions},
};
use rmcp::{
    RoleClient, ServiceExt,
    service::RunningService,
    transport::streamable_http_client::{
        StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    },
};
use tokio::time::Instant;

use crate::{
    http_raw, is_wanted, runtime, stdio,
    table::{Line, Meter, ROUNDS, print_heading},
    this_program,
};

/// What is done in one round, as over stdio, answered as a stream of events or not.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    pub(crate) batches: usize,
    pub(crate) bytes: usize,
    pub(crate) streams: bool,
}

const fn json(in_flight: usize, batches: usize, bytes: usize) -> Load {
    Load {
        in_flight,
        batches,
        bytes,
        streams: false,
    }
}

const fn sse(in_flight: usize, batches: usize, bytes: usize) -> Load {
    Load {
        streams: true,
        ..json(in_flight, batches, bytes)
    }
}

const LINES: [(&str, Load); 10] = [
    ("HTTP JSON, 1 in flight, 100 B", json(1, 2000, 100)),
    ("HTTP SSE, 1 in flight, 100 B", sse(1, 2000, 100)),
    ("HTTP JSON, 64 in flight, 100 B", json(64, 30, 100)),
    ("HTTP SSE, 64 in flight, 100 B", sse(64, 30, 100)),
    ("HTTP JSON, 512 in flight, 100 B", json(512, 6, 100)),
    ("HTTP JSON, 64 KiB", json(1, 300, 64 << 10)),
    ("HTTP JSON, 1 MiB", json(1, 40, 1 << 20)),
    ("HTTP SSE, 1 MiB", sse(1, 40, 1 << 20)),
    ("HTTP JSON, 16 MiB", json(1, 4, 16 << 20)),
    ("HTTP SSE, 16 MiB", sse(1, 4, 16 << 20)),
];
const CONNECT: &str = "HTTP, connect, call, close";

/// The server of this program, in a process of its own.
pub(crate) struct Target {
    process: Child,
    pub(crate) address: String,
}

impl Target {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(this_program())
            .arg("serve-http")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut address = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        let read = BufReader::new(stdout).read_line(&mut address);
        read.expect("it says where it listens");
        Self {
            process,
            address: address.trim().to_owned(),
        }
    }

    pub(crate) fn path(&self, load: Load) -> String {
        format!(
            "/{}/{}",
            load.bytes,
            if load.streams { "sse" } else { "json" }
        )
    }

    pub(crate) fn url(&self, load: Load) -> String {
        format!("http://{}{}", self.address, self.path(load))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn measure() {
    if !LINES
        .iter()
        .map(|(name, _)| *name)
        .chain([CONNECT])
        .any(is_wanted)
    {
        return;
    }
    print_heading("HTTP");
    let target = Target::start();
    runtime().block_on(async {
        for (name, load) in LINES {
            if is_wanted(name) {
                calls(&target, load).await.print(name);
            }
        }
        if is_wanted(CONNECT) {
            connects(&target, 100).await.print(CONNECT);
        }
    });
}

async fn calls(target: &Target, load: Load) -> Line {
    let url = target.url(load);
    let mut raw = http_raw::Client::connect(target, load);
    let ours = open(&url, &HttpClient::new(), false).await;
    let rmcp = open_rmcp(&url, &shared_connections()).await;
    let calls = load.batches * load.in_flight;
    let as_over_stdio = stdio::Load {
        in_flight: load.in_flight,
        batches: load.batches,
        bytes: load.bytes,
    };
    let mut line = Line::default();
    for round in 0..=ROUNDS {
        let meter = Meter::start();
        raw.calls(load);
        let raw_cost = meter.stop(calls);
        let meter = Meter::start();
        stdio::call_ours(&ours, as_over_stdio).await;
        let our_cost = meter.stop(calls);
        let meter = Meter::start();
        stdio::call_rmcp(&rmcp, as_over_stdio).await;
        line.add(round, [raw_cost, our_cost, meter.stop(calls)]);
    }
    ours.close(Duration::from_secs(4)).await;
    let _ = rmcp.cancel().await;
    line
}

/// Connects, calls once and closes, so many times in each round. Nothing is shared between two sessions.
async fn connects(target: &Target, times: usize) -> Line {
    let load = json(1, 1, 100);
    let url = target.url(load);
    let once = stdio::Load {
        in_flight: 1,
        batches: 1,
        bytes: load.bytes,
    };
    let mut line = Line::default();
    for round in 0..=ROUNDS {
        let meter = Meter::start();
        for _ in 0..times {
            http_raw::connect_and_call(target, load);
        }
        let raw_cost = meter.stop(times);
        let meter = Meter::start();
        for _ in 0..times {
            let session = open(&url, &HttpClient::new(), false).await;
            stdio::call_ours(&session, once).await;
            session.close(Duration::from_secs(4)).await;
        }
        let our_cost = meter.stop(times);
        let meter = Meter::start();
        for _ in 0..times {
            let client = open_rmcp(&url, &shared_connections()).await;
            stdio::call_rmcp(&client, once).await;
            let _ = client.cancel().await;
        }
        line.add(round, [raw_cost, our_cost, meter.stop(times)]);
    }
    line
}

pub(crate) async fn open(url: &str, client: &HttpClient, stream: bool) -> Session {
    let config = HttpConfig::new(url, &[])
        .expect("a URL")
        .with_stream(stream);
    let transport = HttpTransport::new(config, client.clone());
    let options = SessionOptions {
        client_name: "bench".into(),
        client_version: "1".into(),
        connect_deadline: Instant::now() + Duration::from_secs(60),
        handler: Arc::new(()),
    };
    let session = Session::open(Arc::new(transport), options).await;
    session.expect("it opens")
}

/// rmcp at its best: its own default makes a new connection for each request.
pub(crate) fn shared_connections() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .tcp_nodelay(true)
        .build()
        .expect("a client")
}

pub(crate) async fn open_rmcp(
    url: &str,
    client: &reqwest::Client,
) -> RunningService<RoleClient, ()> {
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_concurrent_requests(512)
        .max_json_response_size(64 << 20)
        .max_sse_event_size(64 << 20);
    let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
    ().serve(transport).await.expect("it opens")
}
