//! What a client and its tasks share.

use std::{
    hash::RandomState,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcp_budget::SharedGate;
use mcp_pool::Pool;
use mcp_transport::stdio::Spawner;
use tokio::{runtime::Handle, sync::watch};

use super::{
    asked::Asked,
    call::{Ticket, Voice},
    calls::Calls,
    error::Error,
    hearing::Host,
    leaving::Leaving,
    link::Links,
    live::Live,
    open::Environment,
    options::{CallOptions, ClientOptions},
    origin::Origin,
    queue::{EventQueue, Lane},
    runtime::Starter,
    scoped::{NotOpened, ScopedSession},
    server::Server,
    servers::Servers,
    sessions::Sessions,
};

/// One for a client; its tasks hold it, and it holds none of them.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ClientOptions,
    pub(super) queue: Arc<EventQueue>,
    pub(super) pool: Pool<mcp_pool::Key, ScopedSession, NotOpened>,
    /// What is in the pool, as the host may name it.
    pub(super) sessions: Arc<Sessions>,
    pub(super) servers: Mutex<Servers>,
    pub(super) calls: Calls,
    /// What servers ask of the host.
    pub(super) asked: Arc<Asked>,
    pub(super) live: Arc<Live>,
    /// Keys the fingerprints, so that they tell nothing outside of this client.
    pub(super) fingerprints: RandomState,
    /// Told when the time to close is over: what still closes is cut.
    pub(super) cut: watch::Sender<bool>,
    pub(super) leaving: Leaving,
    pub(super) links: Arc<Links>,
    pub(super) spawner: Spawner,
    /// Bounds the connects of all servers together.
    pub(super) gate: SharedGate,
    pub(super) runtime: Handle,
    /// Starts the calls.
    pub(super) starter: Starter,
}

impl Shared {
    pub(super) fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers of a client that is open: a closing one has none, and whoever asks for one is to hear why.
    pub(super) fn open_servers(&self) -> Result<MutexGuard<'_, Servers>, Error> {
        let servers = self.servers();
        // Under the lock, as they are taken out.
        self.check_open()?;
        Ok(servers)
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.calls.is_closed() {
            Err(Error::closed())
        } else {
            Ok(())
        }
    }

    pub(super) fn admit(
        self: &Arc<Self>,
        server: Option<&Server>,
        origin: Origin,
        options: &CallOptions,
    ) -> Result<Ticket, Error> {
        let (id, stopped) = self.calls.admit(origin.clone())?;
        let voice = Voice {
            queue: self.queue.clone(),
            lane: server.map_or(Lane::CLIENT, |server| server.lane),
            backlog: server.map(|server| server.opener.backlog()),
            id,
            token: options.token,
            origin,
            context: options.context.clone(),
            over: Arc::default(),
        };
        self.calls.prepared(voice.clone());
        Ok(Ticket {
            shared: self.clone(),
            voice,
            stopped,
            begun: false,
            completed: false,
        })
    }

    pub(super) fn environment(&self) -> Environment {
        Environment {
            spawner: self.spawner.clone(),
            gate: self.gate.clone(),
            cut: self.cut.subscribe(),
            leaving: self.leaving.clone(),
            client_name: self.options.client_name.as_str().into(),
            client_version: self.options.client_version.as_str().into(),
            host: Host {
                queue: self.queue.clone(),
                asked: self.asked.clone(),
                live: self.live.clone(),
                takes: self.options.takes,
                max_queued: self.options.max_queued,
                offers: self.options.takes.offers(self.options.answer_within),
            },
            links: self.links.clone(),
        }
    }
}
