//! What leaves in its own time, while a closing client waits for it.

use std::future::Future;

use tokio::{runtime::Handle, sync::watch};

/// A set of tasks that nobody asks for but the end of all.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    runtime: Handle,
    tasks: watch::Sender<usize>,
}

/// One task; it has left when this is dropped, however it ended.
struct Left(watch::Sender<usize>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.send_modify(|tasks| *tasks -= 1);
    }
}

impl Leaving {
    pub(super) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            tasks: watch::Sender::new(0),
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.send_modify(|tasks| *tasks += 1);
        let left = Left(self.tasks.clone());
        self.runtime.spawn(async move {
            task.await;
            drop(left);
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

    #[tokio::test]
    async fn all_have_left_when_the_last_task_ended_or_was_dropped() {
        let leaving = Leaving::new(Handle::current());
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
}
