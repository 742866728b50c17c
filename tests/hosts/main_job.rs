use std::time::Duration;

use mcpconn_tests::{
    c_host::{self, Language, Link},
    demo_log::DemoLog,
    processes,
    scratch::Scratch,
    server::Server,
    tools,
};

use crate::{DEMO_SERVER, demo_server, start};

/// Runs the host, and shows that none of the processes that its servers were and had is left.
fn main_job(language: Language, link: Link) {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let program = c_host::compile("main_job.c", language, link, &scratch);
    c_host::start(&program, &[DEMO_SERVER, log.path()])
        .finish()
        .expect_success();
    assert!(
        log.count("helper") > 0,
        "the servers had children of their own"
    );
    processes::expect_gone(&log.pids(), Duration::from_secs(10));
}

#[test]
fn a_host_in_c_does_the_main_job() {
    main_job(Language::C99, Link::Shared);
}

#[test]
fn a_host_in_cpp_does_the_main_job() {
    let Some(()) = tools::need("a host in C++", tools::cxx()) else {
        return;
    };
    main_job(Language::Cxx17, Link::Shared);
}

#[test]
fn a_host_that_links_the_static_library_does_the_main_job() {
    main_job(Language::C99, Link::Static);
}

/// Runs the host against a server with these arguments, and shows that each session was ended.
fn http_job(arguments: &[&str]) {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    let server = Server::demo(demo_server(), &["--log", log.path()], arguments);
    start("http_job.c", &[&server.url], &scratch)
        .finish()
        .expect_success();
    assert_eq!(
        log.count("open"),
        3,
        "the home session, the scoped one, and the one that replaced it"
    );
    log.await_count("close", 3);
    assert!(log.count("cancelled") >= 1);
}

#[test]
fn a_host_does_the_main_job_over_streamable_http_with_json_answers() {
    http_job(&[]);
}

#[test]
fn a_host_does_the_main_job_over_streamable_http_with_event_streams() {
    http_job(&["--sse"]);
}

#[test]
fn a_server_was_told_of_the_cancellation() {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    start("main_job.c", &[DEMO_SERVER, log.path()], &scratch)
        .finish()
        .expect_success();
    // One call was cancelled by the host and one by its deadline; the one that ran at the close may have been, too.
    assert!(log.count("cancelled") >= 2);
}

#[test]
fn a_host_without_descriptors_hears_so_and_goes_on_when_it_has_some() {
    let scratch = Scratch::new();
    let server = Server::demo(demo_server(), &[], &[]);
    start("no_descriptors.c", &[DEMO_SERVER, &server.url], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn results_are_heard_by_callbacks_one_by_one_and_by_waiting() {
    let scratch = Scratch::new();
    start("three_ways.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_that_ignores_sigchld_and_not_sigpipe_outlives_servers_killed_a_moment_ago() {
    let scratch = Scratch::new();
    start("signals.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_client_from_before_a_fork_is_refused_in_the_child_and_stays_the_parents() {
    let scratch = Scratch::new();
    start("after_fork.c", &[DEMO_SERVER], &scratch)
        .finish()
        .expect_success();
}

#[test]
fn a_host_without_a_guardian_has_no_process_but_its_servers_and_leaves_none() {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    start("no_guardian.c", &[DEMO_SERVER, log.path()], &scratch)
        .finish()
        .expect_success();
    assert_eq!(log.count("helper"), 2);
    processes::expect_gone(&log.pids(), Duration::from_secs(10));
}

#[test]
fn a_forked_child_that_lives_on_does_not_keep_the_parents_close_from_a_server() {
    let scratch = Scratch::new();
    let log = DemoLog::at(scratch.file("log"));
    start("fork_lives_on.c", &[DEMO_SERVER, log.path()], &scratch)
        .finish()
        .expect_success();
    assert_eq!(log.count("close"), 1, "it was killed instead");
}
