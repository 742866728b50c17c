//! Opens the sessions of one server, for its supervisor and for the pool.

use std::{
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use mcp_budget::{Cause, Failure, Loss, SharedGate};
use mcp_transport::{
    config::{Connection, HostConfig, ServerConfig, StdioConfig},
    error,
    http::{HttpClient, HttpConfig, HttpTransport},
    session::{Backlog, Handler, Session, SessionOptions},
    stdio::{Spawner, StdioTransport},
    transport::Transport,
};
use tokio::{sync::watch, time::Instant};

use super::{
    counted::CountedSession,
    credentials::{self, Credentials},
    hearing::Host,
    leaving::Leaving,
    link::Links,
    origin::Origin,
    queue::Lane,
    settings::Settings,
};

/// How long what an attempt opened may take to go when the attempt was given up: it was never in use.
const GIVEN_UP_CLOSE: Duration = Duration::from_secs(1);

/// What a transport's error means for the reconnect budget.
pub(super) fn failure(error: &error::Error) -> Failure {
    let loss = Loss {
        cause: match error.cause {
            error::Cause::Fatal => Cause::Fatal,
            error::Cause::Auth => Cause::Auth,
            error::Cause::Permanent => Cause::Permanent,
            error::Cause::Transient => Cause::Transient,
            error::Cause::Local => Cause::Local,
            error::Cause::Routine => Cause::Routine,
        },
        not_before: error.retry_after,
    };
    Failure {
        loss,
        error: Arc::new(error.clone()),
    }
}

/// Opens sessions of one server.
#[derive(Debug)]
pub(super) struct Opener {
    way: Way,
    settings: RwLock<Arc<Settings>>,
    credentials: Arc<Credentials>,
    env: Environment,
    /// What the server said and nobody has taken, on all its sessions.
    backlog: Backlog,
}

/// What all openers of a client share.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// Starts the child processes, on one thread for all.
    pub(super) spawner: Spawner,
    /// Where all openings wait their turn.
    pub(super) gate: SharedGate,
    /// Says that the client's time to close is over.
    pub(super) cut: watch::Receiver<bool>,
    /// Where attempts that were given up are ended in good order.
    pub(super) leaving: Leaving,
    /// What servers are told of who they talk to.
    pub(super) client_name: Arc<str>,
    pub(super) client_version: Arc<str>,
    /// Where what the sessions hear goes.
    pub(super) host: Host,
    /// Whose bytes the host moves.
    pub(super) links: Arc<Links>,
}

#[derive(Debug)]
enum Way {
    Stdio(StdioConfig),
    /// All sessions of a server share its connections.
    Http(HttpConfig, HttpClient),
    Host(HostConfig),
}

/// For whom a session is opened.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    pub(super) origin: Origin,
    pub(super) generation: u64,
    pub(super) lane: Lane,
}

impl Opener {
    pub(super) fn new(
        server: Arc<str>,
        config: ServerConfig,
        settings: Settings,
        env: Environment,
    ) -> Result<Self, error::Error> {
        let way = match config.connection {
            Connection::Stdio(stdio) => Way::Stdio(stdio),
            Connection::Http(remote) => Way::Http(
                HttpConfig::new(remote.url.as_str(), &remote.headers)?
                    .with_legacy_sse(remote.legacy_sse),
                remote.reach.client()?,
            ),
            Connection::Host(host) => Way::Host(host),
        };
        let shown = match &way {
            Way::Stdio(_) => credentials::Way::Child,
            Way::Http(_, client) => credentials::Way::Http(client.clone()),
            Way::Host(_) => credentials::Way::Link,
        };
        let credentials = Arc::new(Credentials::new(server, shown));
        Credentials::hear_of_streams(&credentials);
        Ok(Self {
            way,
            credentials,
            settings: RwLock::new(Arc::new(settings)),
            backlog: Backlog::new(env.host.max_queued),
            env,
        })
    }

    pub(super) fn gate(&self) -> SharedGate {
        self.env.gate.clone()
    }

    pub(super) fn host(&self) -> Host {
        self.env.host.clone()
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.backlog.clone()
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set_settings(&self, settings: Settings) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub(super) fn cut(&self) -> watch::Receiver<bool> {
        self.env.cut.clone()
    }

    pub(super) fn counted(&self, session: Session) -> CountedSession {
        CountedSession::new(session, self.env.leaving.clone())
    }

    /// One attempt, of this number since the last proof. Over HTTP the home session listens for what the server says on
    /// its own, unless the configuration says otherwise, which takes a connection; a scoped one only where the host
    /// takes requests of the server besides.
    pub(super) async fn open(
        &self,
        attempt: u32,
        whose: Whose,
        handler: Arc<dyn Handler>,
    ) -> Result<Session, error::Error> {
        let listens =
            self.settings().listen() && (whose.origin.scope.is_none() || handler.offers().any());
        // Until there is, no answer would be read, and the server would seem to be slow.
        self.backlog.room().await;
        let (transport, default_timeout): (Arc<dyn Transport>, _) = match &self.way {
            Way::Stdio(config) => (
                Arc::new(StdioTransport::with_spawner(
                    config.clone(),
                    self.env.spawner.clone(),
                )),
                Duration::from_secs(60),
            ),
            Way::Http(config, client) => (
                Arc::new(HttpTransport::new(
                    config.clone().with_stream(listens),
                    client.clone(),
                )),
                Duration::from_secs(30),
            ),
            Way::Host(config) => (
                Arc::new(self.env.links.transport(config, whose)?),
                Duration::from_secs(60),
            ),
        };
        let shown = self.credentials.shown();
        let options = SessionOptions {
            client_name: self.env.client_name.to_string(),
            client_version: self.env.client_version.to_string(),
            connect_deadline: Instant::now()
                + self.settings().connect_timeout(default_timeout, attempt),
            handler,
        };
        let opening = pin!(Session::open(transport.clone(), options));
        // After the opening, so that it is dropped before: a session that is dropped cuts its transport.
        let given_up = GivenUp {
            transport: Some(transport),
            leaving: &self.env.leaving,
        };
        let opened = opening.await;
        given_up.not();
        if let Err(error) = &opened {
            self.credentials.refused(error, shown);
        }
        opened
    }
}

/// An attempt that is dropped before it was done: what it may have opened at the server is closed.
struct GivenUp<'a> {
    transport: Option<Arc<dyn Transport>>,
    leaving: &'a Leaving,
}

impl GivenUp<'_> {
    fn not(mut self) {
        self.transport = None;
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(transport) = self.transport.take() {
            // It begins here and now.
            drop(transport.close(GIVEN_UP_CLOSE));
            self.leaving
                .spawn(async move { transport.close(GIVEN_UP_CLOSE).await });
        }
    }
}
