//! mcpconn_text: text that the host owns.

use super::{fail, str::mcpconn_str};

/// Text that the host owns; it goes through mcpconn_text_free().
#[derive(Debug)]
pub struct mcpconn_text(String);

impl mcpconn_text {
    pub(crate) fn new(mut text: String) -> *mut Self {
        text.push('\0');
        Box::into_raw(Box::new(Self(text)))
    }
}

/// [any] The text; it has a NUL behind it, so that ptr is a C string. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_text_str(text: *const mcpconn_text) -> mcpconn_str {
    // SAFETY: NULL or a live text, by the contract of the header.
    let text = unsafe { text.as_ref() }.map_or("\0", |text| &text.0);
    mcpconn_str::lend(&text[..text.len() - 1])
}

/// [any] Frees it; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_text_free(text: *mut mcpconn_text) {
    if !text.is_null() {
        // SAFETY: a text of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(text) }));
    }
}
