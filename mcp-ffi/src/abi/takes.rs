//! What a host takes, as flags.

use super::{
    fail::Failure,
    options::{
        MCPCONN_TAKES_ELICITATION_FORM, MCPCONN_TAKES_ELICITATION_URL, MCPCONN_TAKES_LOGS,
        MCPCONN_TAKES_NOTIFICATIONS, MCPCONN_TAKES_ROOTS, MCPCONN_TAKES_SAMPLING,
        MCPCONN_TAKES_SAMPLING_CONTEXT, MCPCONN_TAKES_SAMPLING_TOOLS, MCPCONN_TAKES_SESSIONS,
    },
};
use crate::client::HostTakes;

pub(crate) fn of_flags(flags: u32) -> Result<HostTakes, Failure> {
    let mut left = flags;
    let mut take = |flag: u32| {
        let set = left & flag != 0;
        left &= !flag;
        set
    };
    let takes = HostTakes {
        roots: take(MCPCONN_TAKES_ROOTS),
        sampling: take(MCPCONN_TAKES_SAMPLING),
        sampling_tools: take(MCPCONN_TAKES_SAMPLING_TOOLS),
        sampling_context: take(MCPCONN_TAKES_SAMPLING_CONTEXT),
        elicitation_form: take(MCPCONN_TAKES_ELICITATION_FORM),
        elicitation_url: take(MCPCONN_TAKES_ELICITATION_URL),
        logs: take(MCPCONN_TAKES_LOGS),
        notifications: take(MCPCONN_TAKES_NOTIFICATIONS),
        sessions: take(MCPCONN_TAKES_SESSIONS),
    };
    if left == 0 {
        Ok(takes)
    } else {
        Err(Failure::invalid(format!(
            "mcpconn_client_options: host_takes has flags that this library does not know: {left:#x}"
        )))
    }
}
