//! HTTP+SSE, the transport of 2024-11-05: one stream brings everything from the server, and its first event names
//! the endpoint to which messages are posted.

use std::{sync::Arc, time::Duration};

use http::Uri;
use tokio::time::timeout;
use url::Url;

use super::{Shared, answer, config, events::Events, streams::Opening};
use crate::{
    error::{Cause, Error, ErrorKind},
    jsonrpc,
    sse::Event,
    transport::Incoming,
};

/// How long the stream may take to open, and then its first event to come.
const PHASE: Duration = Duration::from_secs(10);

/// Where messages are posted.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) uri: Uri,
}

impl Endpoint {
    /// The endpoint that the stream at `base` names. Only its own origin is taken: credentials go along.
    fn named(base: &Url, name: &[u8]) -> Result<Self, Error> {
        let refused = |why: String| {
            Err(Error::new(
                ErrorKind::Protocol,
                format!(
                    "the HTTP+SSE server at {} names {why}",
                    config::origin(base)
                ),
            ))
        };
        let joined = std::str::from_utf8(name)
            .ok()
            .and_then(|name| base.join(name.trim()).ok());
        let Some(mut url) = joined else {
            return refused("an endpoint that is no URL".into());
        };
        if url.origin() != base.origin() {
            return refused(format!(
                "an endpoint of another origin, {}, where the credentials must not go",
                config::origin(&url)
            ));
        }
        url.set_fragment(None);
        // An origin has no user. Both calls fail only without a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let uri = config::uri_of(&url)?;
        Ok(Self { url, uri })
    }
}

impl Shared {
    /// Opens the stream and learns the endpoint; from then on messages are posted there. Bounded by itself.
    pub(super) async fn open_legacy(self: &Arc<Self>) -> Result<(), Error> {
        let late = |what: &str| {
            Error::new(
                ErrorKind::Timeout,
                format!(
                    "the HTTP+SSE server at {} {what} for {} seconds",
                    self.origin,
                    PHASE.as_secs()
                ),
            )
        };
        let opening = timeout(
            PHASE,
            self.get_events(self.session_headers(), self.secrets()),
        )
        .await;
        let mut events = match opening {
            Ok(Opening::Open(events)) => events,
            Ok(
                Opening::Refused(_, error)
                | Opening::Unauthorized(_, error)
                | Opening::NotNow(error),
            ) => {
                return Err(error);
            }
            Err(_) => return Err(late("did not open its stream")),
        };
        let endpoint = match timeout(PHASE, first_event(&mut events)).await {
            Ok(Some(event)) if event.kind == "endpoint" => {
                Endpoint::named(&self.config.url, &event.data)?
            }
            Ok(Some(_)) => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    format!(
                        "the stream at {} does not begin with an endpoint: it is none of HTTP+SSE",
                        self.origin
                    ),
                ));
            }
            Ok(None) => {
                return Err(Error::new(
                    ErrorKind::Transport,
                    format!(
                        "the HTTP+SSE server at {} closed its stream before it named an endpoint",
                        self.origin
                    ),
                ));
            }
            Err(_) => return Err(late("named no endpoint")),
        };
        let (Some(task), Some(runtime)) = (self.streams.reserve(), {
            let mut state = self.state();
            state.endpoint = Some(Arc::new(endpoint));
            state.runtime.clone()
        }) else {
            return Err(Error::new(ErrorKind::Closed, "the session was closed"));
        };
        self.streams
            .spawn(task, &runtime, self.clone().read_legacy(events));
        Ok(())
    }

    /// Delivers what the stream brings. With it the session ends.
    async fn read_legacy(self: Arc<Self>, events: Box<Events>) {
        let mut events = events.listening(self.ear.listen());
        let why = loop {
            match self.next_event(&mut events).await {
                Ok(Some(event)) if event.is_message() => {
                    for message in answer::messages(event.data) {
                        if let Some(id) = jsonrpc::settles(&message) {
                            self.claim(id);
                        }
                        self.tell(Incoming::Message(message));
                    }
                }
                Ok(Some(event)) if event.kind == "endpoint" => {
                    tracing::warn!(
                        origin = self.origin,
                        "the server named a second endpoint, which is not taken"
                    );
                }
                Ok(Some(_)) => {}
                Ok(None) => break "it was closed".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        self.end(
            Error::new(
                ErrorKind::Transport,
                format!(
                    "the stream of the HTTP+SSE server at {} ended: {why}",
                    self.origin
                ),
            )
            .with_cause(Cause::Transient),
        );
    }
}

/// The first event that means something; `None` if the stream ends without one.
async fn first_event(events: &mut Events) -> Option<Event> {
    loop {
        let event = events.next().await.ok()??;
        if event.is_message() || event.kind == "endpoint" {
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Result<String, String> {
        let base = Url::parse("https://h:8443/a/sse?k=1").expect("a URL");
        Endpoint::named(&base, name.as_bytes())
            .map(|endpoint| endpoint.url.to_string())
            .map_err(|error| error.message)
    }

    #[test]
    fn an_endpoint_of_the_same_origin_is_taken() {
        for (name, url) in [
            ("/messages?id=1", "https://h:8443/messages?id=1"),
            (" post#x ", "https://h:8443/a/post"),
            ("?id=2", "https://h:8443/a/sse?id=2"),
            ("https://h:8443/m", "https://h:8443/m"),
            ("https://u:p@h:8443/m", "https://h:8443/m"),
        ] {
            assert_eq!(named(name).as_deref(), Ok(url));
        }
    }

    #[test]
    fn an_endpoint_of_another_origin_is_refused() {
        for name in [
            "http://h:8443/m",
            "https://h/m",
            "https://other:8443/m?token=hunter2",
            "//other/m",
            "file:///etc/passwd",
            "javascript:alert(1)",
        ] {
            let error = named(name).expect_err(name);
            assert!(error.contains("another origin"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(named("https://[").is_err());
    }
}
