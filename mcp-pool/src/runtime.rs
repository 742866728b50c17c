//! The lock, the tasks and the clock that the pool stands on. Nothing else of it names them, so that a model can compile
//! it over others (`tests/interleavings`).

pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use tokio::{
    runtime::Handle as Runtime,
    task::AbortHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
