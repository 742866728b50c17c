//! Which library this is.

use std::ffi::c_char;

/// [any] The version of the library, such as "0.1.0": a C string that is always there.
#[unsafe(no_mangle)]
pub extern "C" fn mcpconn_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
