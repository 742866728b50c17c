//! Capacity pressure takes idle sessions only; a call in flight is never cut by it; explicit closing still is immediate.

use mcp_pool::{AcquireError, BeginError, Binding, Closing, Handle, SessionId};

use crate::fake::{
    Answer, Call, CallError, Ends, Error, FINISHED, Fake, Key, Pool, call, key, never_opened,
    pool_of, until,
};

const FULL: Error = AcquireError::Capacity {
    capacity: 1,
    busy: 1,
};

async fn get(pool: &Pool, binding: &Binding, scope: &'static str, fake: &Fake) -> Handle<Fake> {
    pool.get(&key(scope), binding, fake.opener())
        .await
        .expect("a session")
}

#[tokio::test]
async fn pressure_evicts_the_idle_session_instead_of_the_one_with_a_call_in_flight() {
    let (pool, binding) = pool_of(2);
    let (active, idle, replacement) = (Fake::new(), Fake::new(), Fake::new());
    let handle = get(&pool, &binding, "active", &active).await;
    get(&pool, &binding, "idle", &idle).await;
    let running = Call::begin(&handle, Ends::Well).await;

    get(&pool, &binding, "replacement", &replacement).await;

    assert!(!active.retired.is_raised());
    assert!(
        idle.closed.is_raised(),
        "the victim is closed before the answer"
    );
    assert!(!replacement.retired.is_raised());
    assert_eq!(pool.len(), 2);
    assert_eq!(running.finish().await, FINISHED);
}

#[tokio::test]
async fn the_victim_is_the_one_least_recently_used_be_it_got_or_released() {
    let (pool, binding) = pool_of(3);
    let fakes = [Fake::new(), Fake::new(), Fake::new()];
    let [got, released, forgotten] = fakes.each_ref();
    get(&pool, &binding, "got", got).await;
    let handle = get(&pool, &binding, "released", released).await;
    get(&pool, &binding, "forgotten", forgotten).await;
    call(&handle).await.unwrap();
    get(&pool, &binding, "got", got).await;

    for (scope, victims) in [("x", [2].as_slice()), ("y", &[1, 2]), ("z", &[0, 1, 2])] {
        get(&pool, &binding, scope, &Fake::new()).await;
        let closed: Vec<_> = (0..3).filter(|i| fakes[*i].closed.is_raised()).collect();
        assert_eq!(closed, victims);
    }
}

#[tokio::test]
async fn a_full_and_busy_pool_refuses_a_new_scope_and_touches_nothing() {
    let (pool, binding) = pool_of(1);
    let (active, replacement) = (Fake::new(), Fake::new());
    let handle = get(&pool, &binding, "active", &active).await;
    let running = Call::begin(&handle, Ends::Well).await;

    let refused = pool
        .acquire(&key("replacement"), &binding, never_opened)
        .await;
    assert_eq!(refused.as_ref().unwrap_err(), &FULL);
    assert!(refused.unwrap_err().to_string().contains("capacity"));
    assert_eq!(pool.counters().opening, 0);
    assert_eq!(pool.len(), 1);

    // To have a busy session again needs no slot.
    let again = pool.get(&key("active"), &binding, never_opened).await;
    assert_eq!(again.unwrap().id(), handle.id());
    let second_call = pool.acquire(&key("active"), &binding, never_opened).await;
    assert!(second_call.unwrap().session().is(&active));
    assert!(!active.retired.is_raised());

    assert_eq!(running.finish().await, FINISHED);
    get(&pool, &binding, "replacement", &replacement).await;
    assert!(active.closed.is_raised());
    assert!(!replacement.retired.is_raised());
}

/// An explicit close while a call is in flight.
async fn closes_an_active_call(close: impl FnOnce(&Pool, &Key, SessionId) -> Closing) {
    let (pool, binding) = pool_of(4);
    let active = Fake::new();
    let handle = get(&pool, &binding, "active", &active).await;
    let running = Call::begin(&handle, Ends::Well).await;

    let closing = close(&pool, &key("active"), handle.id());

    assert!(
        active.retired.is_raised(),
        "told before anything is awaited"
    );
    assert_eq!(pool.len(), 0, "it holds no slot while its call still runs");
    assert_eq!(closing.victims(), 1);
    closing.await;
    assert!(active.closed.is_raised());
    assert_eq!(running.finish().await, Err(CallError::Closed));
}

#[tokio::test]
async fn closing_the_scope_retires_an_active_call() {
    closes_an_active_call(|pool, key, _| pool.close_scope(&key.domain, &key.scope)).await;
}

#[tokio::test]
async fn closing_the_server_retires_an_active_call() {
    closes_an_active_call(|pool, key, _| pool.close_server(&key.domain, &key.server)).await;
}

#[tokio::test]
async fn closing_the_session_retires_an_active_call() {
    closes_an_active_call(|pool, key, _| pool.close_session(key)).await;
}

#[tokio::test]
async fn closing_the_session_if_it_is_the_current_one_retires_an_active_call() {
    closes_an_active_call(|pool, key, id| pool.close_session_if_current(key, id)).await;
}

#[tokio::test]
async fn closing_the_session_by_its_name_retires_an_active_call() {
    closes_an_active_call(|pool, _, id| pool.close_id(id)).await;
}

#[tokio::test]
async fn closing_the_domain_retires_an_active_call() {
    closes_an_active_call(|pool, key, _| pool.close_domain(&key.domain)).await;
}

#[tokio::test]
async fn closing_everything_retires_an_active_call() {
    closes_an_active_call(|pool, _, _| pool.close_all()).await;
}

#[tokio::test]
async fn evicting_a_dead_session_retires_an_active_call() {
    closes_an_active_call(|pool, _, id| pool.evict(id)).await;
}

/// A call ends in some way that is no fault of the session's.
async fn keeps_the_session_when_a_call_ends(ends: Ends, end: impl AsyncFnOnce(Call)) {
    let (pool, binding) = pool_of(1);
    let session = Fake::new();
    let handle = get(&pool, &binding, "active", &session).await;
    let running = Call::begin(&handle, ends).await;
    assert_eq!(pool.counters().busy, 1);

    end(running).await;

    assert!(!session.retired.is_raised(), "the session is kept");
    assert_eq!(pool.counters().busy, 0, "the pin is released");
    get(&pool, &binding, "replacement", &Fake::new()).await;
    assert!(session.closed.is_raised());
}

#[tokio::test]
async fn a_cancelled_call_releases_its_pin_and_keeps_the_session() {
    keeps_the_session_when_a_call_ends(Ends::Well, async |running| {
        running.task.abort();
        assert!(running.task.await.unwrap_err().is_cancelled());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_releases_its_pin_and_keeps_the_session() {
    keeps_the_session_when_a_call_ends(Ends::Never, async |running| {
        assert_eq!(running.task.await.unwrap(), Err(CallError::Timeout));
    })
    .await;
}

#[tokio::test]
async fn a_call_with_a_protocol_error_releases_its_pin_and_keeps_the_session() {
    keeps_the_session_when_a_call_ends(Ends::ProtocolError, async |running| {
        assert_eq!(running.finish().await, Err(CallError::Protocol));
    })
    .await;
}

#[tokio::test]
async fn a_call_with_a_tool_error_releases_its_pin_and_keeps_the_session() {
    keeps_the_session_when_a_call_ends(Ends::ToolError, async |running| {
        assert_eq!(running.finish().await, Ok(Answer { is_error: true }));
    })
    .await;
}

#[tokio::test]
async fn a_call_that_succeeds_releases_its_pin_and_keeps_the_session() {
    keeps_the_session_when_a_call_ends(Ends::Well, async |running| {
        assert_eq!(running.finish().await, FINISHED);
    })
    .await;
}

#[tokio::test]
async fn a_call_that_panics_releases_its_pin_and_keeps_the_session() {
    keeps_the_session_when_a_call_ends(Ends::Panic, async |running| {
        running.release.raise();
        assert!(running.task.await.unwrap_err().is_panic());
    })
    .await;
}

/// A call as a client makes it, which evicts a session that a call found dead, and answers at once.
async fn call_and_evict_the_dead(
    pool: &Pool,
    binding: &Binding,
    ends: Ends,
) -> Result<Answer, CallError> {
    let scope = key("active");
    let lease = pool.acquire(&scope, binding, never_opened).await.unwrap();
    let id = lease.id();
    let answer = Call::with(lease, ends).await.finish().await;
    if answer == Err(CallError::Transport) {
        drop(pool.evict(id));
    }
    answer
}

#[tokio::test]
async fn a_transport_fault_retires_the_session_and_a_tool_or_protocol_error_does_not() {
    let (pool, binding) = pool_of(1);
    let (old, new) = (Fake::new(), Fake::new());
    let id = get(&pool, &binding, "active", &old).await.id();
    for ends in [Ends::ToolError, Ends::ProtocolError] {
        call_and_evict_the_dead(&pool, &binding, ends).await.ok();
        assert!(!old.retired.is_raised(), "{ends:?}");
    }
    let fault = call_and_evict_the_dead(&pool, &binding, Ends::TransportFault).await;
    assert_eq!(fault, Err(CallError::Transport));
    assert!(old.retired.is_raised());
    assert_eq!(pool.len(), 0);
    assert!(get(&pool, &binding, "active", &new).await.id() > id);
}

#[tokio::test]
async fn an_eviction_that_fails_keeps_the_error_of_the_call() {
    let (pool, binding) = pool_of(1);
    // It panics when it is told to close, and its closing does not end.
    let dead = Fake::slow_to_close();
    get(&pool, &binding, "active", &dead).await;
    dead.panics_when_told.raise();
    let fault = call_and_evict_the_dead(&pool, &binding, Ends::TransportFault).await;
    assert_eq!(fault, Err(CallError::Transport));
    assert!(dead.retired.is_raised());
    let new = Fake::new();
    let lease = pool.acquire(&key("active"), &binding, new.opener()).await;
    assert!(lease.unwrap().session().is(&new));
}

#[tokio::test]
async fn a_shared_session_is_busy_until_its_last_call_ends() {
    let (pool, binding) = pool_of(1);
    let session = Fake::new();
    let handle = get(&pool, &binding, "active", &session).await;
    let first = Call::begin(&handle, Ends::Well).await;
    let second = Call::begin(&handle, Ends::Well).await;

    first.task.abort();
    assert!(first.task.await.unwrap_err().is_cancelled());
    let refused = pool
        .acquire(&key("replacement"), &binding, never_opened)
        .await;
    assert_eq!(refused.unwrap_err(), FULL);
    assert!(!session.retired.is_raised());

    assert_eq!(second.finish().await, FINISHED);
    get(&pool, &binding, "replacement", &Fake::new()).await;
    assert!(session.closed.is_raised());
    assert_eq!(pool.counters().busy, 0);
}

#[tokio::test]
async fn a_promotion_that_finds_every_slot_busy_fails_creator_and_joiner_and_closes_what_opened() {
    let (pool, binding) = pool_of(1);
    let pending = Fake::slow_to_open();
    let creator = tokio::spawn({
        let (pool, open) = (pool.clone(), pending.opener());
        async move { pool.acquire(&key("pending"), &binding, open).await }
    });
    pending.opening.wait().await;
    let active = Fake::new();
    let handle = get(&pool, &binding, "active", &active).await;
    let running = Call::begin(&handle, Ends::Well).await;
    // The creation was admitted before the pool was full: it can still be joined.
    let joiner = tokio::spawn({
        let pool = pool.clone();
        async move { pool.get(&key("pending"), &binding, never_opened).await }
    });
    until(|| pool.counters().tally.joined == 1).await;

    pending.may_open.raise();

    assert_eq!(creator.await.unwrap().unwrap_err(), FULL);
    assert_eq!(joiner.await.unwrap().unwrap_err(), FULL);
    pending.closed.wait().await;
    assert!(!active.retired.is_raised());
    assert_eq!(pool.counters().opening, 0);
    assert_eq!(pool.len(), 1);
    assert_eq!(pool.counters().tally.refused_late, 1);
    assert_eq!(running.finish().await, FINISHED);
}

#[tokio::test]
async fn a_promotion_that_finds_an_idle_session_takes_its_slot_for_creator_and_joiner() {
    let (pool, binding) = pool_of(2);
    let pending = Fake::slow_to_open();
    let creator = tokio::spawn({
        let (pool, open) = (pool.clone(), pending.opener());
        async move { pool.acquire(&key("pending"), &binding, open).await }
    });
    pending.opening.wait().await;
    let (active, idle) = (Fake::new(), Fake::new());
    let handle = get(&pool, &binding, "active", &active).await;
    let running = Call::begin(&handle, Ends::Well).await;
    get(&pool, &binding, "idle", &idle).await;
    let joiner = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire(&key("pending"), &binding, never_opened).await }
    });
    until(|| pool.counters().tally.joined == 1).await;

    pending.may_open.raise();

    let creator = creator.await.unwrap().unwrap();
    let joiner = joiner.await.unwrap().unwrap();
    assert_eq!(creator.id(), joiner.id());
    assert!(creator.session().is(&pending) && joiner.session().is(&pending));
    assert!(idle.closed.is_raised());
    assert!(!active.retired.is_raised());
    assert_eq!(pool.counters().opening, 0);
    assert_eq!(pool.len(), 2);
    assert_eq!(running.finish().await, FINISHED);
}

#[tokio::test]
async fn an_opening_that_fails_costs_no_idle_session_its_slot() {
    let (pool, binding) = pool_of(1);
    let idle = Fake::new();
    get(&pool, &binding, "idle", &idle).await;
    let failed = pool
        .acquire(&key("other"), &binding, Fake::new().failing_opener())
        .await;
    assert!(matches!(failed, Err(AcquireError::Open(_))));
    assert!(!idle.retired.is_raised());
    assert_eq!(pool.len(), 1);
}

#[tokio::test]
async fn the_end_of_an_old_call_does_not_unpin_the_replacement() {
    let (pool, binding) = pool_of(1);
    let (old, new) = (Fake::new(), Fake::new());
    let old_lease = pool
        .acquire(&key("active"), &binding, old.opener())
        .await
        .unwrap();
    pool.close_scope(&"deployment", &"active").await;
    let handle = get(&pool, &binding, "active", &new).await;
    let new_call = Call::begin(&handle, Ends::Well).await;

    assert!(old_lease.session().retired.is_raised());
    drop(old_lease);

    let refused = pool
        .acquire(&key("replacement"), &binding, never_opened)
        .await;
    assert_eq!(refused.unwrap_err(), FULL);
    assert!(!new.retired.is_raised());
    assert_eq!(new_call.finish().await, FINISHED);
    get(&pool, &binding, "replacement", &Fake::new()).await;
    assert!(new.closed.is_raised());
}

#[tokio::test]
async fn a_busy_personal_session_survives_the_pressure_of_the_deployment() {
    let (pool, binding) = pool_of(2);
    let personal_binding = pool.ensure_binding(&"personal", &"server", 1u64);
    let (personal, deployment) = (Fake::new(), Fake::new());
    let personal_key = Key::new("personal", "server", "shared");
    let handle = pool
        .get(&personal_key, &personal_binding, personal.opener())
        .await
        .unwrap();
    get(&pool, &binding, "shared", &deployment).await;
    let running = Call::begin(&handle, Ends::Well).await;

    get(&pool, &binding, "replacement", &Fake::new()).await;

    assert!(!personal.retired.is_raised());
    assert!(deployment.closed.is_raised());
    assert_eq!(running.finish().await, FINISHED);
}

#[tokio::test]
async fn an_idle_session_of_one_domain_yields_to_the_pressure_of_another() {
    let (pool, binding) = pool_of(1);
    let personal_binding = pool.ensure_binding(&"personal", &"server", 1u64);
    let personal = Fake::new();
    let personal_key = Key::new("personal", "server", "shared");
    pool.get(&personal_key, &personal_binding, personal.opener())
        .await
        .unwrap();
    get(&pool, &binding, "shared", &Fake::new()).await;
    assert!(personal.closed.is_raised());
}

#[tokio::test]
async fn rebinding_retires_active_calls() {
    let (pool, binding) = pool_of(4);
    let session = Fake::new();
    let handle = get(&pool, &binding, "active", &session).await;
    let running = Call::begin(&handle, Ends::Well).await;

    let (changes, closing) = pool.reconcile_bindings(&"deployment", [("server", 2u64.into())]);

    assert_eq!(changes.changed, ["server"]);
    closing.await;
    assert!(session.closed.is_raised());
    assert_eq!(running.finish().await, Err(CallError::Closed));
    assert_eq!(pool.counters().busy, 0);
    assert_eq!(pool.len(), 0);
}

#[tokio::test]
async fn a_detached_session_can_not_start_a_call_and_the_call_never_reaches_it() {
    let (pool, binding) = pool_of(1);
    let old = Fake::new();
    let handle = get(&pool, &binding, "old", &old).await;
    get(&pool, &binding, "replacement", &Fake::new()).await;

    let refused = call(&handle).await.unwrap_err();

    assert!(
        matches!(&refused, CallError::NotBegun(BeginError::Detached(d)) if d.id == handle.id())
    );
    let text = handle.begin().unwrap_err().to_string();
    assert!(text.contains("no longer pooled"), "{text}");
    assert_eq!(old.calls(), 0);
    assert_eq!(pool.counters().busy, 0);
}

#[tokio::test]
async fn a_session_is_pinned_for_creator_and_joiner_before_anything_can_evict_it() {
    let (pool, binding) = pool_of(1);
    let pending = Fake::slow_to_open();
    let acquire = |open| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.acquire(&key("pending"), &binding, open).await })
    };
    let creator = acquire(pending.opener());
    pending.opening.wait().await;
    let joiner = acquire(Fake::new().opener());
    let other = Fake::slow_to_open();
    let pressure = tokio::spawn({
        let (pool, open) = (pool.clone(), other.opener());
        async move { pool.acquire(&key("other"), &binding, open).await }
    });
    other.opening.wait().await;
    until(|| pool.counters().tally.joined == 1).await;

    // Both open at once: the second promotion runs before anybody was handed the first session.
    pending.may_open.raise();
    other.may_open.raise();

    assert_eq!(pressure.await.unwrap().unwrap_err(), FULL);
    let (creator, joiner) = (creator.await.unwrap(), joiner.await.unwrap());
    assert_eq!(creator.unwrap().id(), joiner.unwrap().id());
    assert!(!pending.retired.is_raised());
}
