//! The client: servers by name, a supervisor for each, a pool over them, and one queue of events.

#![forbid(unsafe_code)]

mod asked;
mod breaker;
mod call;
mod calls;
mod catalogue;
mod closing;
mod configure;
mod counted;
mod credentials;
mod deadline;
mod error;
mod event;
mod explicit_close;
mod hearing;
mod home;
mod ids;
mod keeper;
mod leaving;
mod link;
mod list;
mod list_tools;
mod live;
mod log;
mod model_names;
mod open;
mod options;
mod origin;
#[cfg(feature = "capi")]
mod pool_limits;
mod prepared;
mod queue;
mod request;
mod runtime;
mod scope;
mod scoped;
mod server;
mod servers;
mod session_news;
mod sessions;
mod settings;
mod shared;
mod snapshot;
mod standing;
mod takes;
mod tool_call;
mod tools;
mod turn;
mod waiting;

use std::{
    hash::RandomState,
    os::fd::RawFd,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_budget::{GateLimits, SharedGate};
use mcp_pool::Pool;
use mcp_transport::stdio::Spawner;
use tokio::{sync::watch, time::timeout};

pub(crate) use self::scope::domain_or_default;
use self::{
    asked::Asked, calls::Calls, ids::Ids, leaving::Leaving, link::Links, queue::EventQueue,
    runtime::Driver, sessions::Sessions, shared::Shared,
};
pub use mcp_transport::session::{ServerRequestKind, Withdrawn};

pub use self::{
    credentials::CredentialsNeeded,
    error::{Error, Kind, Outcome},
    event::{Answer, Context, Dropped, Event, EventKind, ServerStatus},
    link::Link,
    list::ListKind,
    log::{Log, LogLevel},
    options::{CallOptions, ClientOptions, PoolLimits},
    prepared::PreparedCall,
    scope::{DEPLOYMENT, Scope},
    servers::{InvalidServer, Report},
    session_news::{CloseReason, SessionChange, SessionNews},
    snapshot::{ClientStatus, NamedServer, ScopedStatus},
    takes::HostTakes,
    tools::KnownTools,
};
#[cfg(feature = "capi")]
pub(crate) use self::{pool_limits::pool_limits, settings::budget_policy};

/// An MCP client: connections to any number of servers, kept alive and shared.
///
/// Every method may be called from any thread, but one thread at a time takes events. Dropped, it closes, and blocks
/// for that at most as long as its close timeout.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    driver: Driver,
}

impl Client {
    /// A client without servers. It starts one thread.
    ///
    /// # Errors
    /// [`Kind::Local`] if there is no descriptor or no thread to be had.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        let local = |error: std::io::Error| {
            Error::new(Kind::Local, format!("no client can be made: {error}"))
        };
        let queue = Arc::new(EventQueue::new().map_err(local)?);
        let driver = Driver::new().map_err(local)?;
        let runtime = driver.handle().clone();
        // A status page says how old and how long idle a session is.
        let limits = PoolLimits {
            keep_time: true,
            ..options.pool.clone()
        };
        let host = options.takes.sessions.then(|| queue.clone());
        let sessions = Arc::new(Sessions::new(host));
        let pool = Pool::observed(runtime.clone(), limits, {
            let sessions = sessions.clone();
            move |event| sessions.heard(event)
        });
        let (cut, ids) = (watch::Sender::new(false), Ids::default());
        Ok(Self {
            shared: Arc::new(Shared {
                links: Links::new(queue.clone(), runtime.clone()),
                queue,
                pool,
                sessions,
                servers: Mutex::default(),
                calls: Calls::new(ids.clone()),
                asked: Arc::new(Asked::new(ids)),
                live: Arc::default(),
                fingerprints: RandomState::new(),
                leaving: Leaving::new(runtime.clone(), cut.subscribe()),
                cut,
                spawner: if options.guardian {
                    Spawner::new()
                } else {
                    Spawner::without_guardian()
                },
                gate: SharedGate::new(GateLimits::default()),
                starter: driver.starter(),
                runtime,
                options,
            }),
            driver,
        })
    }

    /// Makes the servers of this `mcpServers` JSON the servers of a domain (empty: [`DEPLOYMENT`]), and no others.
    /// Servers whose configuration changed are replaced, those that are not named any more are closed, all others are
    /// untouched.
    ///
    /// # Errors
    /// [`Kind::Config`] if it is not of the right shape, and [`Kind::Closed`]; nothing is changed then. A single
    /// server's entry that is not usable is in the report instead.
    pub fn configure(&self, domain: &str, json: &str) -> Result<Report, Error> {
        self.shared.configure(domain_or_default(domain), json)
    }

    /// Asks for a call's end. Its one completion tells whether this or the answer came first. `false` if no such call
    /// is in flight any more.
    pub fn cancel(&self, id: u64) -> bool {
        self.shared.calls.cancel(id)
    }

    /// The tools of a domain's servers that are known now. It asks no server.
    ///
    /// # Errors
    /// [`Kind::Closed`].
    pub fn tools(&self, domain: &str) -> Result<KnownTools, Error> {
        let servers = self.shared.open_servers()?;
        Ok(tools::known(&servers, domain, None))
    }

    /// How it stands with a server now.
    ///
    /// # Errors
    /// [`Kind::UnknownServer`]; [`Kind::Config`] if its entry is not usable; [`Kind::Closed`].
    pub fn server_status(&self, domain: &str, server: &str) -> Result<ServerStatus, Error> {
        let server = self.shared.open_servers()?.get(domain, server)?;
        Ok(server.status())
    }

    /// Tries a parked or waiting server again.
    ///
    /// # Errors
    /// As for [`Client::server_status`].
    pub fn wake(&self, domain: &str, server: &str) -> Result<(), Error> {
        let server = self.shared.open_servers()?.get(domain, server)?;
        server.supervisor.wake();
        Ok(())
    }

    /// Tries every parked or waiting server again.
    pub fn wake_all(&self) {
        for server in self.shared.servers().all() {
            server.supervisor.wake();
        }
    }

    /// The network changed: what may have died unseen is looked at, and parked servers are tried again, spread over
    /// some time.
    pub fn network_changed(&self) {
        let _runtime = self.shared.runtime.enter();
        self.shared.gate.check_all();
    }

    /// A descriptor that is readable while an event waits.
    pub fn fd(&self) -> RawFd {
        self.shared.queue.fd()
    }

    /// Takes the next event.
    pub fn next_event(&self) -> Option<Event> {
        loop {
            let mut event = self.shared.queue.pop()?;
            if event.is_completion() {
                self.shared.calls.taken();
            }
            if link::settle(&mut event) {
                return Some(event);
            }
        }
    }

    /// Waits until an event is there, and does the client's input and output meanwhile. `false` if the time is over
    /// before; `None` waits for ever.
    ///
    /// # Errors
    /// [`Kind::Closed`] if the last event was taken, [`Kind::Busy`] if another thread waits.
    ///
    /// # Panics
    /// Inside of a tokio runtime: there, poll [`Client::fd`] instead.
    pub fn wait(&self, limit: Option<Duration>) -> Result<bool, Error> {
        let queue = &self.shared.queue;
        if queue.is_closed() {
            return Err(Error::closed());
        }
        if limit == Some(Duration::ZERO) || queue.has_event() {
            return Ok(queue.has_event());
        }
        let ready = async {
            match limit {
                Some(limit) => timeout(limit, queue.ready()).await.is_ok(),
                None => {
                    queue.ready().await;
                    true
                }
            }
        };
        let ready = self.driver.wait(ready).ok_or_else(Error::busy)?;
        if queue.is_closed() {
            Err(Error::closed())
        } else {
            Ok(ready)
        }
    }

    /// The last event was taken.
    pub fn is_closed(&self) -> bool {
        self.shared.queue.is_closed()
    }

    /// Closes, and returns at once: new calls are refused, every call completes, and [`EventKind::Closed`] is the last
    /// event. It takes at most the limit (`None`: the client's close timeout); what has not ended by then is cut.
    pub fn close(&self, limit: Option<Duration>) {
        let limit = limit.unwrap_or(self.shared.options.close_timeout);
        Shared::close(&self.shared, limit);
    }
}
