//! What concerns the process as a whole: its signals and its descriptors. Each test runs in a process of its own,
//! which is this program again.
#![cfg(target_os = "linux")]

mod common;

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use common::*;
use mcp_transport::{
    config::StdioConfig,
    error::{ErrorKind, Outcome},
    stdio::{SigpipeOff, Spawner, StdioTransport},
};
use serde_json::json;

const ALONE: &str = "MCP_TRANSPORT_TEST_ALONE";

/// Runs the body in a process of its own, and checks that it came through.
fn alone(test: &str, body: impl AsyncFnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(body());
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "code {:?}, signal {:?}\n{}",
        output.status.code(),
        output.status.signal(),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn disposition(signal: i32, action: libc::sighandler_t) {
    // SAFETY: the actions are the default and to ignore; no handler is set.
    assert_ne!(unsafe { libc::signal(signal, action) }, libc::SIG_ERR);
}

/// Whether SIGPIPE is blocked on this thread, and whether one waits.
fn sigpipe_blocked_and_pending() -> (bool, bool) {
    let mut sets = [std::mem::MaybeUninit::<libc::sigset_t>::uninit(); 2];
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), sets[0].as_mut_ptr());
        libc::sigpending(sets[1].as_mut_ptr());
        let has =
            |set: &std::mem::MaybeUninit<_>| libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1;
        (has(&sets[0]), has(&sets[1]))
    }
}

/// Writes to a server that no longer reads, which raises SIGPIPE if nothing is done about it.
async fn write_to_a_closed_pipe() {
    let (session, _) = open(&[]).await;
    call(&session, "stop-reading", json!({})).await.unwrap();
    let error = call(&session, "echo", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Transport, Outcome::NotSent)
    );
}

#[test]
fn a_write_to_a_dead_server_raises_no_signal_where_sigpipe_has_its_default() {
    alone(
        "a_write_to_a_dead_server_raises_no_signal_where_sigpipe_has_its_default",
        async || {
            disposition(libc::SIGPIPE, libc::SIG_DFL);
            write_to_a_closed_pipe().await;
            assert_eq!(sigpipe_blocked_and_pending(), (false, false));
        },
    );
}

#[test]
fn a_thread_that_keeps_sigpipe_off_writes_without_more() {
    alone(
        "a_thread_that_keeps_sigpipe_off_writes_without_more",
        async || {
            disposition(libc::SIGPIPE, libc::SIG_DFL);
            let off = SigpipeOff::new();
            write_to_a_closed_pipe().await;
            // One that waits where the kernel knows no writing without it is taken with the guard.
            let (is_blocked, _) = sigpipe_blocked_and_pending();
            assert!(is_blocked);
            drop(off);
            assert_eq!(sigpipe_blocked_and_pending(), (false, false));
        },
    );
}

#[test]
fn a_sigpipe_that_waited_before_is_left_to_its_owner() {
    alone(
        "a_sigpipe_that_waited_before_is_left_to_its_owner",
        async || {
            disposition(libc::SIGPIPE, libc::SIG_DFL);
            // SAFETY: the set is initialised before use; the signal is blocked before it is raised.
            unsafe {
                let mut set = std::mem::zeroed::<libc::sigset_t>();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGPIPE);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                libc::raise(libc::SIGPIPE);
            }
            write_to_a_closed_pipe().await;
            assert_eq!(sigpipe_blocked_and_pending(), (true, true));
        },
    );
}

#[test]
fn a_host_that_ignores_sigchld_steals_a_status_and_not_a_session() {
    alone(
        "a_host_that_ignores_sigchld_steals_a_status_and_not_a_session",
        async || {
            disposition(libc::SIGCHLD, libc::SIG_IGN);
            let (session, _) = open(&[]).await;
            assert!(session.pid().is_some());
            call(&session, "echo", json!({"text": "x"})).await.unwrap();
            let error = call(&session, "exit", json!({"code": 3, "stderr": "why"}))
                .await
                .unwrap_err();
            assert_eq!(
                (error.kind, error.outcome),
                (ErrorKind::Transport, Outcome::Unknown)
            );
            assert!(error.message.contains("status is unknown"), "{error}");
            assert!(error.message.ends_with("stderr: why"), "{error}");

            // Closing goes as ever, the group included.
            let (session, mut heard) = open(&["ignore-eof", "orphan=hold,ignore"]).await;
            let orphan = heard.next("test/orphan").await["pid"].as_u64().unwrap() as u32;
            let pid = session.pid().unwrap();
            session.close(std::time::Duration::from_millis(380)).await;
            until("leader and orphan have gone", || {
                !runs(pid) && !runs(orphan)
            })
            .await;

            // What cannot be started is still told.
            let error = open_with(StdioTransport::new(shell("exit 1")))
                .await
                .unwrap_err();
            assert_eq!(error.kind, ErrorKind::Transport);
            let script = std::env::temp_dir().join(format!("mcp-sigchld-{}", std::process::id()));
            std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
            let config = StdioConfig::new(script.to_str().unwrap());
            let error = open_with(StdioTransport::new(config)).await.unwrap_err();
            std::fs::remove_file(&script).unwrap();
            assert_eq!(error.kind, ErrorKind::Config);
        },
    );
}

#[test]
fn many_servers_at_once_start_or_fail_as_ever_in_a_host_that_ignores_sigchld() {
    alone(
        "many_servers_at_once_start_or_fail_as_ever_in_a_host_that_ignores_sigchld",
        async || {
            disposition(libc::SIGCHLD, libc::SIG_IGN);
            let spawner = Spawner::new();
            let mut using = tokio::task::JoinSet::new();
            for number in 0..40 {
                let spawner = spawner.clone();
                using.spawn(async move {
                    let mut config = shell(TWO_ANSWERS);
                    let fails = number % 3 == 0;
                    if fails {
                        config.args.push("x".repeat(200_000));
                    }
                    let transport = StdioTransport::with_spawner(config, spawner);
                    match open_with(transport).await {
                        Ok((session, _)) => {
                            assert!(!fails);
                            session.ping(None).await.unwrap();
                            session.close(LONG).await;
                        }
                        Err(error) => {
                            assert!(fails, "{error}");
                            assert_eq!(error.kind, ErrorKind::Config, "{error}");
                        }
                    }
                });
            }
            using.join_all().await;
            until("the guardian alone is left", || {
                Holdings::now().processes == 1
            })
            .await;
            spawner.finish(LONG);
            assert_eq!(children(), [0; 0]);
        },
    );
}

#[test]
fn a_host_without_stdio_of_its_own_can_start_servers() {
    alone(
        "a_host_without_stdio_of_its_own_can_start_servers",
        async || {
            // SAFETY: nothing in this process uses them from here on but for failing.
            unsafe {
                libc::close(0);
                libc::close(1);
            }
            let (session, _) = open(&[]).await;
            let answer = call(&session, "echo", json!({"text": "x"})).await.unwrap();
            assert_eq!(answer["content"][0]["text"], "x");
            session.close(LONG).await;
            // The harness wants to print.
            // SAFETY: the names are strings that end with NUL.
            unsafe {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        },
    );
}

#[test]
fn no_descriptors_to_be_had_is_our_own_fault_and_passes() {
    alone(
        "no_descriptors_to_be_had_is_our_own_fault_and_passes",
        async || {
            let spawner = Spawner::new();
            let transport = || StdioTransport::with_spawner(fault_server(&[]), spawner.clone());
            let (session, _) = open_with(transport()).await.unwrap();
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            let highest = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
            // SAFETY: the limit is a good pointer.
            unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
            let low = libc::rlimit {
                rlim_cur: highest + 3,
                ..limit
            };
            // SAFETY: as above.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &low) };
            let error = open_with(transport()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Local, "{error}");
            // SAFETY: as above.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
            open_with(transport()).await.unwrap().0.close(LONG).await;
            session.close(LONG).await;
        },
    );
}

/// What this process has of everything that can leak.
#[derive(Debug, PartialEq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    tasks: usize,
    /// Children, the guardian among them, and zombies.
    processes: usize,
    guardians_descriptors: usize,
}

fn count(what: &str) -> usize {
    std::fs::read_dir(what).unwrap().count()
}

fn children() -> Vec<u32> {
    let me = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        if fields.split_whitespace().nth(1) == Some(&me) {
            found.push(entry.file_name().to_str().unwrap().parse().unwrap());
        }
    }
    found
}

impl Holdings {
    fn now() -> Self {
        let children = children();
        let of_guardian = |pid: &u32| count(&format!("/proc/{pid}/fd"));
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            tasks: tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
            guardians_descriptors: children.iter().map(of_guardian).sum(),
            processes: children.len(),
        }
    }
}

/// The memory of this process that is no file's, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// A thousand, or as many as there is time for.
#[test]
fn many_opens_calls_and_closes_leave_nothing() {
    const ENOUGH: std::time::Duration = std::time::Duration::from_secs(20);
    alone("many_opens_calls_and_closes_leave_nothing", async || {
        let spawner = Spawner::new();
        let once = async || {
            let transport = StdioTransport::with_spawner(shell(TWO_ANSWERS), spawner.clone());
            let (session, _) = open_with(transport).await.unwrap();
            session.ping(None).await.unwrap();
            session.close(LONG).await;
        };
        let begun = std::time::Instant::now();
        // What grows once, such as the buffers of the runtime, has grown by then.
        for _ in 0..50 {
            once().await;
        }
        let (settled, memory_before) = (Holdings::now(), memory());
        assert_eq!(settled.processes, 1, "the guardian");
        let mut rounds = 50;
        while rounds < 1000 && begun.elapsed() < ENOUGH {
            once().await;
            rounds += 1;
        }
        let grown = memory().saturating_sub(memory_before);
        eprintln!("{rounds} rounds, {grown} KiB more");
        assert!(grown < 512, "{grown} KiB more after {rounds} rounds");
        until("the guardian has heard of the last end", || {
            Holdings::now().guardians_descriptors == 2
        })
        .await;
        let expected = Holdings {
            guardians_descriptors: 2,
            ..settled
        };
        assert_eq!(Holdings::now(), expected);
        drop(spawner);
        until("the spawner's thread and the guardian have ended", || {
            let now = Holdings::now();
            (now.threads, now.processes) == (expected.threads - 1, 0)
        })
        .await;
    });
}

/// Answers `initialize` (id 1) and `ping` (id 2), in order, and goes at EOF.
const TWO_ANSWERS: &str = r#"
read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}'
read line; read line; echo '{"jsonrpc":"2.0","id":2,"result":{}}'
cat >/dev/null
"#;

#[test]
fn a_process_that_ends_without_closing_takes_its_servers_along() {
    const PID: &str = "MCP_TRANSPORT_TEST_PID";
    alone(
        "a_process_that_ends_without_closing_takes_its_servers_along",
        async || {
            if std::env::var_os(PID).is_some() {
                let (session, _) = open(&["ignore-eof", "ignore-term"]).await;
                println!("pid {}", session.pid().unwrap());
                // SAFETY: it ends the process here and now.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            let output = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "a_process_that_ends_without_closing_takes_its_servers_along",
                    "--nocapture",
                ])
                .env(PID, "1")
                .output()
                .unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            let pid = output
                .lines()
                .find_map(|line| line.split_once("pid ")?.1.parse().ok())
                .unwrap();
            until("the server has gone", || !runs(pid)).await;
        },
    );
}

/// Makes this thread, and those that it starts, see a kernel of before 5.3 and 5.11 and 6.9: no `clone3`, no
/// `close_range`, no signals to the group of a descriptor.
fn forbid_newer_calls() {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let load = |offset| (BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
    let is = |value: u32, yes, no| (BPF_JMP | BPF_JEQ | BPF_K, yes, no, value);
    let errno = |errno: i32| {
        (
            BPF_RET | BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        )
    };
    let program = [
        load(0),
        is(libc::SYS_clone3 as u32, 6, 0),
        is(libc::SYS_close_range as u32, 5, 0),
        is(libc::SYS_pwritev2 as u32, 4, 0),
        is(libc::SYS_pidfd_send_signal as u32, 0, 4),
        // The low half of the fourth argument, on a little-endian machine.
        load(16 + 3 * 8),
        is(4, 0, 2),
        errno(libc::EINVAL),
        errno(libc::ENOSYS),
        (BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let mut filter = program.map(|(code, jt, jf, k)| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    });
    let filter = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter is a good program of the length that it says; the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter
            ),
            0
        );
        assert_eq!(libc::syscall(libc::SYS_close_range, 1000, 1000, 0), -1);
    }
}

#[test]
#[cfg(target_endian = "little")]
fn an_older_kernel_serves_as_well() {
    alone("an_older_kernel_serves_as_well", async || {
        // SAFETY: it only makes a descriptor, which the test leaves open.
        let forgotten = unsafe { libc::dup(2) };
        forbid_newer_calls();
        disposition(libc::SIGPIPE, libc::SIG_DFL);
        write_to_a_closed_pipe().await;
        assert_eq!(sigpipe_blocked_and_pending(), (false, false));

        let (session, mut heard) = open(&["orphan=hold,ignore"]).await;
        let orphan = heard.next("test/orphan").await["pid"].as_u64().unwrap() as u32;
        let seen = call(&session, "env", json!({})).await.unwrap();
        assert!(
            !seen["fds"].as_array().unwrap().contains(&json!(forgotten)),
            "{}",
            seen["fds"]
        );
        session.close(std::time::Duration::from_millis(380)).await;
        until("the orphan has gone", || !runs(orphan)).await;

        let (session, mut heard) =
            open(&["orphan=quiet,ignore", "ignore-eof", "ignore-term"]).await;
        let orphan = heard.next("test/orphan").await["pid"].as_u64().unwrap() as u32;
        let pid = session.pid().unwrap();
        drop(session);
        until("leader and orphan have gone", || {
            !exists(pid) && !runs(orphan)
        })
        .await;
    });
}
