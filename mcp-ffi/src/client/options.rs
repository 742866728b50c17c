//! What a client and its calls are made with.

use std::time::Duration;

pub use mcp_pool::Limits as PoolLimits;

use super::{event::Context, takes::HostTakes};

/// How long a session may be idle unless said otherwise: whoever comes back after half an hour has another opened.
pub(super) const IDLE_TTL: Duration = Duration::from_secs(30 * 60);

/// What a client is made with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The bounds of the pool of scoped sessions. By default an idle one is closed after half an hour. The pool keeps
    /// time whether it is asked to or not.
    pub pool: PoolLimits,
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
    /// Whether a small process of ours sees to it that no server outlives this process, however that ends.
    ///
    /// Without it the kernel kills each server when this process ends without having closed it, but not what a server
    /// has started itself.
    pub guardian: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            pool: PoolLimits {
                idle_ttl: Some(IDLE_TTL),
                ..PoolLimits::default()
            },
            close_timeout: Duration::from_millis(3800),
            max_queued: 64 << 20,
            client_name: "mcpconn".into(),
            client_version: env!("CARGO_PKG_VERSION").into(),
            takes: HostTakes::default(),
            answer_within: Duration::from_secs(300),
            guardian: true,
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
    /// The call ends with an error where another session would take the place of one that is gone, for what the server
    /// kept for it is gone too. Of two calls the host compares [`Answer::generation`](crate::Answer::generation).
    pub same_session: bool,
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
            same_session: false,
            context: None,
        }
    }
}
