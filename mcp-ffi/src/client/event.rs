//! What the host hears.

use std::{any::Any, borrow::Cow, fmt, sync::Arc, sync::OnceLock, time::Duration};

use bytes::Bytes;
use mcp_budget::{Reason, State};
use mcp_transport::session::{Backlog, Held, ServerRequestKind, Withdrawn};
use serde::{Deserialize, Serialize};

use super::{
    credentials::CredentialsNeeded, error::Error, link::Link, list::ListKind, log::Log,
    origin::Origin, session_news::SessionNews,
};

/// Something that happened. It owns what it says: it may be kept, and outlives its client.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The id of the call that it is about, or of the server's request; 0 for neither.
    pub id: u64,
    /// The host's token of that call.
    pub token: u64,
    /// The server that it is about; empty for the client itself and for a call about every server.
    pub server: Arc<str>,
    /// The domain of that server; empty for the client itself.
    pub domain: Arc<str>,
    /// The scope whose session it is about; `None` for the home session.
    pub scope: Option<Arc<str>>,
    /// What the host attached to the call.
    pub context: Option<Context>,
    /// What it says counts as undelivered as long as it lives.
    pub(super) held: Option<Arc<Held>>,
}

/// Something of the host's own that travels with a call and comes back with each of its events.
#[derive(Clone)]
pub struct Context(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context(..)")
    }
}

/// The kinds of events, each with what it says.
///
/// `Debug` shows of what a server says, and of what goes to it, only how long it is.
#[derive(Clone)]
pub enum EventKind {
    /// A call was answered. It ends the call.
    Result(Answer),
    /// A call failed. It ends the call.
    Error(Error),
    /// A call reports progress: the params of the notification as they came. Only the newest is kept for a host
    /// that is slow to take it.
    Progress(Bytes),
    /// A server asks something of the host, which says [`Client::answer`](crate::Client::answer) or
    /// [`Client::refuse`](crate::Client::refuse) to the event's id, at any time and from any thread. What is not
    /// answered within [`ClientOptions::answer_within`](crate::ClientOptions::answer_within) is refused.
    Request {
        /// What is asked.
        kind: ServerRequestKind,
        /// The params as raw JSON, the bytes that came; empty if there were none.
        params: Bytes,
    },
    /// Nobody waits any more for the answer to the request of this id: a dialogue for it may be closed. It comes once
    /// at most, and never for a request that the host has answered.
    RequestWithdrawn(Withdrawn),
    /// A server wants credentials; [`Client::set_header`](crate::Client::set_header) gives them. Said once until then,
    /// however many calls it refuses; of what a host is slow to take the newest is kept.
    CredentialsNeeded(CredentialsNeeded),
    /// A server changed its state. Of one session only the newest is kept for a host that is slow to take it.
    ServerState(ServerStatus),
    /// A list of a server's is new; of one list only the newest is kept for a host that is slow to take it. The tools
    /// were asked for again and are in [`Client::tools`](crate::Client::tools); the others are for the host to
    /// [list](crate::Client::list), `Resources` standing for the templates too.
    CatalogueChanged(ListKind),
    /// A resource that the host subscribed to may have changed: the params of the notification as they came, with its
    /// `uri`. One comes too for each subscription that was made again on a new home session, as what the old one would
    /// have told is not known.
    ResourceUpdated(Bytes),
    /// A server logs something, and the host takes that ([`HostTakes::logs`](crate::HostTakes)).
    Log(Log),
    /// Any other notification of a server, if the host takes those
    /// ([`HostTakes::notifications`](crate::HostTakes)).
    Notification {
        /// Its method.
        method: Arc<str>,
        /// The params as raw JSON, the bytes that came; empty if there were none.
        params: Bytes,
    },
    /// The host was slow, and the oldest of a server's log messages, resource updates and notifications were dropped:
    /// of these at most 1,024 wait, for each server. It comes where they would have come.
    Dropped(Dropped),
    /// The host is asked to open a link to a server whose bytes it moves, and says by
    /// [`Link::opened`] or [`Link::closed`] what became of it.
    LinkOpen(Link),
    /// These bytes, or this message, are to be sent over the link; [`Link::sent`] says that they have gone.
    LinkSend(Link, Bytes),
    /// The link is to be closed, which [`Link::closed`] answers. It is the last event of the link. There is none for a
    /// link that the host has said to be closed.
    LinkClose(Link),
    /// The link takes again what comes from the server, after [`Link::received`] was refused.
    LinkResume(Link),
    /// Something happened to a scoped session, for a host that takes that ([`HostTakes`](crate::HostTakes)). Of one
    /// session only the newest is kept for a host that is slow to take it.
    Session(SessionNews),
    /// The client is closed. It is the last event.
    Closed,
}

impl fmt::Debug for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, name, said: &dyn fmt::Debug| {
            f.debug_tuple(name).field(said).finish()
        };
        match self {
            Self::Result(answer) => one(f, "Result", answer),
            Self::Error(error) => one(f, "Error", error),
            Self::Progress(params) => one(f, "Progress", &Length(params)),
            Self::Request { kind, params } => f
                .debug_struct("Request")
                .field("kind", kind)
                .field("params", &Length(params))
                .finish(),
            Self::RequestWithdrawn(why) => one(f, "RequestWithdrawn", why),
            Self::CredentialsNeeded(needed) => one(f, "CredentialsNeeded", needed),
            Self::ServerState(status) => one(f, "ServerState", status),
            Self::CatalogueChanged(list) => one(f, "CatalogueChanged", list),
            Self::ResourceUpdated(params) => one(f, "ResourceUpdated", &Length(params)),
            Self::Log(log) => one(f, "Log", log),
            Self::Notification { method, params } => f
                .debug_struct("Notification")
                .field("method", method)
                .field("params", &Length(params))
                .finish(),
            Self::Dropped(dropped) => one(f, "Dropped", dropped),
            Self::LinkOpen(link) => one(f, "LinkOpen", link),
            Self::LinkSend(link, bytes) => f
                .debug_tuple("LinkSend")
                .field(link)
                .field(&Length(bytes))
                .finish(),
            Self::LinkClose(link) => one(f, "LinkClose", link),
            Self::LinkResume(link) => one(f, "LinkResume", link),
            Self::Session(news) => one(f, "Session", news),
            Self::Closed => f.write_str("Closed"),
        }
    }
}

/// Bytes of which `Debug` shows only how many.
struct Length<'a>(&'a Bytes);

impl fmt::Debug for Length<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl EventKind {
    /// What it says to a person; empty if there is nothing to say.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Result(answer) => answer.text().into(),
            Self::Error(error) => (&error.message).into(),
            Self::ServerState(status) => (&status.text).into(),
            Self::Session(news) => (&news.text).into(),
            Self::Log(log) => log.text().into(),
            Self::ResourceUpdated(params) => serde_json::from_slice(params)
                .map_or(Cow::Borrowed(""), |Updated { uri }| uri.into()),
            Self::RequestWithdrawn(why) => match why {
                Withdrawn::Canceled => "the server cancelled its request",
                Withdrawn::Deadline => "the request was not answered in time, and was refused",
                Withdrawn::Ended => "the session of the request ended",
                _ => "nobody waits for the answer any more",
            }
            .into(),
            Self::CredentialsNeeded(needed) => needed.text().into(),
            Self::Dropped(dropped) => dropped.to_string().into(),
            Self::Progress(_)
            | Self::Request { .. }
            | Self::CatalogueChanged(_)
            | Self::Notification { .. }
            | Self::LinkOpen(_)
            | Self::LinkSend(..)
            | Self::LinkClose(_)
            | Self::LinkResume(_)
            | Self::Closed => "".into(),
        }
    }

    /// How much of it is what a server said.
    fn bytes(&self) -> usize {
        match self {
            Self::Result(answer) => answer.json.len(),
            Self::Error(error) => error.rpc.as_ref().map_or(0, Bytes::len),
            Self::Progress(json) | Self::ResourceUpdated(json) => json.len(),
            Self::Request { params, .. } => params.len(),
            Self::Notification { method, params } => method.len() + params.len(),
            Self::Log(log) => log.params.len(),
            Self::CredentialsNeeded(needed) => needed.json().len(),
            Self::RequestWithdrawn(_)
            | Self::ServerState(_)
            | Self::Session(_)
            | Self::CatalogueChanged(_)
            | Self::Dropped(_)
            | Self::LinkOpen(_)
            | Self::LinkSend(..)
            | Self::LinkClose(_)
            | Self::LinkResume(_)
            | Self::Closed => 0,
        }
    }
}

/// How many of each kind were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Log messages.
    pub logs: u64,
    /// Resource updates: what the host knows of its resources may be old.
    pub resource_updates: u64,
    /// Other notifications.
    pub notifications: u64,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} log messages, {} resource updates and {} other notifications were dropped",
            self.logs, self.resource_updates, self.notifications
        )
    }
}

impl Dropped {
    pub(super) fn count(&mut self, kind: &EventKind) {
        *match kind {
            EventKind::Log(_) => &mut self.logs,
            EventKind::ResourceUpdated(_) => &mut self.resource_updates,
            _ => &mut self.notifications,
        } += 1;
    }

    /// As JSON, for hosts of other languages.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers")
    }
}

/// The answer to a call.
///
/// `Debug` shows of the result only how long it is.
#[derive(Clone)]
pub struct Answer {
    /// The result, the bytes that came.
    pub json: Bytes,
    /// Which session of the server answered.
    pub generation: u64,
    /// The session was opened anew during the call: what an older one kept for its scope is gone.
    pub replaced: bool,
    text: OnceLock<String>,
}

/// The part of a tool's result that is for reading.
#[derive(Deserialize)]
struct ToolResult<'a> {
    #[serde(borrow, default)]
    content: Vec<Block<'a>>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Updated {
    uri: String,
}

#[derive(Deserialize)]
struct ToolFailure {
    #[serde(default, rename = "isError")]
    is_error: bool,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("bytes", &self.json.len())
            .field("generation", &self.generation)
            .field("replaced", &self.replaced)
            .finish_non_exhaustive()
    }
}

impl Answer {
    pub(super) fn new(json: Bytes, generation: u64, replaced: bool) -> Self {
        Self {
            json,
            generation,
            replaced,
            text: OnceLock::new(),
        }
    }

    /// An answer whose text is not in a tool's content blocks.
    pub(super) fn with_text(json: Bytes, text: String) -> Self {
        Self {
            json,
            generation: 0,
            replaced: false,
            text: text.into(),
        }
    }

    /// The text blocks of a tool's result, joined with newlines; empty if there are none. Read at the first ask.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let Ok(result) = serde_json::from_slice::<ToolResult<'_>>(&self.json) else {
                return String::new();
            };
            let texts: Vec<&str> = result
                .content
                .iter()
                .filter(|block| block.kind == "text")
                .filter_map(|block| block.text.as_deref())
                .collect();
            texts.join("\n")
        })
    }

    /// The tool ran and says that it failed (`isError`).
    pub fn is_tool_error(&self) -> bool {
        serde_json::from_slice::<ToolFailure>(&self.json).is_ok_and(|failure| failure.is_error)
    }
}

/// How it stands with a server.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// The state of its home session and its reconnect budget.
    pub state: State,
    /// Why it is in that state.
    pub reason: Reason,
    /// Charges that stand against the budget.
    pub charges: u32,
    /// Attempts to connect since the last proof.
    pub attempt: u32,
    /// Counts the sessions of the server; the newest.
    pub generation: u64,
    /// When it is tried again, from when this was said.
    pub next_try: Option<Duration>,
    /// The process of the home session, if it has one.
    pub pid: Option<u32>,
    /// Live scoped sessions.
    pub sessions: u32,
    /// Calls in flight.
    pub calls: u32,
    /// One line for a person.
    pub text: String,
}

impl Event {
    /// An event about no call.
    pub(super) fn of(kind: EventKind, origin: &Origin) -> Self {
        Self {
            kind,
            id: 0,
            token: 0,
            server: origin.server.clone(),
            domain: origin.domain.clone(),
            scope: origin.scope.clone(),
            context: None,
            held: None,
        }
    }

    /// What it says counts from now on as not delivered by its server.
    pub(super) fn held_by(mut self, backlog: &Backlog) -> Self {
        let bytes = self.kind.bytes();
        if bytes > 0 {
            self.held = Some(Arc::new(backlog.hold(bytes)));
        }
        self
    }

    /// Whether it ends the call that it is about.
    pub fn is_completion(&self) -> bool {
        matches!(self.kind, EventKind::Result(_) | EventKind::Error(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &'static str) -> Answer {
        Answer::new(Bytes::from_static(json.as_bytes()), 1, false)
    }

    #[test]
    fn the_text_of_a_result_is_its_text_blocks_unescaped() {
        let answer = answer(
            r#"{"content":[{"type":"text","text":"a\nb"},{"type":"image","data":"eA=="},{"type":"text","text":"\u00e9"}]}"#,
        );
        assert_eq!(answer.text(), "a\nb\né");
        assert!(!answer.is_tool_error());
    }

    #[test]
    fn a_result_without_content_has_no_text() {
        assert_eq!(answer(r#"{"tools":[]}"#).text(), "");
        assert_eq!(answer(r#"[1,2]"#).text(), "");
    }

    #[test]
    fn a_tool_says_that_it_failed() {
        assert!(answer(r#"{"content":[],"isError":true}"#).is_tool_error());
        assert!(!answer(r#"{"content":[],"isError":"yes"}"#).is_tool_error());
    }

    #[test]
    fn debug_shows_of_what_a_server_says_only_how_long_it_is() {
        let said = || Bytes::from_static(br#"{"level":"info","data":"hidden"}"#);
        let kinds = [
            EventKind::Result(Answer::new(said(), 1, false)),
            EventKind::Error(Error {
                rpc: Some(said()),
                ..Error::closed()
            }),
            EventKind::Progress(said()),
            EventKind::Request {
                kind: ServerRequestKind::Roots,
                params: said(),
            },
            EventKind::ResourceUpdated(said()),
            EventKind::Log(Log::new(said())),
            EventKind::Notification {
                method: "a/b".into(),
                params: said(),
            },
        ];
        for kind in kinds {
            // A log message is also read before it is shown.
            let _read = kind.text();
            let shown = format!("{kind:?}");
            assert!(shown.contains("32"), "{shown}");
            assert!(!shown.contains("hidden"), "{shown}");
            // Nor as a list of numbers.
            assert!(!shown.contains("104, 105"), "{shown}");
        }
    }
}
