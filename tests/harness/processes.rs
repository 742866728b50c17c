//! The proof that processes are gone.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Whether the process runs. One that ended and was not reaped by its parent does not.
pub fn runs(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// Kills a process, which must be there.
#[track_caller]
pub fn kill(pid: u32) {
    signal("KILL", &pid.to_string());
}

/// Sends a signal to every process of a group, which must be there.
#[track_caller]
pub fn signal_group(name: &str, group: u32) {
    signal(name, &format!("-{group}"));
}

#[track_caller]
fn signal(name: &str, whom: &str) {
    let status = Command::new("kill").args(["-s", name, "--", whom]).status();
    assert!(status.expect("kill runs").success(), "no process {whom}");
}

/// Fails the test unless every one of these processes ends within the limit.
#[track_caller]
pub fn expect_gone(pids: &[u32], limit: Duration) {
    let until = Instant::now() + limit;
    loop {
        let left: Vec<u32> = pids.iter().copied().filter(|pid| runs(*pid)).collect();
        if left.is_empty() {
            return;
        }
        assert!(
            Instant::now() < until,
            "these processes are still there: {}",
            describe(&left)
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// The children of a process, those that ended and were not reaped among them.
pub fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| state_and_parent(*pid).is_some_and(|(_, its)| its == parent))
        .collect()
}

/// The TCP port on which a process listens, if it does.
pub fn listening_port(pid: u32) -> Option<u16> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let sockets: Vec<String> = descriptors
        .filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|table| {
            let text = fs::read_to_string(Path::new(table)).ok()?;
            text.lines().skip(1).find_map(|line| {
                const LISTEN: &str = "0A";
                let columns: Vec<&str> = line.split_ascii_whitespace().collect();
                let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
                let ours = *state == LISTEN && sockets.iter().any(|socket| socket == inode);
                ours.then(|| u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok())
                    .flatten()
            })
        })
}

fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name comes second, in parentheses, and may hold anything.
    let mut after_name = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((
        after_name.next()?.chars().next()?,
        after_name.next()?.parse().ok()?,
    ))
}

fn describe(pids: &[u32]) -> String {
    let describe = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!(
            "{pid} ({})",
            String::from_utf8_lossy(&command)
                .replace('\0', " ")
                .trim_end()
        )
    };
    pids.iter().map(describe).collect::<Vec<_>>().join(", ")
}
