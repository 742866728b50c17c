//! Whatever way the host ends, nothing that its servers started stays. Each host is this program again.
#![cfg(target_os = "linux")]

mod common;

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use common::*;
use mcp_transport::stdio::{Spawner, StdioTransport};

/// Set in a host: how many servers it starts, and how it ends.
const HOST: &str = "MCP_TRANSPORT_TEST_HOST";

/// The ways a host can end, each done by itself after it has told what runs.
fn end(how: &str) {
    // SAFETY: each of these ends the process here and now, but for the fork, whose child only waits.
    unsafe {
        match how {
            "kill" => libc::kill(libc::getpid(), libc::SIGKILL),
            "abort" => std::process::abort(),
            "exit" => std::process::exit(0),
            "_exit" => libc::_exit(0),
            "interrupt" => {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::kill(0, libc::SIGINT)
            }
            "fork, then kill" => {
                // A copy of every descriptor of ours lives on in it.
                if libc::fork() == 0 {
                    libc::sleep(30);
                    libc::_exit(0);
                }
                libc::kill(libc::getpid(), libc::SIGKILL)
            }
            other => panic!("no way to end: {other}"),
        };
    }
}

/// The host's own part: starts servers that do not want to go, each with a grandchild, and tells of them.
fn be_host(how: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (how, guarded) = match how.strip_suffix(", unguarded") {
            Some(how) => (how, false),
            None => (how, true),
        };
        let (how, killed) = match how.strip_suffix(", guardian killed") {
            Some(how) => (how, true),
            None => (how, false),
        };
        let spawner = if guarded {
            Spawner::new()
        } else {
            Spawner::without_guardian()
        };
        let mut sessions = Vec::new();
        for orphan in ["orphan=quiet", "orphan=hold,ignore"] {
            let config = fault_server(&[orphan, "ignore-eof", "ignore-term"]);
            let transport = StdioTransport::with_spawner(config, spawner.clone());
            let (session, mut heard) = open_with(transport).await.unwrap();
            println!("@ {}", session.pid().unwrap());
            println!("@ {}", heard.next("test/orphan").await["pid"]);
            sessions.push(session);
        }
        if killed {
            let before = guardians(std::process::id());
            kill(before[0], libc::SIGKILL);
            until("there is another guardian", || {
                let now = guardians(std::process::id());
                now.len() == 1 && now != before
            })
            .await;
        }
        for guardian in guardians(std::process::id()) {
            println!("@ {guardian}");
        }
        println!("@ ready");
        end(how);
        panic!("it goes on");
    });
}

/// In a process that was started for it, is the host and never returns.
fn host_if_asked() {
    if let Ok(how) = std::env::var(HOST) {
        // Outside of the test's runtime.
        let host = std::thread::spawn(move || be_host(&how));
        panic!("{:?}", host.join());
    }
}

/// The guardians that are children of this process.
fn guardians(host: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((head, rest)) = stat.split_once(" (mcp-guardian) ") else {
            continue;
        };
        let mut fields = rest.split(' ');
        let state = fields.next();
        if state != Some("Z") && fields.next() == Some(&host.to_string()) {
            found.push(head.parse().unwrap());
        }
    }
    found
}

/// Starts a host, in a group of its own; gives it and what it told of, once it is about to end.
fn host(test: &str, how: &str) -> (Child, Vec<u32>) {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(HOST, how)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pids = Vec::new();
    for line in BufReader::new(host.stdout.take().unwrap()).lines() {
        match line.unwrap().split_once("@ ") {
            Some((_, "ready")) => break,
            Some((_, pid)) => pids.push(pid.parse().unwrap()),
            None => {}
        }
    }
    (host, pids)
}

async fn nothing_stays(test: &str, ways: &[&str]) {
    host_if_asked();
    let hosts: Vec<_> = ways.iter().map(|how| (how, host(test, how))).collect();
    for (how, (mut host, pids)) in hosts {
        // Two leaders, two grandchildren, one guardian.
        assert_eq!(pids.len(), 5, "{how}");
        host.wait().unwrap();
        for pid in pids {
            until(&format!("{pid} has gone after {how}"), || !runs(pid)).await;
        }
    }
}

#[tokio::test]
async fn nothing_of_a_servers_group_outlives_its_host() {
    nothing_stays(
        "nothing_of_a_servers_group_outlives_its_host",
        &["kill", "abort", "exit", "_exit", "interrupt"],
    )
    .await;
}

#[tokio::test]
async fn a_copy_of_the_hosts_descriptors_in_a_child_of_it_does_not_hold_up_the_guardian() {
    nothing_stays(
        "a_copy_of_the_hosts_descriptors_in_a_child_of_it_does_not_hold_up_the_guardian",
        &["fork, then kill"],
    )
    .await;
}

#[tokio::test]
async fn a_guardian_that_was_killed_is_replaced_and_the_next_knows_all() {
    nothing_stays(
        "a_guardian_that_was_killed_is_replaced_and_the_next_knows_all",
        &["kill, guardian killed"],
    )
    .await;
}

#[tokio::test]
async fn without_a_guardian_leaders_go_with_the_host_and_there_is_no_process_beside() {
    const TEST: &str = "without_a_guardian_leaders_go_with_the_host_and_there_is_no_process_beside";
    host_if_asked();
    let (mut host, pids) = host(TEST, "kill, unguarded");
    host.wait().unwrap();
    assert_eq!(pids.len(), 4);
    for leader in [pids[0], pids[2]] {
        until("the leader has gone", || !runs(leader)).await;
    }
    for other in [pids[1], pids[3]] {
        if runs(other) {
            kill(other, libc::SIGKILL);
        }
    }
}

/// The guardian of a spawner with one server, and both.
async fn guarded() -> (mcp_transport::session::Session, Spawner, u32) {
    let spawner = Spawner::new();
    let before = guardians(std::process::id());
    let transport = StdioTransport::with_spawner(fault_server(&[]), spawner.clone());
    let (session, _) = open_with(transport).await.unwrap();
    let now = guardians(std::process::id());
    let new: Vec<_> = now.iter().filter(|pid| !before.contains(pid)).collect();
    assert_eq!(new.len(), 1, "{before:?} {now:?}");
    (session, spawner, *new[0])
}

/// The tests below look at this process's own guardians, so that they run one after another.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn the_guardian_holds_nothing_of_the_host_and_has_a_session_and_a_name_of_its_own() {
    let _alone = ALONE.lock().await;
    // SAFETY: it only makes a descriptor, which the test leaves open.
    unsafe { libc::dup(2) };
    let large = vec![1u8; 64 << 20];
    let (session, _spawner, guardian) = guarded().await;
    let proc = |what: &str| format!("/proc/{guardian}/{what}");
    // It has settled once it has given the memory back.
    until("it is small", || {
        let status = std::fs::read_to_string(proc("status")).unwrap();
        let anon = status.lines().find_map(|line| {
            let kib = line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?;
            kib.parse::<u64>().ok()
        });
        anon.unwrap() < 2048
    })
    .await;
    assert_eq!(
        large.iter().map(|&b| usize::from(b)).sum::<usize>(),
        64 << 20
    );
    // Its socket, the host's descriptor and one of the server.
    until("it has three descriptors", || {
        std::fs::read_dir(proc("fd")).unwrap().count() == 3
    })
    .await;
    let stat = std::fs::read_to_string(proc("stat")).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let own = guardian.to_string();
    assert_eq!((fields[2], fields[3]), (own.as_str(), own.as_str()));
    let cmdline = std::fs::read(proc("cmdline")).unwrap();
    assert!(cmdline.starts_with(b"mcp-guardian\0"));
    assert!(cmdline[12..].iter().all(|&b| b == 0));
    assert_eq!(std::fs::read_link(proc("cwd")).unwrap().to_str(), Some("/"));
    let status = std::fs::read_to_string(proc("status")).unwrap();
    for mask in ["SigBlk", "SigIgn", "SigCgt"] {
        let line = status.lines().find(|l| l.starts_with(mask)).unwrap();
        // The C library may keep two for itself, which cannot be reset from outside of it.
        let bits = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(bits & !(3 << 31), 0, "{line}");
    }
    session.close(LONG).await;
    until("the server's descriptor is given back", || {
        std::fs::read_dir(proc("fd")).unwrap().count() == 2
    })
    .await;
}

#[tokio::test]
async fn the_guardian_ends_with_its_spawner_and_leaves_no_zombie() {
    let _alone = ALONE.lock().await;
    let (session, spawner, guardian) = guarded().await;
    session.close(LONG).await;
    assert!(runs(guardian));
    drop((session, spawner));
    until("the guardian has gone", || !exists(guardian)).await;
}

#[tokio::test]
async fn a_guardian_that_is_killed_without_servers_comes_back_with_the_next() {
    let _alone = ALONE.lock().await;
    let (session, spawner, guardian) = guarded().await;
    session.close(LONG).await;
    kill(guardian, libc::SIGKILL);
    until("it was noticed", || !exists(guardian)).await;
    let transport = StdioTransport::with_spawner(fault_server(&[]), spawner.clone());
    let (session, _) = open_with(transport).await.unwrap();
    assert_eq!(guardians(std::process::id()).len(), 1);
    session.close(LONG).await;
}

#[tokio::test]
async fn a_guardian_that_is_stopped_is_replaced_once_it_is_full_of_words() {
    let _alone = ALONE.lock().await;
    let (session, spawner, guardian) = guarded().await;
    kill(guardian, libc::SIGSTOP);
    // Each start and end is a word to it.
    let mut rounds = 0;
    while runs(guardian) {
        let transport = StdioTransport::with_spawner(shell("exit 0"), spawner.clone());
        open_with(transport).await.unwrap_err();
        rounds += 1;
        assert!(rounds < 2000, "it is never full");
    }
    until("there is another", || {
        let now = guardians(std::process::id());
        now.len() == 1 && now[0] != guardian
    })
    .await;
    session.close(LONG).await;
}

#[tokio::test]
async fn guardians_that_are_killed_again_and_again_disturb_no_server_and_the_last_knows_all() {
    let _alone = ALONE.lock().await;
    let spawner = Spawner::new();
    let me = std::process::id();
    let mut using = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let spawner = spawner.clone();
        using.spawn(async move {
            for round in 0..15 {
                if round % 5 == 4 {
                    let mut config = shell("exit 0");
                    config.args.push("x".repeat(200_000));
                    let transport = StdioTransport::with_spawner(config, spawner.clone());
                    open_with(transport).await.unwrap_err();
                }
                let transport = StdioTransport::with_spawner(shell(ONE_ANSWER), spawner.clone());
                let (session, _) = open_with(transport).await.unwrap();
                session.close(LONG).await;
            }
        });
    }
    loop {
        tokio::select! {
            biased;
            ended = using.join_next() => match ended {
                Some(ended) => ended.unwrap(),
                None => break,
            },
            () = tokio::time::sleep(std::time::Duration::from_millis(3)) => {
                for guardian in guardians(me) {
                    // SAFETY: it touches no memory. The guardian may have ended by itself.
                    unsafe { libc::kill(guardian as i32, libc::SIGKILL) };
                }
            }
        }
    }
    let transport = StdioTransport::with_spawner(shell(ONE_ANSWER), spawner.clone());
    let (session, _) = open_with(transport).await.unwrap();
    let knows = |count: usize| {
        let [guardian] = guardians(me)[..] else {
            return false;
        };
        std::fs::read_dir(format!("/proc/{guardian}/fd")).is_ok_and(|fds| fds.count() == 2 + count)
    };
    until("the last guardian knows of the one that runs", || knows(1)).await;
    session.close(LONG).await;
    until("and of nothing else", || knows(0)).await;
    drop((session, spawner));
    until("nothing is left", || guardians(me).is_empty()).await;
}

/// Answers `initialize`, and goes at EOF.
const ONE_ANSWER: &str = r#"
read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}'
cat >/dev/null
"#;
