//! When to fetch a list anew whose server says that it has changed. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Makes few refreshes of many `list_changed`: one runs at a time, at most one more is wanted behind it, and their
/// starts have a smallest distance. The last change is always followed by a refresh.
///
/// The distance doubles with each refresh that follows hard on the one before, up to the largest, and is the smallest
/// again after a rest: a server that announces a change with every listing is not listed without end at full
/// speed.
///
/// Told what happens, with the time, it answers what to do:
///
/// ```
/// use mcp_transport::session::{Coalescer, Refresh};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// let mut tools = Coalescer::new(Duration::from_secs(1), Duration::from_secs(60));
/// let now = Instant::now();
/// assert_eq!(tools.changed(now), Refresh::Now);
/// assert_eq!(tools.changed(now), Refresh::Nothing); // one is running
/// assert_eq!(tools.finished(now), Refresh::At(now + Duration::from_secs(1)));
/// assert_eq!(tools.due(now + Duration::from_secs(1)), Refresh::Now);
/// ```
#[derive(Debug, Clone)]
pub struct Coalescer {
    least: Duration,
    most: Duration,
    distance: Duration,
    running: bool,
    wanted: bool,
    started: Option<Instant>,
}

/// What is to be done about a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing before the next change, or before the refresh that runs has finished.
    Nothing,
    /// Fetch it, and say when that has [`finished`](Coalescer::finished).
    Now,
    /// Nothing before this time; ask [`due`](Coalescer::due) then.
    At(Instant),
}

impl Coalescer {
    /// One whose refreshes start at least `least` apart, and up to `most` where they never rest.
    pub fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most: most.max(least),
            distance: least,
            running: false,
            wanted: false,
            started: None,
        }
    }

    /// The server says that the list has changed, or a refresh is wanted for another reason.
    pub fn changed(&mut self, now: Instant) -> Refresh {
        self.wanted = true;
        self.due(now)
    }

    /// The refresh that ran has ended, well or not. One that failed and shall be tried again is told as
    /// [`changed`](Self::changed) besides.
    pub fn finished(&mut self, now: Instant) -> Refresh {
        self.running = false;
        self.due(now)
    }

    /// The time of [`Refresh::At`] has come; any other time does no harm.
    pub fn due(&mut self, now: Instant) -> Refresh {
        if self.running || !self.wanted {
            return Refresh::Nothing;
        }
        if let Some(started) = self.started {
            let at = started + self.distance;
            if now < at {
                return Refresh::At(at);
            }
            let rested = now >= at + self.distance;
            self.distance = if rested {
                self.least
            } else {
                (self.distance * 2).min(self.most)
            };
        }
        self.running = true;
        self.wanted = false;
        self.started = Some(now);
        Refresh::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn two_hundred_changes_at_once_are_two_refreshes() {
        let start = Instant::now();
        let mut list = Coalescer::new(SECOND, 60 * SECOND);
        assert_eq!(list.changed(start), Refresh::Now);
        for _ in 1..200 {
            assert_eq!(list.changed(start), Refresh::Nothing);
        }
        assert_eq!(list.finished(start), Refresh::At(start + SECOND));
        assert_eq!(list.changed(start), Refresh::At(start + SECOND));
        assert_eq!(list.due(start + SECOND), Refresh::Now);
        assert_eq!(list.finished(start + SECOND), Refresh::Nothing);
        assert_eq!(list.due(start + 100 * SECOND), Refresh::Nothing);
    }

    #[test]
    fn a_change_while_one_runs_is_followed_by_another() {
        let start = Instant::now();
        let mut list = Coalescer::new(SECOND, SECOND);
        assert_eq!(list.changed(start), Refresh::Now);
        assert_eq!(list.changed(start + 5 * SECOND), Refresh::Nothing);
        assert_eq!(list.finished(start + 9 * SECOND), Refresh::Now);
    }

    #[test]
    fn a_server_that_announces_a_change_with_every_listing_is_listed_ever_less_often() {
        let start = Instant::now();
        let mut now = start;
        let mut list = Coalescer::new(SECOND, 60 * SECOND);
        let mut refreshes = 0;
        let mut next = list.changed(now);
        while now < start + 3600 * SECOND {
            match next {
                Refresh::Now => {
                    refreshes += 1;
                    assert_eq!(list.changed(now), Refresh::Nothing);
                    next = list.finished(now);
                }
                Refresh::At(at) => {
                    now = at;
                    next = list.due(now);
                }
                Refresh::Nothing => panic!("a change was lost"),
            }
        }
        assert!((60..70).contains(&refreshes), "{refreshes}");
        // After a rest it is quick again.
        let _ = list.due(now);
        list.finished(now);
        now += 1000 * SECOND;
        assert_eq!(list.changed(now), Refresh::Now);
        assert_eq!(list.changed(now), Refresh::Nothing);
        assert_eq!(list.finished(now), Refresh::At(now + SECOND));
    }
}
