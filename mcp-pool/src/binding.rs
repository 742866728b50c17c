//! Which configuration of a server is the current one.

/// A digest of all that makes a server's connection: two configurations with one fingerprint are the same to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u128);

impl From<u64> for Fingerprint {
    fn from(digest: u64) -> Self {
        Self(digest.into())
    }
}

impl From<u128> for Fingerprint {
    fn from(digest: u128) -> Self {
        Self(digest)
    }
}

/// A server as one domain sees it, in one configuration.
///
/// It is *current* until the server's fingerprint changes or the server is removed; from then on it is *stale* for
/// ever, also if the same configuration comes back, because that begins a new epoch. So nothing has to be remembered
/// of a server that was removed. It belongs to the pool that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Binding {
    pub(crate) slot: u32,
    pub(crate) epoch: u64,
}

impl Binding {
    /// A binding that is stale in every pool, for whoever knows that much and no more.
    pub const STALE: Self = Self {
        slot: u32::MAX,
        epoch: 0,
    };

    /// Counts the bindings of a pool over all servers and domains, from 1; never repeated.
    pub fn epoch(self) -> u64 {
        self.epoch
    }
}

/// What a reconciliation did to the servers of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes<V> {
    /// The binding of every server that was given, in that order.
    pub bindings: Vec<(V, Binding)>,
    /// Servers that were not there before.
    pub added: Vec<V>,
    /// Servers whose fingerprint changed: their old sessions are detached.
    pub changed: Vec<V>,
    /// Servers that were not given any more: their sessions are detached.
    pub removed: Vec<V>,
    /// Servers that were there with the same fingerprint: nothing of theirs was touched.
    pub unchanged: Vec<V>,
}

impl<V> Default for Changes<V> {
    fn default() -> Self {
        Self {
            bindings: Vec::new(),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            unchanged: Vec::new(),
        }
    }
}
