//! Closing sessions at the host's word: at once, or when the calls that run on them have ended.

use super::{
    client::{duration, live, mcpconn_client},
    error::mcpconn_error,
    fail::{self, Failure},
    scope::mcpconn_scope,
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};

/// [any] Closes the sessions of a scope, busy or not. Home sessions are not closed: a scope without a name has none that
/// it could close.
///
/// It returns at once, as all of mcpconn_client_close_*() do. Every session that is meant is told before; each then
/// closes by itself, within the "close_timeout_ms" of its server. Calls in flight end with MCPCONN_ERR_CLOSED, as
/// MCPCONN_OUTCOME_UNKNOWN if they were sent, else as MCPCONN_OUTCOME_NOT_SENT; a session that is being opened is given
/// up. Nothing is unconfigured and no scope is used up: the next call has a session opened again. That there is nothing
/// to close is good too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_close_scope(
    client: *const mcpconn_client,
    scope: *const mcpconn_scope,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let scope = scope.as_ref().ok_or_else(|| Failure::null("scope"))?;
            live(client)?.close_scope(&scope.0);
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The gentle form of mcpconn_client_close_scope(): calls that run may go on for limit_ms milliseconds, or
/// MCPCONN_FOREVER for as long as they take. A session closes when its last call ended; what still runs at the limit
/// ends as closed.
///
/// It returns at once, as all of mcpconn_client_drain_*() do. A call that comes meanwhile has a new session opened, so
/// that the server may have two of the scope for a while. A session that is being opened is given up, and the calls that
/// wait for it end with MCPCONN_ERR_CLOSED, MCPCONN_OUTCOME_NOT_SENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_drain_scope(
    client: *const mcpconn_client,
    scope: *const mcpconn_scope,
    limit_ms: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let scope = scope.as_ref().ok_or_else(|| Failure::null("scope"))?;
            live(client)?.drain_scope(&scope.0, duration(limit_ms));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Closes the sessions of a server, busy or not: those of all scopes, and its home session. Else as
/// mcpconn_client_close_scope(). An attempt to connect that is under way is given up, and costs the server nothing; a
/// server that is parked or waits for its next attempt still does.
///
/// Fails with MCPCONN_ERR_UNKNOWN_SERVER, with MCPCONN_ERR_CONFIG for a server whose entry is not usable, and with
/// MCPCONN_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_close_server(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    server: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.close_server(domain.read("domain")?, server.read("server")?)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The gentle form of mcpconn_client_close_server(), as mcpconn_client_drain_scope() says. Fails as it does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_drain_server(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    server: mcpconn_str,
    limit_ms: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.drain_server(
                domain.read("domain")?,
                server.read("server")?,
                duration(limit_ms),
            )?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Closes one scoped session, busy or not, and never the one that took its place. session_id is from
/// mcpconn_event_session_info() or mcpconn_client_status(). Else as mcpconn_client_close_scope(). MCPCONN_EMPTY: no such
/// session is there (any more).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_close_session(
    client: *const mcpconn_client,
    session_id: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            Ok(Code::ok_or_empty(live(client)?.close_session(session_id)))
        })
    }
}

/// [any] The gentle form of mcpconn_client_close_session(), as mcpconn_client_drain_scope() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_drain_session(
    client: *const mcpconn_client,
    session_id: u64,
    limit_ms: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let there = live(client)?.drain_session(session_id, duration(limit_ms));
            Ok(Code::ok_or_empty(there))
        })
    }
}

/// [any] Closes every session of a domain, busy or not, home sessions among them; empty is "deployment". Else as
/// mcpconn_client_close_scope().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_close_domain(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.close_domain(domain.read("domain")?);
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The gentle form of mcpconn_client_close_domain(), as mcpconn_client_drain_scope() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_drain_domain(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    limit_ms: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.drain_domain(domain.read("domain")?, duration(limit_ms));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Closes every session of every domain, busy or not, home sessions among them. Else as
/// mcpconn_client_close_scope(). The client goes on; mcpconn_client_close() is its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_close_all(
    client: *const mcpconn_client,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.close_all();
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The gentle form of mcpconn_client_close_all(), as mcpconn_client_drain_scope() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_drain_all(
    client: *const mcpconn_client,
    limit_ms: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(client)?.drain_all(duration(limit_ms));
            Ok(Code::MCPCONN_OK)
        })
    }
}
