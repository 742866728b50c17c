//! What a host must not say, and hears why.

use std::ptr;

use mcpconn::abi::{pool::*, pool_words::*, str::mcpconn_str};

use crate::host::*;

#[test]
fn limits_that_cannot_be_read_are_refused_by_the_name_of_the_member() {
    for (limits, part) in [
        ("{\"capcity\": 1}", "capcity"),
        ("{\"wait_ms\": \"never\"}", "wait_ms"),
        ("[1]", "object"),
        ("{", "EOF"),
    ] {
        let said = try_new(limits).err().unwrap();
        said.expect(CONFIG, part);
    }
}

#[test]
fn an_id_that_was_never_given_out_is_told_and_changes_nothing() {
    let pool = pool_of(2);
    let (call, id) = pool.given("a", 7);
    for id in [0, 1, 2, 3, 1000, 1001, u64::MAX] {
        if id != 2 {
            pool.opened(id, 7).expect(INVALID, "no session");
            pool.failed(id, -1).expect(INVALID, "no session");
            pool.closed(id).expect(INVALID, "no session");
            pool.evict(id).expect(INVALID, "no session");
            pool.begin(id).unwrap_err().expect(INVALID, "no session");
        }
        if id != 3 {
            pool.release(id).expect(INVALID, "no request");
            pool.cancel(id).expect(INVALID, "no request");
        }
    }
    assert_eq!((id, call), (2, 3), "neither is the other");
    assert_eq!(pool.info()["busy"], 1);
}

#[test]
fn a_call_is_released_once() {
    let pool = pool_of(1);
    let (call, id) = pool.given("a", 7);
    pool.begin(id).unwrap();
    assert_eq!(pool.release(call).status, OK);
    pool.release(call).expect(INVALID, "released before");
    assert_eq!(pool.info()["busy"], 1, "the other call still pins it");
}

#[test]
fn a_request_that_was_not_given_a_session_yet_cannot_be_released() {
    let pool = pool_of(1);
    let request = pool.acquire("a", 1);
    pool.release(request).expect(INVALID, "cancelled");
    let id = pool.expect_open();
    pool.release(request).expect(INVALID, "cancelled");
    pool.opened(id, 7);
    pool.release(request).expect(INVALID, "cancelled");
    pool.expect_give(1, 7);
    assert_eq!(pool.release(request).status, OK);
}

#[test]
fn a_session_is_reported_open_once_and_fails_before_that_only() {
    let pool = pool_of(1);
    pool.acquire("a", 1);
    let id = pool.expect_open();
    pool.closed(id).expect(INVALID, "can only fail");
    pool.evict(id).expect(INVALID, "can only fail");
    pool.begin(id).unwrap_err().expect(INVALID, "not open");
    pool.failed(id, 0).expect(INVALID, "below 0");
    pool.failed(id, 1).expect(INVALID, "below 0");
    assert_eq!(pool.opened(id, 7).status, OK);
    pool.opened(id, 8).expect(INVALID, "before");
    pool.failed(id, -1).expect(INVALID, "reported open");
    pool.expect_give(1, 7);
}

#[test]
fn what_is_to_be_closed_is_named_by_what_it_needs_and_nothing_else() {
    use mcpconn_pool_target::*;
    let pool = pool_of(1);
    let (_, id) = pool.given("a", 7);
    for what in [0, 7, -1, i32::MAX] {
        pool.close(what, ("", "", ""), 0).expect(INVALID, "target");
    }
    for (what, key, id, part) in [
        (MCPCONN_POOL_TARGET_ALL, ("x", "", ""), 0, "domain is given"),
        (MCPCONN_POOL_TARGET_ALL, ("", "", "a"), 0, "scope is given"),
        (
            MCPCONN_POOL_TARGET_DOMAIN,
            ("", "s", ""),
            0,
            "server is given",
        ),
        (
            MCPCONN_POOL_TARGET_SCOPE,
            ("", "s", "a"),
            0,
            "server is given",
        ),
        (
            MCPCONN_POOL_TARGET_SERVER,
            ("", "server", "a"),
            0,
            "scope is given",
        ),
        (
            MCPCONN_POOL_TARGET_SERVER,
            ("", "", ""),
            0,
            "server is empty",
        ),
        (
            MCPCONN_POOL_TARGET_SESSION,
            ("", "", "a"),
            0,
            "server is empty",
        ),
        (
            MCPCONN_POOL_TARGET_SESSION,
            ("", "server", "a"),
            id,
            "session_id is given",
        ),
        (
            MCPCONN_POOL_TARGET_SESSION_IF_CURRENT,
            ("", "server", "a"),
            0,
            "no session",
        ),
    ] {
        pool.close(what as i32, key, id).expect(INVALID, part);
    }
    assert_eq!(pool.info()["live"], 1, "nothing was closed");
}

#[test]
fn text_that_is_not_utf8_is_told_by_name() {
    let pool = pool_of(1);
    let bad = mcpconn_str {
        ptr: b"a\xff".as_ptr().cast(),
        len: 2,
    };
    let good = c("server");
    let (raw, now) = (pool.raw, pool.now);
    let nothing = || (ptr::null(), ptr::null_mut());
    for (domain, server, scope, part) in [
        (bad, good, good, "domain: not UTF-8"),
        (good, bad, good, "server: not UTF-8"),
        (good, good, bad, "scope: not UTF-8"),
    ] {
        let (options, id) = nothing();
        // SAFETY: a live pool, and text that lives longer than the call.
        said(|err| unsafe {
            mcpconn_pool_acquire(raw, now, domain, server, scope, options, id, err)
        })
        .expect(INVALID, part);
    }
    // SAFETY: as above.
    said(|err| unsafe { mcpconn_pool_bind(raw, now, good, good, bad, ptr::null_mut(), err) })
        .expect(INVALID, "fingerprint: not UTF-8");
}

#[test]
fn null_is_told_by_name_wherever_something_is_needed() {
    let pool = pool_of(1);
    let (raw, now) = (pool.raw, pool.now);
    let none: *const mcpconn_pool = ptr::null();
    let (s, n) = (c("server"), c(""));
    let mut out = action();
    // SAFETY: NULL or live handles, and text and out-parameters that live longer than the calls.
    unsafe {
        let out = &raw mut out;
        said(|err| mcpconn_pool_new(n, ptr::null_mut(), err)).expect(INVALID, "out is NULL");
        for said in [
            said(|err| mcpconn_pool_bind(none, now, n, s, n, ptr::null_mut(), err)),
            said(|err| mcpconn_pool_unbind(none, now, n, s, err)),
            said(|err| mcpconn_pool_acquire(none, now, n, s, n, ptr::null(), ptr::null_mut(), err)),
            said(|err| mcpconn_pool_cancel(none, now, 3, err)),
            said(|err| mcpconn_pool_release(none, now, 3, err)),
            said(|err| mcpconn_pool_begin(none, now, 2, out, err)),
            said(|err| mcpconn_pool_warm_up(none, now, n, s, n, 0, err)),
            said(|err| mcpconn_pool_opened(none, now, 2, ptr::null_mut(), err)),
            said(|err| mcpconn_pool_failed(none, now, 2, -1, err)),
            said(|err| mcpconn_pool_closed(none, now, 2, err)),
            said(|err| mcpconn_pool_evict(none, now, 2, err)),
            said(|err| mcpconn_pool_close(none, now, 6, n, n, n, 0, err)),
            said(|err| mcpconn_pool_drain(none, now, 6, n, n, n, 0, 0, err)),
            said(|err| mcpconn_pool_shutdown(none, now, err)),
        ] {
            said.expect(INVALID, "pool is NULL");
        }
        assert_eq!(mcpconn_pool_next(none, now, out), INVALID);
        said(|err| mcpconn_pool_info(raw, now, ptr::null_mut(), err))
            .expect(INVALID, "json is NULL");
        said(|err| mcpconn_pool_begin(raw, now, 2, ptr::null_mut(), err))
            .expect(INVALID, "out is NULL");
        mcpconn_pool_free(ptr::null_mut());
        // Outputs and errors that nobody wants.
        let unwanted = ptr::null_mut();
        assert_eq!(
            mcpconn_pool_bind(raw, now, n, s, n, unwanted, ptr::null_mut()),
            OK
        );
        let acquired =
            mcpconn_pool_acquire(raw, now, n, s, n, ptr::null(), unwanted, ptr::null_mut());
        assert_eq!(acquired, OK);
        assert_eq!(mcpconn_pool_cancel(raw, now, 999, ptr::null_mut()), INVALID);
    }
}

#[test]
fn an_action_is_not_lost_to_a_struct_that_cannot_take_it() {
    let pool = pool_of(1);
    pool.acquire("a", 1);
    let mut bad = action();
    for size in [0, 1, 7, 9] {
        bad.struct_size = size;
        // SAFETY: a live pool, and a struct that is larger than it says.
        let status = unsafe { mcpconn_pool_next(pool.raw, pool.now, &raw mut bad) };
        assert_eq!(status, INVALID, "{size}");
    }
    // SAFETY: a live pool.
    let status = unsafe { mcpconn_pool_next(pool.raw, pool.now, ptr::null_mut()) };
    assert_eq!(status, INVALID);
    pool.expect_open();
}

#[test]
fn options_of_another_version_are_taken_as_far_as_they_are_known() {
    let pool = pool_of(1);
    let mut short = options(5);
    short.epoch = 77;
    short.struct_size = 16; // struct_size and token
    pool.try_acquire(("", "server", "a"), short).unwrap();
    let id = pool.expect_open();
    pool.opened(id, 7);
    pool.expect_give(5, 7);

    let mut long = [0_u64; 6];
    long[0] = 48;
    long[5] = 1;
    let server = c("server");
    // SAFETY: a live pool, text that lives longer than the call, and options as large as they say.
    said(|err| unsafe {
        let options = long.as_ptr().cast();
        mcpconn_pool_acquire(
            pool.raw,
            pool.now,
            c(""),
            server,
            server,
            options,
            ptr::null_mut(),
            err,
        )
    })
    .expect(INVALID, "older than the header");
}

#[test]
fn times_that_go_back_or_to_the_end_do_no_harm() {
    let mut pool = pool_with(r#"{"capacity": 1, "idle_ttl_ms": 1000, "wait_ms": 1000}"#);
    let (call, _) = pool.given("a", 7);
    pool.now = 100 * SECOND;
    pool.acquire("b", 1);
    pool.now = 0;
    assert_eq!(pool.idle_until(), 101 * SECOND);
    pool.release(call);
    pool.now = u64::MAX;
    while pool.next().is_ok() {}
    pool.acquire("c", 2);
    while pool.next().is_ok() {}
}
