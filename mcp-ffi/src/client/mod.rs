//! The client: servers by name, a supervisor for each, a pool over them, and one queue of events.

#![forbid(unsafe_code)]

mod breaker;
mod call;
mod calls;
mod catalogue;
mod counted;
mod error;
mod event;
mod home;
mod keeper;
mod leaving;
mod model_names;
mod open;
mod options;
mod queue;
mod runtime;
mod scope;
mod scoped;
mod server;
mod servers;
mod settings;
mod tools;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    os::fd::RawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bytes::Bytes;
use mcp_budget::{GateLimits, SharedGate, Want};
use mcp_pool::{Fingerprint, Limits, Pool};
use mcp_transport::{
    config::{self, ServerConfig},
    stdio::Spawner,
};
use serde_json::value::RawValue;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

#[cfg(feature = "capi")]
pub(crate) use self::settings::budget_policy;
use self::{
    call::{Call, Ticket},
    calls::Calls,
    leaving::Leaving,
    open::Environment,
    queue::{EventQueue, Lane},
    runtime::Driver,
    scope::domain_or_default,
    scoped::{NotOpened, ScopedSession},
    server::{Plan, Server},
    servers::{Servers, Slot},
    settings::Settings,
};
pub use self::{
    error::{Error, Kind, Outcome},
    event::{Answer, Context, Event, EventKind, ServerStatus},
    options::{CallOptions, ClientOptions},
    scope::{DEPLOYMENT, Scope},
    servers::{InvalidServer, Report},
    tools::KnownTools,
};
use crate::sys;

/// What the closing of a client may take beyond its limit before the last event is there all the same.
const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// An MCP client: connections to any number of servers, kept alive and shared.
///
/// Every method may be called from any thread, but one thread at a time takes events. Dropped, it closes, and blocks
/// for that at most as long as its close timeout.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    driver: Driver,
}

/// What the client and its tasks share.
#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    queue: Arc<EventQueue>,
    pool: Pool<mcp_pool::Key, ScopedSession, NotOpened>,
    servers: Mutex<Servers>,
    calls: Calls,
    /// Keys the fingerprints, so that they tell nothing outside of this client.
    fingerprints: RandomState,
    /// Told when the time to close is over: what still closes is cut.
    cut: watch::Sender<bool>,
    leaving: Leaving,
    spawner: Spawner,
    /// Bounds the connects of all servers together.
    gate: SharedGate,
    runtime: Handle,
}

/// A call that was admitted; it leaves when it is [started](Self::start).
#[derive(Debug)]
#[must_use = "it completes with an error if it is not started"]
pub struct PreparedCall {
    ticket: Ticket,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Request(Call),
    ListTools {
        domain: String,
        /// `None` for all servers of the domain.
        server: Option<Arc<Server>>,
        deadline: Option<Instant>,
    },
}

impl PreparedCall {
    /// What each of its events bears, and [`Client::cancel`] takes.
    pub fn id(&self) -> u64 {
        self.ticket.id
    }

    /// Lets it go. It ends with one event.
    pub fn start(self) -> u64 {
        let id = self.id();
        let shared = self.ticket.shared.clone();
        match self.work {
            Work::Request(call) => {
                shared.runtime.spawn(call.run(self.ticket));
            }
            Work::ListTools {
                domain,
                server,
                deadline,
            } => {
                let listing = list_tools(shared.clone(), domain, server, deadline);
                shared.runtime.spawn(self.ticket.run(listing));
            }
        }
        id
    }
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
        let limits = Limits {
            capacity: options.max_sessions,
            close_limit: options.close_timeout,
            ..Limits::default()
        };
        let cut = watch::Sender::new(false);
        Ok(Self {
            shared: Arc::new(Shared {
                queue,
                pool: Pool::on(runtime.clone(), limits),
                servers: Mutex::default(),
                calls: Calls::default(),
                fingerprints: RandomState::new(),
                leaving: Leaving::new(runtime.clone(), cut.subscribe()),
                cut,
                spawner: Spawner::new(),
                gate: SharedGate::new(GateLimits::default()),
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

    /// Prepares the call of a tool. `arguments` is a JSON object, or empty for none. With an empty `server`, `tool` is
    /// a name of [`Client::tools`].
    ///
    /// # Errors
    /// [`Kind::Invalid`], [`Kind::UnknownServer`], [`Kind::Config`] for a server whose entry is not usable,
    /// [`Kind::Capacity`] if too many calls are in flight or wait for
    /// their completion to be taken, [`Kind::Closed`].
    pub fn prepare_tool_call(
        &self,
        scope: &Scope,
        server: &str,
        tool: &str,
        arguments: &str,
        options: CallOptions,
    ) -> Result<PreparedCall, Error> {
        self.shared.check_open()?;
        if tool.is_empty() {
            return Err(Error::new(Kind::Invalid, "the name of the tool is empty"));
        }
        let (server, tool) = self.shared.tool_of(&scope.domain, server, tool)?;
        let call = Call {
            scope: scope.name.clone(),
            method: "tools/call",
            params: tool_params(&tool, arguments)?,
            deadline: deadline(&options),
            server,
            options,
        };
        let ticket =
            self.shared
                .admit(call.server.lane, call.server.name.clone(), &call.options)?;
        Ok(PreparedCall {
            ticket,
            work: Work::Request(call),
        })
    }

    /// Calls a tool; see [`Client::prepare_tool_call`].
    ///
    /// # Errors
    /// As there.
    pub fn call_tool(
        &self,
        scope: &Scope,
        server: &str,
        tool: &str,
        arguments: &str,
        options: CallOptions,
    ) -> Result<u64, Error> {
        Ok(self
            .prepare_tool_call(scope, server, tool, arguments, options)?
            .start())
    }

    /// Prepares to ask a server for its tools, or every server of the domain if the name is empty. The answer's JSON
    /// is that of [`Client::tools`].
    ///
    /// # Errors
    /// As for [`Client::prepare_tool_call`].
    pub fn prepare_list_tools(
        &self,
        domain: &str,
        server: &str,
        options: CallOptions,
    ) -> Result<PreparedCall, Error> {
        self.shared.check_open()?;
        let one = match server {
            "" => None,
            name => Some(self.shared.servers().get(domain, name)?),
        };
        let lane = one.as_ref().map_or(Lane::CLIENT, |server| server.lane);
        let ticket = self.shared.admit(lane, server.into(), &options)?;
        Ok(PreparedCall {
            ticket,
            work: Work::ListTools {
                domain: domain.into(),
                server: one,
                deadline: deadline(&options),
            },
        })
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
        self.shared.check_open()?;
        Ok(tools::known(&self.shared.servers(), domain, None))
    }

    /// How it stands with a server now.
    ///
    /// # Errors
    /// [`Kind::UnknownServer`]; [`Kind::Config`] if its entry is not usable.
    pub fn server_status(&self, domain: &str, server: &str) -> Result<ServerStatus, Error> {
        let server = self.shared.servers().get(domain, server)?;
        Ok(server.status())
    }

    /// Tries a parked or waiting server again.
    ///
    /// # Errors
    /// As for [`Client::server_status`].
    pub fn wake(&self, domain: &str, server: &str) -> Result<(), Error> {
        let server = self.shared.servers().get(domain, server)?;
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

    /// Closes the sessions of a scope, busy or not. Home sessions are not closed.
    pub fn close_scope(&self, scope: &Scope) {
        if let Some(name) = &scope.name {
            drop(self.shared.pool.close_scope(&scope.domain, name));
        }
    }

    /// A descriptor that is readable while an event waits.
    pub fn fd(&self) -> RawFd {
        self.shared.queue.fd()
    }

    /// Takes the next event.
    pub fn next_event(&self) -> Option<Event> {
        let event = self.shared.queue.pop()?;
        if event.is_completion() {
            self.shared.calls.taken();
        }
        Some(event)
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

impl Drop for Client {
    fn drop(&mut self) {
        let limit = self.shared.options.close_timeout;
        Shared::close(&self.shared, limit);
        let limit = limit.saturating_add(CLOSE_GRACE);
        // Nobody else can be waiting: that would borrow the client. Whatever is left is cut with the runtime.
        let wait = || {
            let ended = async { timeout(limit, self.shared.queue.ended()).await };
            let _ = self.driver.wait(ended);
        };
        if Handle::try_current().is_ok() {
            // A thread that is inside of a runtime, as a task of the host's is, must not drive another.
            thread::scope(|scope| drop(sys::with_signals_blocked(|| scope.spawn(wait))));
        } else {
            wait();
        }
        self.driver.stop();
        // With the tasks the last transports went; what they started is killed, and waited for here.
        self.shared.spawner.finish(CLOSE_GRACE);
    }
}

impl Shared {
    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.calls.is_closed() {
            Err(Error::closed())
        } else {
            Ok(())
        }
    }

    fn admit(
        self: &Arc<Self>,
        lane: Lane,
        server: Arc<str>,
        options: &CallOptions,
    ) -> Result<Ticket, Error> {
        let (id, stopped) = self.calls.admit()?;
        Ok(Ticket {
            shared: self.clone(),
            id,
            token: options.token,
            lane,
            server,
            context: options.context.clone(),
            stopped,
            begun: false,
            completed: false,
        })
    }

    fn tool_of(
        &self,
        domain: &str,
        server: &str,
        tool: &str,
    ) -> Result<(Arc<Server>, String), Error> {
        let servers = self.servers();
        if !server.is_empty() {
            return Ok((servers.get(domain, server)?, tool.into()));
        }
        let (server, tool) = tools::resolve(&servers, domain, tool).ok_or_else(|| {
            let message =
                format!("no tool \"{tool}\" is known; list the tools first, or name the server");
            Error::new(Kind::Invalid, message)
        })?;
        Ok((servers.get(domain, &server)?, tool))
    }

    fn environment(&self) -> Environment {
        Environment {
            spawner: self.spawner.clone(),
            gate: self.gate.clone(),
            cut: self.cut.subscribe(),
            leaving: self.leaving.clone(),
        }
    }

    fn fingerprint(&self, config: &ServerConfig) -> Fingerprint {
        let mut hasher = self.fingerprints.build_hasher();
        config.fingerprint_into(&mut hasher);
        hasher.finish().into()
    }

    fn configure(&self, domain: &str, json: &str) -> Result<Report, Error> {
        let entries = config::parse_each(json, |name| std::env::var(name).ok())
            .map_err(|error| Error::new(Kind::Config, error.to_string()))?;
        let domain: Arc<str> = domain.into();
        let mut report = Report::default();
        let (mut slots, mut plans) = (BTreeMap::new(), Vec::new());
        for (name, entry) in entries {
            match self.plan(&domain, &name, entry) {
                Ok(plan) => plans.push(plan),
                Err(message) => {
                    report.invalid.push(InvalidServer {
                        server: name.clone(),
                        message: message.clone(),
                    });
                    slots.insert(
                        name.into(),
                        Slot::Invalid(Error::new(Kind::Config, message)),
                    );
                }
            }
        }
        // One configuration at a time, and none once the client closes: both under this lock.
        let mut servers = self.servers();
        self.check_open()?;
        let named = plans
            .iter()
            .map(|(plan, fingerprint)| (plan.name.clone(), *fingerprint));
        let (changes, _closing) = self
            .pool
            .reconcile_bindings(&domain, named.collect::<Vec<_>>());
        let mut before = servers.replace(domain.clone(), BTreeMap::new());
        let _runtime = self.runtime.enter();
        for ((plan, _), (_, binding)) in plans.into_iter().zip(&changes.bindings) {
            let name = plan.name.clone();
            let slot = match before.remove(&name) {
                Some(Slot::Ready(server)) if server.binding == *binding => {
                    server.apply(plan.opener.settings().as_ref().clone());
                    Slot::Ready(server)
                }
                old => {
                    before.extend(old.map(|old| (name.clone(), old)));
                    Slot::Ready(Server::start(plan, *binding, self.queue.clone()))
                }
            };
            slots.insert(name, slot);
        }
        servers.replace(domain, slots);
        for slot in before.into_values() {
            if let Slot::Ready(server) = slot {
                self.leaving.spawn(async move {
                    server
                        .supervisor
                        .shutdown(server.opener.settings().close_timeout())
                        .await;
                });
            }
        }
        let names = |names: Vec<Arc<str>>| names.iter().map(|name| name.to_string()).collect();
        report.added = names(changes.added);
        report.changed = names(changes.changed);
        report.removed = names(changes.removed);
        report.unchanged = names(changes.unchanged);
        Ok(report)
    }

    /// What one entry of the configuration makes, or what is wrong with it.
    fn plan(
        &self,
        domain: &Arc<str>,
        name: &str,
        entry: Result<ServerConfig, config::ConfigError>,
    ) -> Result<(Plan, Fingerprint), String> {
        if name.is_empty() {
            return Err("server \"\": a server needs a name that is not empty".into());
        }
        let config = entry.map_err(|error| error.to_string())?;
        let settings = match &config.mcpconn {
            Some(json) => {
                Settings::parse(json).map_err(|problem| format!("server \"{name}\": {problem}"))?
            }
            None => Settings::default(),
        };
        let fingerprint = self.fingerprint(&config);
        let plan = Plan::new(
            domain.clone(),
            name.into(),
            config,
            settings,
            self.environment(),
        )
        .map_err(|error| format!("server \"{name}\": {error}"))?;
        Ok((plan, fingerprint))
    }

    fn close(shared: &Arc<Self>, limit: Duration) {
        let servers = {
            // Under the lock, so that no configuration starts a server behind our back.
            let mut servers = shared.servers();
            if !shared.calls.close() {
                return;
            }
            servers.take_all()
        };
        let closing = shared.pool.shutdown();
        let shared = shared.clone();
        shared.runtime.clone().spawn(async move {
            let mut ends = JoinSet::new();
            for server in servers {
                ends.spawn(async move { server.supervisor.shutdown(limit).await });
            }
            ends.spawn(closing);
            let all = async {
                while ends.join_next().await.is_some() {}
                shared.leaving.all_left().await;
                shared.calls.all_ended().await;
            };
            tokio::pin!(all);
            if timeout(limit, &mut all).await.is_err() {
                shared.cut.send_replace(true);
                // Cutting takes a moment; whatever is left then goes with the runtime.
                let _ = timeout(CLOSE_GRACE / 2, all).await;
            }
            shared
                .queue
                .end(Event::of_server(EventKind::Closed, "".into()));
        });
    }
}

fn deadline(options: &CallOptions) -> Option<Instant> {
    options
        .timeout
        .and_then(|timeout| Instant::now().checked_add(timeout))
}

/// The params of `tools/call`, with the arguments as they are.
fn tool_params(tool: &str, arguments: &str) -> Result<Bytes, Error> {
    let arguments = match arguments.trim() {
        "" => "{}",
        json => {
            let raw: &RawValue = serde_json::from_str(json).map_err(|error| {
                Error::new(Kind::Invalid, format!("the arguments are no JSON: {error}"))
            })?;
            raw.get()
        }
    };
    if !arguments.starts_with('{') {
        return Err(Error::new(
            Kind::Invalid,
            "the arguments are JSON, but not an object",
        ));
    }
    let tool = serde_json::to_string(tool).expect("a string");
    Ok(format!("{{\"name\":{tool},\"arguments\":{arguments}}}").into())
}

async fn list_tools(
    shared: Arc<Shared>,
    domain: String,
    server: Option<Arc<Server>>,
    deadline: Option<Instant>,
) -> Result<Answer, Error> {
    let only = server.as_ref().map(|server| server.name.clone());
    match server {
        Some(server) => refresh(&server, deadline).await?,
        None => {
            let mut asked = JoinSet::new();
            for (_, slot) in shared.servers().of(&domain) {
                if let Slot::Ready(server) = slot {
                    let server = server.clone();
                    // A server that does not tell is missing in the answer, and holds up no other.
                    asked.spawn_on(
                        async move { drop(refresh(&server, deadline).await) },
                        &shared.runtime,
                    );
                }
            }
            while asked.join_next().await.is_some() {}
        }
    }
    let known = tools::known(&shared.servers(), &domain, only.as_deref());
    Ok(Answer::with_text(known.tools.into(), known.text))
}

/// Waits until a server's home session told its tools.
async fn refresh(server: &Server, deadline: Option<Instant>) -> Result<(), Error> {
    let want = Want {
        deadline,
        other_than: None,
    };
    let live = server.supervisor.session(want).await;
    let live = live.map_err(|why| Error::unavailable(&server.name, &why))?;
    let known = server.catalogue.known();
    if known.generation >= live.generation {
        if known.error.is_none() {
            return Ok(());
        }
        // One slow or failed answer is not for ever.
        live.session.reload.ask();
    }
    let telling = async {
        tokio::select! {
            known = server.catalogue.after(known.version, live.generation) => known.error.map_or(Ok(()), Err),
            end = live.session.session.session().ended() => Err(Error::of_server(&server.name, &end)),
        }
    };
    match deadline {
        Some(deadline) => timeout_at(deadline, telling).await.map_err(|_| {
            let message = format!(
                "server \"{}\": it did not tell its tools within the deadline",
                server.name
            );
            Error::new(Kind::Timeout, message)
        })?,
        None => telling.await,
    }
}
