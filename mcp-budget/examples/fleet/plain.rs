//! The fleet under policies that others use.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

use crate::{
    score::Score,
    world::{Fate, Millis, SERVERS, YEAR, connect, takes},
};

/// How a client without a budget goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Again after a second, for ever.
    EachSecond,
    /// A backoff of 1 s doubled to 60 s, five times in a row at most; a handshake begins the count anew.
    ResetOnHandshake,
    /// The same, and the count is never begun anew.
    Lifetime,
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::EachSecond => "again each second, for ever",
            Self::ResetOnHandshake => "5 in a row, reset on handshake",
            Self::Lifetime => "5 in a lifetime",
        }
    }

    /// How long to wait after so many failures; `None`: it gives up.
    fn wait(self, failures: u32) -> Option<Millis> {
        match self {
            Self::EachSecond => Some(1000),
            _ if failures > 5 => None,
            _ => Some((1000 << failures.saturating_sub(1)).min(60_000)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Connect,
    /// Whether it serves then, and until when it lives.
    Opened(bool, Millis),
    Gone,
}

pub(crate) fn run(rule: Rule) -> Score {
    let begun = Instant::now();
    let mut score = Score::new(rule.name());
    let mut failures = vec![0u32; SERVERS as usize];
    let mut events = BinaryHeap::new();
    for server in 0..SERVERS {
        events.push(Reverse((0, server, Event::Connect)));
    }
    while let Some(Reverse((now, server, event))) = events.pop() {
        if now >= YEAR {
            break;
        }
        let count = &mut failures[server as usize];
        match event {
            Event::Connect => {
                score.attempt(server, now);
                let fate = connect(server, now);
                let then = now + takes(server, fate, now);
                let next = match fate {
                    Fate::Serves { until } => Event::Opened(true, until.max(then)),
                    Fate::Flaps => Event::Opened(false, then + 2_000),
                    Fate::DiesYoung => Event::Opened(true, then + 30_000),
                    Fate::Refuses | Fate::Hangs => Event::Gone,
                };
                events.push(Reverse((then, server, next)));
            }
            Event::Opened(serves, until) => {
                if rule == Rule::ResetOnHandshake {
                    *count = 0;
                }
                if serves {
                    score.serves(server, now);
                }
                events.push(Reverse((until, server, Event::Gone)));
            }
            Event::Gone => {
                score.lost(server, now);
                *count += 1;
                if let Some(wait) = rule.wait(*count) {
                    events.push(Reverse((now + wait, server, Event::Connect)));
                }
            }
        }
    }
    score.end();
    score.real_time = begun.elapsed();
    score
}
