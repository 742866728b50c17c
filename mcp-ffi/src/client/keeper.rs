//! Keeps the catalogue of a server for as long as one home session lives.

use std::{sync::Arc, time::Duration};

use mcp_transport::{error, session::Session};
use tokio::{sync::Notify, time::Instant};

use super::{
    catalogue::{self, Catalogue},
    error::Error,
    event::{Event, EventKind},
    open::Opener,
    origin::Origin,
    queue::{EventQueue, Lane},
};

/// How long a server may take to tell its tools.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(60);

/// Says that the list of tools is to be asked for again. However often it is said while the list is asked for, it is
/// asked for once more.
#[derive(Debug, Clone, Default)]
pub(super) struct Reload(Arc<Notify>);

impl Reload {
    pub(super) fn ask(&self) {
        self.0.notify_one();
    }
}

pub(super) struct CatalogueKeeper {
    pub(super) opener: Arc<Opener>,
    pub(super) origin: Origin,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) queue: Arc<EventQueue>,
    pub(super) lane: Lane,
    pub(super) generation: u64,
}

impl CatalogueKeeper {
    pub(super) async fn keep(self, session: Session, reload: Reload) {
        let ended = session.ended();
        let keep = async {
            loop {
                self.load(&session).await;
                reload.0.notified().await;
            }
        };
        tokio::select! {
            () = keep => {}
            // Whoever waits for this session's tools must hear that they do not come.
            error = ended => self.failed(&error),
        }
    }

    async fn load(&self, session: &Session) {
        let credentials = self.opener.credentials();
        let shown = credentials.shown();
        let deadline = Instant::now() + CATALOGUE_TIMEOUT;
        match catalogue::load(&self.origin.server, session, deadline).await {
            Ok(tools) => {
                self.catalogue.told(self.generation, tools);
                let event = Event::of(EventKind::CatalogueChanged, &self.origin);
                self.queue.push(self.lane, event);
            }
            Err(error) => {
                credentials.refused(&error, shown);
                self.failed(&error);
            }
        }
    }

    fn failed(&self, error: &error::Error) {
        let error = Error::of_server(&self.origin.server, error);
        self.catalogue.failed(self.generation, error);
    }
}
