//! What a status page is told.

use serde_json::{Value, json};

use crate::host::*;

#[test]
fn a_status_page_sees_every_session_with_its_calls_and_its_time() {
    let mut pool = pool_with(r#"{"capacity": 2, "wait_ms": "forever"}"#);
    let (_, busy) = pool.given("a \"quoted\"", 7);
    let (call, idle) = pool.given("b", 8);
    pool.now += 3 * SECOND;
    pool.release(call);
    pool.now += 2 * SECOND;
    pool.begin(busy).unwrap();
    pool.acquire("c", 1);
    let opening = pool.expect_open();
    let info = pool.info();
    let session = |id: u64, scope, state, calls, age: Option<u64>, idle: Option<u64>| {
        json!({"session_id": id, "domain": "deployment", "server": "server", "scope": scope, "state": state, "calls": calls,
            "queued_calls": 0, "age_ms": age, "idle_ms": idle})
    };
    assert_eq!(
        info["sessions"],
        Value::Array(vec![
            session(busy, "a \"quoted\"", "live", 2, Some(5000), None),
            session(idle, "b", "live", 0, Some(5000), Some(2000)),
            session(opening, "c", "opening", 1, None, None),
        ])
    );
    for (member, value) in [
        ("capacity", 2),
        ("live", 2),
        ("busy", 1),
        ("opening", 1),
        ("waiting", 0),
        ("draining", 0),
        ("closing", 0),
        ("requests", 3),
    ] {
        assert_eq!(info[member], value, "{member}");
    }
    assert_eq!(info["tally"]["opened"], 2);
}
