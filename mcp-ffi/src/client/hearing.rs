//! Hears what the server of one session says and asks on its own.

use std::sync::Arc;

use bytes::Bytes;
use mcp_transport::session::{Handler, Offers, ServerRequest, ServerRequestId, Session, Withdrawn};

use super::{
    asked::Asked,
    event::{Event, EventKind},
    keeper::Reload,
    live::{Live, Place},
    origin::Origin,
    queue::{EventQueue, Lane},
};

/// The way from all sessions of a client to its host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) queue: Arc<EventQueue>,
    pub(super) asked: Arc<Asked>,
    pub(super) live: Arc<Live>,
    pub(super) offers: Offers,
}

#[derive(Debug)]
pub(super) struct Hearing {
    host: Host,
    origin: Origin,
    lane: Lane,
    /// The number of this session.
    session: u64,
    /// The version of the host's roots when its opening began.
    roots: u64,
    /// Of the home session alone, which the catalogue is kept by.
    reload: Option<Reload>,
}

impl Hearing {
    pub(super) fn new(host: Host, origin: Origin, lane: Lane, reload: Option<Reload>) -> Self {
        let (session, roots) = (host.asked.new_session(), host.live.roots_version());
        Self {
            roots,
            host,
            origin,
            lane,
            session,
            reload,
        }
    }

    /// The session is open.
    pub(super) fn opened(&self, session: &Session) {
        self.host
            .live
            .add(self.place(), self.session, session, self.roots);
    }

    fn place(&self) -> Place {
        (self.lane, self.origin.scope.clone())
    }

    fn event(&self, id: u64, kind: EventKind) -> Event {
        Event {
            id,
            ..Event::of(kind, &self.origin)
        }
    }
}

impl Drop for Hearing {
    /// It goes with its session.
    fn drop(&mut self) {
        self.host.live.remove(&self.place(), self.session);
    }
}

impl Handler for Hearing {
    fn notification(&self, method: &str, _params: Bytes) {
        if let ("notifications/tools/list_changed", Some(reload)) = (method, &self.reload) {
            reload.ask();
        }
    }

    fn offers(&self) -> Offers {
        self.host.offers
    }

    fn asked(&self, request: ServerRequest) {
        self.host.asked.ask(self.session, request, |id, request| {
            let kind = EventKind::Request {
                kind: request.kind(),
                params: request.params().clone(),
            };
            self.host.queue.push(self.lane, self.event(id, kind));
        });
    }

    fn withdrawn(&self, request: ServerRequestId, why: Withdrawn) {
        let Some(id) = self.host.asked.withdraw(self.session, request) else {
            return;
        };
        // What the host has not heard of yet, it need not hear of at all.
        if self.host.queue.take_back(self.lane, id).is_none() {
            let event = self.event(id, EventKind::RequestWithdrawn(why));
            self.host.queue.push(self.lane, event);
        }
    }
}
