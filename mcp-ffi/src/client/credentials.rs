//! What one server wants to see before it serves: told to the host once, until the host gives it something else.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use mcp_transport::{
    error::{self, AuthScheme, Challenge, ErrorKind},
    http::HttpClient,
};
use serde_json::{Map, Value, json};

use super::{
    Client,
    error::{Error, Kind},
};

/// A server lets nobody in without credentials, or without others than it was shown.
#[derive(Clone)]
#[non_exhaustive]
pub struct CredentialsNeeded {
    /// The HTTP status: 401 for credentials, 403 for such with more rights; 0 if it is not known.
    pub status: u16,
    /// How it can be let in, as the server says; empty if it does not say.
    pub schemes: Vec<AuthScheme>,
    json: Bytes,
    text: String,
}

impl CredentialsNeeded {
    fn new(server: &str, demand: &Demand, remedy: &str) -> Self {
        let schemes = demand.challenge.as_deref().map(Challenge::schemes);
        let schemes = schemes.unwrap_or_default();
        let json = json!({
            "status": demand.status,
            "challenges": schemes.iter().map(to_json).collect::<Vec<_>>(),
        });
        let what = match demand.status {
            403 => "wants credentials with more rights",
            _ => "wants credentials, or others than those it was given",
        };
        Self {
            status: demand.status,
            schemes,
            json: json.to_string().into(),
            text: format!("server \"{server}\" {what}: {remedy}"),
        }
    }

    /// All of it as a JSON object: `status`, and `challenges`, each with its `scheme` and its
    /// parameters (`realm`, `scope`, `resource_metadata`, …) as members.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// One line for a person.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for CredentialsNeeded {
    /// Without what the server says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsNeeded")
            .field("status", &self.status)
            .field("schemes", &self.schemes)
            .finish_non_exhaustive()
    }
}

fn to_json(scheme: &AuthScheme) -> Value {
    let mut members = Map::new();
    // First, so that no parameter of that name takes its place.
    members.insert("scheme".into(), scheme.scheme.as_str().into());
    let token = scheme.token68.iter();
    let token = token.map(|token| ("token68", token));
    let parameters = scheme.parameters.iter();
    let parameters = parameters.map(|(name, value)| (name.as_str(), value));
    for (name, value) in token.chain(parameters) {
        members.entry(name).or_insert_with(|| value.as_str().into());
    }
    Value::Object(members)
}

/// Tells the host.
type Tell = Box<dyn Fn(CredentialsNeeded) + Send + Sync>;

/// How a server is shown credentials.
#[derive(Debug)]
pub(super) enum Way {
    /// A child process: by its environment, and never again.
    Child,
    /// A remote server: by headers.
    Http(HttpClient),
    /// By the host, over the link.
    Link,
}

/// The credentials of one server, which all its sessions show.
pub(super) struct Credentials {
    server: Arc<str>,
    way: Way,
    tell: OnceLock<Tell>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shown: Shown,
    /// What the server wants, as the host was told.
    told: Option<Demand>,
    /// The version that was refused last.
    refused: Option<u64>,
    /// The version for which the host was last told of a stream that was refused.
    told_of_stream: Option<u64>,
}

/// What a request was sent with, and how often the host had been asked for credentials by then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Counts what the host gave.
    version: u64,
    demands: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Demand {
    status: u16,
    challenge: Option<Arc<Challenge>>,
}

impl Credentials {
    pub(super) fn new(server: Arc<str>, way: Way) -> Self {
        Self {
            server,
            way,
            tell: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Tells the host so, from now on.
    pub(super) fn tell_by(&self, tell: impl Fn(CredentialsNeeded) + Send + Sync + 'static) {
        // There is one host, and it is there from the beginning.
        let _ = self.tell.set(Box::new(tell));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request that is sent now shows.
    pub(super) fn shown(&self) -> Shown {
        match self.way {
            Way::Http(_) | Way::Link => self.state().shown,
            Way::Child => Shown::default(),
        }
    }

    /// A request failed that showed this. If it was for want of credentials, the host is asked for them, once for all
    /// such requests. `true`: the host has given others meanwhile.
    pub(super) fn refused(&self, error: &error::Error, shown: Shown) -> bool {
        if error.kind != ErrorKind::Auth {
            return false;
        }
        let demand = Demand {
            status: error.challenge.as_ref().map_or(401, |said| said.status),
            challenge: error.challenge.clone(),
        };
        {
            let mut state = self.state();
            if state.shown.version != shown.version {
                return true;
            }
            state.refused = Some(shown.version);
        }
        self.demand(demand);
        false
    }

    /// Has the host told when a stream is refused on which the server speaks on its own. No call fails by that, and calls
    /// that are let in say nothing of it: it is told once for what the host gives.
    pub(super) fn hear_of_streams(me: &Arc<Self>) {
        let Way::Http(http) = &me.way else { return };
        // What is told holds the client that tells.
        let weak = Arc::downgrade(me);
        http.tell_of_refused_streams(move |error| {
            let Some(me) = weak.upgrade() else { return };
            let shown = {
                let mut state = me.state();
                let now = state.shown;
                if state.told_of_stream.replace(now.version) == Some(now.version) {
                    return;
                }
                now
            };
            me.refused(error, shown);
        });
    }

    /// A call was answered that showed this: what the server wanted before is no more.
    pub(super) fn accepted(&self, shown: Shown) {
        if matches!(self.way, Way::Child) {
            return;
        }
        let mut state = self.state();
        // Other rights are wanted for other calls.
        let of_all = state.told.as_ref().is_some_and(|told| told.status != 403);
        if of_all && state.shown == shown {
            state.told = None;
        }
    }

    /// The server is parked for want of credentials, of which the host hears at the latest now. `true`: the host had
    /// given others by then, with which it can be tried.
    pub(super) fn parked(&self) -> bool {
        let is_told = {
            let mut state = self.state();
            let now = state.shown.version;
            // Once for what the host gives.
            if state.refused.is_some_and(|refused| refused != now) {
                state.refused = Some(now);
                return true;
            }
            state.told.is_some()
        };
        if !is_told {
            self.demand(Demand {
                status: 0,
                challenge: None,
            });
        }
        false
    }

    fn demand(&self, demand: Demand) {
        {
            let mut state = self.state();
            if state.told.as_ref() == Some(&demand) {
                return;
            }
            state.told = Some(demand.clone());
            state.shown.demands += 1;
        }
        if let Some(tell) = self.tell.get() {
            let remedy = match self.way {
                Way::Link => "wake it when the host has them for its link",
                Way::Child | Way::Http(_) => "give them as a header of it",
            };
            tell(CredentialsNeeded::new(&self.server, &demand, remedy));
        }
    }

    /// Shows this header from now on; an empty value takes it back.
    pub(super) fn give(&self, name: &str, value: &str) -> Result<(), Error> {
        let invalid = |problem: &str| {
            Error::new(
                Kind::Invalid,
                format!("server \"{}\": {problem}", self.server),
            )
        };
        let http = match &self.way {
            Way::Http(http) => http,
            Way::Child => {
                return Err(invalid(
                    "it is a child process and is sent no headers; its credentials are in its \"env\"",
                ));
            }
            Way::Link => {
                return Err(invalid(
                    "it is reached over a link and is sent no headers; the host shows its credentials itself",
                ));
            }
        };
        http.set_header(name, (!value.is_empty()).then_some(value))
            .map_err(|error| invalid(&error.message))?;
        // Only now, so that what is counted as shown later was shown.
        let mut state = self.state();
        state.shown.version += 1;
        state.told = None;
        Ok(())
    }
}

impl Client {
    /// Has a header shown to a remote server with every request of all its sessions from now on, in place of what its
    /// configuration says; an empty value takes it back. A server that is parked for want of credentials is tried at
    /// once. Calls that were refused are not sent again, but for those whose refusal comes after this.
    ///
    /// It lasts as long as what makes the connection stays configured as it is, and is in no log, error or event.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for what is no header, for one that is the transport's own and for a server that is not remote; as
    /// for [`Client::server_status`]; [`Kind::Closed`].
    pub fn set_header(
        &self,
        domain: &str,
        server: &str,
        name: &str,
        value: &str,
    ) -> Result<(), Error> {
        let server = self.shared.open_servers()?.get(domain, server)?;
        server.opener.credentials().give(name, value)?;
        server.try_new_credentials();
        Ok(())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn credentials() -> (Credentials, mpsc::Receiver<CredentialsNeeded>) {
        let credentials = Credentials::new("s".into(), Way::Http(HttpClient::new()));
        let (tell, told) = mpsc::channel();
        credentials.tell_by(move |needed| drop(tell.send(needed)));
        (credentials, told)
    }

    fn unauthorized() -> error::Error {
        error::Error::new(ErrorKind::Auth, "no")
    }

    #[test]
    fn the_host_is_asked_once_until_it_gives_something_else() {
        let (credentials, told) = credentials();
        let shown = credentials.shown();
        for _ in 0..3 {
            assert!(!credentials.refused(&unauthorized(), shown));
        }
        assert_eq!(told.try_iter().count(), 1);
        credentials.give("authorization", "Bearer new").unwrap();
        // One that was on its way meanwhile says nothing of the new ones.
        assert!(credentials.refused(&unauthorized(), shown));
        assert_eq!(told.try_iter().count(), 0);
        assert!(!credentials.refused(&unauthorized(), credentials.shown()));
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn only_a_call_that_began_after_the_host_was_asked_shows_that_it_need_not_be() {
        let (credentials, told) = credentials();
        let before = credentials.shown();
        credentials.refused(&unauthorized(), before);
        credentials.accepted(before);
        credentials.refused(&unauthorized(), before);
        assert_eq!(told.try_iter().count(), 1);
        credentials.accepted(credentials.shown());
        credentials.refused(&unauthorized(), credentials.shown());
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn a_server_that_is_parked_in_the_moment_of_new_credentials_is_tried_with_them_once() {
        let (credentials, told) = credentials();
        credentials.refused(&unauthorized(), credentials.shown());
        assert!(!credentials.parked());
        credentials.give("authorization", "Bearer new").unwrap();
        assert!(credentials.parked());
        assert_eq!(told.try_iter().count(), 1);
        // A probe is refused, which no request told.
        assert!(!credentials.parked());
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn a_child_process_is_given_no_headers() {
        let credentials = Credentials::new("s".into(), Way::Child);
        let error = credentials.give("authorization", "hunter2").unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains("\"s\"") && !error.message.contains("hunter2"));
    }
}
