//! Times as a host of another language has them.

use std::time::Duration;

/// Whole milliseconds, rounded up: what lies ahead never becomes 0.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
