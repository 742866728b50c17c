//! What a host reports, in time and late.

use mcpconn::abi::pool_words::mcpconn_pool_reason::*;

use crate::host::*;

#[test]
fn a_failed_opening_is_told_with_its_status_to_all_who_waited_and_costs_no_session_its_slot() {
    let pool = pool_of(1);
    let (call, idle) = pool.given("a", 7);
    pool.release(call);
    pool.acquire("b", 1);
    pool.acquire("b", 2);
    let id = pool.expect_open();
    assert_eq!(pool.failed(id, -4711).status, OK);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_FAILED, -4711);
    pool.expect_refuse(2, MCPCONN_POOL_REASON_FAILED, -4711);
    assert_eq!(pool.idle_until(), u64::MAX);
    assert!(pool.begin(idle).is_ok());
}

#[test]
fn whoever_waits_for_a_place_on_a_session_that_fails_hears_the_same_status() {
    let pool = pool_with(r#"{"calls_per_session": 1, "wait_ms": "forever"}"#);
    pool.acquire("a", 1);
    pool.acquire("a", 2);
    let id = pool.expect_open();
    pool.failed(id, -12);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_FAILED, -12);
    pool.expect_refuse(2, MCPCONN_POOL_REASON_FAILED, -12);
}

#[test]
fn a_dead_session_is_closed_and_whoever_asks_has_another_opened() {
    let pool = pool_of(1);
    let (call, id) = pool.given("a", 7);
    assert_eq!(pool.evict(id).status, OK);
    assert_eq!(pool.evict(id).status, EMPTY);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_DEAD);
    let (_, other) = pool.given("a", 8);
    assert_ne!(other, id);
    assert_eq!(pool.release(call).status, OK);
    assert_eq!(pool.info()["busy"], 1);
}

#[test]
fn a_session_that_closed_on_its_own_needs_no_closing() {
    let pool = pool_of(1);
    let (call, id) = pool.given("a", 7);
    assert_eq!(pool.closed(id).status, OK);
    assert_eq!(pool.closed(id).status, EMPTY);
    assert_eq!(pool.idle_until(), u64::MAX);
    assert_eq!(pool.release(call).status, OK, "its calls end all the same");
    pool.given("a", 8);
}

#[test]
fn whoever_was_not_told_of_a_session_that_died_is_refused() {
    let pool = pool_of(1);
    pool.acquire("a", 1);
    let id = pool.expect_open();
    pool.opened(id, 7);
    pool.closed(id);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CLOSED, CLOSED);
    assert_eq!(pool.idle_until(), u64::MAX);
}

#[test]
fn a_cancelled_request_is_refused_as_that_and_an_opening_that_nobody_waits_for_is_stopped() {
    let pool = pool_of(1);
    let first = pool.acquire("a", 1);
    let second = pool.acquire("a", 2);
    let id = pool.expect_open();
    assert_eq!(pool.cancel(first).status, OK);
    assert_eq!(pool.cancel(first).status, EMPTY);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CANCELED, CANCELED);
    assert_eq!(pool.cancel(first).status, EMPTY);
    assert_eq!(pool.idle_until(), u64::MAX, "the other one still waits");
    assert_eq!(pool.cancel(second).status, OK);
    let mut todo = [pool.next().unwrap(), pool.next().unwrap()];
    todo.sort_by_key(|todo| matches!(todo, Todo::Stop { .. }));
    let why = MCPCONN_POOL_REASON_ABANDONED as i32;
    assert_eq!(todo[1], Todo::Stop { id, why });
    assert_eq!(pool.failed(id, -8).status, OK);
    assert_eq!(pool.idle_until(), u64::MAX);
}

#[test]
fn a_request_that_was_given_a_session_is_released_and_not_cancelled() {
    let pool = pool_of(1);
    let (call, id) = pool.given("a", 7);
    assert_eq!(pool.cancel(call).status, EMPTY);
    assert_eq!(pool.info()["busy"], 1);
    let (more, session) = pool.begin(id).unwrap();
    assert_eq!(session, 7);
    assert_eq!(pool.cancel(more).status, EMPTY);
    assert_eq!(pool.release(call).status, OK);
    assert_eq!(pool.info()["busy"], 1, "the other call still runs");
    assert_eq!(pool.release(more).status, OK);
    assert_eq!(pool.info()["busy"], 0);
}

#[test]
fn whoever_cancels_before_it_heard_of_its_session_leaves_that_fresh_for_the_next() {
    let pool = pool_of(1);
    let request = pool.acquire("a", 1);
    pool.opened(pool.expect_open(), 7);
    assert_eq!(pool.cancel(request).status, OK);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CANCELED, CANCELED);
    pool.acquire("a", 2);
    let given = pool.next();
    assert!(
        matches!(
            given,
            Ok(Todo::Give {
                token: 2,
                fresh: true,
                ..
            })
        ),
        "{given:?}"
    );
}
