//! The structs that a host fills in.

use std::{
    ffi::c_void,
    mem::{align_of, size_of, zeroed},
};

use super::{event::mcpconn_event, fail::Failure, str::mcpconn_str};

/// As a time: without end.
pub const MCPCONN_FOREVER: u64 = u64::MAX;

/// Hears an event, from inside mcpconn_client_dispatch() and on its thread. The event is the library's and is gone
/// when the function returns. It may call every function of the client but those that take events; it must neither
/// throw nor longjmp: an exception that leaves it ends the process.
pub type mcpconn_event_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, event: *const mcpconn_event)>;

/// Gives user data back to the host: exactly once, on any thread, when the library needs it no more, also when the
/// function that was given it failed; but not where the options as such could not be read, for which a program has
/// to be wrong: no alignment, a struct_size that no version has, a member that this library is too old to know. It must
/// not call the library.
pub type mcpconn_free_fn = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void)>;

/// In host_takes: roots/list.
pub const MCPCONN_TAKES_ROOTS: u32 = 1;
/// In host_takes: sampling/createMessage.
pub const MCPCONN_TAKES_SAMPLING: u32 = 2;
/// In host_takes: sampling/createMessage that gives the model tools.
pub const MCPCONN_TAKES_SAMPLING_TOOLS: u32 = 4;
/// In host_takes: sampling/createMessage that asks for the context of other servers.
pub const MCPCONN_TAKES_SAMPLING_CONTEXT: u32 = 8;
/// In host_takes: elicitation/create with a form to fill in.
pub const MCPCONN_TAKES_ELICITATION_FORM: u32 = 16;
/// In host_takes: elicitation/create with a URL to open.
pub const MCPCONN_TAKES_ELICITATION_URL: u32 = 32;
/// In host_takes: log messages, MCPCONN_EVENT_LOG.
pub const MCPCONN_TAKES_LOGS: u32 = 64;
/// In host_takes: notifications that no event of their own stands for, MCPCONN_EVENT_NOTIFICATION.
pub const MCPCONN_TAKES_NOTIFICATIONS: u32 = 128;
/// In host_takes: what happens to scoped sessions, MCPCONN_EVENT_SESSION.
pub const MCPCONN_TAKES_SESSIONS: u32 = 256;

/// In flags of a client's options: starts no guardian, a small process, begun with the first child process, that ends
/// what is left of those when this process ends without closing its clients, in whatever way. Without it the kernel
/// still kills each server then, but nobody ends what a server has started itself (the real server behind an npx, a
/// browser), nor is a server asked to end before it is killed. Closing and freeing the client leave nothing behind
/// either way.
pub const MCPCONN_CLIENT_NO_GUARDIAN: u32 = 1;

/// What a client is made with. Begin with MCPCONN_CLIENT_OPTIONS_INIT; a member that is 0 has its default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_client_options {
    /// sizeof(mcpconn_client_options), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// What the host takes of what servers say and ask on their own: any of the MCPCONN_TAKES_ flags, joined by |.
    /// Servers are told when a session is opened, and what is not taken is refused at once. Default nothing.
    pub host_takes: u32,
    /// Any of the MCPCONN_CLIENT_ flags, joined by |. Default none.
    pub flags: u32,
    /// How long the closing of the client may take, in milliseconds. Default 3800.
    pub close_timeout_ms: u64,
    /// How many bytes of what one server said may wait for the host, until it has freed the events that bear them. Over
    /// that, and one message, nothing more is read from that server, and its silence is no fault then. Default 67108864
    /// (64 MiB).
    pub max_queued_bytes: u64,
    /// The bounds of the pool of scoped sessions, a JSON object, or empty for the defaults. What a member says by name
    /// has no bound; what is absent is the default, and 0 is 0:
    ///
    /// "capacity": the most sessions over all domains (256). "sessions_per_server": the most of one server of one domain,
    /// or "unlimited" (the default). "calls_per_session": the most calls in flight on one, or "unlimited" (the default).
    /// "wait_ms": how long a call waits for room, in order of arrival and within its own deadline, where it would be
    /// refused with MCPCONN_ERR_CAPACITY; or "forever" (0). "idle_ttl_ms": how long one may be idle, counted from the end
    /// of its last call, or "never" for as long as it likes (1800000). "max_lifetime_ms": how long one may live; then it
    /// is closed when its last call ended; or "never" (the default). "openings", "closings": how many are opened, or
    /// closed and waited for, at a time (16, 32). "close_limit_ms": how long one closing is waited for (5000).
    pub pool_json: mcpconn_str,
    /// The name of the program, which servers are told (clientInfo). Only read during the call. Default "mcpconn".
    pub client_name: mcpconn_str,
    /// The version of the program, which servers are told. Default that of this library.
    pub client_version: mcpconn_str,
    /// Hears what no call's own on_event hears.
    pub on_event: mcpconn_event_fn,
    /// For on_event.
    pub user_data: *mut c_void,
    /// Gives user_data back, once the client is freed.
    pub free_user_data: mcpconn_free_fn,
}

/// What a call is made with. Begin with MCPCONN_CALL_OPTIONS_INIT; a member that is 0 has its default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_call_options {
    /// sizeof(mcpconn_call_options), so that a later library knows what this program knew.
    pub struct_size: usize,
    /// The host's own; each event of the call bears it.
    pub token: u64,
    /// The most that the call may take in all, waiting for a connection included, in milliseconds, or
    /// MCPCONN_FOREVER. Default 300000.
    pub timeout_ms: u64,
    /// The most that may pass without progress of the call, in milliseconds, or MCPCONN_FOREVER; counted from when it was
    /// sent. Default: for ever.
    pub idle_timeout_ms: u64,
    /// Asks the server for progress, heard as MCPCONN_EVENT_PROGRESS, if it is not 0.
    pub progress: i32,
    /// If it is not 0, the call ends with an error (as a rule MCPCONN_ERR_TRANSPORT, and safe to send again) where
    /// another session would take the place of one that turned out to be gone, for what the server kept for it is gone
    /// too. Of two calls a host compares mcpconn_event_generation().
    pub same_session: i32,
    /// Hears this call's events instead of the client's on_event.
    pub on_event: mcpconn_event_fn,
    /// For on_event.
    pub user_data: *mut c_void,
    /// Gives user_data back, after the event that ends the call.
    pub free_user_data: mcpconn_free_fn,
}

/// A struct that begins with its own size, and whose zero bytes are its defaults.
///
/// # Safety
///
/// The type must be `repr(C)`, begin with a `usize` and be valid for all-zero bytes.
pub(crate) unsafe trait SelfSized: Copy {
    const NAME: &'static str;
}

// SAFETY: repr(C), a usize first, and numbers, pointers and nullable functions only.
unsafe impl SelfSized for mcpconn_client_options {
    const NAME: &'static str = "mcpconn_client_options";
}

// SAFETY: repr(C), a usize first, and numbers, pointers and nullable functions only.
unsafe impl SelfSized for mcpconn_call_options {
    const NAME: &'static str = "mcpconn_call_options";
}

/// The most that a struct of a later header may have grown to.
const LARGEST: usize = 4096;

/// Reads options of this header's size, of an older one's (the rest is 0) or of a newer one's (whose rest must be 0).
///
/// # Safety
///
/// `options` must be NULL or readable for as many bytes as its first member says.
pub(crate) unsafe fn read<T: SelfSized>(options: *const T) -> Result<T, Failure> {
    // SAFETY: all-zero bytes are valid by the contract of the trait.
    let mut read: T = unsafe { zeroed() };
    if options.is_null() {
        return Ok(read);
    }
    // SAFETY: not NULL; the caller vouches for its first member.
    let size = unsafe { size_said(T::NAME, "it", options) }?;
    if size > LARGEST {
        return Err(impossible(T::NAME, "it", size));
    }
    let known = size.min(size_of::<T>());
    let bytes = options.cast::<u8>();
    // SAFETY: both are good for `known` bytes, and a local is never part of the host's struct.
    unsafe { std::ptr::copy_nonoverlapping(bytes, (&raw mut read).cast::<u8>(), known) };
    // SAFETY: the host says that its struct has `size` bytes.
    let unknown = unsafe { std::slice::from_raw_parts(bytes.add(known), size - known) };
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Failure::invalid(format!(
            "{}: a member is set that this library, being older than the header, does not know",
            T::NAME
        )));
    }
    Ok(read)
}

/// Fills a struct of the host's that begins with its own size, as much of it as the host knows of.
///
/// # Safety
///
/// `T` must be as [`SelfSized`] says, and `out` NULL or valid for reads and writes of as many bytes as its first member
/// says.
pub(crate) unsafe fn write_sized<T: Copy>(
    name: &str,
    value: T,
    out: *mut T,
) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null("out"));
    }
    // SAFETY: not NULL; the caller vouches for its first member.
    let size = unsafe { size_said("out", name, out) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: the host's struct has `size` bytes, and ours is a local. What it says of its own size stays.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), out.cast::<u8>(), known);
        out.cast::<usize>().write(size);
    }
    Ok(())
}

/// Checks what [`write_sized`] would find wrong with `out`, for whoever has something that must not get lost.
///
/// # Safety
///
/// `out` must be NULL or readable for its first member.
pub(crate) unsafe fn check_sized<T>(name: &str, out: *const T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null("out"));
    }
    // SAFETY: not NULL; the caller vouches for its first member.
    unsafe { size_said("out", name, out) }.map(drop)
}

/// What a struct of the host's says of its own size: `argument` is what the header calls it, `name` its type there.
///
/// # Safety
///
/// If `pointer` is aligned it must be readable for a `usize`.
unsafe fn size_said<T>(argument: &str, name: &str, pointer: *const T) -> Result<usize, Failure> {
    if !pointer.cast::<usize>().is_aligned() {
        return Err(Failure::invalid(format!(
            "{argument}: the pointer is not aligned"
        )));
    }
    // SAFETY: aligned, and the caller vouches for the rest.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < size_of::<usize>() || size % align_of::<usize>() != 0 {
        return Err(impossible(argument, name, size));
    }
    Ok(size)
}

fn impossible(argument: &str, name: &str, size: usize) -> Failure {
    Failure::invalid(format!(
        "{argument}: struct_size is {size}, which no version of {name} has; begin with its INIT macro"
    ))
}
