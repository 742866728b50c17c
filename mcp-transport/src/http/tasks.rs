//! Tasks that belong to somebody: they end with their owner, and it can be known when they have ended.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::Notify, task::AbortHandle};

/// Names one task of a [`Tasks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TaskId(u64);

/// A set of running tasks. Dropping it cuts them all.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    set: Arc<Set>,
}

#[derive(Debug, Default)]
struct Set {
    running: Mutex<Running>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    cut: bool,
    /// `None` stands for a task that has its place and is not spawned yet.
    tasks: HashMap<TaskId, Option<AbortHandle>>,
}

impl Set {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, id: TaskId) -> Option<AbortHandle> {
        let mut running = self.running();
        let task = running.tasks.remove(&id).flatten();
        if running.tasks.is_empty() {
            // An idle session keeps no table.
            running.tasks.shrink_to_fit();
            self.emptied.notify_waiters();
        }
        task
    }
}

/// Takes its task off the set, however the task ends.
struct Place {
    set: Arc<Set>,
    id: TaskId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set.remove(self.id);
    }
}

impl Tasks {
    /// Makes a place for a task, so that its id is known before it runs. `None` once the set was cut.
    pub(super) fn reserve(&self) -> Option<TaskId> {
        let mut running = self.set.running();
        if running.cut {
            return None;
        }
        let id = TaskId(running.next);
        running.next += 1;
        running.tasks.insert(id, None);
        Some(id)
    }

    /// Runs `work` in the place `id`. Cut meanwhile, it is dropped without running.
    pub(super) fn spawn(
        &self,
        id: TaskId,
        runtime: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let place = Place {
            set: self.set.clone(),
            id,
        };
        // No lock is held here: a runtime that is shutting down drops the work at once, and with it the place.
        // Boxed: a task has its place at a multiple of 128, and a large one leaves a hole there that no other fits into
        // (glibc before 2.38), so that the memory of a process with many sessions grows to three times what is in use.
        let task = runtime.spawn(Box::pin(async move {
            let _place = place;
            work.await;
        }));
        let mut running = self.set.running();
        match running.tasks.get_mut(&id) {
            Some(slot) => *slot = Some(task.abort_handle()),
            // It has ended, or it was cut before it began.
            None => task.abort(),
        }
    }

    /// Cuts one task; nothing if it has ended.
    pub(super) fn cut(&self, id: TaskId) {
        if let Some(task) = self.set.remove(id) {
            task.abort();
        }
    }

    /// Cuts every task and takes no more.
    pub(super) fn cut_all(&self) {
        let mut running = self.set.running();
        running.cut = true;
        for task in running.tasks.values().flatten() {
            task.abort();
        }
        // Those not spawned yet are found cut when they are; the others leave as they end.
        running.tasks.retain(|_, task| task.is_some());
        if running.tasks.is_empty() {
            self.set.emptied.notify_waiters();
        }
    }

    /// Completes when no task is left.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.set.emptied.notified();
            if self.set.running().tasks.is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.cut_all();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    /// A task that ends when told, and the sign that it was dropped.
    fn task(tasks: &Tasks) -> (TaskId, oneshot::Sender<()>, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let (dropped, is_dropped) = oneshot::channel();
        let id = tasks.reserve().expect("not cut");
        tasks.spawn(id, &Handle::current(), async move {
            let _dropped: oneshot::Sender<()> = dropped;
            let _ = ended.await;
        });
        (id, end, is_dropped)
    }

    #[tokio::test]
    async fn a_set_is_empty_when_the_last_task_has_ended() {
        let tasks = Tasks::default();
        tasks.emptied().await;
        let (_, end_one, _one) = task(&tasks);
        let (_, end_other, _other) = task(&tasks);
        end_one.send(()).expect("it runs");
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            () = tasks.emptied() => panic!("one still runs"),
            () = tokio::task::yield_now() => {}
        }
        end_other.send(()).expect("it runs");
        tasks.emptied().await;
        assert!(tasks.set.running().tasks.is_empty());
    }

    #[tokio::test]
    async fn one_task_is_cut_alone_before_and_while_it_runs() {
        let tasks = Tasks::default();
        let (one, _end_one, one_is_dropped) = task(&tasks);
        let (_, end_other, _other) = task(&tasks);
        tokio::task::yield_now().await;
        tasks.cut(one);
        assert!(one_is_dropped.await.is_err());
        let id = tasks.reserve().expect("not cut");
        tasks.cut(id);
        let ran = Arc::new(());
        let held = ran.clone();
        tasks.spawn(id, &Handle::current(), async move {
            let _held = held;
            panic!("it was cut before");
        });
        end_other.send(()).expect("it runs");
        tasks.emptied().await;
        while Arc::strong_count(&ran) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn cutting_all_takes_no_more_and_so_does_dropping() {
        let tasks = Tasks::default();
        let (_, _end, is_dropped) = task(&tasks);
        let reserved = tasks.reserve().expect("not cut");
        tasks.cut_all();
        assert!(tasks.reserve().is_none());
        tasks.spawn(reserved, &Handle::current(), pending());
        assert!(is_dropped.await.is_err());
        tasks.emptied().await;

        let tasks = Tasks::default();
        let (_, _end, is_dropped) = task(&tasks);
        drop(tasks);
        assert!(is_dropped.await.is_err());
    }

    #[tokio::test]
    async fn a_task_that_panics_leaves_its_place() {
        let tasks = Tasks::default();
        let id = tasks.reserve().expect("not cut");
        tasks.spawn(id, &Handle::current(), async { panic!("on purpose") });
        tasks.emptied().await;
    }

    #[test]
    fn a_runtime_that_is_gone_leaves_no_place_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let handle = runtime.handle().clone();
        drop(runtime);
        let tasks = Tasks::default();
        let id = tasks.reserve().expect("not cut");
        tasks.spawn(id, &handle, pending());
        assert!(tasks.set.running().tasks.is_empty());
    }
}
