//! The session that the pool lends to one scope.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use mcp_budget::{Leave, Scoped, Unavailable, Why};
use mcp_transport::error::{self, ErrorKind};
use tokio::sync::watch;

use super::{
    counted::{Closing, CountedSession},
    error::{Error, Outcome},
    home::HomeConnector,
    open::{Opener, failure},
};

/// Why there is no scoped session, for all calls that wait for the same one.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum NotOpened {
    /// It could not be opened.
    #[error(transparent)]
    Failed(Error),
    /// It could not be opened within the deadline of the call that was to open it; others may have more time.
    #[error(transparent)]
    TooLate(Error),
}

impl NotOpened {
    /// Said by the supervisor of this server.
    pub(super) fn unavailable(server: &str, why: &Unavailable) -> Self {
        let error = Error::unavailable(server, why);
        match why.why {
            Why::Waiting | Why::Deadline => Self::TooLate(error),
            _ => Self::Failed(error),
        }
    }
}

/// A scoped session; clones are the same.
#[derive(Debug, Clone)]
pub(super) struct ScopedSession(Arc<Parts>);

struct Parts {
    session: CountedSession,
    budget: Scoped,
    close_timeout: Duration,
    cut: watch::Receiver<bool>,
    closing: Mutex<Option<Closing>>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("session", &self.session)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl ScopedSession {
    /// Opens one, by leave of the budget, which hears what becomes of it.
    pub(super) async fn open(
        server: &str,
        opener: &Opener,
        leave: Leave<HomeConnector>,
    ) -> Result<Self, NotOpened> {
        match opener.open(leave.attempt().number, Arc::new(())).await {
            Ok(session) => {
                let ended = session.ended();
                let parts = Arc::new(Parts {
                    session: opener.counted(session),
                    budget: leave.opened(),
                    close_timeout: opener.settings().close_timeout(),
                    cut: opener.cut(),
                    closing: Mutex::default(),
                });
                // Whether anybody has borrowed it yet or not.
                let watched = Arc::downgrade(&parts);
                tokio::spawn(async move { Parts::end(&watched, &ended.await) });
                Ok(Self(parts))
            }
            Err(error) => {
                let told = Error::of_server(server, &error);
                leave.failed(failure(&error));
                // The call itself never left, whatever became of the handshake.
                Err(NotOpened::Failed(told.with_outcome(Outcome::NotSent)))
            }
        }
    }

    pub(super) fn session(&self) -> &CountedSession {
        &self.0.session
    }

    pub(super) fn generation(&self) -> u64 {
        self.0.budget.generation()
    }

    pub(super) fn proven(&self) {
        self.0.budget.proven();
    }

    pub(super) fn lost(&self, error: &error::Error) {
        self.0.budget.lost(failure(error));
    }
}

impl Parts {
    fn end(this: &Weak<Self>, error: &error::Error) {
        // That it was closed by us costs nothing, and is told by dropping it.
        if let (Some(parts), true) = (this.upgrade(), error.kind != ErrorKind::Closed) {
            parts.budget.lost(failure(error));
        }
    }
}

impl mcp_pool::Session for ScopedSession {
    fn retire(&self) {
        let closing = self.0.session.close(self.0.close_timeout);
        *self
            .0
            .closing
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(closing);
    }

    async fn closed(&self) {
        let closing = self
            .0
            .closing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut cut = self.0.cut.clone();
        if let Some(closing) = closing {
            tokio::select! {
                () = closing => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
        }
    }
}
