//! Streams that outlive their connection: the standing one, on which the server speaks on its own, and those of
//! answers, each read on from its last event by another GET.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    Shared,
    answer::{self, Answer, Form},
    body::{self, Payload},
    client,
    events::Events,
    exchange::REFUSAL,
    resumption::{Brought, Ending, Next, Purpose, Resumption},
    snippet::Secrets,
};
use crate::{
    error::{Error, ErrorKind},
    jsonrpc,
    sse::Event,
    transport::Incoming,
};

/// How long requests wait for the server's word about the standing stream after the handshake: what a server asks or
/// says on account of them is lost where it has no stream to say it on. Some send no head before the first event.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// What the standing stream is among the methods of requests.
const STREAM: &str = "GET";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What came of asking for a stream.
#[derive(Debug)]
pub(super) enum Opening {
    Open(Box<Events>),
    /// The server does not give it, and will not; with the status, where it was that.
    Refused(Option<StatusCode>, Error),
    /// The server does not give it to these credentials; with the status.
    Unauthorized(StatusCode, Error),
    /// It may be given another time.
    NotNow(Error),
}

/// One stream over all its connections.
pub(super) struct Stream {
    resumption: Resumption,
    /// The zero of the resumption's time.
    zero: Instant,
    asked: Instant,
    /// The last event, after which it is read on.
    last: Option<HeaderValue>,
    brought: Brought,
    retry: Option<Duration>,
    not_before: Option<Duration>,
}

impl Stream {
    /// A stream whose first opening was asked for just now.
    pub(super) fn new(purpose: Purpose, asked: Instant) -> Self {
        Self {
            resumption: Resumption::new(purpose, Duration::ZERO),
            zero: asked,
            asked,
            last: None,
            brought: Brought::Nothing,
            retry: None,
            not_before: None,
        }
    }

    /// Whether the server said where it can be read on.
    pub(super) fn is_resumable(&self) -> bool {
        self.last.is_some()
    }

    /// Notes what its present opening has brought, beside the events themselves.
    pub(super) fn note(&mut self, events: &Events) {
        self.retry = events.retry().or(self.retry);
        if let Some(id) = events.last_event_id() {
            self.last = Some(id);
            self.brought = self.brought.max(Brought::Signs);
        }
    }

    /// Notes that it brought a message that was new.
    pub(super) fn brought_message(&mut self) {
        self.brought = Brought::Messages;
    }

    /// Waits as long as is due before it is asked for again; false if it is to be given up.
    pub(super) async fn pause(&mut self) -> bool {
        let now = Instant::now();
        let ending = Ending {
            lived: now - self.asked,
            brought: self.brought,
            retry: self.retry,
            not_before: self.not_before.take(),
        };
        match self.resumption.ended(ending, now - self.zero, draw()) {
            Next::After(wait) => sleep(wait).await,
            Next::GiveUp => return false,
        }
        true
    }

    /// Asks for it, after its last event if there was one. `session` stands in for an id that is not yet the
    /// session's; `secrets` are not repeated in errors.
    pub(super) async fn open(
        &mut self,
        shared: &Shared,
        session: Option<&HeaderValue>,
        secrets: Secrets,
    ) -> Opening {
        self.asked = Instant::now();
        self.brought = Brought::Nothing;
        let mut headers = shared.session_headers();
        if let Some(session) = session {
            headers.insert(super::SESSION_ID, session.clone());
        }
        if let Some(last) = &self.last {
            headers.insert(LAST_EVENT_ID, last.clone());
        }
        let opening = shared.get_events(headers, secrets).await;
        if let Opening::NotNow(error) = &opening {
            self.not_before = error.retry_after;
        }
        opening
    }
}

/// What the future gives; `asked` is dropped then, or when it takes too long.
async fn holding_up<T>(asked: watch::Sender<()>, opening: impl Future<Output = T>) -> T {
    let mut opening = std::pin::pin!(opening);
    match timeout(FIRST_WORD, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => {
            drop(asked);
            opening.await
        }
    }
}

/// Uniform, for jitter.
fn draw() -> u8 {
    // The standard library has no other source of randomness.
    (RandomState::new().build_hasher().finish() >> 32) as u8
}

impl Shared {
    /// A GET for a stream of events.
    pub(super) async fn get_events(&self, mut headers: HeaderMap, secrets: Secrets) -> Opening {
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        let had_session = headers.contains_key(super::SESSION_ID);
        let asked = self.client.send(client::Outgoing {
            method: Method::GET,
            url: &self.config.url,
            uri: &self.config.uri,
            headers,
            body: bytes::Bytes::new(),
            taken: None,
            cookies: &self.cookies,
            is_stream: true,
        });
        let response = match asked.await {
            Ok(response) => response,
            Err(error) if error.kind == ErrorKind::Config => {
                return Opening::Refused(None, error);
            }
            Err(error) => return Opening::NotNow(error),
        };
        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK && answer::form(&head.headers) == Form::Events {
            let events = Events::new(&head.headers, body, self.config.body_limit);
            return Opening::Open(Box::new(events));
        }
        let body = Payload::new(&head.headers, body);
        let read = body::beginning(body, REFUSAL.0, REFUSAL.1).await;
        let answer = Answer {
            origin: &self.origin,
            status: head.status,
            headers: &head.headers,
            had_session,
            request: None,
            body: &read,
            secrets,
        };
        if head.status.is_success() {
            return Opening::Refused(Some(head.status), answer.foreign());
        }
        match head.status.as_u16() {
            401 | 403 => Opening::Unauthorized(head.status, self.discreet(answer.refusal())),
            408 | 425 | 429 | 500 | 502..=599 => Opening::NotNow(answer.refusal()),
            _ => Opening::Refused(Some(head.status), answer.refusal()),
        }
    }

    /// Reads the standing stream until the transport ends or the server turns out not to have one. `gate` goes when
    /// the handshake is through; `asked` is dropped when the server has said for the first time whether it gives the
    /// stream, or took too long to.
    pub(super) async fn listen(
        self: Arc<Self>,
        mut gate: watch::Receiver<()>,
        asked: watch::Sender<()>,
    ) {
        while gate.changed().await.is_ok() {}
        let mut asked = Some(asked);
        let mut stream = Stream::new(Purpose::Standing, Instant::now());
        let mut was_open = false;
        loop {
            // Before it is asked for, so that credentials given meanwhile are not missed.
            let mut headers_change = self.client.credentials().changes();
            let origin = self.origin.as_str();
            // Boxed, for it is large, and only what reads the stream stays for long.
            let opening = Box::pin(stream.open(&self, None, self.secrets()));
            let opening = match asked.take() {
                Some(asked) => holding_up(asked, opening).await,
                None => opening.await,
            };
            match opening {
                Opening::Open(events) => {
                    let mut events = events.listening(self.ear.listen());
                    was_open = true;
                    self.client.credentials().let_in(|| Some(STREAM.into()));
                    let resumed = stream.is_resumable();
                    let ended = loop {
                        let event = match self.next_event(&mut events).await {
                            Ok(Some(event)) => event,
                            Ok(None) => break None,
                            Err(error) => break Some(error),
                        };
                        stream.note(&events);
                        if self.deliver(event, resumed) {
                            stream.brought_message();
                        }
                    };
                    stream.note(&events);
                    tracing::debug!(origin, ?ended, "the standing stream ended");
                }
                Opening::Refused(Some(StatusCode::NOT_FOUND), error) if was_open => {
                    // It was there: what is not there any more is the session.
                    if error.kind == ErrorKind::Expired {
                        self.expired();
                        // Requests under way hear it themselves.
                        self.end_if_idle(error);
                    }
                    return;
                }
                Opening::Refused(_, error) => {
                    tracing::debug!(origin, %error, "the server has no standing stream");
                    return;
                }
                Opening::Unauthorized(StatusCode::UNAUTHORIZED, error)
                    if was_open && self.may_be_over() =>
                {
                    tracing::debug!(origin, %error, "the standing stream is no longer given");
                    self.expired();
                    self.end_if_idle(Error::new(ErrorKind::Expired, error.message));
                    return;
                }
                Opening::Unauthorized(_, error) => {
                    tracing::debug!(origin, %error, "the standing stream waits for credentials");
                    // Else it is asked for at once with others.
                    if headers_change.has_changed().is_ok_and(|changed| !changed) {
                        self.client.credentials().tell_of_stream(&error);
                    }
                    if headers_change.changed().await.is_err() {
                        return;
                    }
                }
                Opening::NotNow(error) => {
                    tracing::debug!(origin, %error, "the standing stream could not be opened");
                }
            }
            if !stream.pause().await {
                return;
            }
        }
    }

    /// Whether a 401 that the standing stream met may be the loss of the session, as with a request of it.
    fn may_be_over(&self) -> bool {
        self.state().session.is_some() && self.client.credentials().may_be_expiry(STREAM)
    }

    /// Delivers what an event brought that is no part of an answer being read: on a standing stream, or out of place
    /// on another. On a `resumed` one, what came before is dropped; an answer is taken once, wherever it comes. True
    /// if a message was new.
    pub(super) fn deliver(&self, event: Event, resumed: bool) -> bool {
        let is_new = self.is_new(&event) || !resumed;
        if !event.is_message() {
            return false;
        }
        let mut delivered = false;
        for message in answer::messages(event.data) {
            match jsonrpc::settles(&message) {
                Some(id) => {
                    // Who carries it need not wait for it any longer.
                    let Some(task) = self.claim(id) else { continue };
                    self.posts.cut(task);
                }
                None if !is_new || answer::method(&message).is_none() => continue,
                None => {}
            }
            self.tell(Incoming::Message(message));
            delivered = true;
        }
        delivered
    }

    /// Notes the event; false if one with its id came before.
    pub(super) fn is_new(&self, event: &Event) -> bool {
        match &event.id {
            Some(id) if !id.is_empty() => self.state().seen.note(id),
            _ => true,
        }
    }
}
