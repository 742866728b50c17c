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

/// Whose sessions are meant.
#[derive(Debug)]
enum Whose {
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

impl Whose {
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
    fn close_sessions(&self, whose: &Whose, manner: Manner) -> usize {
        // Everyone is told before this returns, and nobody is awaited: each closing is bounded by itself.
        let scoped = self.close_scoped(whose, manner).victims();
        for server in self.with_home_sessions(whose) {
            self.close_home(&server, manner);
        }
        if matches!(manner, Manner::AtOnce) {
            // What is left is on no session yet, or on one that was given up before.
            self.calls
                .stop_those(Stop::SessionClosed, |origin| whose.have(origin));
        }
        scoped
    }

    fn close_scoped(&self, whose: &Whose, manner: Manner) -> Closing {
        let pool = &self.pool;
        let limit = match manner {
            Manner::AtOnce => None,
            Manner::Drain(limit) => Some(limit.unwrap_or(Duration::MAX)),
        };
        match (whose, limit) {
            (Whose::Scope(domain, scope), None) => pool.close_scope(domain, scope),
            (Whose::Scope(domain, scope), Some(limit)) => pool.drain_scope(domain, scope, limit),
            (Whose::Server(server), None) => pool.close_server(&server.domain, &server.name),
            (Whose::Server(server), Some(limit)) => {
                pool.drain_server(&server.domain, &server.name, limit)
            }
            (Whose::Session(id), None) => pool.close_id(*id),
            (Whose::Session(id), Some(limit)) => pool.drain_id(*id, limit),
            (Whose::Domain(domain), None) => pool.close_domain(domain),
            (Whose::Domain(domain), Some(limit)) => pool.drain_domain(domain, limit),
            (Whose::All, None) => pool.close_all(),
            (Whose::All, Some(limit)) => pool.drain_all(limit),
        }
    }

    fn with_home_sessions(&self, whose: &Whose) -> Vec<Arc<Server>> {
        let servers = self.servers();
        match whose {
            Whose::Scope(..) | Whose::Session(_) => Vec::new(),
            Whose::Server(server) => vec![server.clone()],
            Whose::Domain(domain) => {
                let slots = servers.of(domain).map(|(_, slot)| slot);
                slots.filter_map(Slot::ready).cloned().collect()
            }
            Whose::All => servers.all().cloned().collect(),
        }
    }

    fn session_of(&self, number: u64) -> Option<SessionId> {
        self.sessions.find(number).or_else(|| {
            // It is being opened, if it is there at all.
            let all = self.pool.snapshot().sessions;
            let it = all.iter().find(|session| session.id.get() == number);
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
        if let Some(whose) = Whose::scope(scope) {
            self.shared.close_sessions(&whose, Manner::AtOnce);
        }
    }

    /// As [`Client::close_scope`], but calls that run may go on until the limit (`None`: as long as they take). Calls
    /// that come meanwhile, or wait for a session that is being opened, do not: those have another opened, and these end
    /// as closed.
    pub fn drain_scope(&self, scope: &Scope, limit: Option<Duration>) {
        if let Some(whose) = Whose::scope(scope) {
            self.shared.close_sessions(&whose, Manner::Drain(limit));
        }
    }

    /// Closes the sessions of a server, busy or not: those of all scopes, and its home session.
    ///
    /// # Errors
    /// As for [`Client::server_status`].
    pub fn close_server(&self, domain: &str, server: &str) -> Result<(), Error> {
        let whose = self.server_of(domain, server)?;
        self.shared.close_sessions(&whose, Manner::AtOnce);
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
        let whose = self.server_of(domain, server)?;
        self.shared.close_sessions(&whose, Manner::Drain(limit));
        Ok(())
    }

    fn server_of(&self, domain: &str, server: &str) -> Result<Whose, Error> {
        self.shared.check_open()?;
        let server = self.shared.servers().get(domain, server)?;
        Ok(Whose::Server(server))
    }

    /// Closes the scoped session of this number, from [`SessionNews`](crate::SessionNews) or
    /// [`ScopedStatus`](crate::ScopedStatus), and never the one that took its place. `false` if it is gone.
    pub fn close_session(&self, session: u64) -> bool {
        self.close_numbered(session, Manner::AtOnce)
    }

    /// As [`Client::close_session`], in the manner of [`Client::drain_scope`].
    pub fn drain_session(&self, session: u64, limit: Option<Duration>) -> bool {
        self.close_numbered(session, Manner::Drain(limit))
    }

    fn close_numbered(&self, session: u64, manner: Manner) -> bool {
        let Some(id) = self.shared.session_of(session) else {
            return false;
        };
        self.shared.close_sessions(&Whose::Session(id), manner) > 0
    }

    /// Closes every session of a domain, busy or not, home sessions among them.
    pub fn close_domain(&self, domain: &str) {
        self.shared
            .close_sessions(&Whose::domain(domain), Manner::AtOnce);
    }

    /// As [`Client::close_domain`], in the manner of [`Client::drain_scope`].
    pub fn drain_domain(&self, domain: &str, limit: Option<Duration>) {
        self.shared
            .close_sessions(&Whose::domain(domain), Manner::Drain(limit));
    }

    /// Closes every session, busy or not, home sessions among them. The client goes on; [`Client::close`] ends it.
    pub fn close_all(&self) {
        self.shared.close_sessions(&Whose::All, Manner::AtOnce);
    }

    /// As [`Client::close_all`], in the manner of [`Client::drain_scope`].
    pub fn drain_all(&self, limit: Option<Duration>) {
        self.shared
            .close_sessions(&Whose::All, Manner::Drain(limit));
    }
}
