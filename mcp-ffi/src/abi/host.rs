//! The host's function and data that hear events.

use std::{ffi::c_void, sync::Arc};

use super::{
    event::mcpconn_event,
    options::{mcpconn_event_fn, mcpconn_free_fn},
};
use crate::client::Context;

/// A function of the host with its data, which it gets back when nothing here holds it any more.
#[derive(Debug)]
pub(crate) struct Listener {
    on_event: mcpconn_event_fn,
    user_data: *mut c_void,
    free_user_data: mcpconn_free_fn,
}

// SAFETY: the pointer is never followed here. The header says that `free_user_data` runs on any thread, and that
// `on_event` runs on the thread that dispatches.
unsafe impl Send for Listener {}
// SAFETY: as above; nothing here changes after it was made.
unsafe impl Sync for Listener {}

impl Listener {
    pub(crate) fn new(
        on_event: mcpconn_event_fn,
        user_data: *mut c_void,
        free_user_data: mcpconn_free_fn,
    ) -> Self {
        Self {
            on_event,
            user_data,
            free_user_data,
        }
    }

    /// What travels with a call: nothing, if the host gave neither a function nor data to give back.
    pub(crate) fn into_context(self) -> Option<Context> {
        (self.on_event.is_some() || self.free_user_data.is_some()).then(|| Context(Arc::new(self)))
    }

    pub(crate) fn of(context: &Context) -> Option<&Self> {
        context.0.downcast_ref()
    }

    /// Tells the host. `false` if it does not listen here.
    pub(crate) fn hear(&self, event: &mcpconn_event) -> bool {
        let Some(on_event) = self.on_event else {
            return false;
        };
        // SAFETY: the host's function, called with the host's data and a live event, as the header says.
        unsafe { on_event(self.user_data, event) };
        true
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(free) = self.free_user_data {
            // SAFETY: the host's function and its data, once: the listener is neither Copy nor Clone.
            unsafe { free(self.user_data) };
        }
    }
}
