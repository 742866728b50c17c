//! mcpconn_scope: whose session a call uses.

use super::{
    error::mcpconn_error,
    fail::{self, Failure, give},
    status::{Code, mcpconn_status},
    str::mcpconn_str,
};
use crate::client::Scope;

/// A scope: a conversation or thread whose calls share one session a server, apart from all other scopes'. Made once,
/// used in any number of calls. It goes through mcpconn_scope_free().
#[derive(Debug)]
pub struct mcpconn_scope(pub(crate) Scope);

/// The scope behind a handle; NULL is the home session of the domain "deployment".
///
/// # Safety
///
/// `scope` must be NULL or a live handle.
pub(crate) unsafe fn scope_or_home(scope: *const mcpconn_scope) -> Scope {
    // SAFETY: as above.
    unsafe { scope.as_ref() }.map_or_else(Scope::default, |scope| scope.0.clone())
}

/// [any] Makes a scope. domain is whose it is, and which set of servers it sees; empty is "deployment". An empty scope
/// stands for the home sessions of the domain, which all calls without a scope share. Nothing is opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_scope_new(
    domain: mcpconn_str,
    scope: mcpconn_str,
    out: *mut *mut mcpconn_scope,
    err: *mut *mut mcpconn_error,
) -> mcpconn_status {
    // SAFETY: every pointer is NULL or as the header says, and is checked for NULL before it is used.
    unsafe {
        fail::run(err, || {
            if out.is_null() {
                return Err(Failure::null("out"));
            }
            let scope = Scope::new(domain.read("domain")?, scope.read("scope")?);
            give(out, Box::into_raw(Box::new(mcpconn_scope(scope))));
            Ok(Code::MCPCONN_OK)
        })
    }
}

/// [any] Frees the handle and closes nothing; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_scope_free(scope: *mut mcpconn_scope) {
    if !scope.is_null() {
        // SAFETY: a scope of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(scope) }));
    }
}
