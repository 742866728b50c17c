//! How a function of the C face fails: a status to return, and an error for whoever asks.

use std::panic::{AssertUnwindSafe, catch_unwind};

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
                "the client was made before a fork and serves the parent; make a new one in the child",
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

/// Runs the body of a function: no panic passes it, and a failure goes to `err` if the host wants it.
///
/// # Safety
///
/// `err` must be NULL or valid for a write.
pub(crate) unsafe fn run(
    err: *mut *mut mcpconn_error,
    body: impl FnOnce() -> Result<Code, Failure>,
) -> mcpconn_status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
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
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
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
