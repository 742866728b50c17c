//! The pool with all that waits in it (leases, creators and joiners, waiters, closings, drains, the limits of time), in
//! thousands of the orders in which its tasks and its users' may run.
//!
//! Its sources are compiled here over a lock, tasks and a clock that are shuttle's and the tests' own: each lock that is
//! taken or let go and each wait is a point at which any other task may go on, and a deadline may pass at any of them.
//! The orders are drawn from a seed, so that every run tries the same ones. (loom, which tries all of them, checks the
//! registry in `tests/model.rs`; it does not see what tokio's channels do between two locks, and leaves out orders in
//! which only that differs.)

#![expect(
    dead_code,
    unreachable_pub,
    reason = "what is the pool's face there is a part of a test here, which does not use all of it"
)]

#[path = "../../src/closing.rs"]
mod closing;
#[path = "../../src/lease.rs"]
mod lease;
#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/tasks.rs"]
mod tasks;

mod binding {
    pub(crate) use mcp_pool::{Binding, Changes, Fingerprint};
}
mod event {
    pub(crate) use mcp_pool::{Counters, Event, Snapshot, Why};
}
mod key {
    pub(crate) use mcp_pool::{PoolKey, SessionId};
}
mod registry {
    pub(crate) use mcp_pool::registry::*;
}
mod time {
    pub(crate) use mcp_pool::Timestamp;
}

mod calls;
mod clock;
mod closes;
mod runtime;
mod waits;
mod world;
