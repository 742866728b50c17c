//! A session that knows its calls in flight.
//!
//! When one call finds that a session takes no new ones (it expired, the connection is refused), the calls that are
//! under way on it still have answers of their own to come. So it is given up at once and closed when they have ended;
//! closing it at once would end them as "closed, may have run", and they could not be sent again.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mcp_budget::{Failure, Pulse};
use mcp_transport::{
    error::Outcome,
    session::{RequestOptions, Session},
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout},
};

use super::{leaving::Leaving, open::failure};

/// What ends a session.
pub(super) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A session and how many calls are in flight on it. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct CountedSession {
    session: Session,
    count: Arc<Count>,
}

#[derive(Debug)]
struct Count {
    calls: watch::Sender<usize>,
    given_up: AtomicBool,
    /// When a call of it last timed out.
    timed_out: Mutex<Option<Instant>>,
    leaving: Leaving,
}

/// One call in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Count>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.calls.send_modify(|calls| *calls -= 1);
    }
}

impl CountedSession {
    pub(super) fn new(session: Session, leaving: Leaving) -> Self {
        Self {
            session,
            count: Arc::new(Count {
                calls: watch::Sender::new(0),
                given_up: AtomicBool::new(false),
                timed_out: Mutex::default(),
                leaving,
            }),
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn begin(&self) -> InFlight {
        self.count.calls.send_modify(|calls| *calls += 1);
        InFlight(self.count.clone())
    }

    /// A call of it timed out.
    pub(super) fn timed_out(&self) {
        *self.last_timeout() = Some(Instant::now());
    }

    fn last_timeout(&self) -> MutexGuard<'_, Option<Instant>> {
        self.count
            .timed_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of its silence, if that is a sign of anything: a session over HTTP hears nothing between calls
    /// unless it listens.
    pub(super) fn pulse(&self) -> Option<Pulse<Instant>> {
        self.session.listens().then(|| Pulse {
            heard: self.session.heard(),
            busy: *self.count.calls.borrow() > 0,
            timed_out: *self.last_timeout(),
        })
    }

    /// Asks the server for any answer.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        let answer = self.session.ping(None).await;
        answer.map_err(|error| failure(&error))
    }

    /// Asks it something else, for servers that know no ping.
    pub(super) async fn probe_other(&self) -> Result<(), Failure> {
        let options = RequestOptions::default();
        match self.session.request("tools/list", None, options).await {
            // An error that the server answered is life too.
            Err(error) if error.outcome != Outcome::Answered => Err(failure(&error)),
            _ => Ok(()),
        }
    }

    /// It serves no new call any more: its closing leaves those in flight their answers. To be said before budget or
    /// pool are told to close it.
    pub(super) fn give_up(&self) {
        self.count.given_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.count.given_up.load(Ordering::Relaxed)
    }

    /// Takes no new call any more, and is closed when those that run have ended, at the latest after so long.
    pub(super) fn drain(&self, calls_limit: Option<Duration>, limit: Duration) -> Closing {
        self.give_up();
        let (session, mut calls) = (self.session.clone(), self.count.calls.subscribe());
        Box::pin(async move {
            let all_ended = calls.wait_for(|calls| *calls == 0);
            let _ = timeout(calls_limit.unwrap_or(Duration::MAX), all_ended).await;
            session.close(limit).await;
        })
    }

    /// Closes it, at once or, if it was given up, when its calls have ended. It is told before this returns.
    pub(super) fn close(&self, limit: Duration) -> Closing {
        if !self.is_given_up() {
            return Box::pin(self.session.close(limit));
        }
        let (session, mut calls) = (self.session.clone(), self.count.calls.subscribe());
        let (over, closed) = oneshot::channel::<()>();
        // A task of its own: whoever waits for the closing gives up waiting sooner than a call may take.
        self.count.leaving.spawn(async move {
            // Every call has an end: its deadline, or that of the client.
            let _ = calls.wait_for(|calls| *calls == 0).await;
            session.close(limit).await;
            drop(over);
        });
        Box::pin(async move {
            let _ = closed.await;
        })
    }
}
