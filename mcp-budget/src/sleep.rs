//! Whether the machine slept.

use core::time::Duration;

use crate::time::Timestamp;

/// Finds out from readings of two clocks that time passed in which nothing ran.
///
/// A machine that slept wakes to connections that look alive and are not, and its timers know nothing of it. Two things
/// tell: the clock that goes on in sleep (`CLOCK_BOOTTIME` on Linux) has grown more than the one that stops
/// (`CLOCK_MONOTONIC`), or a timer came much too late, as after the process was stopped or on machines that have only
/// one of the clocks; there the same reading may be given for both.
///
/// ```
/// use std::time::Duration;
/// use mcp_budget::{SleepWatch, Timestamp};
///
/// let at = Timestamp::from_nanos;
/// let mut watch = SleepWatch::new(at(0), at(0));
/// assert_eq!(watch.read(at(10_000_000_000), at(10_000_000_000), at(10_000_000_000)), None);
/// let slept = watch.read(at(20_000_000_000), at(3_620_000_000_000), at(20_000_000_000));
/// assert_eq!(slept, Some(Duration::from_secs(3600)));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SleepWatch {
    running: Timestamp,
    always: Timestamp,
}

/// The clocks are not read at the very same moment, and may be slewed against each other.
const NOISE: Duration = Duration::from_secs(1);
/// A timer that comes later than this came from another time.
const LATE: Duration = Duration::from_secs(30);

impl SleepWatch {
    /// Begins with these readings: of the clock that stops in sleep, and of the one that does not.
    pub fn new(running: Timestamp, always: Timestamp) -> Self {
        Self { running, always }
    }

    /// Later readings, at a timer that was set for `due` by the first clock. How long it slept since the last ones, if
    /// it did.
    pub fn read(
        &mut self,
        running: Timestamp,
        always: Timestamp,
        due: Timestamp,
    ) -> Option<Duration> {
        let ran = running.since(self.running);
        let passed = always.since(self.always);
        *self = Self { running, always };
        let slept = passed.saturating_sub(ran);
        let late = running.since(due);
        if slept > NOISE {
            Some(slept)
        } else {
            (late > LATE).then_some(late)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn clocks_that_go_alike_and_timers_that_come_in_time_are_no_sleep() {
        let mut watch = SleepWatch::new(at(5), at(500));
        assert_eq!(watch.read(at(15), at(510), at(15)), None);
        assert_eq!(watch.read(at(45), at(540), at(15)), None, "a busy machine");
    }

    #[test]
    fn what_one_clock_grew_more_than_the_other_was_slept_and_is_told_once() {
        let mut watch = SleepWatch::new(at(0), at(0));
        assert_eq!(
            watch.read(at(10), at(70), at(10)),
            Some(Duration::from_secs(60))
        );
        assert_eq!(watch.read(at(20), at(80), at(20)), None);
    }

    #[test]
    fn a_timer_that_comes_more_than_half_a_minute_late_tells_it_too() {
        let mut watch = SleepWatch::new(at(0), at(0));
        assert_eq!(
            watch.read(at(41), at(41), at(10)),
            Some(Duration::from_secs(31))
        );
    }

    #[test]
    fn clocks_that_go_backwards_are_no_sleep() {
        let mut watch = SleepWatch::new(at(100), at(100));
        assert_eq!(watch.read(at(50), at(40), at(100)), None);
    }
}
