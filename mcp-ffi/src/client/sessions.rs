//! The scoped sessions that there are, by their ids.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcp_pool::{Event as PoolEvent, Key, SessionId, Why};

use super::{
    event::{Event, EventKind},
    open::Whose,
    origin::Origin,
    queue::EventQueue,
    session_news::{SessionChange, SessionNews},
};

/// Every scoped session from when it opened until it left the pool, and the way to the host that wants to hear of them.
#[derive(Debug)]
pub(super) struct Sessions {
    /// `None` if the host does not want to hear of them.
    host: Option<Arc<EventQueue>>,
    known: Mutex<HashMap<u64, Known>>,
}

/// A scoped session, as the host may name it.
#[derive(Debug)]
pub(super) struct Known {
    id: SessionId,
    whose: Whose,
    /// It took its slot, and that was said.
    said: bool,
    /// It left before that was said: the pool tells on whichever thread makes something happen.
    left: Option<Why>,
    /// How it was lost.
    lost: Option<String>,
}

impl Known {
    pub(super) fn new(id: SessionId, whose: Whose) -> Self {
        Self {
            id,
            whose,
            said: false,
            left: None,
            lost: None,
        }
    }
}

impl Sessions {
    pub(super) fn new(host: Option<Arc<EventQueue>>) -> Self {
        Self {
            host,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has opened, and the pool knows it by its id from here on.
    pub(super) fn named(&self, session: Known) {
        self.known().insert(session.id.get(), session);
    }

    /// How it was lost, before it is evicted. The first word counts.
    pub(super) fn lost(&self, id: SessionId, how: &str) {
        if let Some(session) = self.known().get_mut(&id.get()) {
            session.lost.get_or_insert_with(|| how.into());
        }
    }

    /// It is gone, whether or not it was ever pooled.
    pub(super) fn forget(&self, id: SessionId) {
        self.known().remove(&id.get());
    }

    /// What the host names by this id, if it is still there.
    pub(super) fn find(&self, id: u64) -> Option<SessionId> {
        self.known().get(&id).map(|session| session.id)
    }

    pub(super) fn generation(&self, id: SessionId) -> Option<u64> {
        self.known()
            .get(&id.get())
            .map(|session| session.whose.generation)
    }

    /// Something happened in the pool.
    pub(super) fn heard(&self, event: &PoolEvent<Key>) {
        let mut known = self.known();
        match event {
            PoolEvent::Opened { id, .. } => {
                let Some(session) = known.get_mut(&id.get()) else {
                    return;
                };
                session.said = true;
                self.say(session, SessionChange::Opened);
                if let Some(why) = session.left {
                    self.say(session, SessionChange::of_retired(why));
                    known.remove(&id.get());
                }
            }
            PoolEvent::Draining { id, why, .. } => {
                if let Some(session) = known.get(&id.get()) {
                    self.say(session, SessionChange::Draining((*why).into()));
                }
            }
            PoolEvent::Retired { id, why, .. } => match known.get_mut(&id.get()) {
                Some(session) if session.said => {
                    self.say(session, SessionChange::of_retired(*why));
                    known.remove(&id.get());
                }
                Some(session) => session.left = Some(*why),
                None => {}
            },
            _ => {}
        }
    }

    /// Called with the lock held, so that the news of one session come in order.
    fn say(&self, session: &Known, change: SessionChange) {
        let Some(queue) = &self.host else {
            return;
        };
        let Origin { server, scope, .. } = &session.whose.origin;
        let scope = scope.as_deref().unwrap_or_default();
        let mut text = format!(
            "server \"{server}\": the session of scope \"{scope}\" {}",
            change.words()
        );
        if let (SessionChange::Lost, Some(how)) = (change, &session.lost) {
            text += &format!(": {how}");
        }
        let news = SessionNews {
            session_id: session.id.get(),
            generation: session.whose.generation,
            change,
            text,
        };
        queue.push(
            session.whose.lane,
            Event::of(EventKind::Session(news), &session.whose.origin),
        );
    }
}

#[cfg(test)]
mod tests {
    use mcp_pool::registry::{Admission, Registry, Rules, Want};
    use mcp_pool::{Fingerprint, Timestamp};

    use super::*;
    use crate::client::{queue::Lane, session_news::CloseReason};

    fn key() -> Key {
        Key::new("deployment", "server", "chat")
    }

    /// The name of a session to be.
    fn id() -> SessionId {
        let mut registry: Registry<Key, (), ()> = Registry::new(Rules::with_capacity(1));
        let key = key();
        let (binding, _) = registry.ensure_binding(&key.domain, &key.server, Fingerprint(1));
        match registry.admit(Timestamp::ZERO, &key, binding, Want::CALL, |_| ()) {
            Ok(Admission::Started(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    fn known(id: SessionId) -> Known {
        let origin = Origin {
            domain: "deployment".into(),
            server: "server".into(),
            scope: Some("chat".into()),
        };
        let whose = Whose {
            origin,
            generation: 7,
            lane: Lane(1),
        };
        Known::new(id, whose)
    }

    fn changes(queue: &EventQueue) -> Vec<SessionChange> {
        std::iter::from_fn(|| queue.pop())
            .map(|event| match event.kind {
                EventKind::Session(news) => news.change,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn retired(id: SessionId, why: Why) -> PoolEvent<Key> {
        let key = key();
        PoolEvent::Retired { id, key, why }
    }

    #[test]
    fn the_end_of_a_session_is_said_after_its_opening_also_where_it_is_heard_before() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let sessions = Sessions::new(Some(queue.clone()));
        let id = id();
        sessions.named(known(id));
        sessions.heard(&retired(id, Why::Closed));
        assert_eq!(changes(&queue), []);
        sessions.heard(&PoolEvent::Opened { id, key: key() });
        assert_eq!(
            changes(&queue),
            [SessionChange::Closed(CloseReason::Host)],
            "of the two the newest is kept"
        );
        assert!(sessions.find(id.get()).is_none());
    }

    #[test]
    fn nothing_is_said_of_a_session_that_never_had_a_slot_and_nothing_of_it_is_kept() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let sessions = Sessions::new(Some(queue.clone()));
        let id = id();
        sessions.named(known(id));
        sessions.heard(&retired(id, Why::NoSlot));
        sessions.forget(id);
        assert_eq!(changes(&queue), []);
        assert!(sessions.known().is_empty());
    }

    #[test]
    fn how_a_session_was_lost_is_said_by_the_first_word() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let sessions = Sessions::new(Some(queue.clone()));
        let id = id();
        sessions.named(known(id));
        sessions.heard(&PoolEvent::Opened { id, key: key() });
        sessions.lost(id, "it exited with 3");
        sessions.lost(id, "the pipe broke");
        sessions.heard(&retired(id, Why::Dead));
        let Some(EventKind::Session(news)) = queue.pop().map(|event| event.kind) else {
            panic!("it is told");
        };
        assert_eq!(
            (news.change, news.generation, news.session_id),
            (SessionChange::Lost, 7, id.get())
        );
        assert_eq!(
            news.text,
            "server \"server\": the session of scope \"chat\" was lost: it exited with 3"
        );
    }
}
