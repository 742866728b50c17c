//! What happens to the servers, whoever connects to them: the same for the same seed.

use std::time::Duration;

use mcp_budget::Timestamp;

pub(crate) const SERVERS: u32 = 10_000;
pub(crate) const DAY: u64 = 86_400_000;
pub(crate) const YEAR: u64 = 365 * DAY;
const HOUR: u64 = 3_600_000;

/// Milliseconds since the beginning of the year.
pub(crate) type Millis = u64;

pub(crate) fn stamp(at: Millis) -> Timestamp {
    Timestamp::ZERO.plus(Duration::from_millis(at))
}

pub(crate) fn millis(at: Timestamp) -> Millis {
    // Upwards, so that what is due then is due.
    at.as_nanos().div_ceil(1_000_000)
}

/// What a connect meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It opens, is used and lives until the given time.
    Serves { until: Millis },
    /// It opens, and dies on its first real request.
    Flaps,
    /// It opens, answers, and dies half a minute later.
    DiesYoung,
    /// It is refused at once.
    Refuses,
    /// It hangs until the client gives up.
    Hangs,
}

/// A number that looks drawn at random.
fn chance(of: u64) -> u64 {
    let mut mixed = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub(crate) fn drawn(server: u32, what: u64, below: u64) -> u64 {
    chance(chance(u64::from(server) << 32 ^ what)) % below
}

/// An hour in which every server is gone.
pub(crate) const OUTAGE: (Millis, Millis) = (180 * DAY + 10 * HOUR, 180 * DAY + 11 * HOUR);

/// One server in a hundred flaps for 63 hours, until somebody mends it; another dies young for as long.
fn bad_days(server: u32, kind: u64) -> Option<(Millis, Millis)> {
    (drawn(server, kind, 100) == 0).then(|| {
        let from = drawn(server, kind + 100, YEAR - 10 * DAY);
        (from, from + 63 * HOUR)
    })
}

/// Each day each server is restarted, within the five hours of the night, in 2 to 12 seconds.
fn restart(server: u32, day: u64) -> (Millis, Millis) {
    let from = day * DAY + drawn(server, day << 8 | 1, 5 * HOUR);
    (from, from + 2_000 + drawn(server, day << 8 | 2, 10_000))
}

/// Each Monday morning the client's machine wakes, and what was open is dead.
fn next_wake(after: Millis) -> Millis {
    let week = 7 * DAY;
    let first = 8 * HOUR;
    if after < first {
        first
    } else {
        (after - first) / week * week + week + first
    }
}

fn within(at: Millis, (from, until): (Millis, Millis)) -> bool {
    (from..until).contains(&at)
}

pub(crate) fn connect(server: u32, at: Millis) -> Fate {
    if within(at, OUTAGE) {
        return match server % 2 {
            0 => Fate::Refuses,
            _ => Fate::Hangs,
        };
    }
    if within(at, restart(server, at / DAY)) {
        return Fate::Refuses;
    }
    if bad_days(server, 3).is_some_and(|days| within(at, days)) {
        return Fate::Flaps;
    }
    if bad_days(server, 4).is_some_and(|days| within(at, days)) {
        return Fate::DiesYoung;
    }
    let today = restart(server, at / DAY).0;
    let restarts = if at < today {
        today
    } else {
        restart(server, at / DAY + 1).0
    };
    let bad = [3, 4].map(|kind| bad_days(server, kind).map_or(YEAR, |days| days.0));
    let ends = [restarts, next_wake(at), OUTAGE.0, bad[0], bad[1]];
    let until = ends.into_iter().filter(|end| *end > at).min();
    Fate::Serves {
        until: until.unwrap_or(YEAR),
    }
}

/// When the server serves again, from a moment on.
pub(crate) fn able(server: u32, mut at: Millis) -> Millis {
    loop {
        let bad = [
            Some(OUTAGE),
            Some(restart(server, at / DAY)),
            bad_days(server, 3),
            bad_days(server, 4),
        ];
        match bad.into_iter().flatten().find(|bad| within(at, *bad)) {
            Some((_, until)) => at = until,
            None => return at,
        }
    }
}

/// How long a connect takes.
pub(crate) fn takes(server: u32, fate: Fate, nth: u64) -> Millis {
    match fate {
        Fate::Refuses => 10,
        Fate::Hangs => 30_000,
        _ => 50 + drawn(server, nth << 8 | 5, 450),
    }
}

/// How long until somebody calls the server.
pub(crate) fn next_call(server: u32, nth: u64) -> Millis {
    1_000 + drawn(server, nth << 8 | 6, 119_000)
}
