//! What the registry is asked, and what it answers.

use std::time::Duration;

use crate::{event::Why, key::SessionId};

/// The rules that a registry keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How many live sessions there may be, over all domains.
    pub capacity: usize,
    /// How many of them may be of one server of one domain. `None` is no cap.
    pub sessions_per_server: Option<usize>,
    /// How many calls may be in flight on one session. `None` is no cap.
    pub calls_per_session: Option<usize>,
    /// How long a session may be idle, from when it was promoted, got or released last. `None` is for ever.
    pub idle_ttl: Option<Duration>,
    /// How long a session may live, from its promotion. `None` is for ever.
    pub max_lifetime: Option<Duration>,
}

impl Rules {
    /// So many slots, and no other bound.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            sessions_per_server: None,
            calls_per_session: None,
            idle_ttl: None,
            max_lifetime: None,
        }
    }
}

/// What somebody who asks for a session wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// What for.
    pub purpose: Purpose,
    /// Whether to wait, rather than to be refused, where every slot is busy or the session has all the calls that it
    /// may have. How long is the caller's to see to, by [`leave`](crate::registry::Registry::leave) and
    /// [`cancel_turn`](crate::registry::Registry::cancel_turn).
    pub patient: bool,
}

/// What a session is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A call: a session that is there is pinned in the same step.
    Call,
    /// To know it: a session that is there is not pinned.
    Look,
    /// To have it opened before it is needed: only a free slot is taken, and nothing idle has to go for it.
    WarmUp,
}

impl Want {
    /// A call now, or a refusal.
    pub const CALL: Self = Self {
        purpose: Purpose::Call,
        patient: false,
    };
    /// A call, as soon as there is room.
    pub const PATIENT_CALL: Self = Self {
        purpose: Purpose::Call,
        patient: true,
    };
    /// A handle now, or a refusal.
    pub const LOOK: Self = Self {
        purpose: Purpose::Look,
        patient: false,
    };
    /// A session in a free slot.
    pub const WARM_UP: Self = Self {
        purpose: Purpose::WarmUp,
        patient: false,
    };
}

/// The answer to [`Registry::admit`](crate::registry::Registry::admit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The session is live. It is pinned if it is wanted for a call.
    Live(SessionId),
    /// A creation is under way (or its session about to be handed out); the caller is now one of those who wait, and
    /// must [`leave`](crate::registry::Registry::leave) when it waits no more.
    Joined(SessionId),
    /// A creation was begun, as in `Joined`, and is to be opened.
    Started(SessionId),
    /// A creation was begun, as in `Joined`, and is to be opened when [`Notice::Open`] says so.
    Queued(SessionId),
    /// The session is there, or under way, and has all the calls it may have: [`Notice::Turn`] says when there is a
    /// place. Must be taken back by [`cancel_turn`](crate::registry::Registry::cancel_turn) if it is not waited for.
    Turn(TurnId, SessionId),
}

/// Why [`Registry::admit`](crate::registry::Registry::admit) refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Every slot is taken by a busy session, or the next one to become idle belongs to those who wait.
    Full(Full),
    /// Every slot that this server may have is taken by a busy session, as in `Full`.
    ServerFull(Full),
    /// The session has all the calls it may have.
    Saturated {
        /// How many that is.
        calls: usize,
    },
    /// The binding is not the current one of the key's domain and server.
    Stale,
}

/// Every slot is taken by a busy session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// How many slots there are.
    pub capacity: usize,
    /// How many of them are taken by busy sessions.
    pub busy: usize,
}

/// The answer to [`Registry::begin`](crate::registry::Registry::begin).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// The call may begin.
    Begun,
    /// The session is no longer pooled, or no call begins on it any more.
    Detached,
    /// The session has so many calls, and that is all it may have.
    Saturated(usize),
}

/// The answer to [`Registry::readmit`](crate::registry::Registry::readmit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readmission<O> {
    /// It may open.
    Open,
    /// Every slot became busy, and all who want it are patient: it is back in its place among those who wait, and
    /// [`Notice::Open`] comes again.
    Queued,
    /// Every slot became busy: the creation is no more, and those who wait are to be refused.
    Full(Refusal, O),
    /// The creation was no more.
    Gone,
}

/// The answer to [`Registry::promote`](crate::registry::Registry::promote).
#[derive(Debug, PartialEq, Eq)]
pub enum Promotion<K, O, S> {
    /// The session has a slot. Those who wait are to be answered once
    /// [`Registry::arrived`](crate::registry::Registry::arrived) was called, and that only when the victim, if there
    /// is one, was closed.
    Promoted {
        /// The least recently used idle session, which had to go for it.
        victim: Option<Retired<K, O, S>>,
    },
    /// Every slot is busy: the session has to be closed and those who wait refused.
    Full {
        /// The numbers for the error.
        refusal: Refusal,
        /// What was kept of the opening.
        opening: O,
        /// The session that found no slot.
        session: S,
    },
    /// The creation was closed or given up while it opened: the session has to be closed.
    Gone {
        /// The session that nobody waits for.
        session: S,
    },
}

/// What left the registry: it holds no slot any more, and nothing brings it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retired<K, O, S> {
    /// Its name.
    pub id: SessionId,
    /// What it was pooled under.
    pub key: K,
    /// Why it left.
    pub why: Why,
    /// There if somebody may still wait for the creation: they have to be told, and the opening has to stop.
    pub opening: Option<O>,
    /// There if it was open: it has to be closed.
    pub session: Option<S>,
}

/// Everything that left the registry in one step.
pub type AllRetired<K, O, S> = Vec<Retired<K, O, S>>;

/// Names a wait for a place on a session. Not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId {
    pub(crate) serial: u64,
    pub(crate) slot: u32,
}

/// What became of those who waited: taken from
/// [`Registry::next_notice`](crate::registry::Registry::next_notice) after whatever may have made room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A creation that waited for a slot is to be opened.
    Open(SessionId),
    /// There was a place on the session: it is pinned for who waited, who must
    /// [`leave`](crate::registry::Registry::leave) as after a call. It may still be under way.
    Turn(TurnId, SessionId),
    /// The session left, or no call begins on it any more.
    Lost(TurnId, SessionId, Why),
}

/// How often what was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// A live session was there already.
    pub reused: u64,
    /// A creation was under way already.
    pub joined: u64,
    /// A creation was begun, also one that waits.
    pub started: u64,
    /// A creation ended with a session that took a slot.
    pub opened: u64,
    /// A creation ended with an error or a panic.
    pub failed: u64,
    /// A creation was given up because nobody waited for it any more.
    pub abandoned: u64,
    /// Refused before anything opened, because every slot was busy.
    pub refused: u64,
    /// Refused after it opened, because every slot had become busy meanwhile.
    pub refused_late: u64,
    /// Refused because the session had all the calls it may have.
    pub saturated: u64,
    /// A creation, or a call, began to wait for room.
    pub waited: u64,
    /// Refused because the binding was not the current one.
    pub stale: u64,
    /// An idle session was closed because its slot was needed.
    pub displaced: u64,
    /// A session was closed because it was idle for too long.
    pub idle_too_long: u64,
    /// A session had to go because it had lived for long enough.
    pub lifetime_over: u64,
    /// A session was evicted as dead.
    pub evicted: u64,
    /// A session or a creation was closed by an explicit close.
    pub closed: u64,
    /// A session or a creation was closed by a drain.
    pub drained: u64,
    /// A session or a creation was detached because its server's configuration changed or went.
    pub rebound: u64,
}
