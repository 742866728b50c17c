//! However a host ends, nothing that its servers are and have started stays.

use std::{os::unix::process::ExitStatusExt, time::Duration};

use mcpconn_tests::{child::PATIENCE, demo_log::DemoLog, processes, scratch::Scratch, told::Told};
use serde_json::json;

use crate::DEMO_SERVER;

/// A host with calls in flight to a server that goes when it is asked and to one that does not, each with a child.
struct Host {
    told: Told,
    /// The servers, their children, and whatever else is a child of the host.
    pids: Vec<u32>,
    _scratch: Scratch,
}

impl Host {
    #[track_caller]
    fn new() -> Self {
        let scratch = Scratch::new();
        let log = DemoLog::at(scratch.file("log"));
        let server = |more: &[&str]| {
            let arguments = [&["--log", log.path(), "--helper"], more].concat();
            json!({ "command": DEMO_SERVER, "args": arguments })
        };
        let servers = json!({
            "heeds": server(&[]),
            "stubborn": server(&["--ignore-eof", "--ignore-term"]),
        });
        let mut told = Told::new(&servers, &scratch);
        for name in ["heeds", "stubborn"] {
            let long = json!({ "ms": 600_000 });
            let scoped = told
                .try_to_begin(Some("conversation"), name, "sleep", &long, PATIENCE)
                .expect("it is taken");
            told.await_progress(scoped);
            let home = told.begin(name, "sleep", &long);
            told.await_progress(home);
        }
        assert_eq!(
            log.count("helper"),
            4,
            "a home session and a scoped one of each"
        );
        let mut pids = log.pids();
        pids.extend(processes::children_of(told.child.pid()));
        assert!(pids.iter().all(|pid| processes::runs(*pid)));
        Self {
            told,
            pids,
            _scratch: scratch,
        }
    }

    /// The host has ended, by this signal if by any, and what it left follows it.
    #[track_caller]
    fn nothing_stays(self, signal: Option<i32>) {
        let end = self.told.child.finish();
        assert_eq!(end.status.signal(), signal, "{end:?}");
        processes::expect_gone(&self.pids, Duration::from_secs(30));
    }
}

#[test]
fn nothing_stays_of_a_host_that_exits_without_freeing_its_client() {
    let mut host = Host::new();
    host.told.child.tell("exit");
    host.nothing_stays(None);
}

#[test]
fn nothing_stays_of_a_host_that_aborts() {
    let mut host = Host::new();
    host.told.child.tell("abort");
    host.nothing_stays(Some(6));
}

#[test]
fn nothing_stays_of_a_host_that_is_killed() {
    let host = Host::new();
    processes::kill(host.told.child.pid());
    host.nothing_stays(Some(9));
}

#[test]
fn nothing_stays_of_a_host_whose_group_is_interrupted() {
    let host = Host::new();
    processes::signal_group("INT", host.told.child.pid());
    host.nothing_stays(Some(2));
}

#[test]
fn nothing_stays_of_a_host_that_is_killed_while_a_fork_of_it_lives() {
    let mut host = Host::new();
    let fork = host.told.fork();
    processes::kill(host.told.child.pid());
    let pids = host.pids.clone();
    processes::expect_gone(&pids, Duration::from_secs(30));
    assert!(
        processes::runs(fork),
        "it has copies of all descriptors still"
    );
    processes::kill(fork);
    host.nothing_stays(Some(9));
}

#[test]
fn nothing_of_the_client_stays_of_a_host_that_becomes_another_program() {
    let mut host = Host::new();
    host.told.child.tell("exec");
    host.told.child.hear("executed");
    processes::expect_gone(&host.pids, Duration::from_secs(30));
    assert!(processes::runs(host.told.child.pid()));
    host.nothing_stays(None);
}

#[test]
fn a_program_that_the_host_starts_gets_no_descriptor_of_the_client() {
    let mut host = Host::new();
    host.told.fork_and_exec();
    assert!(host.pids.iter().all(|pid| processes::runs(*pid)));
    host.told.child.tell("exit");
    host.nothing_stays(None);
}
