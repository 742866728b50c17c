//! The session that the pool lends to one scope.

use std::{
    future::pending,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use mcp_budget::{Failure, Leave, Pulse, Scoped, Unavailable, Why, keep_alive};
use mcp_pool::SessionId;
use mcp_transport::error::{self, ErrorKind};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    counted::{Closing, CountedSession},
    error::{Error, Outcome},
    hearing::Hearing,
    home::HomeConnector,
    open::{Opener, Whose, failure},
    server::Server,
    sessions::{Known, Sessions},
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
    entry: Entry,
}

/// How it is known among the sessions, from when the pool gives it a name until it is gone.
struct Entry {
    sessions: Arc<Sessions>,
    whose: Whose,
    id: OnceLock<SessionId>,
}

impl Entry {
    fn lost(&self, how: &str) {
        if let Some(id) = self.id.get() {
            self.sessions.lost(*id, how);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            self.sessions.forget(*id);
        }
    }
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
        server: &Server,
        scope: Arc<str>,
        leave: Leave<HomeConnector>,
        sessions: Arc<Sessions>,
    ) -> Result<Self, NotOpened> {
        let opener = &server.opener;
        let origin = server.origin(Some(scope));
        let hearing = Arc::new(Hearing::new(opener, origin.clone(), server.lane, None));
        let whose = Whose {
            origin,
            generation: leave.generation(),
            lane: server.lane,
        };
        match opener
            .open(leave.attempt().number, whose.clone(), hearing.clone())
            .await
        {
            Ok(session) => {
                hearing.opened(&session);
                let opened = Self(Arc::new(Parts {
                    session: opener.counted(session),
                    budget: leave.opened(),
                    close_timeout: opener.settings().close_timeout(),
                    cut: opener.cut(),
                    closing: Mutex::default(),
                    entry: Entry {
                        sessions,
                        whose,
                        id: OnceLock::new(),
                    },
                }));
                // Whether anybody has borrowed it yet or not.
                tokio::spawn(opened.clone().watch(opener.clone()));
                Ok(opened)
            }
            Err(error) => {
                let told = Error::of_server(&server.name, &error);
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

    /// It was not closed by us, and is no more. Every loss may be told; the first counts.
    pub(super) fn lost(&self, error: &error::Error) {
        self.0.entry.lost(&error.message);
        self.0.budget.lost(failure(error));
    }

    /// Completes when it has ended, and budget and host can be told how.
    pub(super) async fn ended(&self) {
        let error = self.session().session().ended().await;
        if error.kind != ErrorKind::Closed {
            self.lost(&error);
        }
    }

    /// Sees to it until it ends: keeps it alive, proves it if it lives long, and tells the budget how it ended. That it
    /// was closed by us costs nothing, and is told by dropping it.
    async fn watch(self, opener: Arc<Opener>) {
        tokio::select! {
            () = self.ended() => {}
            silent = keep_alive(self.clone(), || opener.settings().policy()) => {
                self.0.entry.lost(&silent.error.to_string());
                self.0.budget.lost(silent);
                // The pool hears of its end, and evicts it.
                self.session().close(self.0.close_timeout).await;
            }
            () = self.prove(&opener) => {}
        }
    }

    /// A session that lived long and then answers is proven, though no call of the host's was answered on it.
    async fn prove(&self, opener: &Opener) {
        let policy = opener.settings().policy();
        sleep(policy.healthy_after).await;
        if let Ok(Ok(())) = timeout(policy.probe_deadline, self.session().probe()).await {
            self.proven();
        }
        pending::<()>().await;
    }
}

impl mcp_budget::Session for ScopedSession {
    async fn ended(&self) -> Failure {
        failure(&self.session().session().ended().await)
    }

    async fn probe(&self) -> Result<(), Failure> {
        self.session().probe().await
    }

    async fn probe_other(&self) -> Result<(), Failure> {
        self.session().probe_other().await
    }

    fn pulse(&self) -> Option<Pulse<Instant>> {
        self.session().pulse()
    }

    async fn close(&self) {
        self.session().close(self.0.close_timeout).await;
    }
}

impl mcp_pool::Session for ScopedSession {
    fn named(&self, id: SessionId) {
        let entry = &self.0.entry;
        if entry.id.set(id).is_ok() {
            let known = Known::new(id, entry.whose.clone());
            entry.sessions.named(known);
        }
    }

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
