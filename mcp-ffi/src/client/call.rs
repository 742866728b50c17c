//! The life of one call: a session, the request, one replay if that is safe, and exactly one completion.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use mcp_budget::Want;
use mcp_pool::{AcquireError, Key, Lease};
use mcp_transport::{
    error::{self, ErrorKind},
    session::{Backlog, RequestOptions},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    breaker::Pass,
    counted::CountedSession,
    deadline::within,
    error::{Error, Kind, Outcome},
    event::{Answer, Context, Event, EventKind},
    list::{ListKind, all_pages},
    open::failure,
    options::CallOptions,
    origin::Origin,
    queue::{EventQueue, Lane},
    scoped::{NotOpened, ScopedSession},
    server::{InFlight, Server},
    shared::Shared,
};

/// Why a call is to end before it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Canceled,
    SessionClosed,
    ClientClosed,
}

impl Stop {
    pub(super) fn error(self, outcome: Outcome) -> Error {
        match self {
            Self::Canceled => Error::new(Kind::Canceled, "the call was cancelled"),
            Self::SessionClosed => Error::new(Kind::Closed, "its session was closed"),
            Self::ClientClosed => Error::new(Kind::Closed, "the client was closed during the call"),
        }
        .with_outcome(outcome)
    }
}

/// Tells the host of one call.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    pub(super) queue: Arc<EventQueue>,
    pub(super) lane: Lane,
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) origin: Origin,
    pub(super) context: Option<Context>,
    /// What its server said and nobody has taken; `None` for a call about all servers.
    pub(super) backlog: Option<Backlog>,
    /// The last word was said. Progress comes on whichever thread reads it, and may be late.
    pub(super) over: Arc<Mutex<bool>>,
}

impl Voice {
    fn say(&self, kind: EventKind) {
        let before = {
            let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            if *over {
                return;
            }
            *over = !matches!(kind, EventKind::Progress(_));
            self.put(kind)
        };
        // Outside of the lock, for with it may go what held up its server.
        drop(before);
    }

    /// The last word; of several the first counts.
    pub(super) fn end(&self, result: Result<Answer, Error>) {
        self.say(match result {
            Ok(answer) => EventKind::Result(answer),
            Err(error) => EventKind::Error(error),
        });
    }

    /// Gives the event that made way for it.
    fn put(&self, kind: EventKind) -> Option<Event> {
        let event = Event {
            kind,
            id: self.id,
            token: self.token,
            server: self.origin.server.clone(),
            domain: self.origin.domain.clone(),
            scope: self.origin.scope.clone(),
            context: self.context.clone(),
            held: None,
        };
        let event = match &self.backlog {
            Some(backlog) => event.held_by(backlog),
            None => event,
        };
        self.queue.put(self.lane, event)
    }
}

/// A call that was admitted. However it goes, it completes once: at the latest when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) shared: Arc<Shared>,
    pub(super) voice: Voice,
    pub(super) stopped: oneshot::Receiver<Stop>,
    /// The call was started.
    pub(super) begun: bool,
    pub(super) completed: bool,
}

impl Ticket {
    pub(super) fn complete(mut self, result: Result<Answer, Error>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<Answer, Error>) {
        self.completed = true;
        // The completion is in the queue before the call is off the list: a closing client waits for the list.
        self.voice.end(result);
        self.shared.calls.remove(self.voice.id);
    }

    /// Does the work, unless the call is stopped before.
    pub(super) async fn run(mut self, work: impl Future<Output = Result<Answer, Error>>) {
        self.begun = true;
        let result = tokio::select! {
            biased;
            result = work => result,
            stop = &mut self.stopped => Err(stop.unwrap_or(Stop::ClientClosed).error(Outcome::NotSent)),
        };
        self.complete(result);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.completed {
            return;
        }
        let error = if self.begun {
            let message = "the call was given up by a fault of the library";
            Error::new(Kind::Internal, message).with_outcome(Outcome::Unknown)
        } else {
            Error::new(Kind::Canceled, "the call was prepared and never started")
        };
        self.finish(Err(error));
    }
}

/// A call of one request to one server.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) server: Arc<Server>,
    /// Whose session; `None` is the home session.
    pub(super) scope: Option<Arc<str>>,
    pub(super) method: Cow<'static, str>,
    pub(super) params: Option<Bytes>,
    pub(super) options: CallOptions,
    pub(super) deadline: Option<Instant>,
}

/// The session that a call uses.
enum Lent {
    Home {
        session: CountedSession,
        generation: u64,
    },
    Scoped(Lease<ScopedSession>),
}

impl Lent {
    fn session(&self) -> &CountedSession {
        match self {
            Self::Home { session, .. } => session,
            Self::Scoped(lease) => lease.session().session(),
        }
    }

    fn generation(&self) -> u64 {
        match self {
            Self::Home { generation, .. } => *generation,
            Self::Scoped(lease) => lease.session().generation(),
        }
    }
}

/// What may be done about a request that failed.
enum Verdict {
    /// It is over.
    Final,
    /// The server did not run it, and the session is no more: another one may serve.
    Replay,
    /// The server did not run it for want of credentials, and the host gave others meanwhile.
    ReplayHere,
}

impl Call {
    pub(super) async fn run(self, mut ticket: Ticket) {
        let in_flight = InFlight::on(&self.server);
        ticket.begun = true;
        let result = self.answer(&mut ticket).await;
        drop(in_flight);
        ticket.complete(result);
    }

    /// As [`run`](Self::run), page by page.
    pub(super) async fn run_list(self, kind: ListKind, mut ticket: Ticket) {
        let server = self.server.clone();
        let in_flight = InFlight::on(&server);
        ticket.begun = true;
        let result = all_pages(self, kind, &mut ticket).await;
        drop(in_flight);
        ticket.complete(result);
    }

    pub(super) async fn answer(&self, ticket: &mut Ticket) -> Result<Answer, Error> {
        let mut failed_on = None;
        let mut was_replayed = false;
        loop {
            let lent = tokio::select! {
                biased;
                // First, so that a call that was stopped before it began has nothing opened.
                stop = &mut ticket.stopped => {
                    return Err(stop.unwrap_or(Stop::ClientClosed).error(Outcome::NotSent));
                }
                lent = self.borrow(&ticket.shared, failed_on) => lent?,
            };
            let pass = self.pass()?;
            let shown = self.server.opener.credentials().shown();
            let answer = self.request(&lent, ticket).await?;
            let error = answer.as_ref().err();
            if error.is_some_and(|error| error.kind == ErrorKind::Timeout) {
                lent.session().timed_out();
            }
            pass.end(lent.session().session(), lent.generation(), error);
            let error = match answer {
                Ok(json) => {
                    self.proven(&lent);
                    self.server.opener.credentials().accepted(shown);
                    self.note(&lent);
                    return Ok(Answer::new(json, lent.generation(), failed_on.is_some()));
                }
                Err(error) => error,
            };
            // What was not sent was refused to an earlier one, of which has been told.
            let has_others = error.outcome == Outcome::Rejected
                && self.server.opener.credentials().refused(&error, shown);
            let verdict = self.judge(&ticket.shared, &lent, &error, has_others);
            let error = Error::of_server(&self.server.name, &error);
            match verdict {
                Verdict::Replay if self.options.same_session => {
                    let message = error.message + "; the call wants this very session and no other";
                    return Err(Error { message, ..error });
                }
                Verdict::Replay if !was_replayed => failed_on = Some(lent.generation()),
                Verdict::ReplayHere if !was_replayed => {}
                _ => return Err(error),
            }
            was_replayed = true;
        }
    }

    fn pass(&self) -> Result<Pass, Error> {
        let policy = self.server.opener.settings().policy();
        self.server.breaker.admit(policy).map_err(|again| {
            let name = &self.server.name;
            let when = match again {
                Some(wait) => format!("the next call may try in {:.1} s", wait.as_secs_f64()),
                None => "one call is finding out whether it answers again".into(),
            };
            Error {
                next_try: again,
                ..Error::new(
                    Kind::Waiting,
                    format!("server \"{name}\": it did not answer the last calls; {when}"),
                )
            }
        })
    }

    /// One request on one session. The outer error is a stop of the call.
    async fn request(
        &self,
        lent: &Lent,
        ticket: &mut Ticket,
    ) -> Result<Result<Bytes, error::Error>, Error> {
        let options = RequestOptions {
            deadline: self.deadline,
            idle: self.options.idle_timeout,
            on_progress: self.options.progress.then(|| {
                let voice = ticket.voice.clone();
                let hear = move |params| voice.say(EventKind::Progress(params));
                Box::new(hear) as mcp_transport::session::OnProgress
            }),
        };
        let _in_flight = lent.session().begin();
        let mut request =
            match lent
                .session()
                .session()
                .start(&self.method, self.params.as_deref(), options)
            {
                Ok(request) => request,
                Err(error) => return Ok(Err(error)),
            };
        let stop = tokio::select! {
            biased;
            answer = request.answer() => return Ok(answer),
            stop = &mut ticket.stopped => stop.unwrap_or(Stop::ClientClosed),
        };
        match request.cancel("the caller cancelled").await {
            Err(error) if error.kind == ErrorKind::Canceled => Err(stop.error(error.outcome)),
            // The answer came first.
            answered => Ok(answered),
        }
    }

    /// A session for the request: another one than that of the generation that failed.
    async fn borrow(&self, shared: &Arc<Shared>, failed_on: Option<u64>) -> Result<Lent, Error> {
        let Some(scope) = &self.scope else {
            let want = Want {
                deadline: self.deadline,
                other_than: failed_on,
            };
            let live = self.server.supervisor.session(want).await;
            let live = live.map_err(|why| Error::unavailable(&self.server.name, &why))?;
            return Ok(Lent::Home {
                session: live.session.session,
                generation: live.generation,
            });
        };
        let key = Key::new(
            self.server.domain.clone(),
            self.server.name.clone(),
            scope.clone(),
        );
        // The opening may be another call's, with a later deadline.
        let lease = within(self.deadline, self.acquire(shared, &key), || {
            let name = &self.server.name;
            format!("server \"{name}\": no session within the deadline")
        })
        .await??;
        if lease.fresh() {
            let (shared, id) = (shared.clone(), lease.id());
            let session = lease.session().clone();
            tokio::spawn(async move {
                session.ended().await;
                // What is to be told of its end is told.
                drop(session);
                shared.pool.evict(id).await;
            });
        }
        Ok(Lent::Scoped(lease))
    }

    /// The session of a scope. Its opening has the deadline of the call that began it; a call with more time that only
    /// joined it begins another.
    async fn acquire(&self, shared: &Shared, key: &Key) -> Result<Lease<ScopedSession>, Error> {
        loop {
            let ours = Arc::new(AtomicBool::new(false));
            let open = {
                let (ours, server, deadline) = (ours.clone(), self.server.clone(), self.deadline);
                let (scope, sessions) = (key.scope.clone(), shared.sessions.clone());
                move || async move {
                    ours.store(true, Ordering::Relaxed);
                    let leave = server.supervisor.leave(deadline).await;
                    let leave = leave.map_err(|why| NotOpened::unavailable(&server.name, &why))?;
                    ScopedSession::open(&server, scope, leave, sessions).await
                }
            };
            // Whoever waits for room does so no longer than its call has.
            let wait = shared.options.pool.wait.map(|wait| match self.deadline {
                Some(deadline) => wait.min(deadline.saturating_duration_since(Instant::now())),
                None => wait,
            });
            let pool = shared.pool.waiting(wait);
            let (key, binding) = (key.clone(), self.server.binding);
            let acquire = async move { pool.acquire(&key, &binding, open).await };
            match outlive(acquire, ours.clone()).await {
                Some(Err(AcquireError::Open(NotOpened::TooLate(_))))
                    if !ours.load(Ordering::Relaxed) => {}
                Some(lease) => return lease.map_err(|error| self.not_lent(error)),
                None => return Err(Error::closed()),
            }
        }
    }

    fn not_lent(&self, error: AcquireError<NotOpened>) -> Error {
        let kind = match error {
            AcquireError::Open(NotOpened::Failed(error) | NotOpened::TooLate(error)) => {
                return error;
            }
            AcquireError::Capacity { .. }
            | AcquireError::ServerCapacity { .. }
            | AcquireError::Saturated { .. } => Kind::Capacity,
            AcquireError::Stale | AcquireError::Closed => Kind::Closed,
            _ => Kind::Internal,
        };
        Error::new(kind, format!("server \"{}\": {error}", self.server.name))
    }

    /// What was granted on the home session may outlive it.
    fn note(&self, lent: &Lent) {
        if let Lent::Home { generation, .. } = lent {
            let standing = &self.server.standing;
            let stands = standing.granted(&self.method, self.params.as_ref(), *generation);
            if let Some(stands) = stands {
                self.server.supervisor.keep_open(stands);
            }
        }
    }

    fn proven(&self, lent: &Lent) {
        match lent {
            Lent::Home { generation, .. } => self.server.supervisor.proven(*generation),
            Lent::Scoped(lease) => lease.session().proven(),
        }
    }

    /// Tells budget and pool what a failed request says about its session. `has_others`: the host gave other
    /// credentials since it was sent.
    fn judge(
        &self,
        shared: &Shared,
        lent: &Lent,
        error: &error::Error,
        has_others: bool,
    ) -> Verdict {
        if error.outcome == Outcome::Answered {
            self.proven(lent);
            return Verdict::Final;
        }
        let refused = error.kind == ErrorKind::Expired && error.outcome == Outcome::Rejected;
        // Closed, but by what another call found out, and not by its owner.
        let given_up = error.kind == ErrorKind::Closed && lent.session().is_given_up();
        let unsent = error.outcome == Outcome::NotSent
            && (given_up
                || matches!(
                    error.kind,
                    // Auth too: its session had ended for want of credentials before the call came.
                    ErrorKind::Transport | ErrorKind::Protocol | ErrorKind::Auth
                ));
        let wants_rights = error.challenge.as_ref().is_some_and(|c| c.status == 403);
        let verdict = match error.kind {
            ErrorKind::Auth if has_others => return Verdict::ReplayHere,
            // Other calls may need fewer.
            ErrorKind::Auth if wants_rights => return Verdict::Final,
            ErrorKind::Auth if !unsent => Verdict::Final,
            _ if refused || unsent => Verdict::Replay,
            _ => return Verdict::Final,
        };
        lent.session().give_up();
        match lent {
            // Whoever gave it up has told.
            _ if given_up => {}
            Lent::Home { generation, .. } => {
                self.server.supervisor.lost(*generation, failure(error));
            }
            Lent::Scoped(lease) => {
                lease.session().lost(error);
                // It is told before this returns; the pool awaits its end.
                drop(shared.pool.evict(lease.id()));
            }
        }
        verdict
    }
}

/// Runs a future that goes on when nobody waits for it any more, if it has `begun` to open something: an opening that was
/// begun ends by itself, in a session for the next call or in a failure that the budget counts. If it ended with the
/// patience of its callers, a server that hangs would be started again and again by calls that have little. What has not
/// begun gives its place in the queue to others. `None` if its runtime went away.
async fn outlive<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
    begun: Arc<AtomicBool>,
) -> Option<T> {
    let mut future = Box::pin(future);
    // Most often a session is there already.
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    if let Poll::Ready(output) = first {
        return Some(output);
    }
    let (mut done, output) = oneshot::channel();
    tokio::spawn(async move {
        let output = tokio::select! {
            biased;
            output = &mut future => output,
            () = done.closed() => {
                if !begun.load(Ordering::Relaxed) {
                    return;
                }
                future.await
            }
        };
        // What nobody takes is dropped: a lease is given back.
        let _ = done.send(output);
    });
    output.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_that_comes_when_the_call_has_completed_is_not_heard() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let voice = Voice {
            queue: queue.clone(),
            lane: Lane(1),
            id: 7,
            token: 0,
            origin: Origin::default(),
            context: None,
            backlog: None,
            over: Arc::default(),
        };
        let heard_elsewhere = voice.clone();
        heard_elsewhere.say(EventKind::Progress(Bytes::from_static(b"{}")));
        voice.say(EventKind::Error(Error::closed()));
        heard_elsewhere.say(EventKind::Progress(Bytes::from_static(b"{}")));
        let heard: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|event| event.is_completion())
            .collect();
        assert_eq!(heard, [false, true]);
    }
}
