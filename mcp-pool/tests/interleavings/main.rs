//! The pool with all that waits in it (leases, creators and joiners, waiters, closings, drains, the limits of time), in
//! thousands of the orders in which its tasks and its users' may run.
//!
//! Its sources are compiled here over a lock and tasks that are shuttle's and a clock of the tests' own: wherever the
//! lock is taken or let go and wherever something waits, any other task may go on, and a deadline may pass.
//! The orders are drawn from a seed, so that every run tries the same ones. (loom, which tries all that have few
//! interruptions, checks the registry in `tests/model.rs`; it does not see what tokio's channels do between two locks,
//! and leaves out orders in which only that differs.)

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
