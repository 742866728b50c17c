//! mcpconn_client: its life, and how its events are taken.

use std::{
    ffi::c_int,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use super::{
    error::mcpconn_error,
    event::{hand_out, mcpconn_event},
    fail::{self, Failure, give},
    host::Listener,
    options::{self, MCPCONN_CLIENT_NO_GUARDIAN, MCPCONN_FOREVER, mcpconn_client_options},
    process::Process,
    status::{Code, mcpconn_status},
    str::mcpconn_str,
    takes,
    text::mcpconn_text,
};
use crate::client::{Client, ClientOptions, Context, pool_limits};

/// A client: its servers, their sessions, and one queue of events. It goes through mcpconn_client_free().
#[derive(Debug)]
pub struct mcpconn_client {
    client: Client,
    /// Hears what no call's own listener hears.
    listener: Option<Context>,
    /// The process that made it: in a forked child there are no threads that could serve.
    process: Process,
    /// Held by whoever takes events.
    consumer: Mutex<()>,
    /// The thread that is inside a dispatch.
    dispatching: Mutex<Option<ThreadId>>,
    /// Freed from inside a callback: it goes when the dispatch unwinds.
    free_wanted: AtomicBool,
    poisoned: AtomicBool,
}

/// A handle that a function uses. If the function panics, nothing is known of what it left behind: the handle is
/// poisoned then.
pub(crate) struct InUse<'a>(&'a mcpconn_client);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poisoned.store(true, Ordering::Relaxed);
        }
    }
}

impl std::ops::Deref for InUse<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0.client
    }
}

/// The client behind a handle, if it can be used here.
///
/// # Safety
///
/// `client` must be NULL or a live handle.
pub(crate) unsafe fn live<'a>(client: *const mcpconn_client) -> Result<InUse<'a>, Failure> {
    // SAFETY: as above.
    let handle = unsafe { client.as_ref() }.ok_or_else(|| Failure::null("client"))?;
    if !handle.process.is_current() {
        return Err(Failure::forked());
    }
    if handle.poisoned.load(Ordering::Relaxed) {
        return Err(Failure::internal());
    }
    Ok(InUse(handle))
}

impl mcpconn_client {
    fn consume(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        match self.consumer.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => Err(crate::client::Error::busy().into()),
        }
    }

    fn dispatching(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.dispatching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives events to whoever listens, until there are none, `max` were given or the client is freed.
    fn dispatch(&self, max: usize) -> usize {
        let mut given = 0;
        while given < max && !self.free_wanted.load(Ordering::Relaxed) {
            let Some(event) = self.client.next_event() else {
                break;
            };
            let event = mcpconn_event::new(event);
            let listeners = event.event.context.iter().chain(&self.listener);
            // A call without a function of its own is heard by the client's.
            let _ = listeners
                .filter_map(Listener::of)
                .any(|listener| listener.hear(&event));
            given += 1;
        }
        given
    }
}

/// Who is dispatching; nobody any more when it is dropped, on a panic too.
struct Dispatching<'a>(&'a mcpconn_client);

impl<'a> Dispatching<'a> {
    fn on(client: &'a mcpconn_client) -> Self {
        *client.dispatching() = Some(thread::current().id());
        Self(client)
    }
}

impl Drop for Dispatching<'_> {
    fn drop(&mut self) {
        *self.0.dispatching() = None;
    }
}

/// A time in milliseconds that came in, where the default was put in already.
pub(crate) fn duration(ms: u64) -> Option<Duration> {
    (ms != MCPCONN_FOREVER).then(|| Duration::from_millis(ms))
}

/// [any] Makes a client. It has no servers yet. options may be NULL for the defaults. It starts one thread, which
/// blocks every signal.
///
/// Fails with MCPCONN_ERR_INVALID for options that are not what they must be, with MCPCONN_ERR_CONFIG for a pool_json
/// that is not usable, and with MCPCONN_ERR_LOCAL if there is no descriptor or no thread to be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_new(
    options: *const mcpconn_client_options,
    out: *mut *mut mcpconn_client,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let options = options::read(options)?;
            let listener =
                Listener::new(options.on_event, options.user_data, options.free_user_data);
            if options.flags & !MCPCONN_CLIENT_NO_GUARDIAN != 0 {
                let message = format!(
                    "mcpconn_client_options: flags is {:#x}, which has a bit that is no MCPCONN_CLIENT_ flag",
                    options.flags
                );
                return Err(Failure::invalid(message));
            }
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            let mut made = ClientOptions {
                takes: takes::of_flags(options.host_takes)?,
                guardian: options.flags & MCPCONN_CLIENT_NO_GUARDIAN == 0,
                pool: pool_limits(options.pool_json.read("pool_json")?)?,
                ..ClientOptions::default()
            };
            if options.close_timeout_ms != 0 {
                made.close_timeout = Duration::from_millis(options.close_timeout_ms);
            }
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            if let Some(name) = given(options.client_name.read("client_name")?) {
                made.client_name = name;
            }
            if let Some(version) = given(options.client_version.read("client_version")?) {
                made.client_version = version;
            }
            if options.max_queued_bytes != 0 {
                made.max_queued = usize::try_from(options.max_queued_bytes).unwrap_or(usize::MAX);
            }
            let client = Client::new(made)?;
            let handle = mcpconn_client {
                client,
                listener: listener.into_context(),
                process: Process::current(),
                consumer: Mutex::default(),
                dispatching: Mutex::default(),
                free_wanted: AtomicBool::new(false),
                poisoned: AtomicBool::new(false),
            };
            give(out, Box::into_raw(Box::new(handle)));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Makes the servers of this JSON the servers of a domain, and no others; for the first time or again: servers
/// whose configuration changed are replaced, those that are not named any more are closed, all others are untouched.
/// domain is whose the servers are; empty is "deployment".
///
/// The JSON is what every MCP host reads: {"mcpServers": {"name": {...}}} or the inner object alone. A server is one of
///
/// - a child process: "command", and if need be "args", "env" and "cwd". Of this process's environment it gets what a
///   program needs to run (PATH, HOME and their like), and beside that what "env" says. A command without a slash is
///   looked for in the PATH that it gets, one that is a relative path from "cwd". What it writes to its stderr is kept for
///   the texts of its errors, the last of it, and goes nowhere else;
/// - remote: "url", "headers", and "type", which is "http" (Streamable HTTP, the default; a server that turns out to
///   speak the older HTTP+SSE is spoken to in that) or "sse" (HTTP+SSE from the start);
/// - reached over a link that the host moves: "type": "host"; see mcpconn_link.
///
/// In "command", "args", "env", "cwd", "url" and "headers" the library puts the value of an environment variable of this
/// process in the place of ${NAME}, and what follows the :- in that of ${NAME:-default} if it is not set or empty. A
/// variable that is not set and has no default makes the entry invalid.
///
/// The member "mcpconn" of a server holds what is ours: "eager" (true: connect now instead of at the first call),
/// "listen" (false: hold no stream open for what the server says on its own; for remote servers that count an open
/// stream), "connect_timeout_ms" (60000, and 30000 for a remote server; a slow start gets twice as long at each retry,
/// up to 180000), "close_timeout_ms" (3800), and "budget", an object with any of the constants that mcpconn_budget_new()
/// names.
///
/// For a remote server it holds as well what makes the connection: "tls", an object with "ca_file" (PEM, trusted in
/// place of the platform's authorities), "cert_file" and "key_file" (PEM, shown to a server that asks); "proxy", a URL or
/// "none" in place of what the environment names, with "no_proxy", a list with commas of what is reached without it;
/// "deny_addresses", an array of kinds that are not connected to ("loopback", "private", "link_local", "metadata",
/// "special"); and "redirects" (false: each is an error). Files are read now, by this call: after one was renewed, give
/// the JSON again, and the server is "changed".
///
/// For a link it holds "framing", which is "line" or "message", and "link", any JSON that the host wants to have again
/// when it is to open one.
///
/// report, unless NULL, gets a JSON object that says which servers were "added", "changed", "removed" and
/// "unchanged", lists of their names, and which are "invalid", a list of objects with "server" and "message"; one of
/// those that was there before is among the removed ones too. A server with an unusable entry does not hold up the
/// others, and the answer is MCPCONN_OK all the same: look into the report. Calls to it fail with MCPCONN_ERR_CONFIG, as
/// do those to a server whose command or directory turns out to be missing, which is looked for when it is started.
///
/// Fails with MCPCONN_ERR_CONFIG, and changes nothing, if it is no JSON or not of that shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_configure(
    client: *const mcpconn_client,
    domain: mcpconn_str,
    servers_json: mcpconn_str,
    report: *mut *mut mcpconn_text,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            let client = live(client)?;
            let made =
                client.configure(domain.read("domain")?, servers_json.read("servers_json")?)?;
            if !report.is_null() {
                give(report, mcpconn_text::new(&made.to_json()));
            }
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] A descriptor that is readable while an event waits: poll it for reading, and do nothing else with it. It is
/// the client's and is closed with it. A host that is told of edges only takes events until MCPCONN_EMPTY. When the last
/// event, MCPCONN_EVENT_CLOSED, was taken, it stays readable, and whatever takes events answers MCPCONN_ERR_CLOSED: take
/// it off the loop then. -1 for a client that cannot be used, NULL among them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_fd(client: *const mcpconn_client) -> c_int {
    fail::or(-1, || {
        // SAFETY: NULL or a live client, by the contract of the header.
        unsafe { live(client) }.map_or(-1, |client| client.fd())
    })
}

/// [one] Waits until an event is there, and does the client's input and output on this thread meanwhile, which spares
/// each call two switches of threads. Where nobody waits, a thread of the library's does it. timeout_ms is
/// in milliseconds, or MCPCONN_FOREVER; with 0 it only looks.
///
/// That thread takes over again when nobody has waited for 1 ms, so that one wait after the other costs no
/// switch of threads. A call that is made within that time leaves with the next wait, or up to 1 ms later if none follows.
///
/// MCPCONN_OK: an event is there. MCPCONN_EMPTY: the time is over. MCPCONN_ERR_CLOSED: the last event was taken.
/// MCPCONN_ERR_BUSY: another thread takes events, or this is called from inside a callback. Any other below 0 is for good
/// too, such as MCPCONN_ERR_INVALID for NULL: end the loop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_wait(
    client: *const mcpconn_client,
    timeout_ms: u64,
) -> mcpconn_status {
    // SAFETY: NULL or a live client, by the contract of the header.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            let in_use = live(client)?;
            let handle = in_use.0;
            let _consumer = handle.consume()?;
            Ok(Code::ok_or_empty(handle.client.wait(duration(timeout_ms))?))
        })
    }
}

/// [one] Takes the next event; it is the host's then, and goes through mcpconn_event_free(). Servers are served in
/// turn, and the events of one server come in order.
///
/// MCPCONN_EMPTY: there is none, and out is left as it was. MCPCONN_ERR_CLOSED: the last event was taken.
/// MCPCONN_ERR_BUSY: another thread takes events, or this is called from inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_next_event(
    client: *const mcpconn_client,
    out: *mut *mut mcpconn_event,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            let in_use = live(client)?;
            let handle = in_use.0;
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            let _consumer = handle.consume()?;
            match handle.client.next_event() {
                Some(event) => {
                    hand_out(event, out);
                    Ok(Code::MCPCONN_OK)
                }
                None if handle.client.is_closed() => Err(crate::client::Error::closed().into()),
                None => Ok(Code::MCPCONN_EMPTY),
            }
        })
    }
}

/// [one] Takes up to max events (0: all that are there) and gives each to its listener, on this thread: to the call's
/// on_event, else to the client's, else to nobody. n, unless NULL, gets how many there were, also with
/// MCPCONN_ERR_CLOSED.
///
/// MCPCONN_OK: at least one. MCPCONN_EMPTY: there was none. MCPCONN_ERR_CLOSED: the last event was taken before, or a
/// callback freed the client, which is gone now. MCPCONN_ERR_BUSY: another thread takes events, or this is called from
/// inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_dispatch(
    client: *mut mcpconn_client,
    max: usize,
    n: *mut usize,
) -> mcpconn_status {
    let mut freed = false;
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    let status = unsafe {
        fail::run(std::ptr::null_mut(), || {
            let in_use = live(client)?;
            let handle = in_use.0;
            let consumer = handle.consume()?;
            let given = {
                let _here = Dispatching::on(handle);
                handle.dispatch(if max == 0 { usize::MAX } else { max })
            };
            if !n.is_null() {
                give(n, given);
            }
            freed = handle.free_wanted.load(Ordering::Relaxed);
            drop(consumer);
            if freed || (given == 0 && handle.client.is_closed()) {
                return Err(crate::client::Error::closed().into());
            }
            Ok(Code::ok_or_empty(given > 0))
        })
    };
    if freed {
        // SAFETY: the callback gave the handle back, and nothing borrows it any more.
        unsafe { free(client) };
    }
    status
}

/// [any] Closes the client and returns at once: new calls are refused, every call completes, sessions and child
/// processes end, and MCPCONN_EVENT_CLOSED is the last event. timeout_ms is the most that it may take in milliseconds;
/// what has not ended by then is cut. 0 is the client's close_timeout_ms. Closing twice is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_close(
    client: *const mcpconn_client,
    timeout_ms: u64,
) -> mcpconn_status {
    // SAFETY: NULL or a live client, by the contract of the header.
    unsafe {
        fail::run(std::ptr::null_mut(), || {
            // Milliseconds without end are more years than there will be.
            let limit = (timeout_ms != 0).then(|| Duration::from_millis(timeout_ms));
            live(client)?.close(limit);
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [one] Frees the client; NULL is fine. It closes first if that was not done, and blocks at most for the
/// close_timeout_ms of the client's options and half a second; what has not ended by then is cut, and events that were
/// not taken are dropped. Links are over at once, and what the host moves for them is its own to close. No other call
/// may be inside the client or come after, but events and links that were taken stay valid. From inside a callback it
/// returns at once: no event is given any more, and the client is gone when the dispatch returns.
///
/// In a forked child it takes no lock, blocks for nothing and leaves the parent's sessions and processes alone. It closes
/// the child's copies of what leads to servers that are child processes and to the guardian, which would otherwise not
/// hear of the parent's close for as long as the child lives. Connections to remote servers, and what nobody else sees,
/// the child keeps until it ends or calls exec.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_client_free(client: *mut mcpconn_client) {
    if client.is_null() {
        return;
    }
    fail::or((), || {
        // SAFETY: not NULL, so a live client by the contract of the header.
        let handle = unsafe { &*client };
        // Which process it is comes first: in a forked child no lock may be taken.
        let ours = handle.process.is_current();
        if ours && *handle.dispatching() == Some(thread::current().id()) {
            handle.free_wanted.store(true, Ordering::Relaxed);
        } else {
            // SAFETY: the host gives the handle back, and no dispatch of this thread borrows it.
            unsafe { free(client) };
        }
    });
}

/// # Safety
///
/// `client` must be a handle that nothing borrows; it is gone afterwards.
unsafe fn free(client: *mut mcpconn_client) {
    fail::or((), || {
        // SAFETY: every handle comes from Box::into_raw.
        let handle = unsafe { Box::from_raw(client) };
        if !handle.process.is_current() {
            // A fork takes none of our threads along: whoever held a lock then holds it here for ever, and the
            // sessions are the parent's. The memory goes with the child.
            handle.client.let_go_in_forked_child();
            std::mem::forget(handle);
        }
    });
}
