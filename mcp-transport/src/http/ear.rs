//! Whether the server is heard between answers, and when it last was.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Knows of the streams on which a server speaks on its own.
#[derive(Debug)]
pub(super) struct Ear {
    began: Instant,
    /// When bytes last came, in nanoseconds from the beginning.
    heard: AtomicU64,
    open: AtomicUsize,
}

impl Ear {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            heard: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        }
    }

    /// A stream is open until what this gives is dropped.
    pub(super) fn listen(self: &Arc<Self>) -> Listening {
        self.hear();
        self.open.fetch_add(1, Ordering::Relaxed);
        Listening(self.clone())
    }

    pub(super) fn is_listening(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// When a stream was opened or bytes last came on one.
    pub(super) fn heard(&self) -> Instant {
        self.began + Duration::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    fn hear(&self) {
        let heard = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard.store(heard, Ordering::Relaxed);
    }
}

/// One stream that is open.
#[derive(Debug)]
pub(super) struct Listening(Arc<Ear>);

impl Listening {
    /// Bytes came, be they but the comment by which servers keep a stream open.
    pub(super) fn hear(&self) {
        self.0.hear();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
