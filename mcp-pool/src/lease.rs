//! What the pool gives out: the handle, which keeps nothing, and the lease, which keeps a session from being evicted.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use crate::key::SessionId;

/// The pool, as those who hold a piece of it see it.
pub(crate) trait Owner<S>: Send + Sync {
    /// Pins the session if it is still pooled and may have one more call.
    fn begin(self: Arc<Self>, id: SessionId) -> Result<Lease<S>, BeginError>;
    /// Takes back one pin.
    fn leave(&self, id: SessionId);
}

/// One pin on a session, or one place among those who wait for its creation. Dropping it takes it back.
pub(crate) struct Pin<S> {
    pub(crate) id: SessionId,
    pub(crate) owner: Arc<dyn Owner<S>>,
}

impl<S> Drop for Pin<S> {
    fn drop(&mut self) {
        self.owner.leave(self.id);
    }
}

/// One call's hold on a session: while it lives, no pressure takes the session away.
///
/// It belongs to this very session: dropping it can't release the one that took its place. It may be dropped on any
/// thread, inside a runtime or not, and also when the session was closed meanwhile (an explicit close does not wait
/// for leases) or the pool is gone.
#[must_use = "a lease that is dropped at once protects no call"]
pub struct Lease<S> {
    pub(crate) session: S,
    pub(crate) fresh: bool,
    pub(crate) pin: Pin<S>,
}

impl<S> Lease<S> {
    /// The session to call.
    pub fn session(&self) -> &S {
        &self.session
    }

    /// The name of the session, for [`Pool::evict`](crate::Pool::evict) and for logs.
    pub fn id(&self) -> SessionId {
        self.pin.id
    }

    /// Whether this is the first lease of its session that reached anybody. It is true for exactly one lease of each
    /// session, also where the one who began the creation went away: whoever gets it may watch over the session.
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    /// A handle to the same session, which does not keep it.
    pub fn handle(&self) -> Handle<S> {
        Handle {
            id: self.pin.id,
            owner: Arc::downgrade(&self.pin.owner),
        }
    }
}

impl<S> fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.pin.id)
            .field("fresh", &self.fresh)
            .finish_non_exhaustive()
    }
}

/// Names a session without keeping it: it may be evicted or closed at any time, and then no call can begin on it.
pub struct Handle<S> {
    pub(crate) id: SessionId,
    pub(crate) owner: Weak<dyn Owner<S>>,
}

impl<S> Handle<S> {
    /// Begins a call on this very session, or says why not: nothing reached it then.
    pub fn begin(&self) -> Result<Lease<S>, BeginError> {
        let owner = self.owner.upgrade().ok_or(Detached { id: self.id })?;
        owner.begin(self.id)
    }

    /// The name of the session.
    pub fn id(&self) -> SessionId {
        self.id
    }
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            owner: self.owner.clone(),
        }
    }
}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Why no call was begun on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// It is no longer pooled, or it drains.
    #[error(transparent)]
    Detached(#[from] Detached),
    /// It has all the calls that it may have at a time.
    #[error("session {id} has {calls} calls in flight, as many as it may have")]
    Saturated {
        /// The session that was named.
        id: SessionId,
        /// How many calls it has.
        calls: usize,
    },
}

/// The session is no longer pooled; no call was begun on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("session {id} is no longer pooled: get the session of its key anew")]
pub struct Detached {
    /// The session that was named.
    pub id: SessionId,
}
