//! Points in time of a clock that the caller reads.

use std::time::Duration;

/// A point on the caller's monotonic clock: nanoseconds since whatever moment the caller chose.
///
/// Arithmetic saturates: what lies beyond the end of the clock (584 years) is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);
    /// The end of the clock: a time that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point so many nanoseconds after the beginning of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point that much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// How long ago `earlier` was; zero if it was not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_both_ends_of_the_clock() {
        assert_eq!(
            Timestamp::from_nanos(5).plus(Duration::MAX),
            Timestamp::NEVER
        );
        assert_eq!(
            Timestamp::ZERO.since(Timestamp::from_nanos(5)),
            Duration::ZERO
        );
    }
}
