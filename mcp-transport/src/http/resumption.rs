//! When a stream that ended is asked for again: decided from what it brought and how long it lived, without a clock.
//!
//! The wait grows with the time for which the stream has not held, so that the number of openings is logarithmic in
//! it, whatever the server does: a stream closed at once for an hour is opened about twenty times, not 3,600.

use std::time::Duration;

/// The shortest wait, whatever the server asks for.
const FLOOR: Duration = Duration::from_millis(500);
/// The wait where the server names none.
const USUAL: Duration = Duration::from_secs(1);
/// The longest wait that a server can ask for.
const LONGEST: Duration = Duration::from_secs(3600);
/// A stream that lived as long holds: what was before does not count any more. Less than the half minute after
/// which the most impatient proxies cut.
const STEADY: Duration = Duration::from_secs(25);
/// How far the wait grows where nobody waits and nothing comes, and where somebody waits or something comes.
const CAPS: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(30));
/// How often in a row the stream of an answer may be opened without a sign that the server still has it.
const BARREN: u32 = 10;

/// What a stream is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// What the server says on its own; nobody waits, and it is never given up.
    Standing,
    /// The answer to a request; somebody waits, within a limit of their own.
    Answer,
}

/// What one opening of the stream brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Brought {
    /// Not even an event with an id, or it could not be opened.
    Nothing,
    /// Events with ids, which say that the server knows the stream.
    Signs,
    /// Messages that were new.
    Messages,
}

/// How one opening ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    /// From its asking to its end.
    pub(super) lived: Duration,
    pub(super) brought: Brought,
    /// The last `retry` of the stream.
    pub(super) retry: Option<Duration>,
    /// What a refusal asked for (`Retry-After`).
    pub(super) not_before: Option<Duration>,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask again after this.
    After(Duration),
    /// Ask no more.
    GiveUp,
}

/// One stream, over all its openings.
#[derive(Debug)]
pub(super) struct Resumption {
    purpose: Purpose,
    retry: Option<Duration>,
    /// Since when it does not hold.
    unsteady_since: Duration,
    barren: u32,
}

impl Resumption {
    /// A stream that is opened for the first time. `now` is any monotonic time, the same for all calls.
    pub(super) fn new(purpose: Purpose, now: Duration) -> Self {
        Self {
            purpose,
            retry: None,
            unsteady_since: now,
            barren: 0,
        }
    }

    /// It ended at `now`. `draw` is uniform over `0..=255`: waits are lengthened by up to a twentieth, so that the
    /// streams of many sessions that one server dropped do not come back together.
    pub(super) fn ended(&mut self, ending: Ending, now: Duration, draw: u8) -> Next {
        self.retry = ending.retry.or(self.retry);
        if ending.lived >= STEADY {
            self.unsteady_since = now;
        }
        if ending.brought == Brought::Nothing && ending.lived < STEADY {
            self.barren += 1;
        } else {
            self.barren = 0;
        }
        if self.purpose == Purpose::Answer && self.barren >= BARREN {
            return Next::GiveUp;
        }
        let is_quiet = ending.brought == Brought::Nothing
            || (self.purpose == Purpose::Standing && ending.brought == Brought::Signs);
        let unsteady = now.saturating_sub(self.unsteady_since);
        // Where there is reason to come back soon, the wait is an eighth of what was waited already.
        let grown = if is_quiet { unsteady } else { unsteady / 8 };
        let cap = match self.purpose {
            Purpose::Standing if is_quiet => CAPS.0,
            _ => CAPS.1,
        };
        let asked = self.retry.unwrap_or(USUAL).clamp(FLOOR, LONGEST);
        let wait = grown
            .min(cap)
            .max(asked)
            .max(ending.not_before.unwrap_or_default().min(LONGEST));
        Next::After(wait + wait * u32::from(draw) / (20 * 256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED_AT_ONCE: Ending = Ending {
        lived: Duration::ZERO,
        brought: Brought::Nothing,
        retry: None,
        not_before: None,
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// How often a stream that ends so each time is opened within `time`, and whether it was given up.
    fn openings(purpose: Purpose, ending: Ending, time: Duration) -> (u32, bool) {
        let mut now = seconds(1_000_000);
        let end = now + time;
        let mut stream = Resumption::new(purpose, now);
        let mut count = 1;
        loop {
            now += ending.lived;
            match stream.ended(ending, now, 0) {
                Next::After(wait) => now += wait,
                Next::GiveUp => return (count, true),
            }
            if now >= end {
                return (count, false);
            }
            count += 1;
        }
    }

    #[test]
    fn whatever_a_server_does_to_the_standing_stream_an_hour_has_few_openings() {
        for brought in [Brought::Nothing, Brought::Signs, Brought::Messages] {
            for retry in [None, Some(0), Some(1), Some(1000), Some(5000)] {
                for lived in [0, 10, 1000, 5000, 20_000] {
                    let ending = Ending {
                        lived: Duration::from_millis(lived),
                        brought,
                        retry: retry.map(Duration::from_millis),
                        not_before: None,
                    };
                    let (count, given_up) = openings(Purpose::Standing, ending, seconds(3600));
                    assert!(!given_up);
                    let most = if brought == Brought::Messages {
                        170
                    } else {
                        25
                    };
                    assert!(count <= most, "{count} openings: {ending:?}");
                }
            }
        }
        let day = openings(Purpose::Standing, CLOSED_AT_ONCE, seconds(86_400));
        assert!(day.0 < 25 + 24 * 12, "{day:?}");
    }

    #[test]
    fn the_stream_of_an_answer_is_given_up_when_nothing_says_that_the_server_has_it() {
        let (count, given_up) = openings(Purpose::Answer, CLOSED_AT_ONCE, seconds(3600));
        assert_eq!((count, given_up), (BARREN, true));
        for brought in [Brought::Signs, Brought::Messages] {
            for retry in [None, Some(Duration::from_millis(1))] {
                let ending = Ending {
                    brought,
                    retry,
                    ..CLOSED_AT_ONCE
                };
                let (count, given_up) = openings(Purpose::Answer, ending, seconds(3600));
                assert!(!given_up && count < 170, "{count}");
            }
        }
    }

    #[test]
    fn retry_is_honoured_between_floor_and_cap() {
        for (asked, waited) in [
            (0, 500),
            (1, 500),
            (700, 700),
            (2000, 2000),
            (60_000, 60_000),
            (u64::MAX, 3_600_000),
        ] {
            for purpose in [Purpose::Answer, Purpose::Standing] {
                let ending = Ending {
                    retry: Some(Duration::from_millis(asked)),
                    ..CLOSED_AT_ONCE
                };
                let mut stream = Resumption::new(purpose, seconds(9));
                let waited = Next::After(Duration::from_millis(waited));
                assert_eq!(stream.ended(ending, seconds(9), 0), waited);
                // It holds for later endings too.
                assert_eq!(stream.ended(CLOSED_AT_ONCE, seconds(9), 0), waited);
            }
        }
    }

    #[test]
    fn a_poll_for_an_answer_is_late_by_an_eighth_of_the_call_at_most() {
        let ending = Ending {
            brought: Brought::Signs,
            retry: Some(seconds(2)),
            ..CLOSED_AT_ONCE
        };
        let mut stream = Resumption::new(Purpose::Answer, seconds(0));
        for after in [0, 2, 4, 10, 40, 100, 200, 1000] {
            let wait = (after / 8).clamp(2, 30);
            let slack = Duration::from_secs(1);
            match stream.ended(ending, seconds(after), 0) {
                Next::After(waited) => {
                    assert!(waited >= seconds(wait) && waited <= seconds(wait) + slack);
                }
                Next::GiveUp => panic!("it gave signs"),
            }
        }
    }

    #[test]
    fn a_stream_that_held_comes_back_soon() {
        let mut stream = Resumption::new(Purpose::Standing, seconds(0));
        let mut now = seconds(0);
        for _ in 0..10 {
            match stream.ended(CLOSED_AT_ONCE, now, 0) {
                Next::After(wait) => now += wait,
                Next::GiveUp => panic!("the standing stream is never given up"),
            }
        }
        now += seconds(60);
        let held = Ending {
            lived: seconds(60),
            ..CLOSED_AT_ONCE
        };
        assert_eq!(stream.ended(held, now, 0), Next::After(USUAL));
    }

    #[test]
    fn what_a_refusal_asks_for_is_heard_for_an_hour_at_most() {
        for (asked, waited) in [(17, 17), (100_000, 3600)] {
            let refused = Ending {
                not_before: Some(seconds(asked)),
                ..CLOSED_AT_ONCE
            };
            let mut stream = Resumption::new(Purpose::Standing, seconds(0));
            assert_eq!(
                stream.ended(refused, seconds(0), 0),
                Next::After(seconds(waited))
            );
        }
    }

    #[test]
    fn jitter_only_lengthens_and_by_a_twentieth_at_most() {
        let mut stream = Resumption::new(Purpose::Answer, seconds(0));
        let ending = Ending {
            retry: Some(seconds(2)),
            ..CLOSED_AT_ONCE
        };
        match stream.ended(ending, seconds(0), 255) {
            Next::After(wait) => {
                assert!(wait > seconds(2) && wait <= Duration::from_millis(2100));
            }
            Next::GiveUp => panic!("the first ending"),
        }
    }
}
