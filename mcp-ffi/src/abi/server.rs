//! Servers: how it stands with them, and waking them.

use mcp_budget::{Reason, State};

use super::{
    client::{live, mcpconn_client},
    error::mcpconn_error,
    fail::{self, Failure},
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};
use crate::{client::ServerStatus, millis::millis};

/// The state of a server's home session and its reconnect budget.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_state {
    /// Not connected; the next call connects.
    MCPCONN_STATE_IDLE = 1,
    /// An attempt is under way.
    MCPCONN_STATE_CONNECTING = 2,
    /// Connected, but it has not yet answered a request of the host: a handshake proves nothing.
    MCPCONN_STATE_UNPROVEN = 3,
    /// Connected, and it answered a request of the host.
    MCPCONN_STATE_PROVEN = 4,
    /// Lost; next_try_in_ms says when the next attempt comes.
    MCPCONN_STATE_WAITING = 5,
    /// The budget is spent. Only mcpconn_client_wake() or a slow probe tries again.
    MCPCONN_STATE_PARKED = 6,
    /// It is not tried any more: it was removed, the client closes, its configuration is unusable, or a fault of this
    /// library ended it.
    MCPCONN_STATE_STOPPED = 7,
}

/// How it stands with a server. Begin with MCPCONN_SERVER_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_server_info {
    /// sizeof(mcpconn_server_info), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// A mcpconn_state.
    pub state: i32,
    /// Why, a mcpconn_reason.
    pub reason: i32,
    /// Charges that stand against the reconnect budget.
    pub charges: u32,
    /// Attempts to connect since it last proved itself.
    pub attempt: u32,
    /// Live scoped sessions.
    pub sessions: u32,
    /// Calls in flight.
    pub calls: u32,
    /// Counts the sessions of the server; the newest.
    pub generation: u64,
    /// When it is tried again, in milliseconds from now; 0 if that is not planned.
    pub next_try_in_ms: u64,
    /// The process of the home session; -1 if it has none.
    pub pid: i64,
}

/// What brought a server into its state.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcpconn_reason {
    /// Nobody has wanted a home session yet.
    MCPCONN_REASON_FRESH = 1,
    /// A call or the host wants it.
    MCPCONN_REASON_WANTED = 2,
    /// The backoff of an earlier failure is over.
    MCPCONN_REASON_RETRY = 3,
    /// A parked server is probed.
    MCPCONN_REASON_PROBE = 4,
    /// The host woke it.
    MCPCONN_REASON_WOKEN = 5,
    /// The handshake succeeded.
    MCPCONN_REASON_OPENED = 6,
    /// It gave proof: it answered a request of the host.
    MCPCONN_REASON_ANSWERED = 7,
    /// The attempt failed.
    MCPCONN_REASON_FAILED = 8,
    /// The session was lost.
    MCPCONN_REASON_LOST = 9,
    /// This side lacks something: descriptors, memory, processes, a network.
    MCPCONN_REASON_LOCAL = 10,
    /// The session ended as sessions do: idle close or expiry.
    MCPCONN_REASON_ENDED = 11,
    /// More failures without proof than the budget allows.
    MCPCONN_REASON_SPENT = 12,
    /// It never connected, in as many attempts as are allowed for that.
    MCPCONN_REASON_NEVER_CONNECTED = 13,
    /// Trying again cannot help.
    MCPCONN_REASON_PERMANENT = 14,
    /// Credentials are needed.
    MCPCONN_REASON_AUTH = 15,
    /// Lost, and the policy allows no reconnect at all.
    MCPCONN_REASON_NO_RETRIES = 16,
    /// A fault of this library ended it.
    MCPCONN_REASON_FATAL = 17,
    /// It was removed, or the client closes.
    MCPCONN_REASON_SHUTDOWN = 18,
    /// None of the above: the library is newer than the header.
    MCPCONN_REASON_OTHER = 99,
}

impl From<Reason> for mcpconn_reason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Fresh => Self::MCPCONN_REASON_FRESH,
            Reason::Wanted => Self::MCPCONN_REASON_WANTED,
            Reason::Retry => Self::MCPCONN_REASON_RETRY,
            Reason::Probe => Self::MCPCONN_REASON_PROBE,
            Reason::Woken => Self::MCPCONN_REASON_WOKEN,
            Reason::Opened => Self::MCPCONN_REASON_OPENED,
            Reason::Answered => Self::MCPCONN_REASON_ANSWERED,
            Reason::Failed => Self::MCPCONN_REASON_FAILED,
            Reason::Lost => Self::MCPCONN_REASON_LOST,
            Reason::Local => Self::MCPCONN_REASON_LOCAL,
            Reason::Ended => Self::MCPCONN_REASON_ENDED,
            Reason::Spent => Self::MCPCONN_REASON_SPENT,
            Reason::NeverConnected => Self::MCPCONN_REASON_NEVER_CONNECTED,
            Reason::Permanent => Self::MCPCONN_REASON_PERMANENT,
            Reason::Auth => Self::MCPCONN_REASON_AUTH,
            Reason::NoRetries => Self::MCPCONN_REASON_NO_RETRIES,
            Reason::Fatal => Self::MCPCONN_REASON_FATAL,
            Reason::Shutdown => Self::MCPCONN_REASON_SHUTDOWN,
            _ => Self::MCPCONN_REASON_OTHER,
        }
    }
}

impl From<State> for mcpconn_state {
    fn from(state: State) -> Self {
        match state {
            State::Idle => Self::MCPCONN_STATE_IDLE,
            State::Connecting => Self::MCPCONN_STATE_CONNECTING,
            State::Unproven => Self::MCPCONN_STATE_UNPROVEN,
            State::Proven => Self::MCPCONN_STATE_PROVEN,
            State::Waiting => Self::MCPCONN_STATE_WAITING,
            State::Parked => Self::MCPCONN_STATE_PARKED,
            State::Stopped => Self::MCPCONN_STATE_STOPPED,
        }
    }
}

impl mcpconn_server_info {
    /// Fills the host's struct, as much of it as the host knows of.
    ///
    /// # Safety
    ///
    /// `out` must be NULL or valid for reads and writes of as many bytes as its first member says.
    pub(crate) unsafe fn write(status: &ServerStatus, out: *mut Self) -> Result<(), Failure> {
        let info = Self {
            struct_size: 0,
            state: mcpconn_state::from(status.state) as i32,
            reason: mcpconn_reason::from(status.reason) as i32,
            charges: status.charges,
            attempt: status.attempt,
            sessions: status.sessions,
            calls: status.calls,
            generation: status.generation,
            next_try_in_ms: status.next_try.map_or(0, millis),
            pid: status.pid.map_or(-1, i64::from),
        };
        // SAFETY: as above.
        unsafe { super::options::write_sized("mcpconn_server_info", info, out) }
    }
}

/// [any] How it stands with a server now. Begin out with MCPCONN_SERVER_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_server_info(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    server: mcpconn_str,
    out: *mut mcpconn_server_info,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let client = live(client)?;
            let status = client.server_status(domain.read("domain")?, server.read("server")?)?;
            mcpconn_server_info::write(&status, out)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Tries a parked or waiting server again, as soon as the least distance between two attempts allows. Nothing
/// happens to a server that is connected; wakes that come together are one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_wake(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    server: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.wake(domain.read("domain")?, server.read("server")?)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] As mcpconn_client_wake(), for every server of every domain. They go through the client's limit of connects all
/// the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_wake_all(client: *const mcpconn_client) -> mcpconn_status {
    // SAFETY: NULL or a live client, by the contract of the header.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            live(client)?.wake_all();
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The host's network changed, or its machine slept: what may have died unseen is looked at, parked servers are
/// tried again, and all of that spread over some time. A sleep of the machine is noticed without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_network_changed(
    client: *const mcpconn_client,
) -> mcpconn_status {
    // SAFETY: NULL or a live client, by the contract of the header.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            live(client)?.network_changed();
            Ok(Code::MCPCONN_OK)
        })
    }
}
