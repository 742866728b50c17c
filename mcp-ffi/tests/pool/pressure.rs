//! Want of room, waiting for it, and limits of time.

use mcpconn::abi::{options::MCPCONN_FOREVER, pool_words::mcpconn_pool_reason::*};

use crate::host::*;

#[test]
fn requests_for_one_scope_make_one_opening_and_are_all_given_the_session() {
    let pool = pool_of(1);
    for token in 1..=3 {
        pool.acquire("a", token);
    }
    let opened = pool.next();
    let Ok(Todo::Open {
        id, scope, server, ..
    }) = opened
    else {
        panic!("{opened:?}");
    };
    assert_eq!(
        (scope.as_str(), server.as_str()),
        ("a", "deployment server")
    );
    assert_eq!(pool.idle_until(), u64::MAX);
    assert_eq!(pool.opened(id, 7).status, OK);
    for token in 1..=3 {
        let given = pool.next();
        let Ok(Todo::Give {
            token: to,
            session,
            fresh,
            ..
        }) = given
        else {
            panic!("{given:?}");
        };
        assert_eq!((to, session, fresh), (token, 7, token == 1));
    }
}

#[test]
fn a_full_and_busy_pool_refuses_says_capacity_and_opens_nothing() {
    let pool = pool_of(1);
    pool.given("a", 7);
    pool.acquire("b", 1);
    let refused = pool.next();
    let Ok(Todo::Refuse {
        why, status, busy, ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    let capacity = MCPCONN_POOL_REASON_CAPACITY as i32;
    assert_eq!((why, status, busy), (capacity, CAPACITY, (1, 1)));
    assert_eq!(pool.idle_until(), u64::MAX);
}

#[test]
fn an_idle_session_goes_instead_of_a_busy_one_and_is_closed_before_the_other_is_given() {
    let pool = pool_of(2);
    let (busy, _) = pool.given("a", 7);
    let (call, idle) = pool.given("b", 8);
    pool.release(call);
    pool.acquire("c", 1);
    let id = pool.expect_open();
    pool.opened(id, 9);
    pool.expect_close(idle, 8, MCPCONN_POOL_REASON_DISPLACED);
    assert_eq!(pool.idle_until(), pool.now + 5 * SECOND);
    assert_eq!(pool.closed(idle).status, OK);
    pool.expect_give(1, 9);
    assert_eq!(pool.release(busy).status, OK);
}

#[test]
fn a_closing_that_hangs_holds_the_new_session_up_for_the_limit_only() {
    let mut pool = pool_with(r#"{"capacity": 1, "close_limit_ms": 3000}"#);
    let (call, idle) = pool.given("a", 7);
    pool.release(call);
    pool.acquire("b", 1);
    pool.opened(pool.expect_open(), 8);
    pool.expect_close(idle, 7, MCPCONN_POOL_REASON_DISPLACED);
    pool.now += 3 * SECOND;
    pool.expect_give(1, 8);
    assert_eq!(pool.closed(idle).status, EMPTY, "it is late");
}

#[test]
fn what_opened_when_every_slot_had_become_busy_is_closed_and_refused() {
    let pool = pool_of(1);
    let (call, first) = pool.given("a", 7);
    pool.release(call);
    pool.acquire("b", 1);
    let id = pool.expect_open();
    pool.acquire("a", 2);
    pool.expect_give(2, 7);
    assert_eq!(pool.opened(id, 8).status, OK);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_CAPACITY, CAPACITY);
    pool.expect_close(id, 8, MCPCONN_POOL_REASON_NO_SLOT);
    assert!(pool.begin(first).is_ok(), "the busy one was left alone");
}

#[test]
fn whoever_waits_is_served_in_order_or_refused_at_the_deadline() {
    let mut pool = pool_of(1);
    let (call, first) = pool.given("a", 7);
    pool.acquire_until("b", 1, MCPCONN_FOREVER);
    pool.acquire_until("c", 2, pool.now + 3 * SECOND);
    pool.acquire("d", 3);
    pool.expect_refuse(3, MCPCONN_POOL_REASON_CAPACITY, CAPACITY);
    assert_eq!(pool.idle_until(), pool.now + 3 * SECOND);
    pool.now += 3 * SECOND;
    pool.expect_refuse(2, MCPCONN_POOL_REASON_CAPACITY, CAPACITY);
    pool.release(call);
    let id = pool.expect_open();
    pool.opened(id, 8);
    pool.expect_close(first, 7, MCPCONN_POOL_REASON_DISPLACED);
    pool.closed(first);
    pool.expect_give(1, 8);
}

#[test]
fn a_request_without_a_deadline_waits_as_long_as_wait_ms_says_and_one_that_is_over_not_at_all() {
    let pool = pool_with(r#"{"capacity": 1, "wait_ms": 2000, "idle_ttl_ms": "never"}"#);
    pool.given("a", 7);
    pool.acquire("b", 1);
    assert_eq!(pool.idle_until(), pool.now + 2 * SECOND);
    pool.acquire_until("c", 2, 1);
    pool.expect_refuse(2, MCPCONN_POOL_REASON_CAPACITY, CAPACITY);
}

#[test]
fn a_server_with_all_the_sessions_it_may_have_refuses_and_others_do_not() {
    let pool = pool_with(r#"{"sessions_per_server": 1}"#);
    pool.bind("", "other", "v1");
    pool.given("a", 7);
    pool.acquire("b", 1);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_SERVER_CAPACITY, CAPACITY);
    pool.try_acquire(("", "other", "b"), options(2)).unwrap();
    pool.expect_open();
}

#[test]
fn a_session_with_all_the_calls_it_may_have_refuses_or_gives_the_next_place() {
    let pool = pool_with(r#"{"calls_per_session": 1}"#);
    let (call, id) = pool.given("a", 7);
    pool.acquire("a", 1);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_SATURATED, CAPACITY);
    pool.begin(id).unwrap_err().expect(CAPACITY, "calls");
    pool.acquire_until("a", 2, MCPCONN_FOREVER);
    assert_eq!(pool.release(call).status, OK);
    pool.expect_give(2, 7);
}

#[test]
fn an_idle_session_is_closed_when_its_time_is_over_and_a_long_call_is_not_cut() {
    let mut pool = pool_with(r#"{"idle_ttl_ms": 60000}"#);
    let (call, id) = pool.given("a", 7);
    assert_eq!(pool.idle_until(), u64::MAX);
    pool.now += 1_000 * SECOND;
    assert_eq!(pool.idle_until(), u64::MAX);
    pool.release(call);
    assert_eq!(pool.idle_until(), pool.now + 60 * SECOND);
    pool.now += 60 * SECOND;
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_IDLE);
}

#[test]
fn a_session_that_lived_for_long_enough_is_closed_after_its_last_call() {
    let mut pool = pool_with(r#"{"max_lifetime_ms": 60000}"#);
    let (call, id) = pool.given("a", 7);
    pool.now += 60 * SECOND;
    assert_eq!(pool.idle_until(), u64::MAX);
    pool.begin(id).unwrap_err().expect(CLOSED, "no call begins");
    pool.release(call);
    pool.expect_close(id, 7, MCPCONN_POOL_REASON_LIFETIME);
}

#[test]
fn no_more_are_opened_at_a_time_than_openings_says() {
    let pool = pool_with(r#"{"openings": 1}"#);
    pool.acquire("a", 1);
    pool.acquire("b", 2);
    let id = pool.expect_open();
    assert_eq!(pool.idle_until(), u64::MAX);
    pool.failed(id, -3);
    pool.expect_refuse(1, MCPCONN_POOL_REASON_FAILED, -3);
    pool.expect_open();
}

#[test]
fn what_is_opened_ahead_of_need_takes_a_free_slot_only() {
    let pool = pool_of(1);
    assert_eq!(pool.warm_up("a").status, OK);
    pool.opened(pool.expect_open(), 7);
    assert_eq!(pool.idle_until(), u64::MAX);
    pool.warm_up("b").expect(CAPACITY, "capacity");
    pool.acquire("a", 1);
    pool.expect_give(1, 7);
}
