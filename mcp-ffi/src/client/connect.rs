//! Opens the sessions of one server, for its supervisor and for the pool.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use mcp_budget::{Attempt, Cause, Connect, Failure, Loss, Scoped, SharedGate, Unavailable, Why};
use mcp_transport::{
    config::{Connection, ServerConfig, StdioConfig},
    error::{self, ErrorKind},
    http::{HttpClient, HttpConfig, HttpTransport},
    session::{Handler, Session, SessionOptions},
    stdio::{Spawner, StdioTransport},
    transport::Transport,
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    catalogue::{self, Catalogue},
    counted::{Closing, CountedSession},
    error::Error,
    event::{Event, EventKind},
    leaving::Leaving,
    queue::{EventQueue, Lane},
    settings::Settings,
};

/// How long a server may take to tell its tools.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(60);

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

/// Opens sessions of one server.
#[derive(Debug)]
pub(super) struct Opener {
    server: Arc<str>,
    way: Way,
    settings: RwLock<Arc<Settings>>,
    env: Environment,
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
}

#[derive(Debug)]
enum Way {
    Stdio(StdioConfig),
    /// All sessions of a server share its connections.
    Http(HttpConfig, HttpClient),
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
                HttpConfig::new(remote.url.as_str(), &remote.headers)?,
                HttpClient::new(),
            ),
        };
        Ok(Self {
            server,
            way,
            settings: RwLock::new(Arc::new(settings)),
            env,
        })
    }

    pub(super) fn gate(&self) -> SharedGate {
        self.env.gate.clone()
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

    /// One attempt, of this number since the last proof.
    async fn open(&self, attempt: u32, handler: Arc<dyn Handler>) -> Result<Session, error::Error> {
        let (transport, default_timeout): (Arc<dyn Transport>, _) = match &self.way {
            Way::Stdio(config) => (
                Arc::new(StdioTransport::with_spawner(
                    config.clone(),
                    self.env.spawner.clone(),
                )),
                Duration::from_secs(60),
            ),
            Way::Http(config, client) => (
                Arc::new(HttpTransport::new(config.clone(), client.clone())),
                Duration::from_secs(30),
            ),
        };
        let options = SessionOptions {
            client_name: "mcpconn".into(),
            client_version: env!("CARGO_PKG_VERSION").into(),
            connect_deadline: Instant::now()
                + self.settings().connect_timeout(default_timeout, attempt),
            handler,
        };
        let attempt = GivenUp {
            transport: Some(transport.clone()),
            leaving: &self.env.leaving,
        };
        let opened = Session::open(transport, options).await;
        attempt.not();
        opened
    }

    /// Opens a session for a scope, which needs leave of the budget.
    pub(super) async fn open_scoped(
        &self,
        leave: mcp_budget::Leave<HomeConnector>,
    ) -> Result<ScopedSession, NotOpened> {
        match self.open(leave.attempt().number, Arc::new(())).await {
            Ok(session) => Ok(ScopedSession(Arc::new(ScopedParts {
                session: CountedSession::new(session, self.env.leaving.clone()),
                budget: leave.opened(),
                close_timeout: self.settings().close_timeout(),
                cut: self.env.cut.clone(),
                closing: Mutex::default(),
                watched: AtomicBool::new(false),
            }))),
            Err(error) => {
                let told = Error::of_server(&self.server, &error);
                leave.failed(failure(&error));
                // The call itself never left, whatever became of the handshake.
                Err(NotOpened::Failed(
                    told.with_outcome(error::Outcome::NotSent),
                ))
            }
        }
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
            self.leaving
                .spawn(async move { transport.close(GIVEN_UP_CLOSE).await });
        }
    }
}

/// Opens the home session of a server, and keeps the catalogue by it.
#[derive(Debug)]
pub(super) struct HomeConnector {
    pub(super) opener: Arc<Opener>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) queue: Arc<EventQueue>,
    pub(super) lane: Lane,
    /// The process of the newest home session, 0 for none.
    pub(super) pid: Arc<AtomicU32>,
}

impl Connect for HomeConnector {
    type Session = HomeSession;

    async fn connect(&self, attempt: Attempt) -> Result<HomeSession, Failure> {
        let tools_changed = Arc::new(Notify::new());
        let handler = Arc::new(HomeHandler {
            tools_changed: tools_changed.clone(),
        });
        let session = self
            .opener
            .open(attempt.number, handler)
            .await
            .map_err(|error| failure(&error))?;
        self.pid
            .store(session.pid().unwrap_or(0), Ordering::Relaxed);
        let keeper = CatalogueKeeper {
            server: self.opener.server.clone(),
            catalogue: self.catalogue.clone(),
            queue: self.queue.clone(),
            lane: self.lane,
            generation: attempt.generation,
        };
        tokio::spawn(keeper.keep(session.clone(), tools_changed));
        Ok(HomeSession {
            session: CountedSession::new(session, self.opener.env.leaving.clone()),
            close_timeout: self.opener.settings().close_timeout(),
        })
    }
}

struct HomeHandler {
    tools_changed: Arc<Notify>,
}

impl Handler for HomeHandler {
    fn notification(&self, method: &str, _params: Bytes) {
        if method == "notifications/tools/list_changed" {
            self.tools_changed.notify_one();
        }
    }
}

/// Keeps the catalogue for as long as one home session lives.
struct CatalogueKeeper {
    server: Arc<str>,
    catalogue: Arc<Catalogue>,
    queue: Arc<EventQueue>,
    lane: Lane,
    generation: u64,
}

impl CatalogueKeeper {
    /// However many changes are told while the list is asked for, it is asked for once more.
    async fn keep(self, session: Session, tools_changed: Arc<Notify>) {
        let ended = session.ended();
        let keep = async {
            loop {
                self.load(&session).await;
                tools_changed.notified().await;
            }
        };
        tokio::select! {
            () = keep => {}
            error = ended => self.gone(&error),
        }
    }

    async fn load(&self, session: &Session) {
        match catalogue::load(&self.server, session, Instant::now() + CATALOGUE_TIMEOUT).await {
            Ok(tools) => {
                self.catalogue.told(self.generation, tools);
                self.queue.push(
                    self.lane,
                    Event {
                        kind: EventKind::CatalogueChanged,
                        id: 0,
                        token: 0,
                        server: self.server.clone(),
                        context: None,
                    },
                );
            }
            Err(error) => self
                .catalogue
                .failed(self.generation, Error::of_server(&self.server, &error)),
        }
    }

    /// Whoever waits for this session's tools must hear that they do not come.
    fn gone(&self, error: &error::Error) {
        if self.catalogue.known().generation < self.generation {
            self.catalogue
                .failed(self.generation, Error::of_server(&self.server, error));
        }
    }
}

/// The session that a supervisor holds.
#[derive(Debug, Clone)]
pub(super) struct HomeSession {
    pub(super) session: CountedSession,
    close_timeout: Duration,
}

impl mcp_budget::Session for HomeSession {
    async fn ended(&self) -> Failure {
        failure(&self.session.session().ended().await)
    }

    async fn probe(&self) -> Result<(), Failure> {
        self.session
            .session()
            .ping(None)
            .await
            .map_err(|error| failure(&error))
    }

    async fn close(&self) {
        self.session.close(self.close_timeout).await;
    }
}

/// A session that the pool lends to one scope.
#[derive(Debug, Clone)]
pub(super) struct ScopedSession(Arc<ScopedParts>);

struct ScopedParts {
    session: CountedSession,
    budget: Scoped,
    close_timeout: Duration,
    cut: watch::Receiver<bool>,
    closing: Mutex<Option<Closing>>,
    watched: AtomicBool,
}

impl std::fmt::Debug for ScopedParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedParts")
            .field("session", &self.session)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl ScopedSession {
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

    /// Completes when the session is gone without our having closed it, with why; at once for all but the first who
    /// asks.
    pub(super) fn watch(
        &self,
    ) -> Option<impl Future<Output = Option<error::Error>> + Send + use<>> {
        if self.0.watched.swap(true, Ordering::Relaxed) {
            return None;
        }
        let ended = self.0.session.session().ended();
        Some(async move {
            let error = ended.await;
            (error.kind != ErrorKind::Closed).then_some(error)
        })
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
