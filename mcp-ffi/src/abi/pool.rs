//! mcpconn_pool: the session pool alone, for a host that opens and closes its sessions itself.

use std::{
    ffi::c_void,
    sync::{Mutex, MutexGuard},
};

use mcp_pool::{Timestamp, registry::Target};

use super::{
    error::mcpconn_error,
    fail::{self, Failure, give},
    options::{self, MCPCONN_FOREVER},
    pool_words::{
        HostSession, mcpconn_pool_acquire_options, mcpconn_pool_action, mcpconn_pool_target,
    },
    process::Process,
    status::{Code, mcpconn_status},
    str::mcpconn_str,
    text::mcpconn_text,
};
use crate::{
    client::{domain_or_default, pool_limits},
    numbered::{Key, Name, NumberedDesk, Patience},
};

/// A pool of sessions that the host opens and closes itself, whatever they are: which session a call may use, which one
/// has to go when there is no room, and who is next. It has no thread, no input or output, no clock and no callback.
///
/// The host binds the servers, asks for sessions with mcpconn_pool_acquire(), and reports what became of what it was told
/// to do. What there is to do comes out of mcpconn_pool_next(): ask it after every word until it answers MCPCONN_EMPTY,
/// and again at the time that it then says.
///
/// The rules:
///
/// - A session is pooled under a domain, a server and a scope. Whoever asks for one that is there is given it, busy or
///   not; whoever asks for one that is being opened joins those who wait for it: one opening, one answer for all.
/// - Every request that mcpconn_pool_acquire() accepted is answered by exactly one MCPCONN_POOL_GIVE or
///   MCPCONN_POOL_REFUSE.
/// - A session is busy from MCPCONN_POOL_GIVE until every call that was given it is released, and as long no want of room
///   and no limit of time takes it. Else it is idle, and the one that is idle longest makes room: only when another has
///   opened, so that an opening that fails costs nobody, and it is closed before the other is given.
/// - Where every slot is busy a request is refused before anything is opened, or waits for room in order of arrival, if
///   it has a deadline; nobody who comes later overtakes it. Where every slot became busy while a session opened, all
///   who wait for that are refused, and it is closed.
/// - An explicit close is immediate, and takes what is busy or being opened too. Nothing comes back from an opening that
///   was closed meanwhile. A drain lets running calls end first, and no other begins.
/// - The configuration of a server is bound by mcpconn_pool_bind(). Another one closes all sessions of the old one, and
///   whoever waits for one is refused as stale; what is stale never becomes current again.
/// - A session is named by its id, which is not used again: a word about an old one changes nothing, and spares the
///   session that replaced it.
///
/// Any thread may use a pool at any time: each function holds a lock for the few steps of one decision, or of one for
/// each session that goes. Where several threads take actions, each action goes to one of them, and nothing orders what
/// they do then: one thread may close a session before another has looked at it, though that was given it first. So a
/// host that frees its sessions takes actions under a lock of its own, notes there who uses which session, and frees one
/// when it is closed and unused.
///
/// Every now_ns is of one monotonic clock of the host's, in nanoseconds; one that lies before the last is taken as the
/// last. Names are copied; an empty domain is "deployment". A pool goes through mcpconn_pool_free().
#[derive(Debug)]
pub struct mcpconn_pool {
    desk: Mutex<NumberedDesk<HostSession>>,
    /// The process that made it: in a forked child another thread of the parent may hold the lock for ever.
    process: Process,
}

/// What a function of a pool works with. If it panics, the lock is poisoned and with it the handle.
///
/// # Safety
///
/// `pool` must be NULL or a live pool.
unsafe fn live<'a>(
    pool: *const mcpconn_pool,
) -> Result<MutexGuard<'a, NumberedDesk<HostSession>>, Failure> {
    // SAFETY: as above.
    let pool = unsafe { pool.as_ref() }.ok_or_else(|| Failure::null("pool"))?;
    if !pool.process.is_current() {
        return Err(Failure::forked());
    }
    pool.desk.lock().map_err(|_| Failure::internal())
}

/// # Safety
///
/// `domain` must be text that came in.
unsafe fn domain_name(domain: mcpconn_str) -> Result<Name, Failure> {
    // SAFETY: as above.
    let domain = unsafe { domain.read("domain") }?;
    Ok(Name::new(domain_or_default(domain)))
}

/// # Safety
///
/// `server` must be text that came in.
unsafe fn server_name(server: mcpconn_str) -> Result<Name, Failure> {
    // SAFETY: as above.
    match unsafe { server.read("server") }? {
        "" => Err(Failure::invalid("server is empty")),
        server => Ok(Name::new(server)),
    }
}

/// # Safety
///
/// All three must be text that came in.
unsafe fn key(
    domain: mcpconn_str,
    server: mcpconn_str,
    scope: mcpconn_str,
) -> Result<Key, Failure> {
    // SAFETY: as above.
    unsafe {
        Ok(Key {
            domain: domain_name(domain)?,
            server: server_name(server)?,
            scope: Name::new(scope.read("scope")?),
        })
    }
}

/// [any] Makes a pool without sessions. pool_json is an object with any of these members, or empty; absent is the
/// default, and 0 is 0:
///
/// - capacity: how many sessions may hold a slot at a time. Default 256.
/// - sessions_per_server: how many of them may be of one server of one domain. Default "unlimited".
/// - calls_per_session: how many calls may be in flight on one session, at least 1. Default "unlimited".
/// - openings: how many sessions are opened at a time, at least 1; the others wait in order. Default 16.
/// - wait_ms: how long a request waits for room if it names no deadline, or "forever". Default 0.
/// - idle_ttl_ms: how long a session may be idle before it is closed, or "never". Default 1800000.
/// - max_lifetime_ms: how long a session may live, or "never": then no call begins on it any more, and it is closed when
///   none runs. Default "never".
/// - close_limit_ms: how long a new session waits for the closing of the one that made room for it. Default 5000.
/// - closings: is read and of no use here, for the host closes as many at a time as it likes.
///
/// Fails with MCPCONN_ERR_CONFIG if pool_json cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_new(
    pool_json: mcpconn_str,
    out: *mut *mut mcpconn_pool,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            let limits = pool_limits(pool_json.read("pool_json")?)?;
            let pool = Box::new(mcpconn_pool {
                desk: Mutex::new(NumberedDesk::new(&limits)),
                process: Process::current(),
            });
            give(out, Box::into_raw(pool));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Makes this the configuration of a server of the domain. fingerprint is any text that is another one if anything
/// changed that makes the connection; only a keyed digest of it is kept, so that it may hold secrets. epoch, which may be
/// NULL, is a number for this configuration, that no other ever has: the same fingerprint again keeps the epoch; another
/// one, and the same after mcpconn_pool_unbind(), gets a new one, and all sessions of the old are to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_bind(
    pool: *const mcpconn_pool,
    now_ns: u64,
    domain: mcpconn_str,
    server: mcpconn_str,
    fingerprint: mcpconn_str,
    epoch: *mut u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let (domain, server) = (domain_name(domain)?, server_name(server)?);
            let fingerprint = fingerprint.read("fingerprint")?;
            let now = Timestamp::from_nanos(now_ns);
            let bound = live(pool)?.bind(now, &domain, &server, fingerprint);
            if !epoch.is_null() {
                give(epoch, bound);
            }
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The domain has this server no more: all its sessions are to be closed, and requests for them are refused.
/// MCPCONN_EMPTY: it had none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_unbind(
    pool: *const mcpconn_pool,
    now_ns: u64,
    domain: mcpconn_str,
    server: mcpconn_str,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let (domain, server) = (domain_name(domain)?, server_name(server)?);
            let now = Timestamp::from_nanos(now_ns);
            Ok(Code::ok_or_empty(live(pool)?.unbind(now, &domain, &server)))
        })
    }
}

/// [any] Somebody wants to call the session of this scope with this server. options may be NULL for the defaults. The
/// answer is an action, MCPCONN_POOL_GIVE or MCPCONN_POOL_REFUSE, exactly one for every request that was accepted;
/// id, which may be NULL, names the request there and to mcpconn_pool_cancel().
///
/// Fails, and accepts nothing, with MCPCONN_ERR_UNKNOWN_SERVER if no such server is bound in the domain and options name
/// no epoch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_acquire(
    pool: *const mcpconn_pool,
    now_ns: u64,
    domain: mcpconn_str,
    server: mcpconn_str,
    scope: mcpconn_str,
    options: *const mcpconn_pool_acquire_options,
    id: *mut u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let options = options::read(options)?;
            let key = key(domain, server, scope)?;
            let patience = match options.deadline_ns {
                0 => Patience::Usual,
                MCPCONN_FOREVER => Patience::ForEver,
                deadline => Patience::Until(Timestamp::from_nanos(deadline)),
            };
            let now = Timestamp::from_nanos(now_ns);
            let mut desk = live(pool)?;
            let request = desk.acquire(now, &key, options.epoch, options.token, patience)?;
            if !id.is_null() {
                give(id, request);
            }
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Whoever made the request waits no more: it is answered by a refusal with MCPCONN_ERR_CANCELED, and if it was the
/// last that waited for an opening, that is stopped. MCPCONN_EMPTY: it was answered before, and that answer stands. A
/// session that it was given has to be released.
///
/// Fails with MCPCONN_ERR_INVALID if no request of this pool had the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_cancel(
    pool: *const mcpconn_pool,
    now_ns: u64,
    request_id: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let cancelled = live(pool)?.cancel(Timestamp::from_nanos(now_ns), request_id)?;
            Ok(Code::ok_or_empty(cancelled))
        })
    }
}

/// [any] A call that was given a session ended, however it did: answered, failed, timed out or cancelled. Also to be told
/// of a call whose session was closed meanwhile.
///
/// Fails with MCPCONN_ERR_INVALID, and changes nothing, if the request was not given a session yet, was refused, was
/// released before, or never was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_release(
    pool: *const mcpconn_pool,
    now_ns: u64,
    request_id: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            live(pool)?.release(Timestamp::from_nanos(now_ns), request_id)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Begins one more call on this very session, and not on one that replaced it. out is then as after
/// MCPCONN_POOL_GIVE, without token and fresh: request_id is to be released.
///
/// Fails with MCPCONN_ERR_CLOSED if no call begins on it any more, or it was not given to anybody yet, with
/// MCPCONN_ERR_CAPACITY if it has all the calls that it may have, and with MCPCONN_ERR_INVALID if it is not open or no
/// session of this pool had the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_begin(
    pool: *const mcpconn_pool,
    now_ns: u64,
    session_id: u64,
    out: *mut mcpconn_pool_action,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            mcpconn_pool_action::check(out)?;
            let mut desk = live(pool)?;
            let (request, subject, session) =
                desk.begin(Timestamp::from_nanos(now_ns), session_id)?;
            mcpconn_pool_action::begun(request, subject, session).write(out)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Has the session of this scope with this server opened ahead of need, if it is not there and a slot is free:
/// nothing idle has to go for it. Nobody is given it, and nobody is told if it fails. epoch is as that of
/// mcpconn_pool_acquire_options.
///
/// Fails with MCPCONN_ERR_CAPACITY if no slot is free, with MCPCONN_ERR_UNKNOWN_SERVER if no such server is bound, and
/// with MCPCONN_ERR_CLOSED if the epoch is not the current one or the pool is shut down.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_warm_up(
    pool: *const mcpconn_pool,
    now_ns: u64,
    domain: mcpconn_str,
    server: mcpconn_str,
    scope: mcpconn_str,
    epoch: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let key = key(domain, server, scope)?;
            live(pool)?.warm_up(Timestamp::from_nanos(now_ns), &key, epoch)?;
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] The host opened this session, as MCPCONN_POOL_OPEN said. session is the host's own, may be NULL, is never
/// followed, and comes with every action about the session.
///
/// MCPCONN_OK: it is the pool's, and what becomes of it is an action. MCPCONN_EMPTY: nobody wants it any more, and no
/// MCPCONN_POOL_CLOSE will say so: close it, and tell mcpconn_pool_closed().
///
/// Fails with MCPCONN_ERR_INVALID if it was reported open before, or no session of this pool had the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_opened(
    pool: *const mcpconn_pool,
    now_ns: u64,
    session_id: u64,
    session: *mut c_void,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let now = Timestamp::from_nanos(now_ns);
            let taken = live(pool)?.opened(now, session_id, HostSession(session))?;
            Ok(Code::ok_or_empty(taken))
        })
    }
}

/// [any] The host could not open this session: all who wait for it are refused with this status, any number below 0, also
/// one of the host's own. MCPCONN_EMPTY: nobody waited for it any more.
///
/// Fails with MCPCONN_ERR_INVALID if the status is not below 0, if the session was reported open, or if no session of this
/// pool had the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_failed(
    pool: *const mcpconn_pool,
    now_ns: u64,
    session_id: u64,
    status: mcpconn_status,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            if status >= 0 {
                return Err(Failure::invalid(format!(
                    "status: {status} says that all is good; a failure is below 0"
                )));
            }
            let now = Timestamp::from_nanos(now_ns);
            Ok(Code::ok_or_empty(
                live(pool)?.failed(now, session_id, status)?,
            ))
        })
    }
}

/// [any] The session is closed: as MCPCONN_POOL_CLOSE or MCPCONN_POOL_STOP_OPENING said, or on its own, and then no call
/// begins on it any more. Calls on it are to be released all the same. MCPCONN_EMPTY: that was known, or it took longer
/// than close_limit_ms and was waited for no more.
///
/// Fails with MCPCONN_ERR_INVALID if the session is being opened, or no session of this pool had the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_closed(
    pool: *const mcpconn_pool,
    now_ns: u64,
    session_id: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let now = Timestamp::from_nanos(now_ns);
            Ok(Code::ok_or_empty(live(pool)?.closed(now, session_id)?))
        })
    }
}

/// [any] The session is found dead and is to be closed, now: no call begins on it any more, and whoever asks has another
/// opened. The session that replaced it is spared. MCPCONN_EMPTY: it had left the pool before.
///
/// Fails with MCPCONN_ERR_INVALID if the session is being opened, or no session of this pool had the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_evict(
    pool: *const mcpconn_pool,
    now_ns: u64,
    session_id: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let now = Timestamp::from_nanos(now_ns);
            Ok(Code::ok_or_empty(live(pool)?.evict(now, session_id)?))
        })
    }
}

/// The names of what is to be closed.
enum Meant {
    Scope(Name, Name),
    Server(Name, Name),
    Session(Key),
    SessionIfCurrent(Key),
    Domain(Name),
    All,
}

/// # Safety
///
/// The names must be text that came in.
unsafe fn meant(
    what: i32,
    domain: mcpconn_str,
    server: mcpconn_str,
    scope: mcpconn_str,
    session_id: u64,
) -> Result<Meant, Failure> {
    use mcpconn_pool_target as What;
    const SCOPE: i32 = What::MCPCONN_POOL_TARGET_SCOPE as i32;
    const SERVER: i32 = What::MCPCONN_POOL_TARGET_SERVER as i32;
    const SESSION: i32 = What::MCPCONN_POOL_TARGET_SESSION as i32;
    const SESSION_IF_CURRENT: i32 = What::MCPCONN_POOL_TARGET_SESSION_IF_CURRENT as i32;
    const DOMAIN: i32 = What::MCPCONN_POOL_TARGET_DOMAIN as i32;
    const ALL: i32 = What::MCPCONN_POOL_TARGET_ALL as i32;
    // What is named and not meant would be closed less narrowly than it was asked for.
    let unused = |name: &str, is_given: bool| {
        if is_given {
            return Err(Failure::invalid(format!(
                "{name} is given, and has no part in what is to be closed"
            )));
        }
        Ok(())
    };
    // SAFETY: the caller vouches for the text.
    unsafe {
        if what != SESSION_IF_CURRENT {
            unused("session_id", session_id != 0)?;
        }
        if matches!(what, SERVER | DOMAIN | ALL) {
            unused("scope", !scope.read("scope")?.is_empty())?;
        }
        if matches!(what, SCOPE | DOMAIN | ALL) {
            unused("server", !server.read("server")?.is_empty())?;
        }
        if what == ALL {
            unused("domain", !domain.read("domain")?.is_empty())?;
        }
        Ok(match what {
            SCOPE => Meant::Scope(domain_name(domain)?, Name::new(scope.read("scope")?)),
            SERVER => Meant::Server(domain_name(domain)?, server_name(server)?),
            SESSION => Meant::Session(key(domain, server, scope)?),
            SESSION_IF_CURRENT => Meant::SessionIfCurrent(key(domain, server, scope)?),
            DOMAIN => Meant::Domain(domain_name(domain)?),
            ALL => Meant::All,
            other => {
                return Err(Failure::invalid(format!(
                    "what: {other} is no mcpconn_pool_target"
                )));
            }
        })
    }
}

/// What the desk is to close, or `None` if the session that is named is over.
fn target<'a>(
    desk: &NumberedDesk<HostSession>,
    meant: &'a Meant,
    session_id: u64,
) -> Result<Option<Target<'a, Key>>, Failure> {
    Ok(Some(match meant {
        Meant::Scope(domain, scope) => Target::Scope(domain, scope),
        Meant::Server(domain, server) => Target::Server(domain, server),
        Meant::Session(key) => Target::Session(key),
        Meant::SessionIfCurrent(key) => match desk.session_id(session_id)? {
            Some(id) => Target::SessionIfCurrent(key, id),
            None => return Ok(None),
        },
        Meant::Domain(domain) => Target::Domain(domain),
        Meant::All => Target::All,
    }))
}

/// [any] Closes what is meant, busy or not, and what is being opened: what, a mcpconn_pool_target, says which of domain,
/// server, scope and session_id it is named by; the others must be empty or 0. Each session is told to the host by an
/// action of its own, and requests that wait for one are refused. What is closed holds no slot any more, also while its
/// closing or a call on it still runs; whoever asks afterwards has another opened. MCPCONN_EMPTY: there was nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_close(
    pool: *const mcpconn_pool,
    now_ns: u64,
    what: i32,
    domain: mcpconn_str,
    server: mcpconn_str,
    scope: mcpconn_str,
    session_id: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let meant = meant(what, domain, server, scope, session_id)?;
            let mut desk = live(pool)?;
            let target = target(&desk, &meant, session_id)?;
            let now = Timestamp::from_nanos(now_ns);
            Ok(Code::ok_or_empty(
                target.is_some_and(|it| desk.close(now, it)),
            ))
        })
    }
}

/// [any] As mcpconn_pool_close(), but calls that run may end: no other begins on what is meant, and each session is to be
/// closed when its last call was released, at the latest at deadline_ns, or MCPCONN_FOREVER for no such time. Until then
/// it keeps its slot; whoever asks meanwhile has another opened. What is idle or being opened goes at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_drain(
    pool: *const mcpconn_pool,
    now_ns: u64,
    what: i32,
    domain: mcpconn_str,
    server: mcpconn_str,
    scope: mcpconn_str,
    session_id: u64,
    deadline_ns: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let meant = meant(what, domain, server, scope, session_id)?;
            let mut desk = live(pool)?;
            let target = target(&desk, &meant, session_id)?;
            let now = Timestamp::from_nanos(now_ns);
            let deadline = Timestamp::from_nanos(deadline_ns);
            Ok(Code::ok_or_empty(
                target.is_some_and(|it| desk.drain(now, it, deadline)),
            ))
        })
    }
}

/// [any] Closes everything, and refuses whatever is asked for afterwards. The end of a pool in order: this, then the
/// actions, until every session is closed and every call released; then mcpconn_pool_free(). MCPCONN_EMPTY: there was
/// nothing to close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_shutdown(
    pool: *const mcpconn_pool,
    now_ns: u64,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            Ok(Code::ok_or_empty(
                live(pool)?.shutdown(Timestamp::from_nanos(now_ns)),
            ))
        })
    }
}

/// [any] What to do now; ask until MCPCONN_EMPTY, when out says when to ask again if nothing is told before. Begin out with
/// MCPCONN_POOL_ACTION_INIT. Where several threads tell, each asks after its own word; an action goes to one of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_next(
    pool: *const mcpconn_pool,
    now_ns: u64,
    out: *mut mcpconn_pool_action,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            mcpconn_pool_action::check(out)?;
            let mut desk = live(pool)?;
            let step = desk.next(Timestamp::from_nanos(now_ns));
            let action = step.map(mcpconn_pool_action::from);
            let (action, code) = match action {
                Some(action) => (action, Code::MCPCONN_OK),
                None => (
                    mcpconn_pool_action::nothing_before(desk.timeout()),
                    Code::MCPCONN_EMPTY,
                ),
            };
            action.write(out)?;
            Ok(code)
        })
    }
}

/// [any] How the pool stands, for a status page: an object with capacity, live (slots taken), busy (of them, those with
/// a call in flight), draining, opening, waiting (openings that wait for a slot), queued_calls (requests that wait for
/// a place on a session), closing, requests (that wait, or were given a session and not released); tally, how often
/// what was decided; and sessions, oldest first, each with session_id, domain, server, scope, state ("waiting",
/// "opening", "arriving", "live", "draining"), calls (in flight, or who wait for it), queued_calls, age_ms and idle_ms,
/// which are null where they make no sense. Members may be added. It looks at every session, and no other function gets
/// on meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_info(
    pool: *const mcpconn_pool,
    now_ns: u64,
    json: *mut *mut mcpconn_text,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            if json.is_null() {
                return Err(Failure::null("json"));
            }
            let status = live(pool)?.status(Timestamp::from_nanos(now_ns));
            // Not under the lock.
            give(json, mcpconn_text::new(&status.to_json()));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [one] Frees it, when no other thread uses it any more; NULL is fine. Nothing is closed by it, for the sessions are the
/// host's: see mcpconn_pool_shutdown(). In a forked child it does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_pool_free(pool: *mut mcpconn_pool) {
    if pool.is_null() {
        return;
    }
    // SAFETY: a pool of ours that the host owns and gives back, by the contract of the header.
    fail::or((), || unsafe {
        // Else another thread of the parent may have been amid a step.
        if (*pool).process.is_current() {
            drop(Box::from_raw(pool));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_pool_can_be_used_by_any_thread() {
        fn any_thread<T: Send + Sync>() {}
        any_thread::<mcpconn_pool>();
    }

    #[test]
    fn after_a_fault_of_ours_the_pool_answers_nothing_but_its_end() {
        let pool = Box::into_raw(Box::new(mcpconn_pool {
            desk: Mutex::new(NumberedDesk::new(&mcp_pool::Limits::default())),
            process: Process::current(),
        }));
        let fault = AssertUnwindSafe(|| {
            // SAFETY: a live pool.
            let _amid_a_step = unsafe { live(pool) };
            std::panic::resume_unwind(Box::new("a fault"));
        });
        assert!(catch_unwind(fault).is_err());
        // SAFETY: a live pool, which is not used after its end.
        unsafe {
            let status = mcpconn_pool_shutdown(pool, 0, std::ptr::null_mut());
            assert_eq!(status, Code::MCPCONN_ERR_INTERNAL as mcpconn_status);
            mcpconn_pool_free(pool);
        }
    }
}
