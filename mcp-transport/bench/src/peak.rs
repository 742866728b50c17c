//! How much memory a large result takes at its most, beyond what was there before: 1.0 is the result itself.

use std::{fs, process::Command, time::Duration};

use mcp_transport::{http::HttpClient, stdio::Spawner};

use crate::{http, http_raw, is_wanted, runtime, stdio, stdio_raw, this_program};

const BYTES: usize = 15 << 20;

/// Each number in a process of its own.
pub(crate) fn compare() {
    let wanted = |way: &&str| is_wanted(&format!("peak memory, {way}"));
    let ways: Vec<_> = ["stdio", "JSON", "SSE"]
        .into_iter()
        .filter(wanted)
        .collect();
    if ways.is_empty() {
        return;
    }
    println!("\npeak memory of a result of 15 MiB, in times of its size");
    println!("{:>30} {:>8} {:>8} {:>8}", "", "raw", "ours", "rmcp");
    for way in ways {
        print!("{:>30}", format!("peak memory, {way}"));
        for who in ["raw", "ours", "rmcp"] {
            let output = Command::new(this_program())
                .args(["peak", way, who])
                .output();
            let output = output.expect("it starts");
            assert!(output.status.success());
            print!(" {:>8}", String::from_utf8_lossy(&output.stdout).trim());
        }
        println!();
    }
}

pub(crate) fn measure(way: &str, who: &str) {
    let small = http::Load {
        in_flight: 1,
        batches: 3,
        bytes: 100,
        streams: way == "SSE",
    };
    let large = http::Load {
        batches: 1,
        bytes: BYTES,
        ..small
    };
    let over_stdio = |load: http::Load| stdio::Load {
        in_flight: 1,
        batches: load.batches,
        bytes: load.bytes,
    };
    let target = http::Target::start();
    let peak = runtime().block_on(async {
        match (way, who) {
            ("stdio", "raw") => {
                let mut client = stdio_raw::Client::start();
                client.calls(over_stdio(small));
                let before = begin();
                client.calls(over_stdio(large));
                peak() - before
            }
            ("stdio", "ours") => {
                let session = stdio::open(&Spawner::new()).await;
                stdio::call_ours(&session, over_stdio(small)).await;
                let before = begin();
                stdio::call_ours(&session, over_stdio(large)).await;
                let peak = peak();
                session.close(Duration::from_secs(4)).await;
                peak - before
            }
            ("stdio", _) => {
                let client = stdio::open_rmcp().await;
                stdio::call_rmcp(&client, over_stdio(small)).await;
                let before = begin();
                stdio::call_rmcp(&client, over_stdio(large)).await;
                let peak = peak();
                let _ = client.cancel().await;
                peak - before
            }
            (_, "raw") => {
                let mut client = http_raw::Client::connect(&target, small);
                client.calls(small);
                let before = begin();
                http_raw::Client::connect(&target, large).calls(large);
                peak() - before
            }
            // The path says how long the answer is: two sessions, over the same connections.
            (_, "ours") => {
                let client = HttpClient::new();
                let session = http::open(&target.url(small), &client, false).await;
                stdio::call_ours(&session, over_stdio(small)).await;
                let session = http::open(&target.url(large), &client, false).await;
                let before = begin();
                stdio::call_ours(&session, over_stdio(large)).await;
                peak() - before
            }
            _ => {
                let client = http::shared_connections();
                let first = http::open_rmcp(&target.url(small), &client).await;
                stdio::call_rmcp(&first, over_stdio(small)).await;
                let second = http::open_rmcp(&target.url(large), &client).await;
                let before = begin();
                stdio::call_rmcp(&second, over_stdio(large)).await;
                peak() - before
            }
        }
    });
    println!("{:.2}", peak as f64 / BYTES as f64);
}

/// Forgets the peak so far; gives what is in memory now.
fn begin() -> usize {
    fs::write("/proc/self/clear_refs", "5").expect("procfs");
    in_memory("VmRSS:")
}

fn peak() -> usize {
    in_memory("VmHWM:")
}

/// Bytes of this process, by their name in its status.
pub(crate) fn in_memory(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    let kilobytes = number.and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number") * 1024
}
