//! Hears what the server of one session says and asks on its own.

use std::sync::Arc;

use bytes::Bytes;
use mcp_transport::session::{Handler, Offers, ServerRequest, ServerRequestId, Withdrawn};

use super::{
    asked::Asked,
    event::{Event, EventKind},
    keeper::Reload,
    origin::Origin,
    queue::{EventQueue, Lane},
};

/// The way from all sessions of a client to its host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) queue: Arc<EventQueue>,
    pub(super) asked: Arc<Asked>,
    pub(super) offers: Offers,
}

#[derive(Debug)]
pub(super) struct Hearing {
    host: Host,
    origin: Origin,
    lane: Lane,
    /// Names the requests of this session.
    session: u64,
    /// Of the home session alone, which the catalogue is kept by.
    reload: Option<Reload>,
}

impl Hearing {
    pub(super) fn new(host: Host, origin: Origin, lane: Lane, reload: Option<Reload>) -> Self {
        let session = host.asked.new_session();
        Self {
            host,
            origin,
            lane,
            session,
            reload,
        }
    }

    fn event(&self, id: u64, kind: EventKind) -> Event {
        Event {
            id,
            ..Event::of(kind, &self.origin)
        }
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
