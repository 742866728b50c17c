//! What many sessions over HTTP cost that are open and idle: memory of the process, and the time to open them.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use mcp_transport::http::HttpClient;

use crate::{
    http::{Target, open, open_rmcp, shared_connections},
    is_wanted,
    peak::in_memory,
    runtime, this_program,
};

const SESSIONS: [usize; 2] = [1000, 10_000];

/// Each number in a process of its own, so that none has what another left.
pub(crate) fn compare() {
    let lines: Vec<_> = ["ours", "ours, with GET", "rmcp", "rmcp, with GET"]
        .into_iter()
        .flat_map(|who| SESSIONS.map(|sessions| (who, sessions)))
        .filter(|(who, sessions)| is_wanted(&format!("idle, {sessions}, {who}")))
        .collect();
    if lines.is_empty() {
        return;
    }
    println!(
        "\nidle sessions over HTTP: memory that each added, time to open one, descriptors in all"
    );
    for (who, sessions) in lines {
        let target = Target::start();
        // Its server offers a GET below this path alone.
        let path = if who.ends_with("GET") { "/get/" } else { "/" };
        let url = format!("http://{}{path}100/json", target.address);
        let status = Command::new(this_program())
            .args(["idle", who, &url, &sessions.to_string()])
            .status();
        assert!(status.expect("it starts").success());
    }
}

pub(crate) fn measure(who: &str, url: &str, sessions: &str) {
    allow_many_descriptors();
    let sessions: usize = sessions.parse().expect("a number");
    let name = format!("idle, {sessions}, {who}");
    runtime().block_on(async {
        let (http, reqwest) = (HttpClient::new(), shared_connections());
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        if who.starts_with("ours") {
            ours.push(open(url, &http, who.ends_with("GET")).await);
        } else {
            theirs.push(open_rmcp(url, &reqwest).await);
        }
        // What the first one brings is not of the others.
        settle().await;
        let before = in_memory("VmRSS:");
        let begun = Instant::now();
        for _ in 1..sessions {
            if who.starts_with("ours") {
                ours.push(open(url, &http, who.ends_with("GET")).await);
            } else {
                theirs.push(open_rmcp(url, &reqwest).await);
            }
        }
        let took = begun.elapsed();
        settle().await;
        let each = (in_memory("VmRSS:") - before) as f64 / (sessions - 1) as f64;
        println!(
            "{name:>30} {:8.1} KB {:8.0} µs {:8} descriptors",
            each / 1024.0,
            took.as_secs_f64() * 1e6 / (sessions - 1) as f64,
            fs::read_dir("/proc/self/fd").expect("procfs").count()
        );
    });
    // The sessions go with the process.
    std::process::exit(0);
}

/// Lets the streams open, and the connections end that are no longer used.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(6)).await;
}

/// As many as this process may have.
pub(crate) fn allow_many_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one limit there, and reads it again.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}
