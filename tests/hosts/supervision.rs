use std::time::Duration;

use mcpconn_tests::{demo_log::DemoLog, processes, scratch::Scratch};

use crate::{DEMO_SERVER, start};

/// As the host's policy says.
const MAX_RETRIES: usize = 3;
const MAX_UNPROVEN: usize = 2;

fn flapping(who: &str, most: usize) {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let mut host = start("flapping.c", &[DEMO_SERVER, log.path(), who], &scratch);
    host.hear("parked");
    let spawned = log.count("start");
    assert!(
        (1..=most).contains(&spawned),
        "{spawned} spawns until it was parked, {most} allowed"
    );
    host.tell("wake it");
    host.hear("parked again");
    assert_eq!(
        log.count("start"),
        spawned + 1,
        "a wake is one attempt, and a revival that is lost goes straight back"
    );
    host.tell("end");
    host.finish().expect_success();
    processes::expect_gone(&log.pids(), Duration::from_secs(10));
}

#[test]
fn a_flapping_server_is_parked_within_its_budget() {
    flapping("ALONE", 1 + MAX_RETRIES);
}

#[test]
fn a_flapping_server_that_twenty_scopes_call_is_parked_within_its_budget() {
    flapping("SCOPES", 1 + MAX_UNPROVEN + MAX_RETRIES);
}

#[test]
fn a_full_pool_refuses_a_new_scope_and_leaves_the_running_call_alone() {
    let scratch = Scratch::new();
    start("full_pool.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_with_a_client_of_its_own_asks_a_budget_alone() {
    let scratch = Scratch::new();
    start("budget_alone.c", &[], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_with_sessions_of_its_own_asks_a_pool_alone_from_many_threads() {
    let scratch = Scratch::new();
    start("pool_alone.c", &[], &scratch)
        .finish()
        .expect_success();
}
