//! What leaves in its own time, while a closing client waits for it.

use std::future::Future;

use tokio::{runtime::Handle, sync::watch};

/// A set of tasks that nobody asks for but the end of all.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    runtime: Handle,
    tasks: watch::Sender<usize>,
    /// The time to leave is over.
    cut: watch::Receiver<bool>,
}

/// One task; it has left when this is dropped, however it ended.
struct Left(watch::Sender<usize>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.send_modify(|tasks| *tasks -= 1);
    }
}

impl Leaving {
    /// What has not left when `cut` turns true is dropped.
    pub(super) fn new(runtime: Handle, cut: watch::Receiver<bool>) -> Self {
        Self {
            runtime,
            tasks: watch::Sender::new(0),
            cut,
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.send_modify(|tasks| *tasks += 1);
        let left = Left(self.tasks.clone());
        let mut cut = self.cut.clone();
        self.runtime.spawn(async move {
            let _left = left;
            tokio::select! {
                () = task => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
        });
    }

    /// Completes once all have left.
    pub(super) async fn all_left(&self) {
        // The sender is ours, so that there is no error to see.
        let _ = self.tasks.subscribe().wait_for(|tasks| *tasks == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn leaving() -> (watch::Sender<bool>, Leaving) {
        let (cut, is_cut) = watch::channel(false);
        (cut, Leaving::new(Handle::current(), is_cut))
    }

    #[tokio::test]
    async fn all_have_left_when_the_last_task_ended_or_panicked() {
        let (_cut, leaving) = leaving();
        leaving.all_left().await;
        let (end, ended) = oneshot::channel::<()>();
        leaving.spawn(async { drop(ended.await) });
        leaving.spawn(async { panic!("on purpose") });
        let all = tokio::spawn({
            let leaving = leaving.clone();
            async move { leaving.all_left().await }
        });
        tokio::task::yield_now().await;
        assert!(!all.is_finished());
        end.send(()).unwrap();
        all.await.unwrap();
    }

    #[tokio::test]
    async fn what_has_not_left_in_time_is_cut() {
        let (cut, leaving) = leaving();
        leaving.spawn(std::future::pending());
        cut.send_replace(true);
        leaving.all_left().await;
    }
}
