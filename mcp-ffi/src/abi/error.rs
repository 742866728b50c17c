//! mcpconn_error: what went wrong.

use super::{
    fail::{self, Failure},
    status::{Code, mcpconn_outcome, mcpconn_status},
    str::{CText, mcpconn_str},
};
use crate::{client::Error, millis::millis};

/// What went wrong. One that comes through an out-parameter is the host's and goes through mcpconn_error_free();
/// one got from an event lives as long as the event.
#[derive(Debug)]
pub struct mcpconn_error {
    code: Code,
    error: Error,
    /// The message, with a NUL behind it.
    message: CText,
}

impl From<Failure> for mcpconn_error {
    fn from(failure: Failure) -> Self {
        Self {
            code: failure.code,
            message: CText::new(&failure.error.message),
            error: failure.error,
        }
    }
}

/// [any] The status, for a program to match on; MCPCONN_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_error_status(error: *const mcpconn_error) -> mcpconn_status {
    // SAFETY: NULL or a live error, by the contract of the header.
    let code = unsafe { error.as_ref() }.map_or(Code::MCPCONN_OK, |error| error.code);
    code as mcpconn_status
}

/// [any] What is known of the call that failed, a mcpconn_outcome; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_error_outcome(error: *const mcpconn_error) -> i32 {
    // SAFETY: NULL or a live error, by the contract of the header.
    unsafe { error.as_ref() }.map_or(0, |error| mcpconn_outcome::from(error.error.outcome) as i32)
}

/// [any] One line for a person: what was wrong, with its name, and what to do about it. It never holds a secret of
/// the configuration. It has a NUL behind it. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_error_message(error: *const mcpconn_error) -> mcpconn_str {
    // SAFETY: NULL or a live error, by the contract of the header.
    unsafe { error.as_ref() }.map_or(mcpconn_str::EMPTY, |error| error.message.lend())
}

/// [any] The JSON-RPC error object that the server answered with, the bytes that came, for MCPCONN_ERR_SERVER; else
/// empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_error_json(error: *const mcpconn_error) -> mcpconn_str {
    // SAFETY: NULL or a live error, by the contract of the header.
    let json = unsafe { error.as_ref() }.and_then(|error| error.error.rpc.as_deref());
    mcpconn_str::lend_bytes(json.unwrap_or_default())
}

/// [any] When the server is tried again, in milliseconds from when the error was made, for MCPCONN_ERR_WAITING and
/// MCPCONN_ERR_PARKED; 0 if that is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_error_next_try_in_ms(error: *const mcpconn_error) -> u64 {
    // SAFETY: NULL or a live error, by the contract of the header.
    let next_try = unsafe { error.as_ref() }.and_then(|error| error.error.next_try);
    next_try.map_or(0, millis)
}

/// [any] Frees an error that came through an out-parameter; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_error_free(error: *mut mcpconn_error) {
    if !error.is_null() {
        // SAFETY: an error of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(error) }));
    }
}
