//! Text across the border.

use std::{ffi::c_char, slice, str};

use super::fail::Failure;

/// Text. Coming in, it is UTF-8 that is only read during the call; len is its length in bytes, or MCPCONN_NUL
/// for "up to its NUL"; ptr may be NULL if len is 0. Going out, it lives as long as the handle that it was got
/// from, ptr is never NULL, and text for a person and names have a NUL behind them, so that ptr is a C string; JSON has
/// none, for it is the bytes that came.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcpconn_str {
    /// The first byte.
    pub ptr: *const c_char,
    /// The length in bytes, without any NUL.
    pub len: usize,
}

/// As the len of a mcpconn_str that comes in: the text ends at its NUL.
pub const MCPCONN_NUL: usize = usize::MAX;

/// Text with a NUL behind it, to be lent to C.
#[derive(Debug, Clone)]
pub(crate) struct CText(String);

impl CText {
    pub(crate) fn new(text: &str) -> Self {
        Self(format!("{text}\0"))
    }

    pub(crate) fn lend(&self) -> mcpconn_str {
        mcpconn_str::lend_bytes(&self.0.as_bytes()[..self.0.len() - 1])
    }
}

impl mcpconn_str {
    /// No text, with a NUL behind it.
    pub(crate) const EMPTY: Self = Self {
        ptr: c"".as_ptr(),
        len: 0,
    };

    pub(crate) fn lend_bytes(bytes: &[u8]) -> Self {
        Self {
            ptr: bytes.as_ptr().cast(),
            len: bytes.len(),
        }
    }

    /// Text that came in, under the name that the header gives it.
    ///
    /// # Safety
    ///
    /// `ptr` must be readable for `len` bytes, or up to and with its NUL, for as long as the text is used.
    pub(crate) unsafe fn read<'a>(self, name: &str) -> Result<&'a str, Failure> {
        if self.len == 0 {
            return Ok("");
        }
        if self.ptr.is_null() {
            return Err(Failure::invalid(format!(
                "{name}: ptr is NULL and len is not 0"
            )));
        }
        let bytes = if self.len == MCPCONN_NUL {
            // SAFETY: the caller of this function vouches for a NUL.
            unsafe { std::ffi::CStr::from_ptr(self.ptr) }.to_bytes()
        } else if self.len > isize::MAX as usize {
            return Err(Failure::invalid(format!(
                "{name}: len is {}, more than memory can hold",
                self.len
            )));
        } else {
            // SAFETY: the caller of this function vouches for the length, which is not more than isize::MAX.
            unsafe { slice::from_raw_parts(self.ptr.cast(), self.len) }
        };
        str::from_utf8(bytes).map_err(|error| {
            Failure::invalid(format!(
                "{name}: not UTF-8, first wrong at byte {}",
                error.valid_up_to()
            ))
        })
    }
}
