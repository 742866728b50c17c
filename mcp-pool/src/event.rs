//! What there is to hear of a pool: events, and a snapshot of how it stands.

use std::time::Duration;

use crate::{key::SessionId, registry::Tally};

/// Why something left the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It was idle, and its slot was needed.
    Displaced,
    /// It was idle for longer than [`idle_ttl`](crate::Limits::idle_ttl).
    IdleTooLong,
    /// It lived longer than [`max_lifetime`](crate::Limits::max_lifetime).
    LifetimeOver,
    /// It was found dead.
    Dead,
    /// An explicit close.
    Closed,
    /// A drain: no call was left on it, or its limit came.
    Drained,
    /// The configuration of its server changed or went.
    Rebound,
    /// Nobody waited for its creation any more.
    Abandoned,
    /// Its opening failed.
    Failed,
    /// Every slot was busy when its turn to open came, or when it had opened.
    NoSlot,
}

/// Something that happened in a pool, told to its observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<K> {
    /// A creation waits for a slot.
    Waiting {
        /// The session to be.
        id: SessionId,
        /// Its key.
        key: K,
    },
    /// A creation was admitted.
    Opening {
        /// The session to be.
        id: SessionId,
        /// Its key.
        key: K,
    },
    /// A session opened and took a slot.
    Opened {
        /// The session.
        id: SessionId,
        /// Its key.
        key: K,
    },
    /// Somebody got no session, for want of a slot or of a place on it.
    Refused {
        /// What was asked for.
        key: K,
    },
    /// No call begins on this session any more; it leaves when the last one ended.
    Draining {
        /// The session.
        id: SessionId,
        /// Its key.
        key: K,
        /// Why it has to go.
        why: Why,
    },
    /// A session, or a creation, left the pool.
    Retired {
        /// The session.
        id: SessionId,
        /// Its key.
        key: K,
        /// Why it had to go.
        why: Why,
    },
    /// The closing of a session is over.
    Closed {
        /// The session.
        id: SessionId,
        /// Whether it was given up at the limit.
        overdue: bool,
    },
}

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Its creation waits for a slot.
    Waiting,
    /// It opens, or waits for its turn to.
    Opening,
    /// It has its slot, and waits for the end of the session that made room.
    Arriving,
    /// It is there.
    Live,
    /// No call begins on it any more.
    Draining,
}

/// One session, as it stood when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStatus<K> {
    /// Its name.
    pub id: SessionId,
    /// What it is pooled under.
    pub key: K,
    /// How far it is.
    pub stage: Stage,
    /// Calls in flight; of a creation, those who wait for it.
    pub calls: usize,
    /// Those who wait for a place on it.
    pub queue: usize,
    /// How long it has been live. `None` if it is not, or if the pool keeps no time.
    pub age: Option<Duration>,
    /// How long no call has been in flight. `None` if one is, or if the pool keeps no time.
    pub idle_for: Option<Duration>,
}

/// How a pool is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// How many slots there are.
    pub capacity: usize,
    /// Slots taken.
    pub live: usize,
    /// Slots taken by sessions with a call in flight.
    pub busy: usize,
    /// Slots taken by sessions on which no call begins any more. They are among the busy ones.
    pub draining: usize,
    /// Creations under way, those that wait for their turn among them.
    pub opening: usize,
    /// Creations that wait for a slot.
    pub waiting: usize,
    /// Those who wait for a place on a session that has all the calls it may have.
    pub queued_calls: usize,
    /// Closings under way, those that wait for their turn among them.
    pub closing: usize,
    /// Openers that panicked.
    pub panicked: u64,
    /// Closings that were given up at the limit.
    pub overdue: u64,
    /// How often what was decided.
    pub tally: Tally,
}

/// All of a pool at one moment, for a status page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// The sums.
    pub counters: Counters,
    /// Every session and creation, oldest first.
    pub sessions: Vec<SessionStatus<K>>,
}
