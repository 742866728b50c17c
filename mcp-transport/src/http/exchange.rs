//! One message on its way: its POST, and what comes back on it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, response::Parts};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use url::Url;

use super::{
    Shared,
    answer::{self, Answer, Form},
    body::{self, BodyError, Payload, Taken},
    client,
    events::Events,
    http1::Arriving,
    legacy_sse::Endpoint,
    resumption::Purpose,
    snippet::Secrets,
    streams::{Opening, Stream},
};
use crate::{
    error::{Cause, Error, ErrorKind, Outcome},
    jsonrpc::{self, Envelope, RequestId},
    sse::Event,
    transport::Incoming,
};

/// How long a message that nobody waits for may take to be answered.
const UNWATCHED: Duration = Duration::from_secs(30);
/// How long a stream is read on after it brought its answer.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// How much of a refusal is read, and for how long.
pub(super) const REFUSAL: (usize, Duration) = (64 << 10, Duration::from_secs(2));

/// How much of a message that is too large is looked at, to see whether it is the answer.
const HEAD: usize = 256;

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
    pub(super) taken: Taken,
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
        match self.shared.endpoint() {
            Some(endpoint) => Box::pin(self.run_legacy(&endpoint)).await,
            None => self.run_streamable().await,
        }
    }

    async fn run_streamable(&mut self) {
        let headers = self.shared.message_headers();
        let had_session = headers.contains_key(super::SESSION_ID);
        let shared = self.shared.clone();
        let asked = Instant::now();
        let response = match self
            .post(&shared.config.url, &shared.config.uri, headers)
            .await
        {
            Ok(response) => response,
            // Nobody waits for it any more, and it is no failure.
            Err(_) if self.taken.is_withdrawn() => return,
            Err(error) => return self.fail(error),
        };
        // The head of the answer says that the server has the notification; its body may be long in coming.
        self.opens = None;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Box::pin(self.refused(&head, body, had_session)).await;
        }
        if had_session && self.request.is_some() {
            let method = || answer::method(&self.message);
            self.shared.client.credentials().let_in(method);
        }
        let payload = |body| Payload::new(&head.headers, body);
        match answer::form(&head.headers) {
            Form::Events if self.request.is_some() => {
                Box::pin(self.read_events(&head, body, asked)).await;
            }
            Form::Events => Box::pin(self.read_aside(&head, body)).await,
            Form::Json if self.request.is_some() => {
                self.read_json(&head, payload(body), had_session).await;
            }
            Form::Foreign if self.request.is_some() => {
                let read = body::beginning(payload(body), REFUSAL.0, REFUSAL.1).await;
                let error = self.answer(&head, &read, had_session).foreign();
                self.fail(error);
            }
            // Whatever is said to a notification; read so that its connection can be used again.
            Form::Json | Form::Foreign => {
                body::beginning(payload(body), REFUSAL.0, REFUSAL.1).await;
            }
        }
    }

    /// Posts the message to the endpoint of HTTP+SSE. Its answer comes on the stream.
    async fn run_legacy(&mut self, endpoint: &Endpoint) {
        let headers = self.shared.message_headers();
        let shared = self.shared.clone();
        let response = {
            let mut posting = std::pin::pin!(self.post(&endpoint.url, &endpoint.uri, headers));
            loop {
                if let Ok(response) = timeout(AFTERWARDS, &mut posting).await {
                    break response;
                }
                // Answered on the stream a while ago: what is said to the POST does not count any more.
                if self.request.is_some_and(|id| !shared.is_pending(id))
                    && self.role != Role::Initialize
                {
                    return;
                }
            }
        };
        self.opens = None;
        match response {
            Err(_) if self.taken.is_withdrawn() => {}
            Err(error) => self.fail(error),
            Ok(response) => {
                let (head, body) = response.into_parts();
                let body = Payload::new(&head.headers, body);
                let read = body::beginning(body, REFUSAL.0, REFUSAL.1).await;
                if !head.status.is_success() {
                    // The endpoint is the session's: where it is not found, the session is not.
                    let error = self.answer(&head, &read, true).refusal();
                    self.fail(error);
                }
            }
        }
    }

    async fn post(
        &self,
        url: &Url,
        uri: &Uri,
        headers: HeaderMap,
    ) -> Result<Response<Arriving>, Error> {
        let sending = self.shared.client.send(client::Outgoing {
            method: Method::POST,
            url,
            uri,
            headers,
            body: self.message.clone(),
            taken: Some(self.taken.clone()),
            cookies: &self.shared.cookies,
            is_stream: false,
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
                    self.shared.origin,
                    UNWATCHED.as_secs()
                ),
            )
            .with_outcome(Outcome::Unknown))
        })
    }

    async fn refused(&mut self, head: &Parts, body: Arriving, had_session: bool) {
        let body = Payload::new(&head.headers, body);
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
        if self.role == Role::Initialize && matches!(head.status.as_u16(), 400 | 404 | 405) {
            match self.shared.open_legacy().await {
                Ok(()) => {
                    if let Some(endpoint) = self.shared.endpoint() {
                        return self.run_legacy(&endpoint).await;
                    }
                }
                Err(legacy) => tracing::debug!(
                    origin = self.shared.origin,
                    error = %legacy,
                    "the server that refused `initialize` does not speak HTTP+SSE either"
                ),
            }
        }
        let method = || answer::method(&self.message).unwrap_or_default();
        if head.status == StatusCode::UNAUTHORIZED
            && had_session
            && self.shared.client.credentials().may_be_expiry(&method())
        {
            let error = self.answer(head, &read, had_session).expiry();
            return self.fail(error);
        }
        self.fail(error);
    }

    async fn read_json(&mut self, head: &Parts, body: Payload, had_session: bool) {
        self.shared.told.wants_more().await;
        let read = match body::whole(body, self.shared.config.body_limit).await {
            Ok(read) => read,
            // The server did answer, and it is not the outcome that is unknown but the answer.
            Err(error @ BodyError::TooLarge { .. }) => {
                let error = self.unreadable(&error).with_outcome(Outcome::Answered);
                return self.fail(error);
            }
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

    /// Reads the stream of an answer, over as many connections as it takes: where it ends before the answer, and the
    /// server named an event to go on from, it is asked for again.
    async fn read_events(&mut self, head: &Parts, body: Arriving, asked: Instant) {
        let session = head.headers.get(super::SESSION_ID).cloned();
        // That of a session which is only being opened is not known anywhere else.
        let opening = session
            .as_ref()
            .filter(|_| self.role == Role::Initialize)
            .cloned();
        let limit = self.shared.config.body_limit;
        let mut stream = Stream::new(Purpose::Answer, asked);
        let mut events = Box::new(Events::new(&head.headers, body, limit));
        let mut resumed = false;
        loop {
            let ended = self
                .read_opening(&mut events, &mut stream, session.as_ref(), resumed)
                .await;
            let error = match ended {
                Ok(()) => return,
                Err(Some(error @ BodyError::Broken(_))) => self.unreadable(&error),
                Err(Some(error)) => {
                    let answered = matches!(error, BodyError::TooLarge { .. })
                        && self.is_cut_answer(&events.data_under_way(HEAD), resumed);
                    let mut error = self.unreadable(&error);
                    if answered {
                        error.outcome = Outcome::Answered;
                    }
                    return self.fail(error);
                }
                Err(None) => self.unanswered(""),
            };
            events = match self.resume(&mut stream, opening.as_ref(), error).await {
                Ok(events) => events,
                Err(error) => return self.fail(error),
            };
            resumed = true;
        }
    }

    /// Asks for the stream until it is open again; gives up with what is then known of the request. `error` is for
    /// the case that it cannot be.
    async fn resume(
        &self,
        stream: &mut Stream,
        session: Option<&HeaderValue>,
        error: Error,
    ) -> Result<Box<Events>, Error> {
        if !stream.is_resumable() {
            return Err(error);
        }
        loop {
            if !stream.pause().await {
                return Err(self.unanswered(", and brings nothing when it is resumed"));
            }
            match stream.open(&self.shared, session, self.secrets()).await {
                Opening::Open(events) => return Ok(events),
                Opening::NotNow(error) => tracing::debug!(
                    origin = self.shared.origin,
                    %error,
                    "a stream could not be resumed yet"
                ),
                Opening::Refused(_, refusal) | Opening::Unauthorized(_, refusal) => {
                    if matches!(refusal.kind, ErrorKind::Expired | ErrorKind::Auth) {
                        // It was sent all the same, and may have run.
                        return Err(refusal.with_outcome(Outcome::Unknown));
                    }
                    return Err(
                        self.unanswered(&format!(" and does not let it be resumed ({refusal})"))
                    );
                }
            }
        }
    }

    /// Reads one connection's part of the answer's stream. `Ok` once there is no more to read; else why it ended
    /// before the answer, `None` in good order.
    async fn read_opening(
        &mut self,
        events: &mut Events,
        stream: &mut Stream,
        session: Option<&HeaderValue>,
        resumed: bool,
    ) -> Result<(), Option<BodyError>> {
        // After the answer, the stream is read on for a moment only: what comes still counts, and a stream that ends
        // leaves a connection that can be used again.
        let mut until = None;
        loop {
            if until.is_none() && self.settled {
                until = Some(Instant::now() + AFTERWARDS);
            }
            let next = match until {
                None => self.shared.next_event(events).await,
                Some(until) => match timeout_at(until, self.shared.next_event(events)).await {
                    Ok(next) => next,
                    Err(_) => return Ok(()),
                },
            };
            stream.note(events);
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) | Err(_) if self.settled => return Ok(()),
                Ok(None) => return Err(None),
                Err(error) => return Err(Some(error)),
            };
            if self.deliver(event, session, resumed) {
                stream.brought_message();
            }
        }
    }

    /// Delivers an event of the answer's stream; true if it brought a message that was new.
    fn deliver(&mut self, event: Event, session: Option<&HeaderValue>, resumed: bool) -> bool {
        if resumed
            && !answer::messages(event.data.clone())
                .iter()
                .any(|m| self.is_answer(m))
        {
            return self.shared.deliver(event, true);
        }
        self.shared.is_new(&event);
        if !event.is_message() {
            return false;
        }
        let messages = answer::messages(event.data);
        let is_message = !messages.is_empty();
        for message in messages {
            self.take(message, session);
        }
        is_message
    }

    fn is_answer(&self, message: &[u8]) -> bool {
        self.request.is_some() && jsonrpc::settles(message) == self.request
    }

    /// Whether what begins so, and was too large to be read, is the answer. A stream may also bring what comes before
    /// it; one that was not resumed brings the answer to this request alone.
    fn is_cut_answer(&self, head: &[u8], resumed: bool) -> bool {
        match jsonrpc::cut_answer(head) {
            Some(Some(id)) => self.request == Some(id),
            Some(None) => !resumed,
            None => false,
        }
    }

    /// A stream of events where none was due. What it brings within a moment is taken.
    async fn read_aside(&mut self, head: &Parts, body: Arriving) {
        let mut events = Events::new(&head.headers, body, self.shared.config.body_limit);
        let _ = timeout(AFTERWARDS, async {
            while let Ok(Some(event)) = self.shared.next_event(&mut events).await {
                self.deliver(event, None, false);
            }
        })
        .await;
    }

    fn unanswered(&self, more: &str) -> Error {
        Error::new(
            ErrorKind::Transport,
            format!(
                "the server at {} ended the stream without the answer{more}",
                self.shared.origin
            ),
        )
        .with_outcome(Outcome::Unknown)
    }

    /// Delivers one message that came. `session` is the id that the answer's head gave.
    fn take(&mut self, message: Bytes, session: Option<&HeaderValue>) {
        match jsonrpc::parse(&message) {
            Ok(Envelope::Response {
                id: Some(id),
                outcome,
            }) => {
                if self.request == Some(id) && !self.settled {
                    if self.role == Role::Initialize && outcome.is_ok() {
                        self.shared.opened(session);
                    }
                    if !self.settle(id) {
                        return;
                    }
                }
                let answer = jsonrpc::Answer::cut(&message, id, outcome);
                self.shared.tell(Incoming::Answer(answer));
            }
            Ok(Envelope::Request { .. } | Envelope::Notification { .. }) => {
                self.shared.tell(Incoming::Message(message));
            }
            Ok(Envelope::Response { id: None, .. } | Envelope::Batch) | Err(_) => tracing::debug!(
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
        let error = self.shared.discreet(error);
        match self.request {
            Some(id) => {
                if error.kind == ErrorKind::Expired {
                    self.shared.expired();
                }
                if self.settle(id) {
                    self.shared.tell(Incoming::Failed(id, error));
                }
            }
            // There is no request to tell it to, and every further one would meet it. Those under way hear it
            // themselves, as refused before they ran; cut here, nobody would know what became of them.
            None if error.kind == ErrorKind::Expired => {
                self.shared.expired();
                self.shared.end_if_idle(error);
            }
            None => tracing::warn!(%error, "a notification was not delivered"),
        }
    }

    /// The request has its end; false if it had one already, or was given up.
    fn settle(&mut self, id: RequestId) -> bool {
        self.settled = true;
        self.shared.claim(id).is_some() || self.role == Role::Initialize
    }

    fn unreadable(&self, error: &BodyError) -> Error {
        let kind = match error {
            BodyError::TooLarge { .. } | BodyError::Undecodable(_) => ErrorKind::Protocol,
            BodyError::Broken(_) => ErrorKind::Transport,
        };
        Error::new(kind, format!("{error} (from {})", self.shared.origin))
            .with_cause(Cause::Transient)
            .with_outcome(Outcome::Unknown)
    }

    /// What the server must not make us repeat: what goes along with each request, and with this one.
    fn secrets(&self) -> Secrets {
        let secrets = self.shared.secrets();
        match self.role {
            Role::Initialize => secrets,
            Role::Initialized | Role::Other => secrets.and_params_of(&self.message),
        }
    }

    fn answer<'a>(&'a self, head: &'a Parts, body: &'a [u8], had_session: bool) -> Answer<'a> {
        Answer {
            origin: &self.shared.origin,
            status: head.status,
            headers: &head.headers,
            had_session,
            request: self.request,
            body,
            secrets: self.secrets(),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(id) = self.request else { return };
        if !self.settled && std::thread::panicking() && self.settle(id) {
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
        let task = transport.shared.posts.reserve().expect("not cut");
        let taken = transport.shared.taken(Some(RequestId(5)));
        let underway = super::super::Underway {
            task,
            opens: false,
            taken: taken.clone(),
        };
        let mut state = transport.shared.state();
        state.requests.insert(RequestId(5), underway);
        drop(state);
        let exchange = || Exchange {
            shared: transport.shared.clone(),
            message: Bytes::new(),
            request: Some(RequestId(5)),
            taken: taken.clone(),
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
