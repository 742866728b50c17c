//! What a pool and its host say to each other: the numbers, the action and the options.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use mcp_pool::{Refused, Timestamp, Why};

use super::{
    fail::Failure,
    options::{self, SelfSized},
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};
use crate::numbered::{Name, Step, Subject};

/// What a pool answers to do.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_pool_action_code {
    /// Open a session: session_id, epoch, domain, server and scope say which. Then tell mcpconn_pool_opened() or
    /// mcpconn_pool_failed().
    MCPCONN_POOL_OPEN = 1,
    /// Nobody wants the session any more that is being opened: stop, if that can be, and tell mcpconn_pool_failed() or
    /// mcpconn_pool_closed() when it is over. If it opens all the same, mcpconn_pool_opened() answers MCPCONN_EMPTY.
    MCPCONN_POOL_STOP_OPENING = 2,
    /// Close session at once, also if calls run on it: they are to end as closed. Then tell mcpconn_pool_closed().
    /// reason says why.
    MCPCONN_POOL_CLOSE = 3,
    /// The request of token may call session. Then tell mcpconn_pool_release() with request_id.
    MCPCONN_POOL_GIVE = 4,
    /// The request of token gets no session; status, reason and text say why. Nothing reached any session, and there is
    /// nothing to release.
    MCPCONN_POOL_REFUSE = 5,
}

/// Why a request is refused, or why a session has to go.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_pool_reason {
    /// Every slot is taken by a session with a call in flight, or promised to those who wait: busy of limit. For a
    /// request that waited: still, at its deadline.
    MCPCONN_POOL_REASON_CAPACITY = 1,
    /// Every slot that the server may have is taken by a session with a call in flight: busy of limit.
    MCPCONN_POOL_REASON_SERVER_CAPACITY = 2,
    /// The session has all the calls that it may have at a time: busy of limit.
    MCPCONN_POOL_REASON_SATURATED = 3,
    /// The host could not open the session; status is what it said.
    MCPCONN_POOL_REASON_FAILED = 4,
    /// The configuration of the server changed or was removed.
    MCPCONN_POOL_REASON_STALE = 5,
    /// An explicit close, or the pool is shut down. Of a request also: its session died before it could be given.
    MCPCONN_POOL_REASON_CLOSED = 6,
    /// mcpconn_pool_cancel().
    MCPCONN_POOL_REASON_CANCELED = 7,
    /// The session was idle, and its slot was needed.
    MCPCONN_POOL_REASON_DISPLACED = 8,
    /// The session was idle for longer than idle_ttl_ms.
    MCPCONN_POOL_REASON_IDLE = 9,
    /// The session lived for longer than max_lifetime_ms.
    MCPCONN_POOL_REASON_LIFETIME = 10,
    /// The host said that the session is dead.
    MCPCONN_POOL_REASON_DEAD = 11,
    /// A drain: no call was left on the session, or its deadline came.
    MCPCONN_POOL_REASON_DRAINED = 12,
    /// Nobody waits for the opening any more.
    MCPCONN_POOL_REASON_ABANDONED = 13,
    /// The session opened, and every slot had become busy meanwhile.
    MCPCONN_POOL_REASON_NO_SLOT = 14,
    /// None of the above: the library is newer than the header.
    MCPCONN_POOL_REASON_OTHER = 99,
}

use mcpconn_pool_reason as Reason;

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Displaced => Self::MCPCONN_POOL_REASON_DISPLACED,
            Why::IdleTooLong => Self::MCPCONN_POOL_REASON_IDLE,
            Why::LifetimeOver => Self::MCPCONN_POOL_REASON_LIFETIME,
            Why::Dead => Self::MCPCONN_POOL_REASON_DEAD,
            Why::Closed => Self::MCPCONN_POOL_REASON_CLOSED,
            Why::Drained => Self::MCPCONN_POOL_REASON_DRAINED,
            Why::Rebound => Self::MCPCONN_POOL_REASON_STALE,
            Why::Abandoned => Self::MCPCONN_POOL_REASON_ABANDONED,
            Why::Failed => Self::MCPCONN_POOL_REASON_FAILED,
            Why::NoSlot => Self::MCPCONN_POOL_REASON_NO_SLOT,
            _ => Self::MCPCONN_POOL_REASON_OTHER,
        }
    }
}

/// What mcpconn_pool_close() closes and mcpconn_pool_drain() drains. Sessions that are being opened are always meant too.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_pool_target {
    /// The sessions of one scope of a domain with all servers.
    MCPCONN_POOL_TARGET_SCOPE = 1,
    /// The sessions of all scopes of a domain with one server.
    MCPCONN_POOL_TARGET_SERVER = 2,
    /// The session of one scope with one server, and what drains of it.
    MCPCONN_POOL_TARGET_SESSION = 3,
    /// The same, only if it is the session of session_id, so that whoever comes late spares its replacement.
    MCPCONN_POOL_TARGET_SESSION_IF_CURRENT = 4,
    /// All sessions of a domain.
    MCPCONN_POOL_TARGET_DOMAIN = 5,
    /// All sessions.
    MCPCONN_POOL_TARGET_ALL = 6,
}

/// What is to be done, and with what. Begin with MCPCONN_POOL_ACTION_INIT. Members that the kind has no use for are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_pool_action {
    /// sizeof(mcpconn_pool_action), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// A mcpconn_pool_action_code; 0 if there is nothing to do now.
    pub kind: i32,
    /// Of a refusal, of a session to close and of an opening to stop: why, a mcpconn_pool_reason.
    pub reason: i32,
    /// Of a refusal: MCPCONN_ERR_CAPACITY, MCPCONN_ERR_CLOSED, MCPCONN_ERR_CANCELED, or what mcpconn_pool_failed() was
    /// given.
    pub status: mcpconn_status,
    /// Of a session that is given: 1 if nobody was given it before, so that it knows nothing of its scope yet.
    pub fresh: i32,
    /// Whose request is answered: as mcpconn_pool_acquire() was given it.
    pub token: u64,
    /// The request that is answered; once it is given a session, the call to release.
    pub request_id: u64,
    /// The session that it is about. Never that of a request.
    pub session_id: u64,
    /// The host's own, as mcpconn_pool_opened() was given it.
    pub session: *mut c_void,
    /// Of the session that it is about: in which configuration of its server it is to be, or was, opened, as
    /// mcpconn_pool_bind() said it.
    pub epoch: u64,
    /// If there is nothing to do now: when to ask again, on the host's clock; UINT64_MAX for not before something is
    /// told.
    pub at_ns: u64,
    /// Of a refusal for want of room: how many sessions, or calls, are busy.
    pub busy: u32,
    /// Of a refusal for want of room: how many there may be.
    pub limit: u32,
    /// Of the session that it is about: whose it is. It has a NUL behind it and lives, as server and scope do, until
    /// mcpconn_pool_failed() or mcpconn_pool_closed() was told of the session, or the pool is freed.
    pub domain: mcpconn_str,
    /// Of the session that it is about: its server.
    pub server: mcpconn_str,
    /// Of the session that it is about: for whom it is.
    pub scope: mcpconn_str,
    /// Of a refusal: one line for a person. It has a NUL behind it and lives for ever.
    pub text: mcpconn_str,
}

/// What a request is made with. Begin with MCPCONN_POOL_ACQUIRE_OPTIONS_INIT; a member that is 0 has its default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_pool_acquire_options {
    /// sizeof(mcpconn_pool_acquire_options), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// The host's own; the answer bears it.
    pub token: u64,
    /// The configuration that the caller knows, as mcpconn_pool_bind() said it: if it is not the current one, the
    /// request is refused as stale. Default: whichever is current.
    pub epoch: u64,
    /// Until when it waits for room, on the host's clock, if there is none: a slot, or a place on a session that has all
    /// the calls that it may have. A time that is over: not at all; MCPCONN_FOREVER: without end. Default: wait_ms of
    /// pool_json. It bounds no opening: cancel what takes too long.
    pub deadline_ns: u64,
}

// SAFETY: repr(C), a usize first, and numbers only.
unsafe impl SelfSized for mcpconn_pool_acquire_options {
    const NAME: &'static str = "mcpconn_pool_acquire_options";
}

/// A session of the host's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostSession(pub(crate) *mut c_void);

// SAFETY: the pointer is never followed here. The header says that it comes back on whichever thread asks.
unsafe impl Send for HostSession {}

impl mcpconn_pool_action {
    /// Checks before anything is taken out of the pool that it can be handed over.
    ///
    /// # Safety
    ///
    /// `out` must be NULL or valid for reads of its first member.
    pub(crate) unsafe fn check(out: *const Self) -> Result<(), Failure> {
        // SAFETY: as above.
        unsafe { options::check_sized("mcpconn_pool_action", out) }
    }

    /// # Safety
    ///
    /// `out` must be NULL or valid for reads and writes of as many bytes as its first member says.
    pub(crate) unsafe fn write(self, out: *mut Self) -> Result<(), Failure> {
        // SAFETY: as above.
        unsafe { options::write_sized("mcpconn_pool_action", self, out) }
    }

    fn nothing() -> Self {
        Self {
            struct_size: 0,
            kind: 0,
            reason: 0,
            status: Code::MCPCONN_OK as mcpconn_status,
            fresh: 0,
            token: 0,
            request_id: 0,
            session_id: 0,
            session: ptr::null_mut(),
            epoch: 0,
            at_ns: 0,
            busy: 0,
            limit: 0,
            domain: mcpconn_str::EMPTY,
            server: mcpconn_str::EMPTY,
            scope: mcpconn_str::EMPTY,
            text: mcpconn_str::EMPTY,
        }
    }

    pub(crate) fn nothing_before(at: Option<Timestamp>) -> Self {
        Self {
            at_ns: at.map_or(u64::MAX, Timestamp::as_nanos),
            ..Self::nothing()
        }
    }

    pub(crate) fn begun(request: u64, subject: Subject<'_>, session: HostSession) -> Self {
        Self {
            kind: mcpconn_pool_action_code::MCPCONN_POOL_GIVE as i32,
            request_id: request,
            session: session.0,
            ..Self::about(subject)
        }
    }

    fn about(subject: Subject<'_>) -> Self {
        Self {
            session_id: subject.session,
            epoch: subject.epoch,
            domain: lend(&subject.key.domain),
            server: lend(&subject.key.server),
            scope: lend(&subject.key.scope),
            ..Self::nothing()
        }
    }
}

impl From<Step<'_, HostSession>> for mcpconn_pool_action {
    fn from(step: Step<'_, HostSession>) -> Self {
        use mcpconn_pool_action_code as Kind;
        match step {
            Step::Open(subject) => Self {
                kind: Kind::MCPCONN_POOL_OPEN as i32,
                ..Self::about(subject)
            },
            Step::StopOpening(subject, why) => Self {
                kind: Kind::MCPCONN_POOL_STOP_OPENING as i32,
                reason: Reason::from(why) as i32,
                ..Self::about(subject)
            },
            Step::Close(subject, session, why) => Self {
                kind: Kind::MCPCONN_POOL_CLOSE as i32,
                reason: Reason::from(why) as i32,
                session: session.0,
                ..Self::about(subject)
            },
            Step::Give {
                token,
                request,
                subject,
                session,
                fresh,
            } => Self {
                token,
                fresh: i32::from(fresh),
                ..Self::begun(request, subject, session)
            },
            Step::Refuse {
                token,
                request,
                why,
            } => {
                let refusal = Refusal::from(why);
                Self {
                    kind: Kind::MCPCONN_POOL_REFUSE as i32,
                    reason: refusal.reason as i32,
                    status: refusal.status,
                    token,
                    request_id: request,
                    busy: refusal.busy.0,
                    limit: refusal.busy.1,
                    text: mcpconn_str::lend_bytes(refusal.text.to_bytes()),
                    ..Self::nothing()
                }
            }
        }
    }
}

/// A name, lent for as long as the pool knows its session.
fn lend(name: &Name) -> mcpconn_str {
    mcpconn_str::lend_bytes(name.as_str().as_bytes())
}

/// A refusal as C is told it.
struct Refusal {
    status: mcpconn_status,
    reason: Reason,
    /// How many of how many.
    busy: (u32, u32),
    text: &'static CStr,
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (code, reason, text) = match refused {
            Refused::Capacity { .. } => (
                Code::MCPCONN_ERR_CAPACITY,
                Reason::MCPCONN_POOL_REASON_CAPACITY,
                c"the pool is at capacity: every slot is taken by a session with a call in flight",
            ),
            Refused::ServerCapacity { .. } => (
                Code::MCPCONN_ERR_CAPACITY,
                Reason::MCPCONN_POOL_REASON_SERVER_CAPACITY,
                c"the server is at capacity: every slot that it may have is taken by a session with a call in flight",
            ),
            Refused::Saturated { .. } => (
                Code::MCPCONN_ERR_CAPACITY,
                Reason::MCPCONN_POOL_REASON_SATURATED,
                c"the session has as many calls in flight as it may have",
            ),
            Refused::Failed { .. } => (
                Code::MCPCONN_ERR_TRANSPORT,
                Reason::MCPCONN_POOL_REASON_FAILED,
                c"the session could not be opened",
            ),
            Refused::Stale => (
                Code::MCPCONN_ERR_CLOSED,
                Reason::MCPCONN_POOL_REASON_STALE,
                c"the configuration of the server changed or was removed: ask again with the current one",
            ),
            Refused::Closed => (
                Code::MCPCONN_ERR_CLOSED,
                Reason::MCPCONN_POOL_REASON_CLOSED,
                c"the session was closed before it could be given, or the pool is shut down",
            ),
            Refused::Canceled => (
                Code::MCPCONN_ERR_CANCELED,
                Reason::MCPCONN_POOL_REASON_CANCELED,
                c"the request was cancelled",
            ),
            _ => (
                Code::MCPCONN_ERR_CLOSED,
                Reason::MCPCONN_POOL_REASON_OTHER,
                c"the request was refused",
            ),
        };
        Self {
            status: match refused {
                Refused::Failed { code } => code,
                _ => code as mcpconn_status,
            },
            reason,
            busy: match refused {
                Refused::Capacity { capacity, busy }
                | Refused::ServerCapacity { capacity, busy } => (count(busy), count(capacity)),
                Refused::Saturated { calls } => (count(calls), count(calls)),
                _ => (0, 0),
            },
            text,
        }
    }
}
