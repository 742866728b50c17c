//! One runtime that two can drive: a background thread, and whoever waits for an event.
//!
//! A waiter takes the runtime over while it waits, so that an answer is read, matched and handed out on the
//! thread that asked for it, without a hop between threads.

use std::{
    future::Future,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use mcp_transport::stdio::{SigpipeOff, with_signals_blocked};
use tokio::{runtime::Runtime, sync::Notify};

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

/// Where the two meet.
#[derive(Debug)]
struct Turns {
    turn: Mutex<Turn<Instant>>,
    /// Wakes the background thread.
    go: Condvar,
    /// Wakes the waiter, once the background thread has left the runtime.
    free: Condvar,
    /// Calls the background thread out of the runtime.
    leave: Notify,
}

impl Turns {
    fn turn(&self) -> MutexGuard<'_, Turn<Instant>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
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
            turn: Mutex::new(Turn::new()),
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

    pub(super) fn handle(&self) -> &tokio::runtime::Handle {
        self.runtime().handle()
    }

    fn runtime(&self) -> &Arc<Runtime> {
        self.runtime
            .as_ref()
            .expect("the runtime is taken by stop alone")
    }

    /// Drives the runtime on this thread until the future is done. `None` if somebody else waits already.
    pub(super) fn wait<F: Future>(&self, until: F) -> Option<F::Output> {
        let turn = WaiterTurn::take(&self.turns)?;
        let _off = SigpipeOff::new();
        let output = self.runtime().block_on(until);
        drop(turn);
        Some(output)
    }

    /// Ends the background thread and every task. Returns at once, whatever the tasks do.
    pub(super) fn stop(&mut self) {
        let Some(background) = self.background.take() else {
            return;
        };
        self.turns.turn().stop();
        self.turns.go.notify_all();
        self.turns.leave.notify_one();
        // A panic of the background thread was reported where it happened.
        let _ = background.join();
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            let _off = SigpipeOff::new();
            // A name that is being resolved may hold a blocking thread for minutes: it is not waited for.
            runtime.shutdown_background();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn drive_in_background(runtime: &Runtime, turns: &Turns) {
    let _off = SigpipeOff::new();
    let mut turn = turns.turn();
    loop {
        let now = Instant::now();
        turn = match turn.background(now) {
            Next::Stop => return,
            Next::Drive => {
                drop(turn);
                runtime.block_on(turns.leave.notified());
                turn = turns.turn();
                turn.leave();
                turns.free.notify_all();
                turn
            }
            Next::Doze(until) => {
                let woken = turns.go.wait_timeout(turn, until - now);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            Next::Sleep => {
                let woken = turns.go.wait(turn);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
        };
    }
}

/// The waiter's turn; the background thread takes over again when it is dropped, on a panic too.
struct WaiterTurn<'a>(&'a Turns);

impl<'a> WaiterTurn<'a> {
    fn take(turns: &'a Turns) -> Option<Self> {
        let mut turn = turns.turn();
        match turn.begin_wait() {
            Wait::Refused => return None,
            Wait::Drive => {}
            Wait::Ask => {
                turns.leave.notify_one();
                while !turn.is_free() {
                    let left = turns.free.wait(turn);
                    turn = left.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        drop(turn);
        Some(Self(turns))
    }
}

impl Drop for WaiterTurn<'_> {
    fn drop(&mut self) {
        if self.0.turn().end_wait(Instant::now()) {
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
    fn stop_does_not_wait_for_a_task_that_never_ends() {
        let mut driver = Driver::new().unwrap();
        driver.handle().spawn(std::future::pending::<()>());
        driver.stop();
        assert!(driver.background.is_none());
    }
}
