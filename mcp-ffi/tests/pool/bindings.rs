//! Which configuration of a server is the current one.

use mcpconn::abi::pool_words::{mcpconn_pool_acquire_options, mcpconn_pool_reason::*};

use crate::host::*;

fn of_epoch(epoch: u64, token: u64) -> mcpconn_pool_acquire_options {
    mcpconn_pool_acquire_options {
        epoch,
        ..options(token)
    }
}

#[test]
fn the_same_configuration_again_changes_nothing() {
    let pool = pool_of(1);
    let (_, id) = pool.given("a", 7);
    assert_eq!(
        pool.bind("", "server", "v1"),
        pool.bind("deployment", "server", "v1")
    );
    assert!(pool.begin(id).is_ok());
}

#[test]
fn another_configuration_closes_the_sessions_of_the_old_one_busy_as_they_are() {
    let pool = pool_of(2);
    let (_, id) = pool.given("a", 7);
    let old = pool.bind("", "server", "v1");
    let new = pool.bind("", "server", "v2");
    assert!(new > old);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_STALE);
    pool.acquire("a", 1);
    let Ok(Todo::Open { epoch, .. }) = pool.next() else {
        panic!("it is opened anew");
    };
    assert_eq!(epoch, new);
}

#[test]
fn a_stale_configuration_opens_nothing_and_what_it_was_opening_fails_for_all() {
    let pool = pool_of(2);
    let old = pool.bind("", "server", "v1");
    pool.acquire("a", 1);
    pool.acquire("a", 2);
    let id = pool.expect_open();
    pool.bind("", "server", "v2");
    pool.expect_refuse(1, MCPCONN_POOL_REASON_STALE, CLOSED);
    pool.expect_refuse(2, MCPCONN_POOL_REASON_STALE, CLOSED);
    pool.expect_stop(id, MCPCONN_POOL_REASON_STALE);
    pool.try_acquire(("", "server", "a"), of_epoch(old, 3))
        .unwrap();
    pool.expect_refuse(3, MCPCONN_POOL_REASON_STALE, CLOSED);
    assert_eq!(pool.opened(id, 7).status, EMPTY);
    assert_eq!(pool.closed(id).status, OK);
    assert_eq!(pool.idle_until(), u64::MAX);
}

#[test]
fn a_server_that_was_removed_and_comes_back_is_another() {
    let pool = pool_of(2);
    let old = pool.bind("", "server", "v1");
    let (_, id) = pool.given("a", 7);
    assert_eq!(pool.unbind("", "server").status, OK);
    assert_eq!(pool.unbind("", "server").status, EMPTY);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_STALE);
    pool.closed(id);
    let nobody = pool.try_acquire(("", "server", "a"), options(1));
    nobody.unwrap_err().expect(UNKNOWN_SERVER, "server");
    pool.try_acquire(("", "server", "a"), of_epoch(old, 2))
        .unwrap();
    pool.expect_refuse(2, MCPCONN_POOL_REASON_STALE, CLOSED);

    assert!(pool.bind("", "server", "v1") > old);
    pool.try_acquire(("", "server", "a"), of_epoch(old, 3))
        .unwrap();
    pool.expect_refuse(3, MCPCONN_POOL_REASON_STALE, CLOSED);
}

#[test]
fn domains_have_servers_and_sessions_of_their_own() {
    let pool = pool_of(8);
    let personal = pool.bind("personal", "server", "v1");
    assert_ne!(personal, pool.bind("", "server", "v1"));
    let (_, id) = pool.given("a", 7);
    pool.try_acquire(("personal", "server", "a"), of_epoch(personal, 1))
        .unwrap();
    let opened = pool.next();
    assert!(
        matches!(&opened, Ok(Todo::Open { server, .. }) if server == "personal server"),
        "{opened:?}"
    );
    pool.bind("personal", "server", "v2");
    assert!(pool.begin(id).is_ok(), "the other domain was left alone");
}
