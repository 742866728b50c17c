//! Keeps the catalogue of a server for as long as one home session lives.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mcp_transport::{
    error,
    session::{Handler, Session},
};
use tokio::{sync::Notify, time::Instant};

use super::{
    catalogue::{self, Catalogue},
    error::Error,
    event::{Event, EventKind},
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

impl Handler for Reload {
    fn notification(&self, method: &str, _params: Bytes) {
        if method == "notifications/tools/list_changed" {
            self.ask();
        }
    }
}

pub(super) struct CatalogueKeeper {
    pub(super) server: Arc<str>,
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
        match catalogue::load(&self.server, session, Instant::now() + CATALOGUE_TIMEOUT).await {
            Ok(tools) => {
                self.catalogue.told(self.generation, tools);
                let event = Event::of_server(EventKind::CatalogueChanged, self.server.clone());
                self.queue.push(self.lane, event);
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &error::Error) {
        let error = Error::of_server(&self.server, error);
        self.catalogue.failed(self.generation, error);
    }
}
