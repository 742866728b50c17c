//! The connections to a server: made when a request finds none, used again while the server keeps them, closed after.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use http::{HeaderValue, Request, Response, Uri, header};
use hyper::{
    client::conn::{TrySendError, http2},
    rt::Executor,
};
use hyper_util::rt::TokioTimer;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    body::Outbound,
    connect::{BoxError, Connector},
    http1::{Arriving, Http1},
    idle,
    pool::{Found, Origin, Pool, Ticket},
    tasks::{TaskId, Tasks},
};

/// How much of an answer is read at once, at most. What is larger than the processor's cache, or so large that the
/// allocator maps it anew each time, costs more than the system calls it saves; and an idle connection keeps it.
pub(super) const READ: usize = 64 << 10;

type Http2 = http2::SendRequest<Outbound>;
type Way = Found<Box<Http1>, Http2>;
type Waiting = oneshot::Sender<Result<Way, BoxError>>;

/// Why no answer came.
#[derive(Debug)]
pub(super) enum Failed {
    /// No connection could be made: nothing was sent.
    NotConnected(BoxError),
    /// It broke, or the request was taken back.
    Broken(hyper::Error),
}

/// Connections that are used again. Those that are idle go with it.
pub(super) struct Connections {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Connector,
    tasks: Weak<Tasks>,
    known: Mutex<Known>,
    /// Something is over before [`Known::due`] was.
    sooner: Arc<Notify>,
}

struct Known {
    pool: Pool<Box<Http1>, Http2, Waiting>,
    /// When the task looks next which sees to it that nothing stays that is over; `None` where there is none.
    due: Option<Instant>,
}

impl Connections {
    /// None yet. What works on them while nobody waits for it is one of `tasks`.
    pub(super) fn new(connector: Connector, tasks: &Arc<Tasks>) -> Self {
        let known = Mutex::new(Known {
            pool: Pool::new(),
            due: None,
        });
        let tasks = Arc::downgrade(tasks);
        Self {
            inner: Arc::new(Inner {
                connector,
                tasks,
                known,
                sooner: Arc::default(),
            }),
        }
    }

    /// Sends a request and gives the head of its answer.
    ///
    /// A request that comes back unwritten, because the connection that had been idle was found closed, is sent on
    /// another one; a request whose body was taken never is.
    pub(super) async fn send(
        &self,
        mut request: Request<Outbound>,
    ) -> Result<Response<Arriving>, Failed> {
        let uri = request.uri().clone();
        let origin = Origin::of(&uri)
            .ok_or_else(|| Failed::NotConnected("the URL names no server".into()))?;
        loop {
            let (way, is_new) = match self.inner.find(&origin) {
                Some(way) => (way, false),
                None => self.inner.wait(&origin, &uri).await?,
            };
            let sent = match way {
                Found::Own(connection) => {
                    Box::pin(self.inner.send_alone(&origin, connection, request)).await
                }
                Found::Shared(mut connection) => {
                    let sent = connection.try_send_request(request).await;
                    sent.map(Arriving::alone_in)
                }
            };
            let mut error = match sent {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            request = match error.take_message() {
                Some(request) if !is_new => request,
                _ => return Err(Failed::Broken(error.into_error())),
            };
            *request.uri_mut() = uri.clone();
            request.headers_mut().remove(header::HOST);
        }
    }
}

impl Inner {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that there is.
    fn find(&self, origin: &Origin) -> Option<Way> {
        let now = Instant::now();
        let mut known = self.known();
        let found = known.pool.take(origin, now, now + idle::LONGEST)?;
        match &found {
            // Found out by a task of its own.
            Found::Shared(connection) if connection.is_closed() => {
                known.pool.unshare(origin);
                None
            }
            _ => Some(found),
        }
    }

    /// A connection that is made, or given back before that; and whether it is new. One that is made too late for this
    /// request serves another, unless there are many of that kind.
    async fn wait(self: &Arc<Self>, origin: &Origin, uri: &Uri) -> Result<(Way, bool), Failed> {
        let (tell, told) = oneshot::channel();
        let ticket = self.known().pool.wait(origin, tell);
        let making = Making {
            owner: Arc::downgrade(self),
            origin: origin.clone(),
            ticket: Some(ticket),
        };
        let made = make(self.connector.clone(), uri.clone(), self.tasks.clone());
        let task = Spawner(self.tasks.clone()).spawn(async move { making.ended(made.await) });
        let _waits = Waits {
            inner: self,
            origin,
            ticket,
            task,
        };
        match told.await {
            Ok(Ok(way)) => {
                let is_new = match &way {
                    Found::Own(connection) => !connection.is_used,
                    Found::Shared(_) => true,
                };
                Ok((way, is_new))
            }
            Ok(Err(error)) => Err(Failed::NotConnected(error)),
            Err(_) => Err(Failed::NotConnected("the client was closed".into())),
        }
    }

    /// Sends a request over a connection that nobody else uses meanwhile.
    async fn send_alone(
        self: &Arc<Self>,
        origin: &Origin,
        mut connection: Box<Http1>,
        mut request: Request<Outbound>,
    ) -> Result<Response<Arriving>, TrySendError<Request<Outbound>>> {
        let host = connection.host.clone();
        request.headers_mut().insert(header::HOST, host);
        if !connection.is_forwarded {
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        }
        let response = connection.send(request).await?;
        let limit = idle::limit(response.headers());
        if connection.is_ready() {
            // All of the answer is here.
            self.give(self.known(), origin, connection, limit);
            return Ok(Arriving::alone_in(response));
        }
        let (owner, origin) = (Arc::downgrade(self), origin.clone());
        let give_back = Box::new(move |connection| {
            if let Some(owner) = owner.upgrade() {
                owner.give(owner.known(), &origin, connection, limit);
            }
        });
        Ok(response.map(|body| Arriving::over(body, connection, give_back)))
    }

    /// Gives a connection to whoever waits, or keeps it for `limit`.
    fn give(
        self: &Arc<Self>,
        mut known: MutexGuard<'_, Known>,
        origin: &Origin,
        connection: Box<Http1>,
        limit: Duration,
    ) {
        let until = Instant::now() + limit;
        let stays = known
            .pool
            .give(origin, connection, until, |who, connection| {
                match who.send(Ok(Found::Own(connection))) {
                    Err(Ok(Found::Own(connection))) => Err(connection),
                    _ => Ok(()),
                }
            });
        if stays {
            self.keep(known, until);
        }
    }

    fn share(
        self: &Arc<Self>,
        mut known: MutexGuard<'_, Known>,
        origin: &Origin,
        connection: Http2,
    ) {
        let until = Instant::now() + idle::LONGEST;
        known
            .pool
            .share(origin, connection, until, |who, connection| {
                let _ = who.send(Ok(Found::Shared(connection)));
            });
        self.keep(known, until);
    }

    /// Sees to it that what is over goes, from `first` on.
    fn keep(self: &Arc<Self>, mut known: MutexGuard<'_, Known>, first: Instant) {
        match known.due {
            Some(due) if due <= first => return,
            is_kept => {
                known.due = Some(first);
                // A task that cannot be is dropped at once, which wants the lock.
                drop(known);
                if is_kept.is_some() {
                    return self.sooner.notify_one();
                }
            }
        }
        let mut keeping = Keeping(Arc::downgrade(self));
        let sooner = self.sooner.clone();
        Spawner(self.tasks.clone()).execute(async move {
            let mut next = Some(first);
            while let Some(due) = next {
                let _ = timeout_at(due, sooner.notified()).await;
                let Some(inner) = keeping.0.upgrade() else {
                    return;
                };
                let mut known = inner.known();
                let (over, due) = known.pool.expire(Instant::now());
                next = due;
                known.due = next;
                if next.is_none() {
                    keeping.0 = Weak::new();
                }
                drop(known);
                // Closed without the lock.
                drop(over);
            }
        });
    }
}

/// A request that waits for a connection.
struct Waits<'a> {
    inner: &'a Inner,
    origin: &'a Origin,
    ticket: Ticket,
    /// What makes one.
    task: Option<TaskId>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let is_too_many = self.inner.known().pool.leave(self.origin, self.ticket);
        if let (true, Some(task), Some(tasks)) =
            (is_too_many, self.task, self.inner.tasks.upgrade())
        {
            tasks.cut(task);
        }
    }
}

/// A connection in the making; given up if it is dropped.
struct Making {
    owner: Weak<Inner>,
    origin: Origin,
    /// `None` once it was made.
    ticket: Option<Ticket>,
}

impl Making {
    fn ended(mut self, made: Result<Way, BoxError>) {
        let Some(owner) = self.owner.upgrade() else {
            return;
        };
        match made {
            Ok(way) => {
                self.ticket = None;
                // Under one lock, so that nobody finds too few in the making.
                let mut known = owner.known();
                known.pool.made(&self.origin);
                match way {
                    Found::Own(connection) => {
                        owner.give(known, &self.origin, connection, idle::LONGEST);
                    }
                    Found::Shared(connection) => owner.share(known, &self.origin, connection),
                }
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: BoxError) {
        let (Some(owner), Some(ticket)) = (self.owner.upgrade(), self.ticket.take()) else {
            return;
        };
        let who = owner.known().pool.failed(&self.origin, ticket);
        if let Some(who) = who {
            let _ = who.send(Err(error));
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.failed("making the connection was broken off".into());
    }
}

/// Says that nobody keeps them any more where the task is cut that does, as with its runtime.
struct Keeping(Weak<Inner>);

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.known().due = None;
        }
    }
}

async fn make(connector: Connector, uri: Uri, tasks: Weak<Tasks>) -> Result<Way, BoxError> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority)?;
    // Boxed, for it is large, and its task moves what it runs.
    let link = Box::pin(connector.connect(uri)).await?;
    if !link.is_http2() {
        let connection = Http1::over(link, host, READ).await?;
        return Ok(Found::Own(Box::new(connection)));
    }
    let spawner = Spawner(tasks);
    let mut builder = http2::Builder::new(spawner.clone());
    // How many requests it takes at a time the server says first of all, and refuses those beyond: one, until then.
    builder.initial_max_send_streams(1);
    let shaking = builder.timer(TokioTimer::new()).handshake(link);
    let (sender, driver) = Box::pin(shaking).await?;
    spawner.execute(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "a connection ended");
        }
    });
    Ok(Found::Shared(sender))
}

/// Runs what nobody waits for, so that it ends with the client.
#[derive(Clone)]
struct Spawner(Weak<Tasks>);

impl Spawner {
    /// `None` where a runtime is being taken down: there is none any more, and nothing left to run for.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Option<TaskId> {
        let (tasks, runtime) = (self.0.upgrade()?, Handle::try_current().ok()?);
        let id = tasks.reserve()?;
        tasks.spawn(id, &runtime, task);
        Some(id)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{address::AddressPolicy, connect::Tls, proxy::Proxies, resolve::Resolver};

    #[tokio::test]
    async fn a_client_that_is_gone_keeps_no_lock_and_nobody_waiting() {
        let proxies = Arc::new(Proxies::default());
        let connector =
            Connector::new(Tls::default(), Resolver::new(AddressPolicy::any()), proxies);
        let tasks = Arc::new(Tasks::default());
        let connections = Connections::new(connector, &tasks);
        tasks.cut_all();
        let inner = &connections.inner;
        inner.keep(inner.known(), Instant::now());
        assert_eq!(inner.known().due, None);
        let uri = Uri::from_static("http://127.0.0.1:9/");
        let origin = Origin::of(&uri).expect("absolute");
        let waited = inner.wait(&origin, &uri).await;
        assert!(matches!(waited, Err(Failed::NotConnected(_))));
    }
}
