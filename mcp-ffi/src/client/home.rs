//! The home session of a server, which its supervisor holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use mcp_budget::{Attempt, Connect, Failure, Pulse};
use tokio::time::Instant;

use super::{
    catalogue::Catalogue,
    counted::CountedSession,
    hearing::Hearing,
    keeper::{Keeper, Reload},
    open::{Opener, Whose, failure},
    origin::Origin,
    queue::{EventQueue, Lane},
    standing::Standing,
};

/// Opens the home session, and has the catalogue kept by it.
#[derive(Debug)]
pub(super) struct HomeConnector {
    pub(super) origin: Origin,
    pub(super) opener: Arc<Opener>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) standing: Arc<Standing>,
    pub(super) queue: Arc<EventQueue>,
    pub(super) lane: Lane,
    /// The process of the newest home session, 0 for none.
    pub(super) pid: Arc<AtomicU32>,
}

/// An open home session; clones are the same.
#[derive(Debug, Clone)]
pub(super) struct HomeSession {
    pub(super) session: CountedSession,
    pub(super) reload: Reload,
    close_timeout: Duration,
}

impl Connect for HomeConnector {
    type Session = HomeSession;

    async fn connect(&self, attempt: Attempt) -> Result<HomeSession, Failure> {
        let reload = Reload::default();
        let hearing = Arc::new(Hearing::new(
            &self.opener,
            self.origin.clone(),
            self.lane,
            Some(reload.clone()),
        ));
        let whose = Whose {
            origin: self.origin.clone(),
            generation: attempt.generation,
            lane: self.lane,
        };
        let opened = self
            .opener
            .open(attempt.number, whose.clone(), hearing.clone());
        let session = opened.await.map_err(|error| failure(&error))?;
        hearing.opened(&session);
        self.pid
            .store(session.pid().unwrap_or(0), Ordering::Relaxed);
        let keeper = Keeper {
            opener: self.opener.clone(),
            whose,
            catalogue: self.catalogue.clone(),
            standing: self.standing.clone(),
            queue: self.queue.clone(),
        };
        tokio::spawn(keeper.keep(session.clone(), reload.clone()));
        Ok(HomeSession {
            session: self.opener.counted(session),
            reload,
            close_timeout: self.opener.settings().close_timeout(),
        })
    }
}

impl mcp_budget::Session for HomeSession {
    async fn ended(&self) -> Failure {
        failure(&self.session.session().ended().await)
    }

    async fn probe(&self) -> Result<(), Failure> {
        self.session.probe().await
    }

    async fn probe_other(&self) -> Result<(), Failure> {
        self.session.probe_other().await
    }

    fn pulse(&self) -> Option<Pulse<Instant>> {
        self.session.pulse()
    }

    async fn close(&self) {
        self.session.close(self.close_timeout).await;
    }
}
