//! One message on its way: its POST, and what comes back on it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, response::Parts};
use http_body_util::BodyExt;
use hyper::body::Incoming as IncomingBody;
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Shared,
    answer::{self, Answer, Form},
    body::{self, Taken},
    client,
    snippet::Secrets,
};
use crate::{
    error::{Cause, Error, ErrorKind, Outcome},
    jsonrpc::{self, RequestId},
    sse::Decoder,
    transport::Incoming,
};

/// How long a message that nobody waits for may take to be answered.
const UNWATCHED: Duration = Duration::from_secs(30);
/// How long a stream is read on after it brought its answer.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// How much of a refusal is read, and for how long.
const REFUSAL: (usize, Duration) = (64 << 10, Duration::from_secs(2));

/// What a message is for the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The request that opens the session.
    Initialize,
    /// The notification that must be with the server before anything else is sent.
    Initialized,
    /// Any other.
    Other,
}

/// One message, its POST and what becomes of it. Whatever happens, a request is settled or was given up by the host.
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    pub(super) message: Bytes,
    pub(super) request: Option<RequestId>,
    pub(super) role: Role,
    pub(super) settled: bool,
    /// Passed once: tells those who wait that `initialized` was answered.
    pub(super) opens: Option<watch::Sender<()>>,
}

impl Exchange {
    /// Sends the message, after `gate` has gone if there is one, and delivers what comes.
    pub(super) async fn run(mut self, gate: Option<watch::Receiver<()>>) {
        if let Some(mut gate) = gate {
            // Its sender is dropped when `initialized` is through; it never sends.
            while gate.changed().await.is_ok() {}
        }
        let headers = self.shared.message_headers();
        let had_session = headers.contains_key(super::SESSION_ID);
        let response = match self.post(headers).await {
            Ok(response) => response,
            Err(error) => return self.fail(error),
        };
        // The head of the answer says that the server has the notification; its body may be long in coming.
        self.opens = None;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return self.refused(&head, body, had_session).await;
        }
        match answer::form(&head.headers) {
            Form::Events => self.read_events(&head, body).await,
            Form::Json if self.request.is_some() => self.read_json(&head, body, had_session).await,
            Form::Foreign if self.request.is_some() => {
                let read = body::beginning(body, REFUSAL.0, REFUSAL.1).await;
                let error = self.answer(&head, &read, had_session).foreign();
                self.fail(error);
            }
            // Whatever is said to a notification; read so that its connection can be used again.
            Form::Json | Form::Foreign => {
                body::beginning(body, REFUSAL.0, REFUSAL.1).await;
            }
        }
    }

    async fn post(&self, headers: HeaderMap) -> Result<Response<IncomingBody>, Error> {
        let config = &self.shared.config;
        // Weak, for a connection holds it: one that is stuck must not keep alive what would cut it.
        let shared = Arc::downgrade(&self.shared);
        let request = self.request;
        let taken = Taken::new(move || {
            if let (Some(id), Some(shared)) = (request, shared.upgrade()) {
                shared.tell(Incoming::Written(id));
            }
        });
        let sending = self.shared.client.send(client::Outgoing {
            method: Method::POST,
            url: &config.url,
            uri: &config.uri,
            headers,
            body: self.message.clone(),
            taken: Some(taken),
        });
        if self.request.is_some() {
            // The session has its deadline, and abandons.
            return sending.await;
        }
        timeout(UNWATCHED, sending).await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Timeout,
                format!(
                    "the server at {} did not answer a notification for {} seconds",
                    config.origin(),
                    UNWATCHED.as_secs()
                ),
            )
            .with_outcome(Outcome::Unknown))
        })
    }

    async fn refused(&mut self, head: &Parts, body: IncomingBody, had_session: bool) {
        let read = body::beginning(body, REFUSAL.0, REFUSAL.1).await;
        let answer = self.answer(head, &read, had_session);
        if self.request.is_some()
            && !answer.is_decided_by_status()
            && jsonrpc::settles(&read) == self.request
        {
            // The server answered the request, and only dressed its error in a status.
            self.take(read, None);
            return;
        }
        let error = answer.refusal();
        self.fail(error);
    }

    async fn read_json(&mut self, head: &Parts, body: IncomingBody, had_session: bool) {
        let read = match body::whole(body, self.shared.config.body_limit).await {
            Ok(read) => read,
            Err(error) => return self.fail(self.unreadable(&error)),
        };
        for message in answer::messages(read.clone()) {
            self.take(message, head.headers.get(super::SESSION_ID));
        }
        if !self.settled {
            let error = self.answer(head, &read, had_session).unsettled();
            self.fail(error);
        }
    }

    async fn read_events(&mut self, head: &Parts, mut body: IncomingBody) {
        let session = head.headers.get(super::SESSION_ID);
        let mut decoder = Decoder::new(self.shared.config.body_limit);
        // After the answer, and where none is due, the stream is read on for a moment only: what comes still counts,
        // and a stream that ends leaves a connection that can be used again.
        let mut until = None;
        loop {
            if until.is_none() && (self.settled || self.request.is_none()) {
                until = Some(Instant::now() + AFTERWARDS);
            }
            let frame = match until {
                None => body.frame().await,
                Some(until) => match timeout_at(until, body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => return,
                },
            };
            let data = match frame {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    let error = self.unreadable(&body::BodyError::Broken(error));
                    return self.fail(error);
                }
                None => {
                    let origin = self.shared.config.origin();
                    return self.fail(
                        Error::new(
                            ErrorKind::Transport,
                            format!("the server at {origin} ended the stream without the answer"),
                        )
                        .with_outcome(Outcome::Unknown),
                    );
                }
            };
            decoder.feed(data);
            loop {
                match decoder.next_event() {
                    Ok(Some(event)) if event.is_message() => {
                        for message in answer::messages(event.data) {
                            self.take(message, session);
                        }
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(too_large) => {
                        let limit = too_large.limit;
                        let error = self.unreadable(&body::BodyError::TooLarge { limit });
                        return self.fail(error);
                    }
                }
            }
        }
    }

    /// Delivers one message that came. `session` is the id that the answer's head gave.
    fn take(&mut self, message: Bytes, session: Option<&HeaderValue>) {
        match jsonrpc::settles(&message) {
            Some(id) => {
                if self.request == Some(id) && !self.settled {
                    if self.role == Role::Initialize && answer::is_result(&message) {
                        self.shared.opened(session);
                    }
                    self.settle(id);
                }
                self.shared.tell(Incoming::Message(message));
            }
            None if answer::method(&message).is_some() => {
                self.shared.tell(Incoming::Message(message));
            }
            None => tracing::debug!(
                origin = self.shared.config.origin(),
                bytes = message.len(),
                "what came is no message of a server, and no answer to a request of ours"
            ),
        }
    }

    /// The request, or the notification, failed.
    fn fail(&mut self, error: Error) {
        if self.settled {
            return;
        }
        match self.request {
            Some(id) => {
                self.settle(id);
                if error.kind == ErrorKind::Expired {
                    self.shared.expired();
                }
                self.shared.tell(Incoming::Failed(id, error));
            }
            // There is no request to tell it to, and every further one would meet it. Those under way hear it
            // themselves, as refused before they ran; cut here, nobody would know what became of them.
            None if error.kind == ErrorKind::Expired => {
                self.shared.expired();
                if self.shared.is_idle() {
                    self.shared.end(error);
                }
            }
            None => tracing::warn!(%error, "a notification was not delivered"),
        }
    }

    fn settle(&mut self, id: RequestId) {
        self.settled = true;
        self.shared.settled(id);
    }

    fn unreadable(&self, error: &body::BodyError) -> Error {
        let kind = match error {
            body::BodyError::TooLarge { .. } => ErrorKind::Protocol,
            body::BodyError::Broken(_) => ErrorKind::Transport,
        };
        Error::new(
            kind,
            format!("{error} (from {})", self.shared.config.origin()),
        )
        .with_cause(Cause::Transient)
        .with_outcome(Outcome::Unknown)
    }

    fn answer<'a>(&'a self, head: &'a Parts, body: &'a [u8], had_session: bool) -> Answer<'a> {
        let config = &self.shared.config;
        let session = self.shared.session();
        let mut secrets = Secrets::new(&config.url, &config.headers, session.as_ref());
        if self.role != Role::Initialize {
            secrets = secrets.and_params_of(&self.message);
        }
        Answer {
            origin: &self.shared.origin,
            status: head.status,
            headers: &head.headers,
            had_session,
            body,
            secrets,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(id) = self.request else { return };
        if !self.settled && std::thread::panicking() {
            self.settle(id);
            self.shared.tell(Incoming::Failed(
                id,
                Error::new(
                    ErrorKind::Internal,
                    "the transport panicked while it carried the request",
                )
                .with_outcome(Outcome::Unknown),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::Mutex,
    };

    use super::*;
    use crate::{
        http::{HttpClient, HttpConfig, HttpTransport},
        transport::{Receiver, Transport},
    };

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Incoming>>);

    impl Receiver for Recorder {
        fn receive(&self, incoming: Incoming) {
            self.0.lock().expect("no panic in here").push(incoming);
        }
    }

    #[tokio::test]
    async fn a_panic_settles_the_request_that_it_meets_and_giving_up_does_not() {
        let config = HttpConfig::new("http://localhost/", &[]).expect("good");
        let transport = HttpTransport::new(config, HttpClient::new());
        let recorder = Arc::new(Recorder::default());
        transport.start(recorder.clone()).await.expect("it starts");
        let exchange = || Exchange {
            shared: transport.shared.clone(),
            message: Bytes::new(),
            request: Some(RequestId(5)),
            role: Role::Other,
            settled: false,
            opens: None,
        };
        drop(exchange());
        assert!(recorder.0.lock().expect("whole").is_empty());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _exchange = exchange();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        match recorder.0.lock().expect("whole").as_slice() {
            [Incoming::Failed(RequestId(5), error)] => {
                assert_eq!(
                    (error.kind, error.outcome, error.cause),
                    (ErrorKind::Internal, Outcome::Unknown, Cause::Fatal)
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
