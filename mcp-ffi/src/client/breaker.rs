//! The breaker of one server, with a clock: calls to a server that answers none are refused for a while.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use mcp_budget::{Admitted, Breaker, CallEnd, Policy, Timestamp};
use mcp_transport::{
    error::{self, ErrorKind, Outcome},
    session::Session,
};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct ServerBreaker {
    began: Instant,
    breaker: Mutex<Breaker>,
}

/// An admitted call; it counts as given up if it is dropped before it ended.
#[derive(Debug)]
pub(super) struct Pass {
    breaker: Arc<ServerBreaker>,
    policy: Policy,
    admitted: Option<Admitted>,
}

impl ServerBreaker {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            breaker: Mutex::default(),
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO.plus(self.began.elapsed())
    }

    /// Admits a call, or says when to come again; `None` while another call is finding out.
    pub(super) fn admit(self: &Arc<Self>, policy: Policy) -> Result<Pass, Option<Duration>> {
        let now = self.now();
        match self.breaker().admit(now, &policy) {
            Ok(admitted) => Ok(Pass {
                breaker: self.clone(),
                policy,
                admitted: Some(admitted),
            }),
            Err(open) => Err(open.until.map(|until| until.since(now))),
        }
    }
}

impl Pass {
    /// How the call ended on this session.
    pub(super) fn end(mut self, session: &Session, generation: u64, error: Option<&error::Error>) {
        let end = match error {
            None => CallEnd::Answered,
            Some(error) => end_of(session, generation, error),
        };
        self.tell(end);
    }

    fn tell(&mut self, end: CallEnd) {
        if let Some(admitted) = self.admitted.take() {
            let now = self.breaker.now();
            self.breaker
                .breaker()
                .ended(now, &self.policy, admitted, end);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.tell(CallEnd::Cancelled);
    }
}

fn end_of(session: &Session, generation: u64, error: &error::Error) -> CallEnd {
    match (error.kind, error.outcome) {
        // A refusal is an answer, and so is what is no MCP: the server is there.
        (_, Outcome::Answered | Outcome::Rejected) | (ErrorKind::Protocol, _) => CallEnd::Answered,
        (ErrorKind::Timeout, _) => CallEnd::Failed,
        (ErrorKind::Transport, _) if has_ended(session) => CallEnd::SessionLost { generation },
        (ErrorKind::Transport, _) => CallEnd::Failed,
        _ => CallEnd::Cancelled,
    }
}

fn has_ended(session: &Session) -> bool {
    let ended = pin!(session.ended()).poll(&mut Context::from_waker(Waker::noop()));
    matches!(ended, Poll::Ready(_))
}
