//! What outlives the process that held a budget.

use core::time::Duration;

use crate::transition::{Reason, State};

/// A budget as it may be kept over the host's end, taken with [`Budget::snapshot`](crate::Budget::snapshot) and brought
/// back with [`Budget::restore`](crate::Budget::restore).
///
/// It holds no point in time but durations as they were when it was taken, because the clock they were measured by ends
/// with its machine. The one stamp of the wall clock is for people and for a host that discards what is too old; nothing
/// is computed from it. With the feature `serde` it is written with milliseconds in whole numbers and their unit in the
/// names; what is absent is taken as nothing, and what is unknown is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Snapshot {
    /// When it was taken: the time since the Unix epoch, by the wall clock.
    #[cfg_attr(feature = "serde", serde(rename = "taken_unix_ms", with = "millis"))]
    pub taken: Duration,
    /// The state that it was taken in.
    pub state: State,
    /// The home session was wanted.
    pub wanted: bool,
    /// The host had said to try now, and nothing had come of it yet.
    pub woken: bool,
    /// Charges taken from the budget.
    pub charges: u32,
    /// Rounds that failed since the last proof, charged or not.
    pub failures: u32,
    /// The last generation that was given out; none is given out twice.
    pub generation: u64,
    /// Some session was once open.
    pub ever_opened: bool,
    /// Some session was once proven.
    pub ever_proven: bool,
    /// A demand for credentials was taken as expiry since the last proof.
    pub credentials_refused: bool,
    /// How long ago the last attempt began that the floor is counted from.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "since_start_ms", with = "millis::optional")
    )]
    pub since_start: Option<Duration>,
    /// What remains of the delay after a failure.
    #[cfg_attr(feature = "serde", serde(rename = "delay_ms", with = "millis"))]
    pub delay: Duration,
    /// What remains of the time in which the server does not want to be tried.
    #[cfg_attr(feature = "serde", serde(rename = "not_before_ms", with = "millis"))]
    pub not_before: Duration,
    /// The last backoff of attempts that nobody waits for.
    #[cfg_attr(feature = "serde", serde(rename = "backoff_ms", with = "millis"))]
    pub backoff: Duration,
    /// Whether that backoff grows as far as it does for failures that can never park.
    pub backoff_endless: bool,
    /// What remains of it.
    #[cfg_attr(feature = "serde", serde(rename = "backoff_left_ms", with = "millis"))]
    pub backoff_left: Duration,
    /// How long it takes until a whole burst of attempts that nobody waits for may be made again.
    #[cfg_attr(feature = "serde", serde(rename = "allowance_ms", with = "millis"))]
    pub allowance: Duration,
    /// What is known if the budget is spent.
    pub parked: Option<ParkedSnapshot>,
}

/// A budget that is spent, in a [`Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ParkedSnapshot {
    /// Why it is parked.
    pub reason: Reason,
    /// From a failed probe to the next; `None`: no probe is made.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "interval_ms", with = "millis::optional", default)
    )]
    pub interval: Option<Duration>,
    /// What remains until the next attempt; `None`: there is none before a wake.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "next_try_ms", with = "millis::optional", default)
    )]
    pub next_try: Option<Duration>,
}

impl Default for Snapshot {
    /// That of a budget that nothing has happened to.
    fn default() -> Self {
        Self {
            taken: Duration::ZERO,
            state: State::Idle,
            wanted: false,
            woken: false,
            charges: 0,
            failures: 0,
            generation: 0,
            ever_opened: false,
            ever_proven: false,
            credentials_refused: false,
            since_start: None,
            delay: Duration::ZERO,
            not_before: Duration::ZERO,
            backoff: Duration::ZERO,
            backoff_endless: false,
            backoff_left: Duration::ZERO,
            allowance: Duration::ZERO,
            parked: None,
        }
    }
}

/// Durations as whole milliseconds, rounded up so that no wait gets shorter.
#[cfg(feature = "serde")]
mod millis {
    use core::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    fn count(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        count(*value).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }

    pub(super) mod optional {
        use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, count};

        pub(in super::super) fn serialize<S: Serializer>(
            value: &Option<Duration>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            value.map(count).serialize(to)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            let millis = Option::<u64>::deserialize(from)?;
            Ok(millis.map(Duration::from_millis))
        }
    }
}
