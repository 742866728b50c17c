//! mcpconn_text: text that the host owns.

use super::{
    fail,
    str::{CText, mcpconn_str},
};

/// Text that the host owns; it goes through mcpconn_text_free().
#[derive(Debug)]
pub struct mcpconn_text(CText);

impl mcpconn_text {
    pub(crate) fn new(text: &str) -> *mut Self {
        Box::into_raw(Box::new(Self(CText::new(text))))
    }
}

/// [any] The text; it has a NUL behind it. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_text_str(text: *const mcpconn_text) -> mcpconn_str {
    // SAFETY: NULL or a live text, by the contract of the header.
    unsafe { text.as_ref() }.map_or(mcpconn_str::EMPTY, |text| text.0.lend())
}

/// [any] Frees it; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcpconn_text_free(text: *mut mcpconn_text) {
    if !text.is_null() {
        // SAFETY: a text of ours that the host owns and gives back, by the contract of the header.
        fail::or((), || drop(unsafe { Box::from_raw(text) }));
    }
}
