//! Drains: no new call, running ones end, then it is closed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_pool::{BeginError, Closing, Event, Limits, SessionId, Why};
use tokio::time::Instant;

use crate::fake::{
    CLOSE_LIMIT, Call, CallError, Ends, FINISHED, Fake, Pool, key, never_opened, pool_of,
};

const MINUTE: Duration = Duration::from_secs(60);

type Drain = fn(&Pool, SessionId) -> Closing;

const DRAINS: [(&str, Drain); 7] = [
    ("scope", |pool, _| {
        pool.drain_scope(&"deployment", &"scope", MINUTE)
    }),
    ("server", |pool, _| {
        pool.drain_server(&"deployment", &"server", MINUTE)
    }),
    ("session", |pool, _| {
        pool.drain_session(&key("scope"), MINUTE)
    }),
    ("session_if_current", |pool, id| {
        pool.drain_session_if_current(&key("scope"), id, MINUTE)
    }),
    ("id", |pool, id| pool.drain_id(id, MINUTE)),
    ("domain", |pool, _| pool.drain_domain(&"deployment", MINUTE)),
    ("all", |pool, _| pool.drain_all(MINUTE)),
];

#[tokio::test(start_paused = true)]
async fn each_drain_lets_running_calls_end_begins_none_and_then_closes() {
    for (name, drain) in DRAINS {
        let (pool, binding) = pool_of(2);
        let (old, new) = (Fake::new(), Fake::new());
        let scope = key("scope");
        let lease = pool.acquire(&scope, &binding, old.opener()).await.unwrap();
        let handle = lease.handle();
        let call = Call::with(lease, Ends::Well).await;
        let closing = drain(&pool, handle.id());
        assert_eq!(closing.victims(), 1, "{name}");
        assert!(!old.retired.is_raised(), "{name}");
        assert!(matches!(handle.begin(), Err(BeginError::Detached(_))));
        // Its key is free again, and its slot is not.
        let next = pool.acquire(&scope, &binding, new.opener()).await.unwrap();
        assert_eq!((pool.len(), pool.counters().draining), (2, 1), "{name}");
        assert_eq!(call.finish().await, FINISHED, "{name}");
        let began = Instant::now();
        closing.await;
        assert!(old.closed.is_raised(), "{name}");
        assert_eq!(began.elapsed(), Duration::ZERO, "{name}");
        assert!(!new.retired.is_raised(), "{name}");
        drop(next);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_the_limit_of_the_drain_is_cut_at_it() {
    let (pool, binding) = pool_of(2);
    let fake = Fake::new();
    let lease = pool.acquire(&key("scope"), &binding, fake.opener()).await;
    let call = Call::with(lease.unwrap(), Ends::Never).await;
    let began = Instant::now();
    pool.drain_all(MINUTE).await;
    assert_eq!(began.elapsed(), MINUTE);
    assert!(fake.closed.is_raised());
    assert_eq!(call.task.await.unwrap(), Err(CallError::Closed));
    assert_eq!(pool.counters().draining, 0);
}

#[tokio::test]
async fn a_drain_closes_what_is_idle_and_what_opens_at_once() {
    let (pool, binding) = pool_of(2);
    let (idle, slow) = (Fake::new(), Fake::slow_to_open());
    drop(pool.acquire(&key("idle"), &binding, idle.opener()).await);
    let opens = tokio::spawn({
        let (pool, open) = (pool.clone(), slow.opener());
        async move { pool.acquire(&key("slow"), &binding, open).await }
    });
    slow.opening.wait().await;
    pool.drain_all(MINUTE).await;
    assert!(idle.closed.is_raised());
    slow.given_up.wait().await;
    assert!(opens.await.unwrap().is_err());
}

#[tokio::test]
async fn an_explicit_close_and_a_changed_configuration_cut_what_drains() {
    for rebinds in [false, true] {
        let (pool, binding) = pool_of(2);
        let fake = Fake::new();
        let lease = pool.acquire(&key("scope"), &binding, fake.opener()).await;
        let call = Call::with(lease.unwrap(), Ends::Never).await;
        let drained = pool.drain_session(&key("scope"), MINUTE);
        if rebinds {
            pool.ensure_binding(&"deployment", &"server", 2u64);
        } else {
            assert_eq!(pool.close_session(&key("scope")).victims(), 1);
        }
        drained.await;
        assert!(fake.closed.is_raised());
        assert_eq!(call.task.await.unwrap(), Err(CallError::Closed));
        assert_eq!(pool.counters().draining, 0);
    }
}

#[tokio::test]
async fn a_drain_whose_end_nobody_awaits_goes_on() {
    let (pool, binding) = pool_of(2);
    let fake = Fake::new();
    let lease = pool.acquire(&key("scope"), &binding, fake.opener()).await;
    drop(pool.drain_all(MINUTE));
    drop(lease);
    fake.closed.wait().await;
}

#[tokio::test]
async fn a_session_knows_its_name_before_the_observer_hears_that_it_opened() {
    let fake = Fake::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let pool = Pool::observed(tokio::runtime::Handle::current(), Limits::default(), {
        let (fake, heard) = (fake.clone(), heard.clone());
        move |event| {
            if let Event::Opened { id, .. } = event {
                heard.lock().unwrap().push((Some(*id), fake.name()));
            }
        }
    });
    let binding = pool.ensure_binding(&"deployment", &"server", 1u64);
    let lease = pool.acquire(&key("scope"), &binding, fake.opener()).await;
    let id = Some(lease.unwrap().id());
    assert_eq!(*heard.lock().unwrap(), [(id, id)]);
}

#[tokio::test]
async fn an_observer_hears_what_happens_in_order_and_may_use_the_pool() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let limits = Limits {
        capacity: 1,
        close_limit: CLOSE_LIMIT,
        ..Limits::default()
    };
    let known: Arc<Mutex<Option<Pool>>> = Arc::default();
    let pool = Pool::observed(tokio::runtime::Handle::current(), limits, {
        let (heard, known) = (heard.clone(), known.clone());
        move |event| {
            // Under no lock: else this would never end.
            let _ = known.lock().unwrap().as_ref().map(Pool::counters);
            let what = match event {
                Event::Opening { key, .. } => format!("opening {}", key.scope),
                Event::Opened { key, .. } => format!("opened {}", key.scope),
                Event::Refused { key } => format!("refused {}", key.scope),
                Event::Draining { key, .. } => format!("draining {}", key.scope),
                Event::Retired { key, why, .. } => format!("retired {} {why:?}", key.scope),
                Event::Closed { id, overdue } => format!("closed {id} {overdue}"),
                other => format!("{other:?}"),
            };
            heard.lock().unwrap().push(what);
        }
    });
    *known.lock().unwrap() = Some(pool.clone());
    let binding = pool.ensure_binding(&"deployment", &"server", 1u64);
    let (first, second) = (Fake::new(), Fake::new());
    drop(pool.acquire(&key("first"), &binding, first.opener()).await);
    let lease = pool
        .acquire(&key("second"), &binding, second.opener())
        .await;
    let refused = pool.acquire(&key("third"), &binding, never_opened).await;
    assert!(refused.is_err());
    let drained = pool.drain_all(MINUTE);
    drop(lease);
    drained.await;
    crate::fake::until(|| heard.lock().unwrap().len() >= 10).await;
    let why = Why::Drained;
    assert_eq!(
        *heard.lock().unwrap(),
        [
            "opening first",
            "opened first",
            "opening second",
            "retired first Displaced",
            "opened second",
            "closed 1 false",
            "refused third",
            "draining second",
            &format!("retired second {why:?}"),
            "closed 2 false",
        ]
    );
    *known.lock().unwrap() = None;
}
