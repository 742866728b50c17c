//! Hears what the server of one session says and asks on its own.

use std::sync::Arc;

use bytes::Bytes;
use mcp_transport::session::{
    Backlog, Handler, Offers, ServerRequest, ServerRequestId, Session, Withdrawn,
};

use super::{
    asked::Asked,
    event::{Event, EventKind},
    keeper::Reload,
    live::{Live, Place},
    log::Log,
    open::Opener,
    origin::Origin,
    queue::{EventQueue, Lane},
    takes::HostTakes,
};

/// The way from all sessions of a client to its host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) queue: Arc<EventQueue>,
    pub(super) asked: Arc<Asked>,
    pub(super) live: Arc<Live>,
    pub(super) offers: Offers,
    pub(super) takes: HostTakes,
    /// How many bytes of one server may wait for the host.
    pub(super) max_queued: usize,
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
    /// What the server said and nobody has taken.
    backlog: Backlog,
    /// Of the home session alone, which the catalogue is kept by.
    reload: Option<Reload>,
}

impl Hearing {
    pub(super) fn new(opener: &Opener, origin: Origin, lane: Lane, reload: Option<Reload>) -> Self {
        let (host, backlog) = (opener.host(), opener.backlog());
        let (session, roots) = (host.asked.new_session(), host.live.roots_version());
        Self {
            roots,
            host,
            origin,
            lane,
            session,
            backlog,
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

    /// Tells the host, under the id of a request or 0.
    fn tell(&self, id: u64, kind: EventKind) {
        let event = Event {
            id,
            ..Event::of(kind, &self.origin)
        };
        self.host
            .queue
            .push(self.lane, event.held_by(&self.backlog));
    }

    fn takes(&self, notification: &str) -> bool {
        let takes = &self.host.takes;
        takes.notifications
            || (takes.elicitation_url && notification == "notifications/elicitation/complete")
    }
}

impl Drop for Hearing {
    /// It goes with its session.
    fn drop(&mut self) {
        self.host.live.remove(&self.place(), self.session);
    }
}

impl Handler for Hearing {
    fn notification(&self, method: &str, params: Bytes) {
        if self.reload.as_ref().is_some_and(|it| it.hear(method)) {
            return;
        }
        let kind = match method {
            "notifications/resources/updated" => EventKind::ResourceUpdated(params),
            "notifications/message" if self.host.takes.logs => EventKind::Log(Log::new(params)),
            "notifications/message" => return,
            _ if self.takes(method) => EventKind::Notification {
                method: method.into(),
                params,
            },
            _ => return,
        };
        self.tell(0, kind);
    }

    fn backlog(&self) -> Option<Backlog> {
        Some(self.backlog.clone())
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
            self.tell(id, kind);
        });
    }

    fn withdrawn(&self, request: ServerRequestId, why: Withdrawn) {
        let Some(id) = self.host.asked.withdraw(self.session, request) else {
            return;
        };
        // What the host has not heard of yet, it need not hear of at all.
        if self.host.queue.take_back(self.lane, id).is_none() {
            self.tell(id, EventKind::RequestWithdrawn(why));
        }
    }
}
