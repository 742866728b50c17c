//! A call that was admitted and has not begun.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{
    call::{Call, Ticket},
    error::{Error, Kind},
    list::ListKind,
    list_tools::list_tools,
    server::Server,
    shared::Shared,
};

/// A call that was admitted; it leaves when it is [started](Self::start).
#[derive(Debug)]
#[must_use = "it completes with an error if it is not started"]
pub struct PreparedCall {
    pub(super) ticket: Ticket,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    Request(Call),
    List(Call, ListKind),
    ListTools {
        domain: String,
        /// `None` for all servers of the domain.
        server: Option<Arc<Server>>,
        deadline: Option<Instant>,
    },
}

impl PreparedCall {
    /// Admits a call to one server.
    pub(super) fn admit(
        shared: &Arc<Shared>,
        call: Call,
        work: impl FnOnce(Call) -> Work,
    ) -> Result<Self, Error> {
        let origin = call.server.origin(call.scope.clone());
        let ticket = shared.admit(Some(&call.server), origin, &call.options)?;
        Ok(Self {
            ticket,
            work: work(call),
        })
    }

    /// What each of its events bears, and [`Client::cancel`](crate::Client::cancel) takes.
    pub fn id(&self) -> u64 {
        self.ticket.voice.id
    }

    /// Lets it go. It ends with one event; if the client was closed meanwhile, it has ended.
    pub fn start(self) -> u64 {
        let id = self.id();
        let shared = self.ticket.shared.clone();
        shared.calls.started(id);
        match self.work {
            Work::Request(call) => {
                shared.starter.start(call.run(self.ticket));
            }
            Work::List(call, kind) => {
                shared.starter.start(call.run_list(kind, self.ticket));
            }
            Work::ListTools {
                domain,
                server,
                deadline,
            } => {
                let listing = list_tools(shared.clone(), domain, server, deadline);
                shared.starter.start(self.ticket.run(listing));
            }
        }
        id
    }
}

/// A JSON object that the host gives, under the name that an error calls it by; `None` for nothing.
pub(super) fn object<'a>(name: &str, json: &'a str) -> Result<Option<&'a str>, Error> {
    if json.trim().is_empty() {
        return Ok(None);
    }
    let raw: &RawValue = serde_json::from_str(json)
        .map_err(|error| Error::new(Kind::Invalid, format!("{name} are no JSON: {error}")))?;
    if raw.get().starts_with('{') {
        Ok(Some(raw.get()))
    } else {
        let message = format!("{name} are JSON, but not an object");
        Err(Error::new(Kind::Invalid, message))
    }
}
