//! What a host takes of what servers say and ask on their own.

use std::time::Duration;

use mcp_transport::session::Offers;

/// What a host takes of what servers say and ask on their own. Servers are told of it when a session is opened, and
/// what is not taken is refused at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostTakes {
    /// `roots/list`; [`Client::roots_changed`](crate::Client::roots_changed) says that they are others now.
    pub roots: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// Tools may be given in it.
    pub sampling_tools: bool,
    /// It may ask for the context of other servers.
    pub sampling_context: bool,
    /// `elicitation/create` with a form to fill in.
    pub elicitation_form: bool,
    /// `elicitation/create` with a URL to open.
    pub elicitation_url: bool,
    /// Log messages (`notifications/message`).
    pub logs: bool,
    /// Notifications that are nothing else here: what a server has of its own. With `elicitation_url` come its
    /// completions (`notifications/elicitation/complete`) too.
    pub notifications: bool,
    /// What happens to scoped sessions: [`EventKind::Session`](crate::EventKind::Session).
    pub sessions: bool,
}

impl HostTakes {
    /// As a session offers it to its server; what is not answered in time is refused.
    pub(super) fn offers(self, answer_within: Duration) -> Offers {
        let mut offers = Offers::default();
        offers.roots = self.roots;
        offers.roots_list_changed = self.roots;
        offers.sampling = self.sampling || self.sampling_tools || self.sampling_context;
        offers.sampling_tools = self.sampling_tools;
        offers.sampling_context = self.sampling_context;
        offers.elicitation_form = self.elicitation_form;
        offers.elicitation_url = self.elicitation_url;
        offers.answer_within = answer_within;
        offers
    }
}
