//! What the pool stands on here, by the names that it knows.

pub(crate) use shuttle::{
    future::AbortHandle,
    sync::{Mutex, MutexGuard},
};

pub(crate) use crate::clock::{Instant, sleep, timeout, timeout_at};

/// Every task is one of shuttle's.
#[derive(Debug, Clone)]
pub(crate) struct Runtime;

impl Runtime {
    pub(crate) fn current() -> Self {
        Self
    }

    pub(crate) fn enter(&self) -> impl Drop + use<> {
        struct Inside;
        impl Drop for Inside {
            fn drop(&mut self) {}
        }
        Inside
    }

    pub(crate) fn spawn<F>(&self, task: F) -> shuttle::future::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        shuttle::future::spawn(task)
    }
}
