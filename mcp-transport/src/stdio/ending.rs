//! How a server is brought to its end: which step comes when. Pure; the driver does what this says.

use std::time::Duration;

use tokio::time::Instant;

/// The time a whole close takes at most: waiting after EOF on stdin, after TERM, after KILL.
const AFTER_EOF: Duration = Duration::from_millis(2000);
const AFTER_TERM: Duration = Duration::from_millis(1500);
const AFTER_KILL: Duration = Duration::from_millis(300);

/// The plan of one ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    term_at: Instant,
    kill_at: Instant,
    give_up_at: Instant,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Asked,
    Terminated,
    Killed,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Send TERM to the group.
    Terminate,
    /// Send KILL to the group.
    Kill,
    /// Nothing before this time, unless a process ends.
    Wait(Instant),
    /// Nothing more: all have ended, or no more can be done.
    Done,
}

/// Who of the server is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The process that we started.
    Leader,
    /// Others of its group.
    Others,
    /// Nobody.
    Nobody,
}

impl Ending {
    /// The ending of a server whose stdin was closed just now, within `limit`. A limit below the usual whole
    /// scales each wait.
    pub(super) fn within(limit: Duration, now: Instant) -> Self {
        let whole = AFTER_EOF + AFTER_TERM + AFTER_KILL;
        let part = |wait: Duration| {
            if limit >= whole {
                wait
            } else {
                wait.mul_f64(limit.as_secs_f64() / whole.as_secs_f64())
            }
        };
        let term_at = now + part(AFTER_EOF);
        let kill_at = term_at + part(AFTER_TERM);
        Self {
            term_at,
            kill_at,
            give_up_at: kill_at + part(AFTER_KILL),
            stage: Stage::Asked,
        }
    }

    /// The ending without a wait after EOF, for what a leader left behind, or a server that does not read any
    /// more: TERM at once.
    pub(super) fn by_signals(now: Instant) -> Self {
        let kill_at = now + AFTER_TERM;
        Self {
            term_at: now,
            kill_at,
            give_up_at: kill_at + AFTER_KILL,
            stage: Stage::Asked,
        }
    }

    /// Both at once: what is done stays done, and each further step comes at the earlier time.
    pub(super) fn sooner(self, other: Self) -> Self {
        Self {
            term_at: self.term_at.min(other.term_at),
            kill_at: self.kill_at.min(other.kill_at),
            give_up_at: self.give_up_at.min(other.give_up_at),
            stage: self.stage.max(other.stage),
        }
    }

    pub(super) fn next(&mut self, now: Instant, left: Left) -> Step {
        if left == Left::Nobody {
            return Step::Done;
        }
        if self.stage < Stage::Killed && now >= self.kill_at {
            self.stage = Stage::Killed;
            return Step::Kill;
        }
        // Once the leader has ended there is nothing to wait for before the others are told.
        if self.stage < Stage::Terminated && (now >= self.term_at || left == Left::Others) {
            self.stage = Stage::Terminated;
            return Step::Terminate;
        }
        match self.stage {
            Stage::Asked => Step::Wait(self.term_at),
            Stage::Terminated => Step::Wait(self.kill_at),
            Stage::Killed if now >= self.give_up_at => Step::Done,
            Stage::Killed => Step::Wait(self.give_up_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    /// Walks through an ending of someone who never goes; gives the steps with their milliseconds.
    fn walk(mut ending: Ending, start: Instant, left: Left) -> Vec<(u128, Step)> {
        let mut now = start;
        let mut steps = Vec::new();
        loop {
            match ending.next(now, left) {
                Step::Wait(until) => now = until,
                step => {
                    steps.push((now.duration_since(start).as_millis(), step));
                    if step == Step::Done {
                        return steps;
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_that_never_goes_is_asked_then_terminated_then_killed() {
        let start = Instant::now();
        let steps = walk(
            Ending::within(Duration::from_secs(60), start),
            start,
            Left::Leader,
        );
        assert_eq!(
            steps,
            [
                (2000, Step::Terminate),
                (3500, Step::Kill),
                (3800, Step::Done)
            ]
        );
    }

    #[test]
    fn a_shorter_limit_scales_each_wait() {
        let start = Instant::now();
        let steps = walk(
            Ending::within(Duration::from_millis(380), start),
            start,
            Left::Leader,
        );
        assert_eq!(
            steps,
            [(200, Step::Terminate), (350, Step::Kill), (380, Step::Done)]
        );
    }

    #[test]
    fn without_any_time_it_is_killed_at_once() {
        let start = Instant::now();
        let steps = walk(Ending::within(Duration::ZERO, start), start, Left::Leader);
        assert_eq!(steps, [(0, Step::Kill), (0, Step::Done)]);
    }

    #[test]
    fn who_goes_when_asked_is_never_signalled() {
        let start = Instant::now();
        let mut ending = Ending::within(Duration::from_secs(4), start);
        assert_eq!(
            ending.next(at(start, 5), Left::Leader),
            Step::Wait(at(start, 2000))
        );
        assert_eq!(ending.next(at(start, 10), Left::Nobody), Step::Done);
    }

    #[test]
    fn what_the_leader_leaves_behind_is_told_at_once() {
        let start = Instant::now();
        let mut ending = Ending::within(Duration::from_secs(4), start);
        assert_eq!(
            ending.next(at(start, 5), Left::Leader),
            Step::Wait(at(start, 2000))
        );
        assert_eq!(ending.next(at(start, 10), Left::Others), Step::Terminate);
        assert_eq!(
            ending.next(at(start, 10), Left::Others),
            Step::Wait(at(start, 3500))
        );
        assert_eq!(
            walk(Ending::by_signals(start), start, Left::Others),
            [(0, Step::Terminate), (1500, Step::Kill), (1800, Step::Done)]
        );
    }

    #[test]
    fn a_second_close_can_only_hasten_the_first() {
        let start = Instant::now();
        let long = Ending::within(Duration::from_secs(4), start);
        let short = Ending::within(Duration::ZERO, at(start, 100));
        assert_eq!(
            walk(long.sooner(short), at(start, 100), Left::Leader)[0],
            (0, Step::Kill)
        );
        assert_eq!(
            long.sooner(Ending::within(Duration::from_secs(9), at(start, 100))),
            long
        );
    }
}
