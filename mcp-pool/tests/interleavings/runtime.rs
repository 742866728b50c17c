//! What the pool stands on here, by the names that it knows.

use std::{
    ops::{Deref, DerefMut},
    sync::{LockResult, PoisonError},
};

pub(crate) use shuttle::future::AbortHandle;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub(crate) use crate::clock::{Instant, sleep, timeout, timeout_at};

/// Shuttle's lock, where others may go on also just after it was let go, and not only when the same task comes to the
/// next thing that shuttle knows: what is done with tokio's channels in between it does not.
pub(crate) struct Mutex<T> {
    inner: shuttle::sync::Mutex<T>,
    point: AtomicBool,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            inner: shuttle::sync::Mutex::new(value),
            point: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard {
            inner: Some(inner),
            point: &self.point,
        })
    }
}

pub(crate) struct MutexGuard<'a, T> {
    inner: Option<shuttle::sync::MutexGuard<'a, T>>,
    point: &'a AtomicBool,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("locked until it is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("locked until it is dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.inner.take());
        if !std::thread::panicking() {
            self.point.load(SeqCst);
        }
    }
}

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
