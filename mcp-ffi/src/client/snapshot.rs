//! How it stands with everything of a client, for a status page.

use std::{sync::Arc, time::Duration};

use mcp_pool::{Counters, Stage};
use serde_json::{Value, json};

use super::{
    Client,
    error::Error,
    event::ServerStatus,
    servers::{Servers, Slot},
    shared::Shared,
};
use crate::millis::millis;

/// How it stands with everything of a client at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientStatus {
    /// Every configured server of every domain, in order.
    pub servers: Vec<NamedServer>,
    /// Every scoped session, those that are being opened among them, oldest first.
    pub sessions: Vec<ScopedStatus>,
    /// The sums of the pool, which scoped sessions are in.
    pub pool: Counters,
}

/// A configured server, and how it stands with it.
#[derive(Debug, Clone)]
pub struct NamedServer {
    /// Whose it is.
    pub domain: Arc<str>,
    /// Its name.
    pub server: Arc<str>,
    /// How it stands with it, or why its entry is not usable.
    pub status: Result<ServerStatus, Error>,
}

/// How it stands with a scoped session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedStatus {
    /// Names this very session, and is never used again: for [`Client::close_session`].
    pub session_id: u64,
    /// Its domain.
    pub domain: Arc<str>,
    /// Its server.
    pub server: Arc<str>,
    /// Its scope.
    pub scope: Arc<str>,
    /// Counts the sessions of its server; `None` until it has opened.
    pub generation: Option<u64>,
    /// How far it is.
    pub stage: Stage,
    /// Calls in flight on it; while it opens, those that wait for it.
    pub calls: usize,
    /// Calls that wait for a place on it.
    pub queued_calls: usize,
    /// How long no call has been in flight; `None` while one is.
    pub idle: Option<Duration>,
    /// How long it has been there; `None` until it is.
    pub age: Option<Duration>,
}

impl Client {
    /// How it stands with everything now: servers, scoped sessions and their pool. It asks no server, and is for a status
    /// page: it looks at each of them.
    pub fn status(&self) -> ClientStatus {
        self.shared.status()
    }
}

impl Shared {
    fn status(&self) -> ClientStatus {
        let servers = named(&self.servers());
        let pool = self.pool.snapshot();
        let sessions = pool.sessions.into_iter().map(|session| ScopedStatus {
            session_id: session.id.get(),
            generation: self.sessions.generation(session.id),
            domain: session.key.domain,
            server: session.key.server,
            scope: session.key.scope,
            stage: session.stage,
            calls: session.calls,
            queued_calls: session.queue,
            idle: session.idle_for,
            age: session.age,
        });
        ClientStatus {
            servers,
            sessions: sessions.collect(),
            pool: pool.counters,
        }
    }
}

fn named(servers: &Servers) -> Vec<NamedServer> {
    let mut named: Vec<_> = servers
        .slots()
        .map(|(domain, server, slot)| NamedServer {
            domain: domain.clone(),
            server: server.clone(),
            status: match slot {
                Slot::Ready(server) => Ok(server.status()),
                Slot::Invalid(error) => Err(error.clone()),
            },
        })
        .collect();
    named.sort_by(|one, other| (&one.domain, &one.server).cmp(&(&other.domain, &other.server)));
    named
}

impl ClientStatus {
    /// As a JSON object with `servers`, `sessions` and `pool`. Times are in milliseconds; what is not there is null.
    pub fn to_json(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(NamedServer::to_json).collect();
        let sessions: Vec<_> = self.sessions.iter().map(ScopedStatus::to_json).collect();
        json!({"servers": servers, "sessions": sessions, "pool": pool(&self.pool)}).to_string()
    }
}

impl NamedServer {
    fn to_json(&self) -> Value {
        let mut json = match &self.status {
            Ok(status) => json!({
                "state": status.state,
                "reason": status.reason,
                "charges": status.charges,
                "attempt": status.attempt,
                "generation": status.generation,
                "next_try_in_ms": status.next_try.map(millis),
                "pid": status.pid,
                "sessions": status.sessions,
                "calls": status.calls,
                "text": status.text,
            }),
            Err(error) => json!({
                "state": "stopped",
                "reason": "invalid",
                "charges": 0,
                "attempt": 0,
                "generation": 0,
                "next_try_in_ms": null,
                "pid": null,
                "sessions": 0,
                "calls": 0,
                "text": error.message,
            }),
        };
        json["domain"] = (*self.domain).into();
        json["server"] = (*self.server).into();
        json
    }
}

impl ScopedStatus {
    fn to_json(&self) -> Value {
        json!({
            "session_id": self.session_id,
            "domain": *self.domain,
            "server": *self.server,
            "scope": *self.scope,
            "generation": self.generation,
            "state": match self.stage {
                Stage::Waiting => "waiting",
                Stage::Live => "live",
                Stage::Draining => "draining",
                _ => "opening",
            },
            "calls": self.calls,
            "queued_calls": self.queued_calls,
            "idle_ms": self.idle.map(millis),
            "age_ms": self.age.map(millis),
        })
    }
}

fn pool(counters: &Counters) -> Value {
    let tally = &counters.tally;
    json!({
        "capacity": counters.capacity,
        "live": counters.live,
        "busy": counters.busy,
        "draining": counters.draining,
        "opening": counters.opening,
        "waiting": counters.waiting,
        "queued_calls": counters.queued_calls,
        "closing": counters.closing,
        "tally": {
            "reused": tally.reused,
            "joined": tally.joined,
            "opened": tally.opened,
            "failed": tally.failed,
            "abandoned": tally.abandoned,
            "refused": tally.refused + tally.refused_late,
            "saturated": tally.saturated,
            "waited": tally.waited,
            "displaced": tally.displaced,
            "idle_too_long": tally.idle_too_long,
            "lifetime_over": tally.lifetime_over,
            "lost": tally.evicted,
            "closed": tally.closed,
            "drained": tally.drained,
            "reconfigured": tally.rebound,
            "overdue": counters.overdue,
        },
    })
}
