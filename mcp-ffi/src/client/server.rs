//! One server as one domain sees it: its supervisor, its catalogue, and how it stands with it.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use mcp_budget::{Options, Reason, State, Supervisor, Transition};
use mcp_pool::Binding;
use mcp_transport::{config::ServerConfig, error};

use super::{
    breaker::ServerBreaker,
    catalogue::Catalogue,
    event::{Event, EventKind, ServerStatus},
    home::HomeConnector,
    open::{Environment, Opener},
    origin::Origin,
    queue::{EventQueue, Lane},
    settings::Settings,
    standing::Standing,
};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) domain: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) lane: Lane,
    pub(super) binding: Binding,
    pub(super) opener: Arc<Opener>,
    pub(super) supervisor: Supervisor<HomeConnector>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) breaker: Arc<ServerBreaker>,
    pub(super) standing: Arc<Standing>,
    calls: AtomicU32,
    pid: Arc<AtomicU32>,
    /// Another one bears its name: what becomes of this one is not told under it.
    is_replaced: AtomicBool,
}

/// A call in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a AtomicU32);

impl<'a> InFlight<'a> {
    pub(super) fn on(server: &'a Server) -> Self {
        server.calls.fetch_add(1, Ordering::Relaxed);
        Self(&server.calls)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a server is made from.
pub(super) struct Plan {
    pub(super) domain: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) opener: Opener,
}

impl Plan {
    pub(super) fn new(
        domain: Arc<str>,
        name: Arc<str>,
        config: ServerConfig,
        settings: Settings,
        env: Environment,
    ) -> Result<Self, error::Error> {
        let opener = Opener::new(name.clone(), config, settings, env)?;
        Ok(Self {
            domain,
            name,
            opener,
        })
    }
}

impl Server {
    /// Starts to supervise; nothing is opened before it is needed. Within a runtime only.
    pub(super) fn start(plan: Plan, binding: Binding, queue: Arc<EventQueue>) -> Arc<Self> {
        let lane = Lane(binding.epoch());
        let pid = Arc::new(AtomicU32::new(0));
        let (catalogue, standing) = (Arc::new(Catalogue::new()), Arc::<Standing>::default());
        let opener = Arc::new(plan.opener);
        let home = Origin::home(plan.domain.clone(), plan.name.clone());
        let settings = opener.settings();
        opener.credentials().tell_by({
            let queue = queue.clone();
            let origin = home.clone();
            move |needed| {
                queue.push(
                    lane,
                    Event::of(EventKind::CredentialsNeeded(needed), &origin),
                )
            }
        });
        let server = Arc::new_cyclic(|me: &Weak<Self>| {
            let connector = HomeConnector {
                origin: home,
                opener: opener.clone(),
                catalogue: catalogue.clone(),
                standing: standing.clone(),
                queue: queue.clone(),
                lane,
                pid: pid.clone(),
            };
            let me = me.clone();
            let observer = move |transition: &Transition| {
                let Some(server) = me.upgrade() else {
                    return;
                };
                if !server.is_replaced.load(Ordering::Relaxed) {
                    queue.push(lane, server.state_event(transition));
                    server.heed_credentials(transition);
                }
            };
            let options = Options {
                policy: settings.policy(),
                observer: Some(Box::new(observer)),
                close_limit: settings.close_timeout(),
                gate: Some(opener.gate()),
                ..Options::default()
            };
            let supervisor = Supervisor::spawn(connector, options);
            Self {
                domain: plan.domain,
                name: plan.name,
                lane,
                binding,
                opener,
                supervisor,
                catalogue,
                breaker: Arc::new(ServerBreaker::new()),
                standing,
                calls: AtomicU32::new(0),
                pid,
                is_replaced: AtomicBool::new(false),
            }
        });
        // Not before the observer finds the server: nothing that happens may pass unheard.
        if settings.eager {
            server.supervisor.start();
        }
        server
    }

    pub(super) fn apply(&self, settings: Settings) {
        self.supervisor.set_policy(settings.policy());
        let eager = settings.eager;
        self.opener.set_settings(settings);
        if eager {
            self.supervisor.start();
        }
    }

    /// Another one is about to bear its name.
    pub(super) fn make_way(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// The host has given credentials: if it is parked for want of them, it is tried.
    pub(super) fn try_new_credentials(&self) {
        let status = self.supervisor.status();
        if (status.state, status.reason) == (State::Parked, Reason::Auth) {
            self.supervisor.wake();
        }
    }

    /// It was parked, perhaps for want of credentials that the host gave in that very moment.
    fn heed_credentials(&self, transition: &Transition) {
        let wants = (transition.state, transition.reason) == (State::Parked, Reason::Auth);
        if wants && self.opener.credentials().parked() {
            self.supervisor.wake();
        }
    }

    /// How it stands with it now.
    pub(super) fn status(&self) -> ServerStatus {
        let status = self.supervisor.status();
        let mut line = format!(
            "server \"{}\" is {} ({}",
            self.name, status.state, status.reason
        );
        if status.charges > 0 {
            line += &format!(", {} charged", status.charges);
        }
        line.push(')');
        if let Some(wait) = status.next_try {
            line += &format!(", next try in {}", seconds(wait));
        }
        if let (State::Waiting | State::Parked | State::Stopped, Some(error)) =
            (status.state, &status.error)
        {
            line += &format!(": {error}");
        }
        let connected = matches!(status.state, State::Unproven | State::Proven);
        let pid = Some(self.pid.load(Ordering::Relaxed)).filter(|pid| connected && *pid != 0);
        ServerStatus {
            state: status.state,
            reason: status.reason,
            charges: status.charges,
            attempt: status.attempt,
            generation: status.generation,
            next_try: status.next_try,
            pid,
            sessions: u32::try_from(status.scoped).unwrap_or(u32::MAX),
            calls: self.calls.load(Ordering::Relaxed),
            text: line,
        }
    }

    /// Where something of this server comes from: the session of a scope, or the home session.
    pub(super) fn origin(&self, scope: Option<Arc<str>>) -> Origin {
        Origin {
            domain: self.domain.clone(),
            server: self.name.clone(),
            scope,
        }
    }

    fn state_event(&self, transition: &Transition) -> Event {
        let mut status = self.status();
        if status.state != transition.state {
            // It went on already: the rest is as it was then, as far as the transition tells.
            status.state = transition.state;
            status.reason = transition.reason;
            status.next_try = None;
            status.pid = None;
            status.text = format!(
                "server \"{}\" is {} ({})",
                self.name, transition.state, transition.reason
            );
        }
        status.charges = transition.charges;
        status.attempt = transition.attempt;
        status.generation = transition.generation;
        Event::of(EventKind::ServerState(status), &self.origin(None))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
