//! The pool's desk for a host that names sessions and requests by numbers and keeps no map of its own.
//!
//! The desk's own ids say where a thing is kept; a number says nothing and may be wrong, old or of another thing. What
//! was never given out is an error that names it; what is over by now changes nothing, for one thread of a host cannot
//! know what another was told a moment before.

#![forbid(unsafe_code)]

mod name;
mod status;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use mcp_pool::{
    Action, Binding, Desk, Fingerprint, Limits, Refused, SessionId, Ticket, Timestamp, Why,
    registry::Target,
};

pub(crate) use self::{name::Name, status::Status};
use crate::client::{Error, Kind};

pub(crate) type Key = mcp_pool::Key<Name, Name, Name>;

/// The number of a session, which is never that of a request: those are odd.
fn session_number(id: SessionId) -> u64 {
    id.get() << 1
}

fn request_number(ticket: Ticket) -> u64 {
    (ticket.get() << 1) | 1
}

/// A desk whose host reports sessions of type `S`.
#[derive(Debug)]
pub(crate) struct NumberedDesk<S> {
    desk: Desk<Key, u64>,
    /// How long a request waits for room, if it does not say.
    wait: Option<Duration>,
    /// Keys the fingerprints, so that they tell nothing of what they were made of.
    fingerprints: [RandomState; 2],
    /// Those that the host was told to open, until it says that they failed or are closed.
    sessions: HashMap<u64, Known<S>>,
    newest_session: u64,
    /// Those that were accepted, until the host took a refusal or released them.
    requests: HashMap<u64, Ticket>,
    newest_request: u64,
}

#[derive(Debug)]
struct Known<S> {
    id: SessionId,
    key: Key,
    epoch: u64,
    /// As it was reported open and taken.
    session: Option<S>,
}

/// How long a request waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As the limits say.
    Usual,
    Until(Timestamp),
    ForEver,
}

/// What the host has to do next, and with what.
#[derive(Debug)]
pub(crate) enum Step<'a, S> {
    Open(Subject<'a>),
    StopOpening(Subject<'a>, Why),
    Close(Subject<'a>, S, Why),
    Give {
        token: u64,
        request: u64,
        subject: Subject<'a>,
        session: S,
        fresh: bool,
    },
    Refuse {
        token: u64,
        request: u64,
        why: Refused,
    },
}

/// A session that the host knows of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) session: u64,
    pub(crate) key: &'a Key,
    pub(crate) epoch: u64,
}

impl<S: Copy> NumberedDesk<S> {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            desk: Desk::new(limits),
            wait: limits.wait,
            fingerprints: [RandomState::new(), RandomState::new()],
            sessions: HashMap::new(),
            newest_session: 0,
            requests: HashMap::new(),
            newest_request: 0,
        }
    }

    /// Makes this the configuration of the server. Returns its epoch.
    pub(crate) fn bind(
        &mut self,
        now: Timestamp,
        domain: &Name,
        server: &Name,
        fingerprint: &str,
    ) -> u64 {
        let [high, low] = &self.fingerprints;
        let digest =
            u128::from(high.hash_one(fingerprint)) << 64 | u128::from(low.hash_one(fingerprint));
        let fingerprint = Fingerprint(digest);
        let binding = self.desk.ensure_binding(now, domain, server, fingerprint);
        binding.epoch()
    }

    pub(crate) fn unbind(&mut self, now: Timestamp, domain: &Name, server: &Name) -> bool {
        self.desk.remove_binding(now, domain, server)
    }

    /// The binding of this epoch, or the current one for 0.
    fn binding(&self, key: &Key, epoch: u64) -> Result<Binding, Error> {
        let current = self.desk.binding(&key.domain, &key.server);
        match current {
            Some(binding) if epoch == 0 || binding.epoch() == epoch => Ok(binding),
            None if epoch == 0 => Err(Error::new(
                Kind::UnknownServer,
                format!(
                    "server: \"{}\" is not bound in domain \"{}\"",
                    key.server.as_str(),
                    key.domain.as_str()
                ),
            )),
            _ => Ok(Binding::STALE),
        }
    }

    pub(crate) fn acquire(
        &mut self,
        now: Timestamp,
        key: &Key,
        epoch: u64,
        token: u64,
        patience: Patience,
    ) -> Result<u64, Error> {
        let now = now.max(self.desk.now());
        let binding = self.binding(key, epoch)?;
        let wait = match patience {
            Patience::Usual => self.wait,
            Patience::ForEver => Some(Duration::MAX),
            Patience::Until(deadline) => Some(deadline.since(now)),
        };
        let wait = wait.filter(|wait| !wait.is_zero());
        let ticket = self.desk.acquire(now, key, binding, token, wait);
        Ok(self.accept(ticket))
    }

    fn accept(&mut self, ticket: Ticket) -> u64 {
        let number = request_number(ticket);
        self.newest_request = number;
        self.requests.insert(number, ticket);
        number
    }

    pub(crate) fn warm_up(&mut self, now: Timestamp, key: &Key, epoch: u64) -> Result<(), Error> {
        let binding = self.binding(key, epoch)?;
        let refused = |refused: Refused| Error::new(kind_of(refused), refused.to_string());
        self.desk.warm_up(now, key, binding).map_err(refused)
    }

    /// One more call on this very session.
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        session: u64,
    ) -> Result<(u64, Subject<'_>, S), Error> {
        let closed = || {
            Error::new(
                Kind::Closed,
                format!("session {session}: no call begins on it any more"),
            )
        };
        let known = self.known(session)?.ok_or_else(closed)?;
        let (id, reported) = (known.id, known.session);
        let Some(reported) = reported else {
            return Err(Error::new(
                Kind::Invalid,
                format!("session {session} is not open"),
            ));
        };
        let ticket = self.desk.begin(now, id).map_err(|refused| match refused {
            Refused::Closed => closed(),
            refused => Error::new(kind_of(refused), format!("session {session}: {refused}")),
        })?;
        let request = self.accept(ticket);
        let known = &self.sessions[&session];
        Ok((request, known.subject(session), reported))
    }

    /// `false` if the request was answered before.
    pub(crate) fn cancel(&mut self, now: Timestamp, request: u64) -> Result<bool, Error> {
        Ok(match self.ticket(request)? {
            Some(ticket) => self.desk.cancel(now, ticket),
            None => false,
        })
    }

    /// A call ended. That is told once, and of calls only, for all else is a mistake that would end another's call.
    pub(crate) fn release(&mut self, now: Timestamp, request: u64) -> Result<(), Error> {
        let Some(ticket) = self.ticket(request)? else {
            return Err(Error::new(
                Kind::Invalid,
                format!("request {request} was refused, or released before"),
            ));
        };
        if !self.desk.has_session(ticket) {
            return Err(Error::new(
                Kind::Invalid,
                format!("request {request} was not given a session yet: it can be cancelled"),
            ));
        }
        self.requests.remove(&request);
        self.desk.release(now, ticket);
        Ok(())
    }

    /// `false` if nobody wants it any more.
    pub(crate) fn opened(
        &mut self,
        now: Timestamp,
        session: u64,
        reported: S,
    ) -> Result<bool, Error> {
        let Some(known) = self.known(session)? else {
            return Ok(false);
        };
        let id = known.id;
        if known.session.is_some() {
            return Err(Error::new(
                Kind::Invalid,
                format!("session {session} was reported open before"),
            ));
        }
        let taken = self.desk.opened(now, id);
        if taken {
            let known = self.sessions.get_mut(&session);
            known.expect("as above").session = Some(reported);
        }
        Ok(taken)
    }

    pub(crate) fn failed(
        &mut self,
        now: Timestamp,
        session: u64,
        code: i32,
    ) -> Result<bool, Error> {
        let Some(known) = self.known(session)? else {
            return Ok(false);
        };
        let id = known.id;
        if known.session.is_some() {
            return Err(Error::new(
                Kind::Invalid,
                format!("session {session} was reported open: it can only be dead, or closed"),
            ));
        }
        self.sessions.remove(&session);
        Ok(self.desk.failed(now, id, code))
    }

    pub(crate) fn closed(&mut self, now: Timestamp, session: u64) -> Result<bool, Error> {
        let Some(id) = self.known_not_opening(session)? else {
            return Ok(false);
        };
        self.sessions.remove(&session);
        Ok(self.desk.closed(now, id))
    }

    pub(crate) fn evict(&mut self, now: Timestamp, session: u64) -> Result<bool, Error> {
        Ok(match self.known_not_opening(session)? {
            Some(id) => self.desk.evict(now, id),
            None => false,
        })
    }

    pub(crate) fn close(&mut self, now: Timestamp, target: Target<'_, Key>) -> bool {
        self.desk.close(now, target) > 0
    }

    pub(crate) fn drain(
        &mut self,
        now: Timestamp,
        target: Target<'_, Key>,
        deadline: Timestamp,
    ) -> bool {
        let now = now.max(self.desk.now());
        self.desk.drain(now, target, deadline.since(now)) > 0
    }

    pub(crate) fn shutdown(&mut self, now: Timestamp) -> bool {
        self.desk.shutdown(now) > 0
    }

    /// The desk's id of a session, for a close that names one; `None` if it is over.
    pub(crate) fn session_id(&self, session: u64) -> Result<Option<SessionId>, Error> {
        Ok(self.known(session)?.map(|known| known.id))
    }

    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Step<'_, S>> {
        Some(match self.desk.next(now)? {
            Action::Open { id, key } => {
                let number = session_number(id);
                self.newest_session = self.newest_session.max(number);
                let binding = self.desk.binding(&key.domain, &key.server);
                let known = Known {
                    id,
                    key,
                    epoch: binding.map_or(0, Binding::epoch),
                    session: None,
                };
                let known = self.sessions.entry(number).insert_entry(known).into_mut();
                Step::Open(known.subject(number))
            }
            Action::Close { id, why, .. } => {
                let number = session_number(id);
                let known = &self.sessions[&number];
                let subject = known.subject(number);
                match known.session {
                    Some(session) => Step::Close(subject, session, why),
                    None => Step::StopOpening(subject, why),
                }
            }
            Action::Give {
                token,
                ticket,
                id,
                fresh,
            } => {
                let number = session_number(id);
                let known = &self.sessions[&number];
                Step::Give {
                    token,
                    request: request_number(ticket),
                    subject: known.subject(number),
                    session: known.session.expect("what is given is open"),
                    fresh,
                }
            }
            Action::Refuse { token, ticket, why } => {
                let request = request_number(ticket);
                self.requests.remove(&request);
                Step::Refuse {
                    token,
                    request,
                    why,
                }
            }
            other => unreachable!("an action that nobody here knows: {other:?}"),
        })
    }

    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        self.desk.timeout()
    }

    /// How the pool stands. Looks at every session.
    pub(crate) fn status(&self, now: Timestamp) -> Status {
        Status {
            counters: self.desk.counters(),
            calls: self.requests.len(),
            sessions: self.desk.sessions(now),
        }
    }

    /// The session of this number; `None` if it is over.
    fn known(&self, session: u64) -> Result<Option<&Known<S>>, Error> {
        if session == 0 || session % 2 == 1 || session > self.newest_session {
            return Err(Error::new(
                Kind::Invalid,
                format!("no session of this pool has the id {session}"),
            ));
        }
        Ok(self.sessions.get(&session))
    }

    fn known_not_opening(&self, session: u64) -> Result<Option<SessionId>, Error> {
        let Some(known) = self.known(session)? else {
            return Ok(None);
        };
        if self.desk.is_opening(known.id) {
            return Err(Error::new(
                Kind::Invalid,
                format!("session {session} was not reported open: it can only fail"),
            ));
        }
        Ok(Some(known.id))
    }

    /// The request of this number; `None` if it is over.
    fn ticket(&self, request: u64) -> Result<Option<Ticket>, Error> {
        if request % 2 == 0 || request > self.newest_request || request == 1 {
            return Err(Error::new(
                Kind::Invalid,
                format!("no request of this pool has the id {request}"),
            ));
        }
        Ok(self.requests.get(&request).copied())
    }
}

impl<S> Known<S> {
    fn subject(&self, number: u64) -> Subject<'_> {
        Subject {
            session: number,
            key: &self.key,
            epoch: self.epoch,
        }
    }
}

/// What kind of error a refusal is.
fn kind_of(refused: Refused) -> Kind {
    match refused {
        Refused::Capacity { .. } | Refused::ServerCapacity { .. } | Refused::Saturated { .. } => {
            Kind::Capacity
        }
        Refused::Canceled => Kind::Canceled,
        _ => Kind::Closed,
    }
}
