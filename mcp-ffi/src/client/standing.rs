//! What the host asked of a home session that outlives it: a new one is asked for it again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use mcp_transport::{
    error::Error,
    session::{RequestOptions, Session},
};
use serde::Deserialize;
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

/// How long a server may take to grant one of them again.
const TIMEOUT: Duration = Duration::from_secs(60);

const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";
const SET_LEVEL: &str = "logging/setLevel";

/// Of the home sessions of one server; each is known with the generation that granted it last.
#[derive(Debug, Default)]
pub(super) struct Standing {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By URI.
    subscriptions: BTreeMap<String, Granted>,
    log_level: Option<Granted>,
}

#[derive(Debug)]
struct Granted {
    params: Bytes,
    generation: u64,
}

#[derive(Deserialize)]
struct Params {
    uri: String,
}

/// One that a newer session has not been asked for.
struct Due {
    method: &'static str,
    params: Bytes,
    uri: Option<String>,
}

impl Standing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of the host was answered on the home session of this generation. `Some` says whether a subscription
    /// stands, if that may have changed.
    pub(super) fn granted(
        &self,
        method: &str,
        params: Option<&Bytes>,
        generation: u64,
    ) -> Option<bool> {
        let params = params?.clone();
        let uri = || {
            serde_json::from_slice(&params)
                .ok()
                .map(|Params { uri }| uri)
        };
        let mut state = self.state();
        let stands = match method {
            SUBSCRIBE => {
                let uri = uri()?;
                let granted = Granted { params, generation };
                state.subscriptions.insert(uri, granted);
                Some(true)
            }
            UNSUBSCRIBE => {
                state.subscriptions.remove(&uri()?);
                Some(!state.subscriptions.is_empty())
            }
            SET_LEVEL => {
                state.log_level = Some(Granted { params, generation });
                None
            }
            _ => return None,
        };
        drop(state);
        // A newer session may have come meanwhile.
        self.changed.notify_one();
        stands
    }

    /// Asks a new home session for all that stands, for as long as it lives; `renewed` hears of each subscription.
    pub(super) async fn renew(
        &self,
        server: &str,
        session: &Session,
        generation: u64,
        renewed: impl Fn(&str),
    ) {
        loop {
            while let Some(due) = self.next_due(generation) {
                let Due {
                    method,
                    params,
                    uri,
                } = due;
                // Of the URI nothing is said: it may be nobody's business.
                if let Err(error) = ask(session, method, params.clone()).await {
                    warn!(server, method, "a new session did not grant it: {error}");
                }
                let Some(uri) = uri else { continue };
                if self.state().subscriptions.contains_key(&uri) {
                    renewed(&uri);
                } else if let Err(error) = ask(session, UNSUBSCRIBE, params).await {
                    // The host unsubscribed while it was asked for.
                    warn!(server, method, "it could not be taken back: {error}");
                }
            }
            self.changed.notified().await;
        }
    }

    /// Takes one that an older session granted, as granted by this one.
    fn next_due(&self, generation: u64) -> Option<Due> {
        let mut state = self.state();
        let is_older = |granted: &&mut Granted| granted.generation < generation;
        if let Some(level) = state.log_level.as_mut().filter(is_older) {
            level.generation = generation;
            return Some(Due {
                method: SET_LEVEL,
                params: level.params.clone(),
                uri: None,
            });
        }
        let mut subscriptions = state.subscriptions.iter_mut();
        let (uri, granted) = subscriptions.find(|(_, granted)| granted.generation < generation)?;
        granted.generation = generation;
        Some(Due {
            method: SUBSCRIBE,
            params: granted.params.clone(),
            uri: Some(uri.clone()),
        })
    }
}

async fn ask(session: &Session, method: &str, params: Bytes) -> Result<(), Error> {
    let options = RequestOptions::until(Instant::now() + TIMEOUT);
    session.request(method, Some(params), options).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &'static str) -> Option<&'static Bytes> {
        Some(Box::leak(Box::new(Bytes::from_static(json.as_bytes()))))
    }

    fn due(standing: &Standing, generation: u64) -> Vec<(&'static str, Option<String>)> {
        std::iter::from_fn(|| standing.next_due(generation))
            .map(|due| (due.method, due.uri))
            .collect()
    }

    #[test]
    fn a_newer_session_is_asked_once_for_what_stands() {
        let standing = Standing::default();
        let subscribed = standing.granted(SUBSCRIBE, params(r#"{"uri":"a:1"}"#), 1);
        assert_eq!(subscribed, Some(true));
        standing.granted(SUBSCRIBE, params(r#"{"uri":"a:2"}"#), 2);
        assert_eq!(
            standing.granted(SET_LEVEL, params(r#"{"level":"info"}"#), 1),
            None
        );
        assert_eq!(due(&standing, 1), []);
        assert_eq!(
            due(&standing, 2),
            [(SET_LEVEL, None), (SUBSCRIBE, Some("a:1".into()))]
        );
        assert_eq!(due(&standing, 2), []);
        assert_eq!(due(&standing, 3).len(), 3);
    }

    #[test]
    fn what_the_host_gave_up_stands_no_more() {
        let standing = Standing::default();
        standing.granted(SUBSCRIBE, params(r#"{"uri":"a:1"}"#), 1);
        standing.granted(SUBSCRIBE, params(r#"{"uri":"a:2"}"#), 1);
        let gives_up = |uri| standing.granted(UNSUBSCRIBE, params(uri), 1);
        assert_eq!(gives_up(r#"{"uri":"a:1"}"#), Some(true));
        assert_eq!(gives_up(r#"{"uri":"a:2"}"#), Some(false));
        assert_eq!(due(&standing, 2), []);
    }

    #[test]
    fn other_requests_leave_nothing_standing() {
        let standing = Standing::default();
        assert_eq!(standing.granted("tools/call", params("{}"), 1), None);
        assert_eq!(standing.granted(SUBSCRIBE, params("{}"), 1), None);
        assert_eq!(standing.granted(SUBSCRIBE, None, 1), None);
        assert_eq!(due(&standing, 2), []);
    }
}
