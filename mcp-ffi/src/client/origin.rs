//! Where something that the host hears comes from.

use std::sync::Arc;

/// A session, as the host knows it. With an empty server it is the client itself or a whole domain.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    pub(super) domain: Arc<str>,
    pub(super) server: Arc<str>,
    /// `None` for the home session.
    pub(super) scope: Option<Arc<str>>,
}

impl Origin {
    /// The home session of a server.
    pub(super) fn home(domain: Arc<str>, server: Arc<str>) -> Self {
        Self {
            domain,
            server,
            scope: None,
        }
    }
}
