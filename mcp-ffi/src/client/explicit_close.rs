//! Closing sessions at the host's word: at once, or when the calls that run on them have ended.

use std::{sync::Arc, time::Duration};

use mcp_pool::{Closing, SessionId};

use super::{
    Client,
    call::Stop,
    error::Error,
    origin::Origin,
    scope::{Scope, domain_or_default},
    server::Server,
    servers::Slot,
    shared::Shared,
};

/// The sessions that are meant.
#[derive(Debug)]
enum Target {
    Scope(Arc<str>, Arc<str>),
    Server(Arc<Server>),
    Session(SessionId),
    Domain(Arc<str>),
    All,
}

/// How long the calls that run on a session may go on; `None` is as long as they take.
#[derive(Debug, Clone, Copy)]
enum Manner {
    AtOnce,
    Drain(Option<Duration>),
}

impl Target {
    fn scope(scope: &Scope) -> Option<Self> {
        let name = scope.name.clone()?;
        Some(Self::Scope(scope.domain.clone(), name))
    }

    fn domain(name: &str) -> Self {
        Self::Domain(domain_or_default(name).into())
    }

    /// Whether a call that was made there is one of theirs.
    fn have(&self, origin: &Origin) -> bool {
        match self {
            Self::Scope(domain, scope) => {
                *domain == origin.domain && Some(scope) == origin.scope.as_ref()
            }
            Self::Server(server) => server.domain == origin.domain && server.name == origin.server,
            // Whoever waits for it or calls on it is told by the pool.
            Self::Session(_) => false,
            Self::Domain(domain) => *domain == origin.domain,
            Self::All => true,
        }
    }
}

impl Shared {
    /// How many scoped sessions were meant, those that were being opened among them.
    fn close_sessions(&self, target: &Target, manner: Manner) -> usize {
        // Everyone is told before this returns, and nobody is awaited: each closing is bounded by itself.
        let scoped = self.close_scoped(target, manner).victims();
        for server in self.with_home_sessions(target) {
            self.close_home(&server, manner);
        }
        if matches!(manner, Manner::AtOnce) {
            // What is left is on no session yet, or on one that was given up before.
            self.calls
                .stop_those(Stop::SessionClosed, |origin| target.have(origin));
        }
        scoped
    }

    fn close_scoped(&self, target: &Target, manner: Manner) -> Closing {
        let pool = &self.pool;
        let limit = match manner {
            Manner::AtOnce => None,
            Manner::Drain(limit) => Some(limit.unwrap_or(Duration::MAX)),
        };
        match (target, limit) {
            (Target::Scope(domain, scope), None) => pool.close_scope(domain, scope),
            (Target::Scope(domain, scope), Some(limit)) => pool.drain_scope(domain, scope, limit),
            (Target::Server(server), None) => pool.close_server(&server.domain, &server.name),
            (Target::Server(server), Some(limit)) => {
                pool.drain_server(&server.domain, &server.name, limit)
            }
            (Target::Session(id), None) => pool.close_id(*id),
            (Target::Session(id), Some(limit)) => pool.drain_id(*id, limit),
            (Target::Domain(domain), None) => pool.close_domain(domain),
            (Target::Domain(domain), Some(limit)) => pool.drain_domain(domain, limit),
            (Target::All, None) => pool.close_all(),
            (Target::All, Some(limit)) => pool.drain_all(limit),
        }
    }

    fn with_home_sessions(&self, target: &Target) -> Vec<Arc<Server>> {
        let servers = self.servers();
        match target {
            Target::Scope(..) | Target::Session(_) => Vec::new(),
            Target::Server(server) => vec![server.clone()],
            Target::Domain(domain) => {
                let slots = servers.of(domain).map(|(_, slot)| slot);
                slots.filter_map(Slot::ready).cloned().collect()
            }
            Target::All => servers.all().cloned().collect(),
        }
    }

    fn session_of(&self, session_id: u64) -> Option<SessionId> {
        self.sessions.find(session_id).or_else(|| {
            // It is being opened, if it is there at all.
            let all = self.pool.snapshot().sessions;
            let it = all.iter().find(|session| session.id.get() == session_id);
            it.map(|session| session.id)
        })
    }

    fn close_home(&self, server: &Server, manner: Manner) {
        let Some(home) = server.supervisor.let_go() else {
            return;
        };
        let (session, limit) = (
            home.session.session,
            server.opener.settings().close_timeout(),
        );
        self.leaving.spawn(match manner {
            Manner::AtOnce => session.close(limit),
            Manner::Drain(calls_limit) => session.drain(calls_limit, limit),
        });
    }
}

/// Explicit closes. They return at once: everything that is meant is told before, and closed within its close timeout.
/// Calls that are cut end with [`Kind::Closed`](crate::Kind::Closed), and with the outcome
/// [`Unknown`](crate::Outcome::Unknown) if they were sent. Nothing is unconfigured: the next call has a session opened
/// again, and an eager server is not opened before it.
impl Client {
    /// Closes the sessions of a scope, busy or not. Home sessions are not closed.
    pub fn close_scope(&self, scope: &Scope) {
        if let Some(target) = Target::scope(scope) {
            self.shared.close_sessions(&target, Manner::AtOnce);
        }
    }

    /// As [`Client::close_scope`], but calls that run may go on until the limit (`None`: as long as they take). Calls
    /// that come meanwhile, or wait for a session that is being opened, do not: those have another opened, and these end
    /// as closed.
    pub fn drain_scope(&self, scope: &Scope, limit: Option<Duration>) {
        if let Some(target) = Target::scope(scope) {
            self.shared.close_sessions(&target, Manner::Drain(limit));
        }
    }

    /// Closes the sessions of a server, busy or not: those of all scopes, and its home session.
    ///
    /// # Errors
    /// As for [`Client::server_status`].
    pub fn close_server(&self, domain: &str, server: &str) -> Result<(), Error> {
        let target = self.server_of(domain, server)?;
        self.shared.close_sessions(&target, Manner::AtOnce);
        Ok(())
    }

    /// As [`Client::close_server`], in the manner of [`Client::drain_scope`].
    ///
    /// # Errors
    /// As there.
    pub fn drain_server(
        &self,
        domain: &str,
        server: &str,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        let target = self.server_of(domain, server)?;
        self.shared.close_sessions(&target, Manner::Drain(limit));
        Ok(())
    }

    fn server_of(&self, domain: &str, server: &str) -> Result<Target, Error> {
        let server = self.shared.open_servers()?.get(domain, server)?;
        Ok(Target::Server(server))
    }

    /// Closes the scoped session of this id, from [`SessionNews`](crate::SessionNews) or
    /// [`ScopedStatus`](crate::ScopedStatus), and never the one that took its place. `false` if it is gone.
    pub fn close_session(&self, session_id: u64) -> bool {
        self.close_named(session_id, Manner::AtOnce)
    }

    /// As [`Client::close_session`], in the manner of [`Client::drain_scope`].
    pub fn drain_session(&self, session_id: u64, limit: Option<Duration>) -> bool {
        self.close_named(session_id, Manner::Drain(limit))
    }

    fn close_named(&self, session_id: u64, manner: Manner) -> bool {
        let Some(id) = self.shared.session_of(session_id) else {
            return false;
        };
        self.shared.close_sessions(&Target::Session(id), manner) > 0
    }

    /// Closes every session of a domain, busy or not, home sessions among them.
    pub fn close_domain(&self, domain: &str) {
        self.shared
            .close_sessions(&Target::domain(domain), Manner::AtOnce);
    }

    /// As [`Client::close_domain`], in the manner of [`Client::drain_scope`].
    pub fn drain_domain(&self, domain: &str, limit: Option<Duration>) {
        self.shared
            .close_sessions(&Target::domain(domain), Manner::Drain(limit));
    }

    /// Closes every session, busy or not, home sessions among them. The client goes on; [`Client::close`] ends it.
    pub fn close_all(&self) {
        self.shared.close_sessions(&Target::All, Manner::AtOnce);
    }

    /// As [`Client::close_all`], in the manner of [`Client::drain_scope`].
    pub fn drain_all(&self, limit: Option<Duration>) {
        self.shared
            .close_sessions(&Target::All, Manner::Drain(limit));
    }
}
