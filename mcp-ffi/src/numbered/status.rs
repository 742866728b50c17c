//! How a pool stands, as JSON for a status page.

use mcp_pool::{Counters, SessionStatus, Stage, Tally};
use serde::Serialize;

use super::{Key, Name, session_number};
use crate::millis::millis;

/// How a pool stood at one moment.
#[derive(Debug)]
pub(crate) struct Status {
    pub(super) counters: Counters,
    pub(super) calls: usize,
    pub(super) sessions: Vec<SessionStatus<Key>>,
}

#[derive(Serialize)]
struct Page<'a> {
    capacity: usize,
    live: usize,
    busy: usize,
    draining: usize,
    opening: usize,
    waiting: usize,
    queued_calls: usize,
    closing: usize,
    requests: usize,
    tally: Sums,
    sessions: Vec<Session<'a>>,
}

#[derive(Serialize)]
struct Sums {
    reused: u64,
    joined: u64,
    started: u64,
    opened: u64,
    failed: u64,
    abandoned: u64,
    refused: u64,
    refused_late: u64,
    saturated: u64,
    waited: u64,
    stale: u64,
    displaced: u64,
    idle_too_long: u64,
    lifetime_over: u64,
    evicted: u64,
    closed: u64,
    drained: u64,
    rebound: u64,
    overdue: u64,
}

#[derive(Serialize)]
struct Session<'a> {
    session_id: u64,
    domain: &'a Name,
    server: &'a Name,
    scope: &'a Name,
    state: &'static str,
    calls: usize,
    queued_calls: usize,
    age_ms: Option<u64>,
    idle_ms: Option<u64>,
}

impl Status {
    pub(crate) fn to_json(&self) -> String {
        let counters = &self.counters;
        let page = Page {
            capacity: counters.capacity,
            live: counters.live,
            busy: counters.busy,
            draining: counters.draining,
            opening: counters.opening,
            waiting: counters.waiting,
            queued_calls: counters.queued_calls,
            closing: counters.closing,
            requests: self.calls,
            tally: sums(&counters.tally, counters.overdue),
            sessions: self.sessions.iter().map(session).collect(),
        };
        serde_json::to_string(&page).expect("text and numbers are JSON")
    }
}

fn sums(tally: &Tally, overdue: u64) -> Sums {
    Sums {
        reused: tally.reused,
        joined: tally.joined,
        started: tally.started,
        opened: tally.opened,
        failed: tally.failed,
        abandoned: tally.abandoned,
        refused: tally.refused,
        refused_late: tally.refused_late,
        saturated: tally.saturated,
        waited: tally.waited,
        stale: tally.stale,
        displaced: tally.displaced,
        idle_too_long: tally.idle_too_long,
        lifetime_over: tally.lifetime_over,
        evicted: tally.evicted,
        closed: tally.closed,
        drained: tally.drained,
        rebound: tally.rebound,
        overdue,
    }
}

fn session(status: &SessionStatus<Key>) -> Session<'_> {
    Session {
        session_id: session_number(status.id),
        domain: &status.key.domain,
        server: &status.key.server,
        scope: &status.key.scope,
        state: match status.stage {
            Stage::Waiting => "waiting",
            Stage::Opening => "opening",
            Stage::Arriving => "arriving",
            Stage::Live => "live",
            Stage::Draining => "draining",
            _ => "other",
        },
        calls: status.calls,
        queued_calls: status.queue,
        age_ms: status.age.map(millis),
        idle_ms: status.idle_for.map(millis),
    }
}
