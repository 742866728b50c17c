//! Waiting for the end of what was closed.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::watch;

use crate::runtime::{Instant, timeout};

/// How far a task of the pool is: `false` while only its cancellation bounds it, `true` once its rest is bounded by
/// itself, and gone when it is over, however it ended.
pub(crate) type Progress = watch::Receiver<bool>;

/// The end of what was closed, for whoever wants to wait for it.
///
/// Everything was told to close before this was returned, and is closed whether or not it is awaited. Awaited, it
/// completes when every closing is over, or was given up at the [`close_limit`](crate::Limits::close_limit) from its
/// turn. To be awaited inside a tokio runtime.
#[derive(Default)]
pub struct Closing {
    victims: usize,
    rest: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Closing {
    /// How many sessions, and creations under way, were taken out of the pool, or began to drain.
    pub fn victims(&self) -> usize {
        self.victims
    }

    /// To wait for these tasks, which took so many out of the pool.
    pub(crate) fn of(victims: usize, tasks: Vec<Progress>, limit: Duration) -> Self {
        let mut closing = Self {
            victims,
            rest: Vec::new(),
        };
        closing.wait_also_for(tasks, limit);
        closing
    }

    pub(crate) fn count_also(&mut self, victims: usize) {
        self.victims += victims;
    }

    pub(crate) fn wait_also_for(&mut self, tasks: Vec<Progress>, limit: Duration) {
        if tasks.is_empty() {
            return;
        }
        self.rest.push(Box::pin(async move {
            let began = Instant::now();
            for mut task in tasks {
                // Only an opener that does not stop when it is dropped is not bounded by itself.
                let patience = limit.saturating_sub(began.elapsed());
                let bounded = timeout(patience, task.wait_for(|bounded| *bounded)).await;
                match bounded.map(|ended| ended.is_ok()) {
                    Ok(true) => while task.changed().await.is_ok() {},
                    Ok(false) => {}
                    Err(_) => tracing::warn!("an opener did not stop when it was told to"),
                }
            }
        }));
    }
}

impl Future for Closing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.rest
            .retain_mut(|rest| rest.as_mut().poll(context).is_pending());
        if self.rest.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing")
            .field("victims", &self.victims)
            .finish_non_exhaustive()
    }
}
