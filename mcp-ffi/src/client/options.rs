//! What a client and its calls are made with.

use std::time::Duration;

use super::{event::Context, takes::HostTakes};

/// What a client is made with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The most scoped sessions that are kept at a time.
    pub max_sessions: usize,
    /// How long the closing of the client may take, unless it is told otherwise.
    pub close_timeout: Duration,
    /// How many bytes of what one server said may wait for the host, until it has dropped the events; over it, and one
    /// message, nothing more is read from that server, whose silence is no fault then.
    pub max_queued: usize,
    /// The name that servers are told as the client's (`clientInfo`).
    pub client_name: String,
    /// The version that servers are told as the client's.
    pub client_version: String,
    /// What the host takes of what servers say and ask on their own.
    pub takes: HostTakes,
    /// How long the host may take to answer a request of a server; past it the request is refused.
    pub answer_within: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            max_sessions: 256,
            close_timeout: Duration::from_millis(3800),
            max_queued: 64 << 20,
            client_name: "mcpconn".into(),
            client_version: env!("CARGO_PKG_VERSION").into(),
            takes: HostTakes::default(),
            answer_within: Duration::from_secs(300),
        }
    }
}

/// What a call is made with.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// The host's own; each event of the call bears it.
    pub token: u64,
    /// The most that the call may take in all, waiting for a connection included; `None` for no end.
    pub timeout: Option<Duration>,
    /// The most that may pass without progress of the call; `None` for no end.
    pub idle_timeout: Option<Duration>,
    /// Asks the server for progress, heard as events.
    pub progress: bool,
    /// The host's own; each event of the call bears it, and it is dropped with the last.
    pub context: Option<Context>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            token: 0,
            timeout: Some(Duration::from_secs(300)),
            idle_timeout: None,
            progress: false,
            context: None,
        }
    }
}
