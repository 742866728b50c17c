//! Whose turn it is to drive the runtime: the background thread's, or that of whoever waits for an event; and on which
//! thread a task begins.
//!
//! The background thread lingers: it takes the runtime over only when nobody has waited for [`LINGER`]. A host that
//! waits for one event after the other so has no switch of threads between them, and what is due while it does
//! something else is late by that much at most.
//!
//! Decides only; who asks holds a lock meanwhile, and sleeps or drives as it is told.

use std::{ops::Add, time::Duration};

/// No longer than the runtime's timers are exact.
pub(super) const LINGER: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Turn<T> {
    waiter: bool,
    background: Background,
    /// How many waits have begun, and how many had when the background thread last looked.
    waits: u64,
    seen: u64,
    /// When the last wait ended.
    left: Option<T>,
    /// How many tasks were kept and have not begun.
    kept: usize,
    stopped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Background {
    /// It is inside the runtime.
    Drives,
    /// It looks again by itself before long.
    Dozes,
    /// It must be woken.
    Sleeps,
}

/// What a thread that came to wait does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Somebody waits already.
    Refused,
    /// Drive.
    Drive,
    /// Call the background thread out of the runtime, and drive once it [has left](Turn::is_free).
    Ask,
}

/// Where a task begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// On the thread that starts it, at once: somebody else drives, and need not be woken for it.
    Here,
    /// It is kept for whoever drives next, and begins there.
    Keep,
    /// As [`Keep`](Self::Keep), and whoever drives already is told.
    KeepAndTell,
    /// Nowhere: all has ended.
    Never,
}

/// What the background thread does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// Drive until it is called out.
    Drive,
    /// Sleep until it is woken or this time has come, then ask again.
    Doze(T),
    /// Sleep until it is woken, then ask again.
    Sleep,
    /// End.
    Stop,
}

impl<T: Copy + Ord + Add<Duration, Output = T>> Turn<T> {
    /// The background thread is about to ask.
    pub(super) fn new() -> Self {
        Self {
            waiter: false,
            background: Background::Dozes,
            waits: 0,
            seen: 0,
            left: None,
            kept: 0,
            stopped: false,
        }
    }

    /// A task is to begin. Each that is kept [begins](Self::began) later, in the order in which they came; so none begins
    /// at once before all of those have.
    pub(super) fn start(&mut self) -> Start {
        let is_driven = self.waiter || !self.is_free();
        let start = match self.kept {
            _ if self.stopped => return Start::Never,
            0 if is_driven => return Start::Here,
            _ if is_driven => Start::KeepAndTell,
            // To wake the runtime costs two system calls, and a host that waits for what it has just called comes by
            // itself.
            _ => Start::Keep,
        };
        self.kept += 1;
        start
    }

    /// One that was kept has begun, or never will.
    pub(super) fn began(&mut self) {
        self.kept -= 1;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn begin_wait(&mut self) -> Wait {
        if self.waiter {
            return Wait::Refused;
        }
        self.waiter = true;
        self.waits += 1;
        // Two in the runtime at once would share the work between them: the waiter would drive nothing.
        if self.is_free() {
            Wait::Drive
        } else {
            Wait::Ask
        }
    }

    /// Whether the background thread is out of the runtime.
    pub(super) fn is_free(&self) -> bool {
        self.background != Background::Drives
    }

    /// The wait is over. Says whether the background thread must be woken.
    pub(super) fn end_wait(&mut self, now: T) -> bool {
        self.waiter = false;
        self.left = Some(now);
        self.background == Background::Sleeps
    }

    /// What the background thread, which is out of the runtime, does now.
    pub(super) fn background(&mut self, now: T) -> Next<T> {
        let due = self.left.map(|left| left + LINGER);
        let (background, next) = match due {
            _ if self.stopped => (Background::Dozes, Next::Stop),
            // One wait after the other: it need not be woken for each of them.
            _ if self.waiter && self.seen != self.waits => {
                (Background::Dozes, Next::Doze(now + LINGER))
            }
            _ if self.waiter => (Background::Sleeps, Next::Sleep),
            Some(due) if now < due => (Background::Dozes, Next::Doze(due)),
            _ => (Background::Drives, Next::Drive),
        };
        self.background = background;
        self.seen = self.waits;
        next
    }

    /// The background thread has left the runtime.
    pub(super) fn leave(&mut self) {
        self.background = Background::Dozes;
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Where a thread that waits again and again is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Waiter {
        Outside,
        /// It sleeps until the background thread has left.
        Asked,
        Inside,
    }

    /// Where the background thread is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Thread {
        /// About to ask.
        Awake,
        Inside,
        DozesUntil(Duration),
        Sleeps,
        Ended,
    }

    /// All there is between two steps. Times count from now, so that it is the same whenever it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct World {
        waiter: Waiter,
        thread: Thread,
        called_out: bool,
        stopped: bool,
        background: Background,
        seen: bool,
        /// How long ago the last wait ended, where that still counts.
        left: Option<Duration>,
        /// The tasks that are kept, and those that whoever drives has taken, and that have not begun.
        kept: usize,
        taken: usize,
        /// Whoever drives is to look for tasks.
        told: bool,
    }

    /// More than can tell each other apart.
    const MOST_TASKS: usize = 3;

    const START: Duration = Duration::from_secs(100);
    const TICK: Duration = Duration::from_micros(500);

    impl World {
        fn turn(&self) -> Turn<Duration> {
            Turn {
                waiter: self.waiter != Waiter::Outside,
                background: self.background,
                waits: 1,
                seen: u64::from(self.seen),
                left: self.left.map(|ago| START - ago),
                kept: self.kept + self.taken,
                stopped: self.stopped,
            }
        }

        fn with(mut self, turn: Turn<Duration>) -> Self {
            self.background = turn.background;
            self.seen = turn.seen == turn.waits;
            self.left = turn.left.map(|left| START - left);
            self.stopped = turn.stopped;
            self
        }

        fn woken(mut self) -> Self {
            if matches!(self.thread, Thread::Sleeps | Thread::DozesUntil(_)) {
                self.thread = Thread::Awake;
            }
            self
        }

        fn is_driven(&self) -> bool {
            self.waiter == Waiter::Inside || self.thread == Thread::Inside
        }

        /// A task is started by any thread, or taken by whoever drives, or begins there.
        fn task_steps(self) -> Vec<Self> {
            let mut next = Vec::new();
            if self.kept + self.taken < MOST_TASKS {
                let mut turn = self.turn();
                let mut with = self;
                match turn.start() {
                    // Not before one that came earlier.
                    Start::Here => assert_eq!(self.kept + self.taken, 0, "{self:?}"),
                    Start::Keep => with.kept += 1,
                    Start::KeepAndTell => {
                        with.kept += 1;
                        with.told = true;
                    }
                    Start::Never => assert!(self.stopped),
                }
                assert_eq!(turn.kept, with.kept + with.taken);
                next.push(with);
            }
            if self.is_driven() && self.told {
                next.push(self.looks());
            }
            if self.is_driven() && self.taken > 0 {
                let mut turn = self.turn();
                turn.began();
                let taken = self.taken - 1;
                assert_eq!(turn.kept, self.kept + taken);
                next.push(Self { taken, ..self });
            }
            next
        }

        /// Whoever drives takes what is kept: when it comes, and when it is told.
        fn looks(self) -> Self {
            Self {
                kept: 0,
                taken: self.taken + self.kept,
                told: false,
                ..self
            }
        }

        /// Every world that one step of one thread, or of time, makes of this one.
        fn steps(self) -> Vec<Self> {
            let mut next = self.task_steps();
            let mut turn = self.turn();
            match self.waiter {
                Waiter::Outside if !self.stopped => {
                    let (waiter, called_out) = match turn.begin_wait() {
                        Wait::Drive => (Waiter::Inside, self.called_out),
                        Wait::Ask => (Waiter::Asked, true),
                        Wait::Refused => unreachable!("it alone waits"),
                    };
                    let waits = Self {
                        waiter,
                        called_out,
                        told: self.told || waiter == Waiter::Inside,
                        ..self
                    };
                    next.push(waits.with(turn));
                    let mut turn = self.turn();
                    turn.stop();
                    next.push(
                        Self {
                            called_out: true,
                            ..self
                        }
                        .with(turn)
                        .woken(),
                    );
                }
                Waiter::Asked if turn.is_free() => {
                    next.push(Self {
                        waiter: Waiter::Inside,
                        told: true,
                        ..self
                    });
                }
                Waiter::Inside => {
                    let wakes = turn.end_wait(START);
                    let left = Self {
                        waiter: Waiter::Outside,
                        ..self
                    }
                    .with(turn);
                    next.push(if wakes { left.woken() } else { left });
                }
                _ => {}
            }
            let mut turn = self.turn();
            match self.thread {
                Thread::Awake => {
                    let thread = match turn.background(START) {
                        Next::Drive => Thread::Inside,
                        Next::Doze(until) => Thread::DozesUntil(until - START),
                        Next::Sleep => Thread::Sleeps,
                        Next::Stop => Thread::Ended,
                    };
                    let told = self.told || thread == Thread::Inside;
                    next.push(
                        Self {
                            thread,
                            told,
                            ..self
                        }
                        .with(turn),
                    );
                }
                Thread::Inside if self.called_out => {
                    turn.leave();
                    let left = Self {
                        thread: Thread::Awake,
                        called_out: false,
                        ..self
                    };
                    next.push(left.with(turn));
                }
                // Also before its time: it may be woken by anything.
                Thread::DozesUntil(_) | Thread::Sleeps => next.push(self.woken()),
                Thread::Inside | Thread::Ended => {}
            }
            // Time passes, but not beyond what somebody waits for.
            if self.thread != Thread::Awake && self.thread != Thread::DozesUntil(Duration::ZERO) {
                let mut later = self;
                if let Thread::DozesUntil(until) = self.thread {
                    later.thread = Thread::DozesUntil(until - TICK);
                }
                later.left = self.left.map(|ago| (ago + TICK).min(LINGER));
                next.push(later);
            }
            next
        }
    }

    #[test]
    fn whatever_the_threads_do_one_drives_at_a_time_nobody_for_the_linger_at_most_and_tasks_begin_in_order()
     {
        let start = World {
            waiter: Waiter::Outside,
            thread: Thread::Awake,
            called_out: false,
            stopped: false,
            background: Background::Dozes,
            seen: true,
            left: None,
            kept: 0,
            taken: 0,
            told: false,
        };
        let mut known = HashSet::from([start]);
        let mut open = vec![start];
        let mut met = [false; 3];
        while let Some(world) = open.pop() {
            let World { waiter, thread, .. } = world;
            assert!(
                waiter != Waiter::Inside || thread != Thread::Inside,
                "{world:?}"
            );
            if waiter == Waiter::Outside && !world.stopped {
                let late = match thread {
                    // It looks now, or drives.
                    Thread::Awake | Thread::Inside => Duration::ZERO,
                    Thread::DozesUntil(until) => until,
                    Thread::Sleeps | Thread::Ended => panic!("nobody comes to drive: {world:?}"),
                };
                assert!(late <= LINGER, "{world:?}");
                met[0] |= late > Duration::ZERO;
            }
            if world.kept > 0 && world.is_driven() {
                assert!(world.told, "nobody looks for what is kept: {world:?}");
            }
            if waiter == Waiter::Asked {
                assert!(world.called_out || thread != Thread::Inside, "{world:?}");
            }
            met[1] |= thread == Thread::Ended;
            met[2] |= thread == Thread::Sleeps;
            let next = world.steps();
            let is_over = thread == Thread::Ended && waiter == Waiter::Outside;
            assert!(is_over || !next.is_empty(), "stuck: {world:?}");
            open.extend(next.into_iter().filter(|world| known.insert(*world)));
        }
        assert_eq!(met, [true; 3]);
        assert!(known.len() > 50, "{}", known.len());
    }

    #[test]
    fn one_wait_after_the_other_wakes_nobody() {
        let mut now = START;
        let mut turn = Turn::new();
        assert_eq!(turn.background(now), Next::Drive);
        assert_eq!(turn.begin_wait(), Wait::Ask);
        turn.leave();
        let Next::Doze(mut until) = turn.background(now) else {
            panic!("it will be woken");
        };
        for _ in 0..1000 {
            now += LINGER / 10;
            assert!(!turn.end_wait(now));
            assert_eq!(turn.begin_wait(), Wait::Drive);
            if now >= until {
                let Next::Doze(next) = turn.background(now) else {
                    panic!("it will be woken");
                };
                until = next;
            }
        }
    }

    #[test]
    fn a_long_wait_lets_the_background_thread_sleep_and_its_end_wakes_it() {
        let mut turn = Turn::new();
        assert_eq!(turn.begin_wait(), Wait::Drive);
        assert_eq!(turn.background(START), Next::Doze(START + LINGER));
        assert_eq!(turn.background(START + LINGER), Next::Sleep);
        let end = START + 5 * LINGER;
        assert!(turn.end_wait(end));
        assert_eq!(turn.background(end), Next::Doze(end + LINGER));
        assert_eq!(turn.background(end + LINGER), Next::Drive);
    }

    #[test]
    fn a_task_begins_at_once_where_another_drives_unless_one_before_it_has_not() {
        let mut turn = Turn::new();
        // Nobody drives yet.
        assert_eq!(turn.start(), Start::Keep);
        assert_eq!(turn.background(START), Next::Drive);
        assert_eq!(turn.start(), Start::KeepAndTell);
        turn.began();
        assert_eq!(turn.start(), Start::KeepAndTell);
        turn.began();
        turn.began();
        assert_eq!(turn.start(), Start::Here);
        turn.stop();
        assert_eq!(turn.start(), Start::Never);
    }

    #[test]
    fn a_second_waiter_is_refused_and_a_stop_ends_it_all() {
        let mut turn = Turn::new();
        assert_eq!(turn.begin_wait(), Wait::Drive);
        assert_eq!(turn.begin_wait(), Wait::Refused);
        turn.stop();
        assert_eq!(turn.background(START), Next::Stop);
    }
}
