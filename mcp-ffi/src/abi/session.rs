//! What happens to scoped sessions.

use super::{fail::Failure, options::write_sized};
use crate::client::{CloseReason, SessionChange, SessionNews};

/// What happened to a scoped session.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_session_change {
    /// It opened.
    MCPCONN_SESSION_OPENED = 1,
    /// No call begins on it any more; it is closed when the last one ended. Another may serve its scope meanwhile.
    MCPCONN_SESSION_DRAINING = 2,
    /// It broke, expired or fell silent. The scope's next call has another opened.
    MCPCONN_SESSION_LOST = 3,
    /// It left the pool, and closes.
    MCPCONN_SESSION_CLOSED = 4,
    /// None of the above: the library is newer than the header.
    MCPCONN_SESSION_OTHER = 99,
}

/// Why a scoped session that was not lost had to go.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_close_reason {
    /// It was idle, and its slot was needed: "capacity" or "sessions_per_server" of pool_json.
    MCPCONN_CLOSE_DISPLACED = 1,
    /// It was idle for too long: "idle_ttl_ms" of pool_json.
    MCPCONN_CLOSE_IDLE = 2,
    /// It had lived for long enough: "max_lifetime_ms" of pool_json.
    MCPCONN_CLOSE_LIFETIME = 3,
    /// The host closed or drained it, or closed the client.
    MCPCONN_CLOSE_HOST = 4,
    /// The configuration of its server changed or went.
    MCPCONN_CLOSE_RECONFIGURED = 5,
    /// None of the above: the library is newer than the header.
    MCPCONN_CLOSE_OTHER = 99,
}

/// What a MCPCONN_EVENT_SESSION is about. Begin with MCPCONN_SESSION_INFO_INIT. Its server, domain and scope are told by
/// mcpconn_event_server(), mcpconn_event_domain() and mcpconn_event_scope().
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_session_info {
    /// sizeof(mcpconn_session_info), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// Names this very session, for mcpconn_client_close_session(); never 0, and never used again.
    pub session_id: u64,
    /// Counts the sessions of its server; results that it answers bear the same mcpconn_event_generation().
    pub generation: u64,
    /// What happened, a mcpconn_session_change.
    pub change: i32,
    /// Why, a mcpconn_close_reason, for MCPCONN_SESSION_DRAINING and MCPCONN_SESSION_CLOSED; else 0.
    pub reason: i32,
}

impl From<CloseReason> for mcpconn_close_reason {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Displaced => Self::MCPCONN_CLOSE_DISPLACED,
            CloseReason::Idle => Self::MCPCONN_CLOSE_IDLE,
            CloseReason::Lifetime => Self::MCPCONN_CLOSE_LIFETIME,
            CloseReason::Host => Self::MCPCONN_CLOSE_HOST,
            CloseReason::Reconfigured => Self::MCPCONN_CLOSE_RECONFIGURED,
            CloseReason::Other => Self::MCPCONN_CLOSE_OTHER,
        }
    }
}

fn change_and_reason(change: SessionChange) -> (i32, i32) {
    use mcpconn_session_change as C;
    let reason = |reason: CloseReason| mcpconn_close_reason::from(reason) as i32;
    match change {
        SessionChange::Opened => (C::MCPCONN_SESSION_OPENED as i32, 0),
        SessionChange::Draining(why) => (C::MCPCONN_SESSION_DRAINING as i32, reason(why)),
        SessionChange::Lost => (C::MCPCONN_SESSION_LOST as i32, 0),
        SessionChange::Closed(why) => (C::MCPCONN_SESSION_CLOSED as i32, reason(why)),
    }
}

impl mcpconn_session_info {
    /// Fills a struct of the host's that may be an older one.
    ///
    /// # Safety
    ///
    /// `out` must be NULL or valid for reads and writes of as many bytes as its first member says.
    pub(crate) unsafe fn write(news: &SessionNews, out: *mut Self) -> Result<(), Failure> {
        let (change, reason) = change_and_reason(news.change);
        let info = Self {
            struct_size: 0,
            session_id: news.session_id,
            generation: news.generation,
            change,
            reason,
        };
        // SAFETY: as above.
        unsafe { write_sized("mcpconn_session_info", info, out) }
    }
}
