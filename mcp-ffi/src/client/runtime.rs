//! One runtime that two can drive: a background thread, and whoever waits for an event.
//!
//! A waiter takes the runtime over while it waits, so that an answer is read, matched and handed out on the
//! thread that asked for it, without a hop between threads.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Instant,
};

use mcp_transport::stdio::{SigpipeOff, with_signals_blocked};
use tokio::{
    runtime::{Handle, Runtime},
    sync::Notify,
};

use super::turn::{Next, Start, Turn, Wait};
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
    /// Whoever drives has tasks to take over.
    look: Notify,
    /// How often a task that nobody has taken over yet was woken.
    woken: AtomicU64,
}

struct State {
    turn: Turn<Instant>,
    /// What was started and is not in the runtime: tasks that have not begun, and those that began elsewhere.
    begun: Vec<Task>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives until the future is done; from inside of the runtime. Takes over tasks meanwhile.
    async fn drive<F: Future>(&self, until: F) -> F::Output {
        let mut until = pin!(until);
        loop {
            let begun = std::mem::take(&mut self.state().begun);
            for task in begun {
                tokio::spawn(task);
            }
            tokio::select! {
                biased;
                output = &mut until => return output,
                () = self.look.notified() => {}
            }
        }
    }
}

/// Wakes a task that began on its caller's thread: whoever drives takes it over.
impl Wake for Turns {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        self.look.notify_one();
    }
}

/// The place of a task among those that were kept, until it has begun or never will.
struct Place(Arc<Turns>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.state().turn.began();
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
    /// Starts a task. What one thread starts begins in that order: at once on the thread itself, so that what it has to
    /// write is written without waking another; or, while nobody drives, on that of whoever does next.
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.turns.state();
        let start = state.turn.start();
        match start {
            Start::Here => {
                drop(state);
                self.begin(Box::pin(task));
            }
            Start::Keep | Start::KeepAndTell => {
                let place = Place(self.turns.clone());
                state.begun.push(Box::pin(in_its_place(task, place)));
                drop(state);
                if start == Start::KeepAndTell {
                    self.turns.look.notify_one();
                }
            }
            // It ends, and tells so, outside of the lock.
            Start::Never => drop(state),
        }
    }

    /// Polls a task for the first time, here. Whoever drives has the rest of it, once it is woken.
    fn begin(&self, mut task: Task) {
        let woken = self.turns.woken.load(Ordering::Relaxed);
        let waker = Waker::from(self.turns.clone());
        let first = {
            let _runtime = self.runtime.enter();
            let _off = SigpipeOff::before_a_write();
            let poll = || task.as_mut().poll(&mut Context::from_waker(&waker));
            catch_unwind(AssertUnwindSafe(poll))
        };
        match first {
            Ok(Poll::Pending) => {
                let mut state = self.turns.state();
                if state.turn.is_stopped() {
                    drop(state);
                    return;
                }
                state.begun.push(task);
                drop(state);
                // Who was told of it before found nothing.
                if self.turns.woken.load(Ordering::Relaxed) != woken {
                    self.turns.look.notify_one();
                }
            }
            Ok(Poll::Ready(())) => {}
            // It was reported where it happened, and goes no further, as in the runtime; nor does one at its end.
            Err(_) => drop(catch_unwind(AssertUnwindSafe(|| drop(task)))),
        }
    }
}

/// Gives its place up when the task has begun.
async fn in_its_place(task: impl Future<Output = ()>, place: Place) {
    let mut task = pin!(task);
    let first = poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx))).await;
    drop(place);
    if first.is_pending() {
        task.await;
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
            look: Notify::new(),
            woken: AtomicU64::new(0),
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
        let output = self.runtime().block_on(self.turns.drive(until));
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
                runtime.block_on(turns.drive(turns.leave.notified()));
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

    use tokio::sync::oneshot;

    use super::*;
    use crate::client::turn::LINGER;

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

    /// A driver whose background thread drives.
    fn driven() -> Driver {
        let driver = Driver::new().unwrap();
        let told = driving_thread(&driver);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        driver
    }

    #[test]
    fn what_is_started_while_another_drives_begins_here_and_goes_on_there() {
        let driver = driven();
        let (go, gone) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        driver.starter().start(async move {
            tell.send(thread::current().id()).unwrap();
            gone.await.unwrap();
            // Its timers are the runtime's from the beginning.
            tokio::time::sleep(Duration::from_millis(1)).await;
            tell.send(thread::current().id()).unwrap();
        });
        assert_eq!(told.try_recv(), Ok(thread::current().id()));
        go.send(()).unwrap();
        let there = told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_ne!(there, thread::current().id());
    }

    #[test]
    fn a_task_that_is_woken_while_it_begins_is_taken_over() {
        let driver = driven();
        let (tell, told) = mpsc::channel();
        for _ in 0..1000 {
            let tell = tell.clone();
            driver.starter().start(async move {
                tokio::task::yield_now().await;
                tell.send(thread::current().id()).unwrap();
            });
            let there = told.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_ne!(there, thread::current().id());
        }
    }

    #[test]
    fn tasks_begin_in_the_order_in_which_they_were_started_whoever_drives() {
        let driver = Driver::new().unwrap();
        let starter = driver.starter();
        let (tell, told) = mpsc::channel();
        for round in 0..300 {
            for step in 0..10 {
                let tell = tell.clone();
                starter.start(async move { tell.send((round, step)).unwrap() });
                // The one takes over from the other in the midst of it.
                if step == round % 10 {
                    driver.wait(async {}).unwrap();
                }
            }
            for step in 0..10 {
                let begun = told.recv_timeout(Duration::from_secs(10)).unwrap();
                assert_eq!(begun, (round, step));
            }
        }
    }

    #[test]
    fn what_many_threads_start_while_others_take_turns_to_drive_begins_in_order_and_ends() {
        const EACH: usize = 3000;
        let driver = Driver::new().unwrap();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..3 {
                let (starter, tell) = (driver.starter(), tell.clone());
                scope.spawn(move || {
                    let begun = Arc::new(AtomicU64::new(0));
                    for at in 0..EACH {
                        let (begun, tell) = (begun.clone(), tell.clone());
                        starter.start(async move {
                            assert_eq!(begun.fetch_add(1, Ordering::SeqCst), at as u64);
                            match at % 4 {
                                0 => tokio::task::yield_now().await,
                                1 => tokio::time::sleep(Duration::from_millis(1)).await,
                                2 => tokio::spawn(async {}).await.unwrap(),
                                _ => {}
                            }
                            tell.send(number).unwrap();
                        });
                        if at % 50 == number {
                            thread::yield_now();
                        }
                    }
                });
            }
            // Waits of two threads, of which one is refused where they meet, and pauses in which nobody waits.
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..300 {
                        let _ = driver.wait(tokio::task::yield_now());
                        if round % 30 == 0 {
                            thread::sleep(2 * LINGER);
                        }
                    }
                });
            }
        });
        for _ in 0..3 * EACH {
            told.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn a_panic_of_a_task_that_begins_here_ends_that_task_alone() {
        let driver = driven();
        let starter = driver.starter();
        let held = Arc::new(());
        let inside = held.clone();
        starter.start(async move {
            let _held = inside;
            panic!("a fault that is meant to be");
        });
        assert_eq!(Arc::strong_count(&held), 1);
        let (tell, told) = mpsc::channel();
        starter.start(async move { tell.send(()).unwrap() });
        told.try_recv().unwrap();
    }

    #[test]
    fn what_began_here_and_was_never_woken_is_dropped_by_a_stop() {
        let mut driver = driven();
        let held = Arc::new(());
        for _ in 0..10 {
            let held = held.clone();
            driver.starter().start(async move {
                let _held = held;
                std::future::pending().await
            });
        }
        assert_eq!(Arc::strong_count(&held), 11);
        driver.stop();
        assert_eq!(Arc::strong_count(&held), 1);
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
