//! The sessions that are open now, for what is to be told to them and opens none.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use mcp_transport::session::{Session, WeakSession};

use super::queue::Lane;

const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

/// Whose sessions: of a server, for a scope or (`None`) its home sessions.
pub(super) type Place = (Lane, Option<Arc<str>>);

/// It keeps none of them open.
#[derive(Debug, Default)]
pub(super) struct Live {
    sessions: Mutex<HashMap<Place, BTreeMap<u64, WeakSession>>>,
    /// How often the host's roots have changed.
    roots: AtomicU64,
}

impl Live {
    fn sessions(&self) -> MutexGuard<'_, HashMap<Place, BTreeMap<u64, WeakSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn roots_version(&self) -> u64 {
        self.roots.load(Ordering::SeqCst)
    }

    /// A session was opened. Its opening began at this version of the roots: if they have changed since, it may have
    /// asked for those before.
    pub(super) fn add(&self, place: Place, number: u64, session: &Session, roots: u64) {
        let weak = session.downgrade();
        self.sessions()
            .entry(place)
            .or_default()
            .insert(number, weak);
        if self.roots_version() != roots {
            // If it has ended, there is nobody to tell.
            let _ = session.notify(ROOTS_CHANGED, None);
        }
    }

    pub(super) fn remove(&self, place: &Place, number: u64) {
        let mut sessions = self.sessions();
        if let Some(of_place) = sessions.get_mut(place) {
            of_place.remove(&number);
            if of_place.is_empty() {
                sessions.remove(place);
            }
        }
    }

    /// The newest of a place.
    pub(super) fn newest(&self, place: &Place) -> Option<Session> {
        let sessions = self.sessions();
        let (_, newest) = sessions.get(place)?.last_key_value()?;
        newest.upgrade()
    }

    /// The host's roots have changed: tells every session.
    pub(super) fn roots_changed(&self) {
        self.roots.fetch_add(1, Ordering::SeqCst);
        let all: Vec<_> = {
            let sessions = self.sessions();
            let all = sessions.values().flat_map(BTreeMap::values);
            all.filter_map(WeakSession::upgrade).collect()
        };
        for session in all {
            // If it has ended, there is nobody to tell.
            let _ = session.notify(ROOTS_CHANGED, None);
        }
    }
}
