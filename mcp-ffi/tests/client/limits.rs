//! The bounds of the pool, as calls meet them.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use mcpconn::{
    CallOptions, Client, ClientOptions, CloseReason, EventKind, HostTakes, Kind, Outcome,
    PoolLimits, Scope, SessionChange,
};
use serde_json::json;

use crate::{
    LONG, answered, begin, error_of, next,
    server::{Answer, Gate, Server, arrival},
    within,
};

fn client(server: &Server, pool: PoolLimits) -> Client {
    let options = ClientOptions {
        pool,
        takes: HostTakes {
            sessions: true,
            ..HostTakes::default()
        },
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    client.configure("", &server.config(quick())).unwrap();
    client
}

fn quick() -> serde_json::Value {
    json!({"budget": {"floor_ms": 1}})
}

fn begin_in(client: &Client, domain: &str, scope: &str, tool: &str, options: CallOptions) -> u64 {
    let scope = Scope::new(domain, scope);
    client
        .call_tool(&scope, "server", tool, "", options)
        .unwrap()
}

#[track_caller]
fn expect_refused(client: &Client, id: u64) {
    let error = error_of(client, id);
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Capacity, Outcome::NotSent),
        "{error}"
    );
}

/// The pool's state, once it is so.
fn once(client: &Client, so: impl Fn(&mcpconn::ClientStatus) -> bool) {
    let begun = Instant::now();
    while !so(&client.status()) {
        assert!(begun.elapsed() < LONG, "{:?}", client.status());
        std::thread::yield_now();
    }
}

fn closed(client: &Client, scope: &str) -> CloseReason {
    let event = next(client, |event| {
        matches!(&event.kind, EventKind::Session(news)
            if event.scope.as_deref() == Some(scope) && matches!(news.change, SessionChange::Closed(_)))
    });
    match event.kind {
        EventKind::Session(news) => match news.change {
            SessionChange::Closed(why) => why,
            other => unreachable!("{other:?}"),
        },
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_full_pool_refuses_a_new_scope_and_makes_room_of_an_idle_one() {
    let (server, gate, arrivals) = Server::holding();
    let client = client(
        &server,
        PoolLimits {
            capacity: 1,
            ..PoolLimits::default()
        },
    );
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    let error = error_of(&client, begin(&client, "b", "any"));
    assert_eq!(
        (error.kind, error.outcome),
        (Kind::Capacity, Outcome::NotSent)
    );
    assert!(
        error.message.contains("capacity") && error.message.contains("\"server\""),
        "{error}"
    );
    // Another domain's scopes are in the same pool.
    client.configure("other", &server.config(quick())).unwrap();
    expect_refused(
        &client,
        begin_in(&client, "other", "a", "any", CallOptions::default()),
    );
    // The home session is not in it.
    assert_eq!(answered(&client, begin(&client, "", "any")), "answered");
    gate.open();
    assert_eq!(answered(&client, held), "held");
    assert_eq!(answered(&client, begin(&client, "b", "any")), "answered");
    assert_eq!(client.status().pool.tally.displaced, 1);
}

#[test]
fn a_server_with_all_its_sessions_busy_refuses_and_others_go_on() {
    let (server, gate, arrivals) = Server::holding();
    let pool = PoolLimits {
        sessions_per_server: Some(1),
        ..PoolLimits::default()
    };
    let client = client(&server, pool);
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    expect_refused(&client, begin(&client, "b", "any"));
    client.configure("other", &server.config(quick())).unwrap();
    let other = begin_in(&client, "other", "b", "any", CallOptions::default());
    assert_eq!(answered(&client, other), "answered");
    gate.open();
    assert_eq!(answered(&client, held), "held");
    assert_eq!(answered(&client, begin(&client, "b", "any")), "answered");
    assert_eq!(client.status().pool.tally.displaced, 1);
}

#[test]
fn a_session_with_all_the_calls_that_it_may_have_refuses_another() {
    let (server, gate, arrivals) = Server::holding();
    let pool = PoolLimits {
        calls_per_session: Some(1),
        ..PoolLimits::default()
    };
    let client = client(&server, pool);
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    expect_refused(&client, begin(&client, "a", "any"));
    assert_eq!(answered(&client, begin(&client, "b", "any")), "answered");
    gate.open();
    assert_eq!(answered(&client, held), "held");
    assert_eq!(answered(&client, begin(&client, "a", "any")), "answered");
}

fn patient(capacity: usize) -> PoolLimits {
    PoolLimits {
        capacity,
        wait: Some(Duration::MAX),
        ..PoolLimits::default()
    }
}

#[test]
fn calls_that_wait_for_a_slot_are_served_in_order_of_arrival() {
    let (server, gate, arrivals) = Server::holding();
    let client = client(&server, patient(1));
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    let waiting: Vec<_> = ["b", "c", "d"]
        .into_iter()
        .enumerate()
        .map(|(before, scope)| {
            let id = begin(&client, scope, "any");
            once(&client, |status| status.pool.waiting == before + 1);
            id
        })
        .collect();
    gate.open();
    let mut ended = Vec::new();
    while ended.len() < 4 {
        let event = next(&client, mcpconn::Event::is_completion);
        assert!(matches!(event.kind, EventKind::Result(_)), "{event:?}");
        ended.push(event.id);
    }
    assert_eq!(ended[0], held);
    assert_eq!(ended[1..], waiting);
}

#[test]
fn a_call_waits_for_a_slot_no_longer_than_its_deadline_and_gives_its_place_up() {
    let (server, gate, arrivals) = Server::holding();
    let client = client(&server, patient(1));
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    let short = within(Duration::from_millis(20));
    let error = error_of(&client, begin_in(&client, "", "b", "any", short));
    assert!(
        matches!(error.kind, Kind::Timeout | Kind::Capacity),
        "{error}"
    );
    assert_eq!(error.outcome, Outcome::NotSent);
    let canceled = begin(&client, "c", "any");
    once(&client, |status| {
        let scopes = status.sessions.iter().map(|session| &*session.scope);
        scopes.eq(["a", "c"])
    });
    assert!(client.cancel(canceled));
    assert_eq!(error_of(&client, canceled).kind, Kind::Canceled);
    once(&client, |status| status.pool.waiting == 0);
    gate.open();
    assert_eq!(answered(&client, held), "held");
    // Nothing was opened for those who went.
    assert_eq!(client.status().pool.tally.opened, 1);
}

#[test]
fn a_call_that_waits_for_a_place_on_its_session_has_it_when_the_call_before_ends() {
    let (server, gate, arrivals) = Server::holding();
    let pool = PoolLimits {
        calls_per_session: Some(1),
        ..patient(1)
    };
    let client = client(&server, pool);
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    let waits = begin(&client, "a", "any");
    once(&client, |status| status.sessions[0].queued_calls == 1);
    gate.open();
    assert_eq!(answered(&client, held), "held");
    assert_eq!(answered(&client, waits), "answered");
}

#[test]
fn an_idle_session_is_closed_when_its_time_is_over() {
    let (server, _gate, _) = Server::holding();
    let pool = PoolLimits {
        idle_ttl: Some(Duration::from_millis(50)),
        ..PoolLimits::default()
    };
    let client = client(&server, pool);
    assert_eq!(answered(&client, begin(&client, "a", "any")), "answered");
    assert_eq!(closed(&client, "a"), CloseReason::Idle);
    assert_eq!(client.status().pool.live, 0);
}

#[test]
fn a_session_that_lived_long_enough_is_closed_when_its_call_has_ended() {
    let (server, gate, arrivals) = Server::holding();
    let pool = PoolLimits {
        max_lifetime: Some(Duration::from_millis(50)),
        ..PoolLimits::default()
    };
    let client = client(&server, pool);
    let held = begin(&client, "a", "held");
    arrival(&arrivals);
    let draining = next(&client, |event| {
        matches!(&event.kind, EventKind::Session(news)
            if news.change == SessionChange::Draining(CloseReason::Lifetime))
    });
    assert_eq!(draining.scope.as_deref(), Some("a"));
    gate.open();
    // It is closed with its last call, whose end is told then.
    assert_eq!(closed(&client, "a"), CloseReason::Lifetime);
    assert_eq!(answered(&client, held), "held");
}

#[test]
fn so_many_sessions_are_opened_at_a_time_and_no_more() {
    let (gate, arrivals) = Gate::new();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let server = Server::start({
        let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
        move |asked| match asked.method() {
            "initialize" => {
                let opening = now.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(opening, Ordering::SeqCst);
                gate.pass();
                now.fetch_sub(1, Ordering::SeqCst);
                asked.open("1")
            }
            "tools/call" => asked.text("answered"),
            _ => asked.usual(),
        }
    });
    let pool = PoolLimits {
        openings: 2,
        ..PoolLimits::default()
    };
    let client = client(&server, pool);
    let calls = ["a", "b", "c"].map(|scope| begin(&client, scope, "any"));
    arrival(&arrivals);
    arrival(&arrivals);
    once(&client, |status| status.pool.opening == 3);
    gate.open();
    let mut ended = HashSet::new();
    while ended.len() < 3 {
        let event = next(&client, mcpconn::Event::is_completion);
        assert!(matches!(event.kind, EventKind::Result(_)), "{event:?}");
        ended.insert(event.id);
    }
    assert_eq!(ended, HashSet::from(calls));
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[test]
fn so_many_closings_are_waited_for_at_a_time_each_up_to_its_limit() {
    const LIMIT: Duration = Duration::from_millis(100);
    let (gate, _arrivals) = Gate::new();
    let sessions = Mutex::new(0);
    let server = Server::start({
        let gate = gate.clone();
        move |asked| match asked.method() {
            "initialize" => {
                let mut sessions = sessions.lock().unwrap();
                *sessions += 1;
                asked.open(&sessions.to_string())
            }
            "tools/call" => asked.text("answered"),
            // It ends no session before the gate opens.
            "" => {
                gate.pass();
                Answer::status("200 OK")
            }
            _ => asked.usual(),
        }
    });
    let pool = PoolLimits {
        closings: 1,
        close_limit: LIMIT,
        ..PoolLimits::default()
    };
    let client = client(&server, pool);
    for scope in ["a", "b", "c"] {
        assert_eq!(answered(&client, begin(&client, scope, "any")), "answered");
    }
    let begun = Instant::now();
    client.close_server("", "server").unwrap();
    assert_eq!(client.status().pool.live, 0);
    assert_eq!(client.status().pool.closing, 3);
    once(&client, |status| status.pool.overdue == 3);
    assert!(begun.elapsed() >= 3 * LIMIT, "one after the other");
    gate.open();
}
