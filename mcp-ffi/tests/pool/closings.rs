//! What an explicit close takes, and what a drain leaves to end.

use mcpconn::abi::{
    options::MCPCONN_FOREVER,
    pool_words::{mcpconn_pool_reason::*, mcpconn_pool_target as Target},
};

use crate::host::*;

/// A pool with three busy sessions: "a" and "b" of one server, "a" of another.
fn three() -> (Pool, [u64; 3]) {
    let pool = pool_of(8);
    pool.bind("", "other", "v1");
    let (_, first) = pool.given("a", 1);
    let (_, second) = pool.given("b", 2);
    pool.try_acquire(("", "other", "a"), options(99)).unwrap();
    let third = pool.expect_open();
    pool.opened(third, 3);
    pool.expect_give(99, 3);
    (pool, [first, second, third])
}

#[test]
fn each_close_takes_what_is_meant_busy_as_it_is_and_nothing_else() {
    let session = ("", "server", "b");
    for (what, key, meant) in [
        (Target::MCPCONN_POOL_TARGET_SCOPE, ("", "", "a"), vec![0, 2]),
        (
            Target::MCPCONN_POOL_TARGET_SERVER,
            ("", "server", ""),
            vec![0, 1],
        ),
        (Target::MCPCONN_POOL_TARGET_SESSION, session, vec![1]),
        (
            Target::MCPCONN_POOL_TARGET_DOMAIN,
            ("", "", ""),
            vec![0, 1, 2],
        ),
        (Target::MCPCONN_POOL_TARGET_ALL, ("", "", ""), vec![0, 1, 2]),
    ] {
        let (pool, ids) = three();
        assert_eq!(pool.close(what as i32, key, 0).status, OK);
        for which in meant {
            pool.expect_close(ids[which], which + 1, MCPCONN_POOL_REASON_CLOSED);
        }
        assert_eq!(pool.idle_until(), pool.now + 5 * SECOND);
        assert_eq!(pool.close(what as i32, key, 0).status, EMPTY);
    }
}

#[test]
fn a_close_of_another_domain_takes_nothing() {
    let (pool, _) = three();
    let domain = Target::MCPCONN_POOL_TARGET_DOMAIN as i32;
    assert_eq!(pool.close(domain, ("personal", "", ""), 0).status, EMPTY);
    assert_eq!(pool.close(domain, ("deployment", "", ""), 0).status, OK);
}

#[test]
fn a_close_of_one_session_spares_the_one_that_replaced_it() {
    let pool = pool_of(1);
    let (call, old) = pool.given("a", 7);
    let if_current = Target::MCPCONN_POOL_TARGET_SESSION_IF_CURRENT as i32;
    let key = ("", "server", "a");
    assert_eq!(pool.close(if_current, key, old).status, OK);
    pool.expect_close(old, 7, MCPCONN_POOL_REASON_CLOSED);
    pool.closed(old);
    let (_, new) = pool.given("a", 8);
    assert_eq!(pool.close(if_current, key, old).status, EMPTY);
    assert_eq!(
        pool.evict(old).status,
        EMPTY,
        "nor does a late failure take it"
    );
    assert_eq!(
        pool.release(call).status,
        OK,
        "nor does the old call unpin it"
    );
    assert_eq!(pool.info()["busy"], 1);
    assert_eq!(pool.close(if_current, key, new).status, OK);
}

#[test]
fn what_is_closed_while_it_opens_never_comes_to_life() {
    let pool = pool_of(1);
    pool.acquire("a", 1);
    pool.acquire("a", 2);
    let id = pool.expect_open();
    let scope = Target::MCPCONN_POOL_TARGET_SCOPE as i32;
    assert_eq!(pool.close(scope, ("", "", "a"), 0).status, OK);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CLOSED, CLOSED);
    pool.expect_refuse(2, MCPCONN_POOL_REASON_CLOSED, CLOSED);
    pool.expect_stop(id, MCPCONN_POOL_REASON_CLOSED);
    assert_eq!(
        pool.opened(id, 7).status,
        EMPTY,
        "whoever opened it closes it"
    );
    assert_eq!(pool.closed(id).status, OK);
    assert_eq!(pool.idle_until(), u64::MAX);
    assert_eq!(pool.info()["live"], 0);
}

#[test]
fn who_opened_what_was_closed_meanwhile_hears_it_from_the_answer_and_not_again() {
    let pool = pool_of(1);
    pool.acquire("a", 1);
    let id = pool.expect_open();
    let all = Target::MCPCONN_POOL_TARGET_ALL as i32;
    assert_eq!(pool.close(all, ("", "", ""), 0).status, OK);
    assert_eq!(pool.opened(id, 7).status, EMPTY);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CLOSED, CLOSED);
    assert_eq!(pool.idle_until(), pool.now + 5 * SECOND, "no close comes");
    assert_eq!(pool.closed(id).status, OK);
}

#[test]
fn a_close_refuses_whom_nobody_told_yet_that_it_has_a_session() {
    let pool = pool_of(1);
    let request = pool.acquire("a", 1);
    let id = pool.expect_open();
    pool.opened(id, 7);
    let all = Target::MCPCONN_POOL_TARGET_ALL as i32;
    pool.close(all, ("", "", ""), 0);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CLOSED, CLOSED);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_CLOSED);
    pool.release(request).expect(INVALID, "was refused");
}

#[test]
fn a_drain_lets_running_calls_end_up_to_its_deadline() {
    for released in [false, true] {
        let mut pool = pool_of(2);
        let (call, id) = pool.given("a", 7);
        let all = Target::MCPCONN_POOL_TARGET_ALL as i32;
        let deadline = pool.now + 9 * SECOND;
        assert_eq!(pool.drain(all, ("", "", ""), deadline).status, OK);
        pool.begin(id).unwrap_err().expect(CLOSED, "no call begins");
        assert_eq!(pool.idle_until(), deadline);
        if released {
            pool.release(call);
        } else {
            pool.now = deadline;
        }
        pool.expect_close(id, 7, MCPCONN_POOL_REASON_DRAINED);
    }
}

#[test]
fn a_drain_without_a_deadline_waits_for_the_last_call() {
    let mut pool = pool_of(1);
    let (call, id) = pool.given("a", 7);
    let all = Target::MCPCONN_POOL_TARGET_ALL as i32;
    pool.drain(all, ("", "", ""), MCPCONN_FOREVER);
    pool.now += 1_000_000 * SECOND;
    assert_eq!(pool.idle_until(), u64::MAX);
    pool.release(call);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_DRAINED);
}

#[test]
fn a_pool_that_is_shut_down_closes_everything_and_refuses_what_comes() {
    let pool = pool_of(2);
    let (_, id) = pool.given("a", 7);
    assert_eq!(pool.shutdown().status, OK);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_CLOSED);
    pool.acquire("b", 1);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CLOSED, CLOSED);
    pool.warm_up("b").expect(CLOSED, "shut down");
    pool.closed(id);
    assert_eq!(pool.shutdown().status, EMPTY);
    assert_eq!(pool.idle_until(), u64::MAX);
}
