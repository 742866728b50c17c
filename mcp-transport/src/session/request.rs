//! One request from its sending to its end.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::oneshot,
    time::{Duration, Instant, timeout_at},
};

use crate::{
    error::{Error, ErrorKind, Outcome},
    jsonrpc::{self, RequestId},
    text,
    transport::Outgoing,
};

use super::{Link, RequestOptions, router::Ended};

/// A request that was handed to the transport and has not ended. Dropped, it is cancelled.
pub struct Request {
    link: Arc<Link>,
    id: RequestId,
    answer: oneshot::Receiver<Ended>,
    begun: Instant,
    deadline: Option<Instant>,
    idle: Option<Duration>,
    cancellable: bool,
    over: bool,
}

/// The limit that passes first.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    Deadline,
    Idle(Duration),
}

impl Request {
    /// Sends the request. `cancellable` is false for `initialize` alone.
    pub(super) fn begin(
        link: Arc<Link>,
        method: &str,
        params: Option<&[u8]>,
        options: RequestOptions,
        cancellable: bool,
    ) -> Result<Self, Error> {
        let begun = Instant::now();
        if options.deadline.is_some_and(|at| at <= begun) {
            let message = "the deadline had passed before the request was sent";
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        // Without the token no server sends progress, and the idle limit would be a second deadline.
        let with_progress = options.on_progress.is_some() || options.idle.is_some();
        let id = link.router.new_id();
        let bytes = jsonrpc::request(id, method, params, with_progress)?;
        let answer = link.router.expect(id, begun, options.on_progress)?;
        let call = Self {
            link,
            id,
            answer,
            begun,
            deadline: options.deadline,
            idle: options.idle,
            cancellable,
            over: false,
        };
        call.link.transport.send(Outgoing {
            bytes,
            request: Some(id),
        });
        Ok(call)
    }

    /// Waits for the answer or the first limit. May be dropped and called again, until it gave an end.
    ///
    /// # Errors
    /// Those of [`Session::request`](super::Session::request).
    pub async fn answer(&mut self) -> Result<Bytes, Error> {
        loop {
            let Some(due) = self.due() else {
                let answer = (&mut self.answer).await;
                return self.end(answer);
            };
            if let Ok(answer) = timeout_at(due.at, &mut self.answer).await {
                return self.end(answer);
            }
            // Progress may have come since the idle limit was reckoned.
            if self.due().is_some_and(|due| due.at <= Instant::now()) {
                return self.time_out(due.limit).await;
            }
        }
    }

    fn due(&self) -> Option<Due> {
        let deadline = self.deadline.map(|at| Due {
            at,
            limit: Limit::Deadline,
        });
        let idle = self.idle.and_then(|idle| {
            let since = self.link.router.last_sign(self.id).unwrap_or(self.begun);
            let at = since.checked_add(idle)?;
            Some(Due {
                at,
                limit: Limit::Idle(idle),
            })
        });
        match (deadline, idle) {
            (Some(deadline), Some(idle)) if idle.at < deadline.at => Some(idle),
            (Some(deadline), _) => Some(deadline),
            (None, idle) => idle,
        }
    }

    fn end(&mut self, answer: Result<Ended, oneshot::error::RecvError>) -> Result<Bytes, Error> {
        self.over = true;
        let answer = answer.unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Internal, "the request was forgotten");
            Err(error.with_outcome(Outcome::Unknown))
        });
        // Delivered: it no longer counts.
        answer.map(|(result, _held)| result)
    }

    /// Cancels it, telling the server if it was sent: an error of the kind `Canceled` that says what is known of
    /// it. If it ended just before, that end is given instead.
    ///
    /// # Errors
    /// As said.
    pub async fn cancel(mut self, reason: &str) -> Result<Bytes, Error> {
        self.give_up(ErrorKind::Canceled, reason).await
    }

    async fn give_up(&mut self, kind: ErrorKind, message: &str) -> Result<Bytes, Error> {
        match self.withdraw(message) {
            Some(outcome) => Err(Error::new(kind, message).with_outcome(outcome)),
            // The answer came meanwhile, and counts: it is there or about to be.
            None => {
                let answer = (&mut self.answer).await;
                self.end(answer)
            }
        }
    }

    async fn time_out(&mut self, limit: Limit) -> Result<Bytes, Error> {
        let message = match limit {
            Limit::Deadline => {
                format!("no answer within {}", text::seconds(self.begun.elapsed()))
            }
            Limit::Idle(idle) => {
                format!("neither answer nor progress for {}", text::seconds(idle))
            }
        };
        self.give_up(ErrorKind::Timeout, &message).await
    }

    /// Takes the request back, as far as it can be. Gives what is then known of it, or `None` if it has ended
    /// meanwhile.
    fn withdraw(&mut self, reason: &str) -> Option<Outcome> {
        self.over = true;
        // First the transport, for it may have to say here that the request is out already.
        self.link.transport.abandon(self.id);
        let outcome = self.link.router.forget(self.id)?;
        // What was never written needs no cancelling.
        if self.cancellable && outcome == Outcome::Unknown {
            let mut reason_json = bytes::BytesMut::new();
            jsonrpc::put_string(&mut reason_json, reason);
            let id = self.id;
            let mut params = format!("{{\"requestId\":{id},\"reason\":").into_bytes();
            params.extend_from_slice(&reason_json);
            params.push(b'}');
            // It is a courtesy: where the connection is gone there is nobody to tell.
            let _ = self.link.notify("notifications/cancelled", Some(&params));
        }
        Some(outcome)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.id)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.over {
            self.withdraw("the caller cancelled");
        }
    }
}
