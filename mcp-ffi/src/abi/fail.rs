//! How a function of the C face fails: a status to return, and an error for whoever asks.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::Once,
    thread,
};

use super::{
    error::mcpconn_error,
    status::{Code, mcpconn_status},
};
use crate::client::{Error, Kind};

/// Why a function of the C face did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) error: Error,
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, message).into()
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::invalid(format!("{name} is NULL"))
    }

    pub(crate) fn forked() -> Self {
        Self {
            code: Code::MCPCONN_ERR_FORKED,
            error: Error::new(
                Kind::Invalid,
                "the handle was made before a fork and serves the parent; make a new one in the child",
            ),
        }
    }

    pub(crate) fn internal() -> Self {
        Error::new(
            Kind::Internal,
            "a fault of the library; free the handle and report this",
        )
        .into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: error.kind.into(),
            error,
        }
    }
}

thread_local! {
    /// Whether this thread is inside a function of ours.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The threads of this library and of `mcp-transport` all begin so.
fn is_ours(thread: &thread::Thread) -> bool {
    thread.name().is_some_and(|name| name.starts_with("mcp"))
}

/// Catches a panic of ours, which then is an event of the log and no word on the host's stderr. A panic of Rust code
/// around us goes the way that it always went.
fn quietly<T>(body: impl FnOnce() -> T) -> thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if INSIDE.get() || is_ours(&thread::current()) {
                tracing::error!("{info}");
            } else {
                before(info);
            }
        }));
    });
    // A callback may call us again.
    let outside = !INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    if outside {
        INSIDE.set(false);
    }
    result
}

/// Runs the body of a function: no panic passes it, and a failure goes to `err` if the host wants it.
///
/// # Safety
///
/// `err` must be NULL or valid for a write.
pub(crate) unsafe fn run(
    err: *mut *mut mcpconn_error,
    body: impl FnOnce() -> Result<Code, Failure>,
) -> mcpconn_status {
    let failure = match quietly(body) {
        Ok(Ok(code)) => return code as mcpconn_status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::internal(),
    };
    let status = failure.code as mcpconn_status;
    if !err.is_null() {
        let error = Box::into_raw(Box::new(mcpconn_error::from(failure)));
        // SAFETY: the caller vouches for `err`.
        unsafe { err.write(error) };
    }
    status
}

/// Runs the body of a function that cannot fail but by a panic, which then gives `otherwise`.
pub(crate) fn or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    quietly(body).unwrap_or(otherwise)
}

/// Writes an output, which was checked not to be NULL.
///
/// # Safety
///
/// `out` must be valid for a write.
pub(crate) unsafe fn give<T>(out: *mut T, value: T) {
    // SAFETY: the caller vouches for `out`.
    unsafe { out.write(value) };
}
