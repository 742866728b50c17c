//! How servers over stdio come up, go, and are brought to their end.
#![cfg(target_os = "linux")]

mod common;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant as WallInstant},
};

use common::*;
use mcp_transport::{
    config::StdioConfig,
    error::{Cause, ErrorKind, Outcome},
    revision::Revision,
    session::Session,
    stdio::{Spawner, StdioTransport},
    transport::Transport,
};
use serde_json::json;
use tokio::time::Instant;

async fn fails(config: StdioConfig) -> mcp_transport::error::Error {
    open_with(StdioTransport::new(config))
        .await
        .expect_err("it opened")
}

#[tokio::test]
async fn a_server_is_opened_called_and_closed_and_nothing_is_left() {
    let (session, _) = open(&[]).await;
    assert_eq!(session.revision(), Revision::V2025_11_25);
    assert_eq!(session.instructions(), Some("break me"));
    assert!(session.server_info().starts_with(b"{\"name\": \"fault\""));
    let pid = session.pid().unwrap();
    let result = call(&session, "echo", json!({"text": "hällo \u{1f600}"}))
        .await
        .unwrap();
    assert_eq!(result["content"][0]["text"], "hällo \u{1f600}");
    session.ping(None).await.unwrap();
    session.close(LONG).await;
    assert!(!exists(pid), "the process or its zombie is left");
    assert_eq!(session.pid(), None);
    assert_eq!(session.ended().await.kind, ErrorKind::Closed);
    let error = call(&session, "echo", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Closed, Outcome::NotSent)
    );
}

#[tokio::test]
async fn a_server_that_exits_at_once_is_told_with_its_code_and_its_stderr() {
    let error = fails(shell("echo first >&2; printf 'no\\ncan do' >&2; exit 3")).await;
    assert_eq!(error.kind, ErrorKind::Transport);
    assert_eq!(error.outcome, Outcome::NotSent);
    assert_eq!(error.cause, Cause::Transient);
    assert_eq!(
        error.message,
        "the server exited with code 3; stderr: first no can do"
    );
}

#[tokio::test]
async fn a_server_that_exits_cleanly_after_reading_initialize_is_told() {
    let error = fails(fault_server(&["exit-on-initialize"])).await;
    assert_eq!(error.message, "the server exited with code 0");
}

#[tokio::test]
async fn a_server_that_prints_garbage_is_named_with_it_at_the_deadline() {
    let config = fault_server(&["garbage", "never-answer", "stderr-first=5"]);
    let transport = Arc::new(StdioTransport::new(config));
    let opening = tokio::spawn(Session::open(transport.clone(), options(Arc::new(()))));
    until("all of it was seen", || {
        let seen = transport.diagnosis().unwrap_or_default();
        seen.contains("3 lines") && seen.contains("stderr")
    })
    .await;
    tokio::time::pause();
    tokio::time::advance(LONG).await;
    let error = opening.await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert_eq!(
        error.message,
        "the server did not answer `initialize` within 60 s; 3 lines on its stdout were no JSON-RPC, \
         the last \"this is line 2 of a web server\"; stderr: eeeee"
    );
    until("the server has gone", || transport.pid().is_none()).await;
}

#[tokio::test]
async fn a_server_that_floods_without_a_newline_costs_no_more_than_the_cap_and_is_ended() {
    let transport = StdioTransport::new(fault_server(&["flood"])).max_frame(1 << 20);
    let mut opening = options(Arc::new(()));
    opening.connect_deadline = Instant::now() + Duration::from_millis(500);
    let error = Session::open(Arc::new(transport), opening)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
}

#[tokio::test]
async fn a_call_in_flight_when_the_server_is_killed_ends_at_once_as_unknown() {
    let (session, mut heard) = open(&[]).await;
    let held = session.request("tools/call", tool("hold", json!({})), long());
    heard.next("test/held").await;
    kill(session.pid().unwrap(), libc::SIGKILL);
    let error = held.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Transport, Outcome::Unknown)
    );
    assert_eq!(error.message, "the server was ended by signal 9");
    assert_eq!(session.ended().await.outcome, Outcome::NotSent);
}

#[tokio::test]
async fn a_call_that_kills_its_server_ends_as_unknown() {
    let (session, _) = open(&[]).await;
    let error = call(&session, "die", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Transport, Outcome::Unknown)
    );
}

#[tokio::test]
async fn a_server_killed_between_calls_ends_the_session_and_later_calls_are_not_sent() {
    let (session, _) = open(&[]).await;
    call(&session, "echo", json!({"text": "a"})).await.unwrap();
    kill(session.pid().unwrap(), libc::SIGKILL);
    let error = session.ended().await;
    assert_eq!(
        (error.kind, error.cause),
        (ErrorKind::Transport, Cause::Transient)
    );
    let error = call(&session, "echo", json!({"text": "b"}))
        .await
        .unwrap_err();
    assert_eq!(error.outcome, Outcome::NotSent);
    assert!(error.message.contains("signal 9"), "{error}");
}

#[tokio::test]
async fn the_stderr_of_a_dead_server_is_in_the_error_of_the_call() {
    let (session, _) = open(&[]).await;
    let arguments = json!({"code": 7, "stderr": "Traceback:\n  it broke\n"});
    let error = call(&session, "exit", arguments).await.unwrap_err();
    assert_eq!(
        error.message,
        "the server exited with code 7; stderr: Traceback: it broke"
    );
}

#[tokio::test]
async fn a_last_answer_before_the_exit_is_delivered_also_without_its_newline() {
    for end in ["\n", ""] {
        let (session, _) = open(&[]).await;
        let arguments = json!({"answer": true, "end": end});
        let result = call(&session, "exit", arguments).await.unwrap();
        assert_eq!(result, json!({"last": true}));
        assert_eq!(
            session.ended().await.message,
            "the server exited with code 0"
        );
    }
}

#[tokio::test]
async fn a_server_that_ignores_eof_and_term_is_killed_within_the_limit() {
    let (session, _) = open(&["ignore-eof", "ignore-term"]).await;
    let pid = session.pid().unwrap();
    let begun = WallInstant::now();
    session.close(Duration::from_millis(760)).await;
    let took = begun.elapsed();
    until("the server has gone", || !exists(pid)).await;
    // EOF and TERM are given their time; the bound above is loose for busy machines.
    assert!(took >= Duration::from_millis(690), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_server_that_heeds_term_is_not_waited_for_longer() {
    let (session, _) = open(&["ignore-eof"]).await;
    let pid = session.pid().unwrap();
    session.close(Duration::from_millis(760)).await;
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_close_without_time_kills_at_once() {
    let (session, _) = open(&["ignore-eof", "ignore-term"]).await;
    let pid = session.pid().unwrap();
    session.close(Duration::ZERO).await;
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_second_close_hastens_the_first() {
    let (session, _) = open(&["ignore-eof", "ignore-term"]).await;
    let pid = session.pid().unwrap();
    let first = tokio::spawn(session.close(Duration::from_secs(3600)));
    session.close(Duration::ZERO).await;
    first.await.unwrap();
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_close_that_nobody_waits_for_goes_on() {
    let (session, _) = open(&[]).await;
    let pid = session.pid().unwrap();
    drop(session.close(LONG));
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn closing_completes_calls_in_flight_at_once() {
    let (session, mut heard) = open(&["ignore-eof", "ignore-term"]).await;
    let held = session.request("tools/call", tool("hold", json!({})), long());
    heard.next("test/held").await;
    let closing = session.close(LONG);
    let error = held.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Closed, Outcome::Unknown)
    );
    drop(closing);
}

#[tokio::test]
async fn a_call_that_was_not_sent_when_the_session_was_closed_never_is() {
    let log = std::env::temp_dir().join(format!("mcp-transport-read-{}", std::process::id()));
    let (session, _) = open(&[&format!("log={}", log.display())]).await;
    // The first goes out at once, the second waits for what the server says to it.
    let start = |text| {
        let params = tool("echo", json!({"text": text}));
        session
            .start("tools/call", params.as_deref(), long())
            .unwrap()
    };
    let (mut sent, mut queued) = (start("sent"), start("queued"));
    session.notify("test/courtesy", None).unwrap();
    let closing = session.close(LONG);
    for (call, outcome) in [
        (&mut sent, Outcome::Unknown),
        (&mut queued, Outcome::NotSent),
    ] {
        let error = call.answer().await.unwrap_err();
        assert_eq!((error.kind, error.outcome), (ErrorKind::Closed, outcome));
    }
    closing.await;
    let read = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(
        read.contains("\"sent\"") && !read.contains("\"queued\""),
        "{read}"
    );
    assert!(read.contains("test/courtesy"), "{read}");
}

#[tokio::test]
async fn a_call_of_which_only_the_newline_was_not_written_may_run() {
    let log = std::env::temp_dir().join(format!("mcp-transport-line-{}", std::process::id()));
    let (session, _) = open(&[&format!("log={}", log.display())]).await;
    let pid = session.pid().unwrap();
    // Answered, so that nothing of before is left in the pipe.
    session.ping(None).await.unwrap();
    kill(pid, libc::SIGSTOP);
    let params = |text: &str| tool("echo", json!({"text": text})).unwrap();
    let id = mcp_transport::jsonrpc::RequestId(3);
    let bare = mcp_transport::jsonrpc::request(id, "tools/call", Some(&params("")), false);
    // As much as the pipe holds.
    let text = "z".repeat(65_536 - bare.unwrap().len());
    let call = session.request("tools/call", Some(params(&text)), long());
    let closing = session.close(LONG);
    let error = call.await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Closed, Outcome::Unknown)
    );
    kill(pid, libc::SIGCONT);
    closing.await;
    let read = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(read.contains("zzzz"), "it was read: {read}");
}

#[tokio::test]
async fn no_error_has_a_secret_that_the_server_was_given_and_says() {
    let with_secret = |options: &[&str]| {
        let mut config = fault_server(options);
        config.env.insert("API_KEY".into(), "sk-hunter-2222".into());
        config
    };
    let stderr = "stderr=bad key sk-hunter-2222";
    let error = fails(with_secret(&["exit=3", stderr])).await;
    assert!(error.message.contains("bad key [redacted]"), "{error}");

    let (session, _) = open_with(StdioTransport::new(with_secret(&[])))
        .await
        .unwrap();
    let noise = json!({"text": "key is sk-hunter-2222\n{\"jsonrpc\":\"2.0\",\"id\":$ID,\"error\":{\"code\":-1,\"message\":\"not sk-hunter-2222\"}}"});
    let error = call(&session, "raw", noise).await.unwrap_err();
    assert!(error.message.ends_with("not [redacted]"), "{error}");
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    let error = call(&session, "exit", json!({"stderr": "sk-hunter-2222"}))
        .await
        .unwrap_err();
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    assert!(
        error.message.contains("the last \"key is [redacted]\""),
        "{error}"
    );
}

#[tokio::test]
async fn the_child_of_a_wrapper_goes_with_its_group() {
    let (session, _) = open(&["wrapper=ignore-eof"]).await;
    let server = call(&session, "env", json!({})).await.unwrap();
    let (wrapper, server) = (
        session.pid().unwrap(),
        server["pid"].as_u64().unwrap() as u32,
    );
    assert_ne!(wrapper, server);
    session.close(Duration::from_millis(400)).await;
    until("wrapper and server have gone", || {
        !exists(wrapper) && !runs(server)
    })
    .await;
}

#[tokio::test]
async fn what_a_leader_leaves_in_its_group_is_ended_too() {
    for mode in ["quiet", "quiet,ignore"] {
        let (session, mut heard) = open(&[&format!("orphan={mode}")]).await;
        let orphan = heard.next("test/orphan").await["pid"].as_u64().unwrap() as u32;
        assert!(runs(orphan));
        let error = call(&session, "exit", json!({})).await.unwrap_err();
        assert_eq!(error.message, "the server exited with code 0");
        until("the orphan has gone", || !runs(orphan)).await;
    }
}

#[tokio::test]
async fn closing_ends_what_the_leader_left_too() {
    let (session, mut heard) = open(&["orphan=hold,ignore"]).await;
    let orphan = heard.next("test/orphan").await["pid"].as_u64().unwrap() as u32;
    session.close(Duration::from_millis(380)).await;
    until("the orphan has gone", || !runs(orphan)).await;
}

#[tokio::test]
async fn a_grandchild_that_holds_stdout_does_not_hold_up_the_end() {
    let (session, mut heard) = open(&["orphan=hold"]).await;
    heard.next("test/orphan").await;
    let error = call(&session, "exit", json!({"code": 4}))
        .await
        .unwrap_err();
    assert_eq!(error.message, "the server exited with code 4");
}

#[tokio::test]
async fn a_server_that_closes_its_stdin_and_lives_on_is_ended_at_the_next_message() {
    let (session, _) = open(&[]).await;
    let pid = session.pid().unwrap();
    call(&session, "stop-reading", json!({})).await.unwrap();
    let error = call(&session, "echo", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Transport, Outcome::NotSent)
    );
    assert_eq!(error.message, "the server closed its stdin and lives on");
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_server_that_closes_its_stdout_and_lives_on_is_ended() {
    let (session, _) = open(&[]).await;
    let pid = session.pid().unwrap();
    let error = call(&session, "stop-writing", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Transport, Outcome::Unknown)
    );
    assert_eq!(error.message, "the server closed its stdout and lives on");
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn dropping_the_session_kills_the_group_and_leaves_no_zombie() {
    let (session, mut heard) = open(&["orphan=hold,ignore", "ignore-eof", "ignore-term"]).await;
    let orphan = heard.next("test/orphan").await["pid"].as_u64().unwrap() as u32;
    let pid = session.pid().unwrap();
    let ended = session.ended();
    drop(session);
    assert_eq!(ended.await.kind, ErrorKind::Closed);
    until("leader and orphan have gone", || {
        !exists(pid) && !runs(orphan)
    })
    .await;
}

#[test]
fn the_end_of_the_runtime_kills_the_group_and_completes_calls() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (session, held, pid) = runtime.block_on(async {
        let (session, mut heard) = open(&["ignore-eof", "ignore-term"]).await;
        let held = session.request("tools/call", tool("hold", json!({})), long());
        heard.next("test/held").await;
        let pid = session.pid().unwrap();
        (session, held, pid)
    });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = other.block_on(held).unwrap_err();
    assert_eq!(
        (error.kind, error.outcome),
        (ErrorKind::Closed, Outcome::Unknown)
    );
    other.block_on(until("the server has gone", || !exists(pid)));
    // The transport is still there, and closing it finds nothing to do.
    other.block_on(session.close(LONG));
}

#[test]
fn dropping_on_a_runtime_that_nobody_drives_kills_and_reaps_all_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let session = runtime.block_on(open(&["ignore-eof", "ignore-term"])).0;
    let pid = session.pid().unwrap();
    drop(session);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    other.block_on(until("the server has gone", || !exists(pid)));
    drop(runtime);
}

#[tokio::test]
async fn giving_up_an_opening_leaves_nothing_behind() {
    let transport = Arc::new(StdioTransport::new(fault_server(&["never-answer"])));
    let opening = Session::open(transport.clone(), options(Arc::new(())));
    let mut opening = Box::pin(opening);
    let pid = loop {
        assert!(
            tokio::time::timeout(Duration::from_millis(1), &mut opening)
                .await
                .is_err()
        );
        if let Some(pid) = transport.pid() {
            break pid;
        }
    };
    drop(opening);
    // Although somebody still holds the transport.
    until("the server has gone", || !exists(pid)).await;
    assert_eq!(transport.pid(), None);
}

#[tokio::test]
async fn a_panicking_handler_ends_its_session_and_says_so() {
    struct Panics;
    impl mcp_transport::session::Handler for Panics {
        fn notification(&self, _: &str, _: bytes::Bytes) {
            panic!("the handler of the test panics");
        }
    }
    let transport = Arc::new(StdioTransport::new(fault_server(&[])));
    let session = Session::open(transport, options(Arc::new(Panics)))
        .await
        .unwrap();
    let pid = session.pid().unwrap();
    let error = call(&session, "hold", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (ErrorKind::Internal, Cause::Fatal)
    );
    assert_eq!(error.outcome, Outcome::Unknown);
    drop(session);
    until("the server has gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_missing_command_a_missing_directory_and_a_missing_interpreter_are_told_apart() {
    let error = fails(StdioConfig::new("no-such-command-here")).await;
    assert!(
        error
            .message
            .contains("\"no-such-command-here\" was not found"),
        "{error}"
    );
    assert_eq!(
        (error.kind, error.cause),
        (ErrorKind::Config, Cause::Permanent)
    );

    let mut config = StdioConfig::new("sh");
    config.cwd = Some(PathBuf::from("/no/such/directory"));
    let error = fails(config).await;
    assert_eq!(
        error.message,
        "the working directory /no/such/directory does not exist"
    );
    assert_eq!(error.kind, ErrorKind::Config);

    let script = Script::new("#!/no/such/interpreter\n");
    let error = fails(StdioConfig::new(script.path())).await;
    assert!(error.message.contains("interpreter"), "{error}");
    assert_eq!(error.kind, ErrorKind::Config);
}

#[tokio::test]
async fn whatever_the_system_has_against_a_command_is_said_of_it_and_leaves_nothing() {
    let loops = Script::new("#!/bin/sh\n");
    std::fs::remove_file(loops.path()).unwrap();
    std::os::unix::fs::symlink(loops.path(), loops.path()).unwrap();
    let nested = Script::new("#!/bin/sh\n");
    let inner = format!("#!{}/inside\n", nested.path());
    let through_a_file = Script::new(&inner);
    let directory = Script::new("#!/\n");
    let long = "x".repeat(200_000);
    let mut many = StdioConfig::new("true");
    many.args = vec![long];
    let mut large = StdioConfig::new("true");
    large.env.insert("LARGE".into(), "x".repeat(200_000));
    for (config, said) in [
        (many, "too long"),
        (large, "too long"),
        (StdioConfig::new(loops.path()), ""),
        (StdioConfig::new(through_a_file.path()), "usable path"),
        (StdioConfig::new(directory.path()), "not executable"),
    ] {
        let error = fails(config.clone()).await;
        assert!(error.message.contains(said), "{error}");
        assert!(error.message.len() < 1000, "{error}");
        assert_eq!(
            (error.kind, error.cause),
            (ErrorKind::Config, Cause::Permanent),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_script_without_a_first_line_is_run_by_the_shell() {
    let script = Script::new("exit 9\n");
    let error = fails(StdioConfig::new(script.path())).await;
    assert_eq!(error.message, "the server exited with code 9");
}

#[tokio::test]
async fn a_child_has_its_own_session_default_signals_and_no_descriptor_of_ours() {
    let mut config = fault_server(&[]);
    config.env.insert("GIVEN".into(), "yes".into());
    config.cwd = Some(std::env::temp_dir());
    // A descriptor that its owner forgot to mark.
    // SAFETY: it only makes a descriptor, which the test leaves open.
    let forgotten = unsafe { libc::dup(1) };
    assert!(forgotten > 2);
    let (session, _) = open_with(StdioTransport::new(config)).await.unwrap();
    let seen = call(&session, "env", json!({})).await.unwrap();
    assert_eq!(seen["pid"], seen["sid"]);
    assert_eq!(seen["pid"], seen["pgid"]);
    assert_eq!(seen["env"]["GIVEN"], "yes");
    assert_eq!(seen["env"]["HOME"], std::env::var("HOME").unwrap());
    assert_eq!(seen["env"]["CARGO_MANIFEST_DIR"], json!(null));
    let cwd = std::env::temp_dir().canonicalize().unwrap();
    assert_eq!(seen["cwd"], cwd.to_str().unwrap());
    // 0, 1, 2 and the one that lists them.
    assert_eq!(seen["fds"].as_array().unwrap().len(), 4, "{}", seen["fds"]);

    let signals = call(&session, "signals", json!({})).await.unwrap();
    assert_eq!(signals["SigBlk"], "0000000000000000");
    // Python itself ignores SIGPIPE (13) and SIGXFSZ (25); 32 to 34 are the C library's own.
    let ignored = u64::from_str_radix(signals["SigIgn"].as_str().unwrap(), 16).unwrap();
    assert_eq!(ignored & !(1 << 12 | 1 << 24 | 7 << 31), 0, "{ignored:x}");
    session.close(LONG).await;
}

#[tokio::test]
async fn a_server_lives_on_when_the_thread_that_opened_it_ends() {
    let opener = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let session = runtime.block_on(open(&[])).0;
        (runtime, session)
    });
    let (runtime, session) = opener.join().unwrap();
    let answer = call(&session, "echo", json!({"text": "still here"})).await;
    assert_eq!(answer.unwrap()["content"][0]["text"], "still here");
    session.close(LONG).await;
    runtime.shutdown_background();
}

#[tokio::test]
async fn the_spawners_thread_ends_with_its_last_child() {
    let spawner = Spawner::new();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let transport = StdioTransport::with_spawner(fault_server(&[]), spawner.clone());
        sessions.push(open_with(transport).await.unwrap().0);
    }
    let pids: Vec<_> = sessions.iter().map(|s| s.pid().unwrap()).collect();
    // The parent-death signal names the thread; all three have the same parent thread, and live.
    drop(spawner);
    for session in &sessions {
        session.ping(None).await.unwrap();
    }
    drop(sessions);
    until("all have gone", || pids.iter().all(|pid| !exists(*pid))).await;
}

/// An executable file that goes with its value.
struct Script(PathBuf);

impl Script {
    fn new(text: &str) -> Self {
        use std::{
            os::unix::fs::PermissionsExt,
            sync::atomic::{AtomicU32, Ordering},
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "mcp-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
