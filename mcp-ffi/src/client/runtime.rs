//! One runtime that two can drive: a background thread, and whoever waits for an event.
//!
//! A waiter takes the runtime over while it waits, so that an answer is read, matched and handed out on the
//! thread that asked for it, without a hop between threads.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use mcp_transport::stdio::{SigpipeOff, with_signals_blocked};
use tokio::{
    runtime::{Handle, Runtime},
    sync::Notify,
};

use super::turn::{Next, Turn, Wait};
use crate::sys;

/// The name of the background thread.
const THREAD: &str = "mcpconn";

#[derive(Debug)]
pub(super) struct Driver {
    runtime: Option<Arc<Runtime>>,
    turns: Arc<Turns>,
    background: Option<thread::JoinHandle<()>>,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the two meet.
struct Turns {
    state: Mutex<State>,
    /// Wakes the background thread.
    go: Condvar,
    /// Wakes the waiter, once the background thread has left the runtime.
    free: Condvar,
    /// Calls the background thread out of the runtime.
    leave: Notify,
}

struct State {
    turn: Turn<Instant>,
    /// What was started while nobody drove.
    begun: Vec<Task>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts, inside of the runtime, what was begun while nobody drove.
    fn start_begun(&self) {
        let begun = std::mem::take(&mut self.state().begun);
        for task in begun {
            tokio::spawn(task);
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Turns")
            .field("turn", &state.turn)
            .field("begun", &state.begun.len())
            .finish_non_exhaustive()
    }
}

/// Starts tasks from any thread.
#[derive(Debug, Clone)]
pub(super) struct Starter {
    runtime: Handle,
    turns: Arc<Turns>,
}

impl Starter {
    /// Starts a task. While nobody drives, it waits for who does next: to wake the runtime costs two system calls, and
    /// a host that waits for what it has just called comes by itself.
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.turns.state();
        if state.turn.is_idle() {
            state.begun.push(Box::pin(task));
        } else {
            // Also one that has stopped: then the task is dropped at once.
            drop(state);
            self.runtime.spawn(task);
        }
    }
}

impl Driver {
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Arc::new(
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                // Those that resolve names are started by whoever drives, a thread of the host's among them.
                .on_thread_start(sys::block_all_signals)
                .build()?,
        );
        let turns = Arc::new(Turns {
            state: Mutex::new(State {
                turn: Turn::new(),
                begun: Vec::new(),
            }),
            go: Condvar::new(),
            free: Condvar::new(),
            leave: Notify::new(),
        });
        let background = with_signals_blocked(|| {
            let (runtime, turns) = (runtime.clone(), turns.clone());
            thread::Builder::new()
                .name(THREAD.into())
                .spawn(move || drive_in_background(&runtime, &turns))
        })?;
        Ok(Self {
            runtime: Some(runtime),
            turns,
            background: Some(background),
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        self.runtime().handle()
    }

    pub(super) fn starter(&self) -> Starter {
        Starter {
            runtime: self.handle().clone(),
            turns: self.turns.clone(),
        }
    }

    fn runtime(&self) -> &Arc<Runtime> {
        self.runtime
            .as_ref()
            .expect("the runtime is taken by stop alone")
    }

    /// Drives the runtime on this thread until the future is done. `None` if somebody else waits already.
    pub(super) fn wait<F: Future>(&self, until: F) -> Option<F::Output> {
        let turn = WaiterTurn::take(&self.turns)?;
        let _off = SigpipeOff::before_a_write();
        let output = self.runtime().block_on(async {
            self.turns.start_begun();
            until.await
        });
        drop(turn);
        Some(output)
    }

    /// Ends the background thread and every task. Returns at once, whatever the tasks do.
    pub(super) fn stop(&mut self) {
        let Some(background) = self.background.take() else {
            return;
        };
        self.turns.state().turn.stop();
        self.turns.go.notify_all();
        self.turns.leave.notify_one();
        // A panic of the background thread was reported where it happened.
        let _ = background.join();
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            let _off = SigpipeOff::new();
            // A name that is being resolved may hold a blocking thread for minutes: it is not waited for.
            runtime.shutdown_background();
        }
        // Outside of the lock: a call that ends so tells its host.
        let begun = std::mem::take(&mut self.turns.state().begun);
        drop(begun);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn drive_in_background(runtime: &Runtime, turns: &Turns) {
    let _off = SigpipeOff::new();
    let mut state = turns.state();
    loop {
        let now = Instant::now();
        state = match state.turn.background(now) {
            Next::Stop => return,
            Next::Drive => {
                drop(state);
                runtime.block_on(async {
                    turns.start_begun();
                    turns.leave.notified().await;
                });
                state = turns.state();
                state.turn.leave();
                turns.free.notify_all();
                state
            }
            Next::Doze(until) => {
                let woken = turns.go.wait_timeout(state, until - now);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            Next::Sleep => {
                let woken = turns.go.wait(state);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
        };
    }
}

/// The waiter's turn; the background thread takes over again when it is dropped, on a panic too.
struct WaiterTurn<'a>(&'a Turns);

impl<'a> WaiterTurn<'a> {
    fn take(turns: &'a Turns) -> Option<Self> {
        let mut state = turns.state();
        match state.turn.begin_wait() {
            Wait::Refused => return None,
            Wait::Drive => {}
            Wait::Ask => {
                turns.leave.notify_one();
                while !state.turn.is_free() {
                    let left = turns.free.wait(state);
                    state = left.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        drop(state);
        Some(Self(turns))
    }
}

impl Drop for WaiterTurn<'_> {
    fn drop(&mut self) {
        if self.0.state().turn.end_wait(Instant::now()) {
            self.0.go.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread::ThreadId, time::Duration};

    use super::*;

    fn driving_thread(driver: &Driver) -> mpsc::Receiver<ThreadId> {
        let (tell, told) = mpsc::channel();
        driver
            .handle()
            .spawn(async move { tell.send(thread::current().id()) });
        told
    }

    #[test]
    fn tasks_run_in_the_background_while_nobody_waits() {
        let driver = Driver::new().unwrap();
        let told = driving_thread(&driver)
            .recv_timeout(Duration::from_secs(10))
            .unwrap();
        assert_ne!(told, thread::current().id());
    }

    #[test]
    fn a_waiter_drives_on_its_own_thread_and_gives_the_turn_back() {
        let driver = Driver::new().unwrap();
        let here = driver
            .wait(async {
                tokio::spawn(async { thread::current().id() })
                    .await
                    .unwrap()
            })
            .unwrap();
        assert_eq!(here, thread::current().id());
        let told = driving_thread(&driver)
            .recv_timeout(Duration::from_secs(10))
            .unwrap();
        assert_ne!(told, thread::current().id());
    }

    #[test]
    fn a_second_waiter_is_told_that_somebody_waits_already() {
        let driver = Driver::new().unwrap();
        let second = driver.wait(async { driver.wait(async {}) }).unwrap();
        assert!(second.is_none());
    }

    #[test]
    fn what_is_started_while_nobody_drives_runs_with_the_next_wait_or_without_one() {
        let driver = Driver::new().unwrap();
        let starter = driver.starter();
        driver.wait(async {}).unwrap();
        let (tell, told) = mpsc::channel();
        let run = || {
            let tell = tell.clone();
            async move { tell.send(thread::current().id()).unwrap() }
        };
        starter.start(run());
        // The background thread comes when nobody waits.
        assert_ne!(
            told.recv_timeout(Duration::from_secs(10)).unwrap(),
            thread::current().id()
        );
        // Or a wait comes first.
        driver.wait(async {}).unwrap();
        starter.start(run());
        driver.wait(tokio::task::yield_now()).unwrap();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn what_was_started_and_never_driven_is_dropped_by_a_stop() {
        let mut driver = Driver::new().unwrap();
        let starter = driver.starter();
        let held = Arc::new(());
        for _ in 0..100 {
            let held = held.clone();
            starter.start(async move {
                let _held = held;
                std::future::pending().await
            });
            driver.wait(async {}).unwrap();
        }
        driver.stop();
        assert_eq!(Arc::strong_count(&held), 1);
        let late = held.clone();
        starter.start(async move {
            let _held = late;
            std::future::pending().await
        });
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn stop_does_not_wait_for_a_task_that_never_ends() {
        let mut driver = Driver::new().unwrap();
        driver.handle().spawn(std::future::pending::<()>());
        driver.stop();
        assert!(driver.background.is_none());
    }
}
