//! What a session is pooled under, and what names one session.

use std::{fmt, hash::Hash, sync::Arc};

/// One part of a key: anything that can be compared, hashed and cheaply cloned, such as an `Arc<str>` or an id.
pub trait Part: Clone + Eq + Hash + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> Part for T {}

/// What a session is pooled under: whose it is, which server, and for whom.
///
/// [`Key`] is the ready-made one; implement this for a key type of your own if you have one.
/// Two keys must be equal exactly when their three parts are.
pub trait PoolKey: Part {
    /// Whose sessions these are (a deployment, a person): servers are bound, and bindings replaced, per domain.
    type Domain: Part;
    /// The name of a server within its domain.
    type Server: Part;
    /// For whom the session is: a conversation, a thread, a job.
    type Scope: Part;

    /// The domain.
    fn domain(&self) -> &Self::Domain;
    /// The server.
    fn server(&self) -> &Self::Server;
    /// The scope.
    fn scope(&self) -> &Self::Scope;
}

/// The key as three plain parts, strings unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<D = Arc<str>, V = Arc<str>, C = Arc<str>> {
    /// Whose sessions these are.
    pub domain: D,
    /// The name of the server.
    pub server: V,
    /// For whom the session is.
    pub scope: C,
}

impl<D, V, C> Key<D, V, C> {
    /// A key of these parts.
    pub fn new(domain: impl Into<D>, server: impl Into<V>, scope: impl Into<C>) -> Self {
        Self {
            domain: domain.into(),
            server: server.into(),
            scope: scope.into(),
        }
    }
}

impl<D: Part, V: Part, C: Part> PoolKey for Key<D, V, C> {
    type Domain = D;
    type Server = V;
    type Scope = C;

    fn domain(&self) -> &D {
        &self.domain
    }

    fn server(&self) -> &V {
        &self.server
    }

    fn scope(&self) -> &C {
        &self.scope
    }
}

/// Names one session of one pool, never another: ids are not used again, also not by the session that replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    /// Counts the creations of a pool, from 1. It alone is the identity.
    serial: u64,
    /// Where the registry keeps it, so that no lookup is needed.
    pub(crate) slot: u32,
}

impl SessionId {
    pub(crate) fn new(serial: u64, slot: u32) -> Self {
        Self { serial, slot }
    }

    /// The number alone, for logs and events: unique within its pool, never 0, rising in order of creation.
    pub fn get(self) -> u64 {
        self.serial
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.serial)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serial.fmt(f)
    }
}
