//! How much a host has not taken yet, and when a server is not read any more because of it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use crate::transport::Transport;

/// How many undelivered bytes of one server are kept before it is not read any more: 64 MiB.
const LIMIT: usize = 64 << 20;

/// Counts the bytes of one server that nobody has taken yet. Clones are the same count.
///
/// Over its limit nothing more is read from that server, and from it alone, until enough has been taken: so a host
/// that stalls costs the limit and one message more for each server. Results count by themselves, from their coming
/// until their request's future gives them. Who keeps something for longer (a queue of events) holds it with
/// [`hold`](Self::hold).
#[derive(Clone)]
pub struct Backlog(Arc<Inner>);

struct Inner {
    limit: usize,
    bytes: AtomicUsize,
    transports: Mutex<Vec<Weak<dyn Transport>>>,
    freed: Notify,
}

/// Bytes that count until this is dropped.
#[must_use = "the bytes count as long as it lives"]
pub struct Held {
    backlog: Backlog,
    bytes: usize,
}

impl Backlog {
    /// A count with this limit, in bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            bytes: AtomicUsize::new(0),
            transports: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// Counts these bytes as long as the returned value lives.
    pub fn hold(&self, bytes: usize) -> Held {
        self.0.bytes.fetch_add(bytes, Ordering::AcqRel);
        Held {
            backlog: self.clone(),
            bytes,
        }
    }

    /// The bytes that count now.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Whether the server is not read for now.
    pub fn is_over(&self) -> bool {
        self.bytes() > self.0.limit
    }

    /// Completes once the server may be read.
    pub async fn room(&self) {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Listening first, so that what is freed between the look and the wait is not missed.
            freed.as_mut().enable();
            if !self.is_over() {
                return;
            }
            freed.await;
        }
    }

    /// The transport reads on once there is room.
    pub(super) fn attach(&self, transport: Weak<dyn Transport>) {
        let mut transports = self.transports();
        transports.retain(|transport| transport.strong_count() > 0);
        transports.push(transport);
    }

    fn transports(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn Transport>>> {
        self.0
            .transports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn resume(&self) {
        self.0.freed.notify_waiters();
        // Outside of the lock, for the transport is foreign.
        let transports = self.transports().clone();
        for transport in transports.iter().filter_map(Weak::upgrade) {
            transport.resume();
        }
    }
}

impl Default for Backlog {
    /// 64 MiB.
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backlog")
            .field("bytes", &self.bytes())
            .field("limit", &self.0.limit)
            .finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let before = self.backlog.0.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        let limit = self.backlog.0.limit;
        if before > limit && before - self.bytes <= limit {
            self.backlog.resume();
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_above_its_limit_and_no_longer_when_enough_was_taken() {
        let backlog = Backlog::new(10);
        let first = backlog.hold(10);
        assert!(!backlog.is_over());
        let second = backlog.hold(5);
        assert!(backlog.is_over());
        drop(first);
        assert_eq!((backlog.bytes(), backlog.is_over()), (5, false));
        drop(second);
        assert_eq!(backlog.bytes(), 0);
    }

    #[tokio::test]
    async fn there_is_room_at_once_or_when_enough_was_taken() {
        let backlog = Backlog::new(10);
        backlog.room().await;
        let held = backlog.hold(11);
        tokio::join!(backlog.room(), async { drop(held) });
    }
}
