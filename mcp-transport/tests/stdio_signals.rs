//! A test with a process of its own, because it looks at that process's threads.
#![cfg(target_os = "linux")]

use std::{fs, sync::Arc, time::Duration};

use mcp_transport::{
    config::StdioConfig,
    stdio::StdioTransport,
    transport::{Incoming, Receiver, Transport},
};

struct Nobody;

impl Receiver for Nobody {
    fn receive(&self, _: Incoming) {}
}

/// The signals that the thread of this name blocks, signal `n` in the bit `n - 1`.
fn blocked_by(name: &str) -> u64 {
    let status = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
        .find(|status| status.lines().next() == Some(&format!("Name:\t{name}")))
        .expect("the thread is there");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

#[tokio::test]
async fn the_end_of_a_server_wakes_no_thread_of_a_host_that_does_not_handle_sigchld() {
    const SIGTERM: u64 = 1 << 14;
    const SIGCHLD: u64 = 1 << 16;
    let server = StdioTransport::new(StdioConfig::new("cat"));
    server.start(Arc::new(Nobody)).await.unwrap();
    // Blocked on the thread that started the child, the signal would be kept for whoever takes it.
    assert_eq!(blocked_by("mcp-spawner") & (SIGTERM | SIGCHLD), SIGTERM);
    server.close(Duration::from_secs(4)).await;
}
