//! A pool of sessions that knows which of them are busy: capacity pressure takes idle sessions only and never cuts a
//! call in flight, and an explicit close still is immediate.
//!
//! It knows no protocol. A session is anything that can be told to close ([`Session`]), pooled under a domain, a server
//! and a scope ([`Key`]): whose it is, what it is connected to, and for which conversation.
//!
//! ```
//! # use std::convert::Infallible;
//! # use mcp_pool::{Key, Limits, Pool, Session};
//! # struct Process;
//! # impl Process { fn hang_up(&self) {} async fn ended(&self) {} }
//! # impl Browser {
//! #     async fn open() -> Result<Self, Infallible> { Ok(Self(Process.into())) }
//! #     async fn visit(&self, _: &str) {}
//! # }
//! #[derive(Clone)]
//! struct Browser(std::sync::Arc<Process>);
//!
//! impl Session for Browser {
//!     fn retire(&self) { self.0.hang_up() } // calls in flight end now
//!     async fn closed(&self) { self.0.ended().await }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), mcp_pool::AcquireError<Infallible>> {
//! let pool: Pool<Key, Browser, Infallible> = Pool::new(Limits { capacity: 64, ..Limits::default() });
//! // Which configuration of the server is the current one: a digest of all that makes its connection.
//! let binding = pool.ensure_binding(&"deployment".into(), &"browser".into(), 0xC0FFEE_u64);
//! let key = Key::new("deployment", "browser", "conversation 7");
//!
//! let lease = pool.acquire(&key, &binding, Browser::open).await?; // opens it, or has the one that is there
//! lease.session().visit("https://example.org").await; // busy: nothing but an explicit close takes it away
//! drop(lease); // idle again, and open for the conversation's next call
//!
//! pool.close_scope(&key.domain, &key.scope).await; // the conversation is over
//! # Ok(())
//! # }
//! ```
//!
//! # In use
//!
//! | to | there is |
//! | --- | --- |
//! | say what a session is | [`Session`]: how it is told to close, and when it is closed. Its clones are the same session, as those of an `Arc` |
//! | say what it is pooled under | [`Key`], or a type of your own that is a [`PoolKey`] |
//! | say which configuration counts | [`ensure_binding`](Pool::ensure_binding) for one server, [`reconcile_bindings`](Pool::reconcile_bindings) for all of a domain; who only uses it asks for the [`binding`](Pool::binding) |
//! | make a call | [`acquire`](Pool::acquire), and keep the [`Lease`] as long as the call runs |
//! | keep a session at hand that need not stay | [`get`](Pool::get), and [`begin`](Handle::begin) for each call on its [`Handle`]: a lease, or [`Detached`] where the session is no longer pooled, and then the call has not reached it |
//! | say that a session is dead | [`evict`](Pool::evict) with the lease's [`id`](Lease::id): after a fault of the connection, not after an error or a timeout of one call |
//! | end a conversation, a server, a domain or everything | `close_…` at once, `drain_…` when the calls ended that run. It happens whether or not the [`Closing`] is awaited |
//! | open ahead of need, in free slots only | [`warm_up`](Pool::warm_up) |
//! | see how it stands, or hear what happens | [`counters`](Pool::counters), [`snapshot`](Pool::snapshot); an observer of [`observed`](Pool::observed) |
//! | end the pool | [`shutdown`](Pool::shutdown), or drop it |
//!
//! Any of its futures may be dropped at any time. Whatever [`acquire`](Pool::acquire) refuses has not reached a session:
//!
//! | error | what to do |
//! | --- | --- |
//! | [`Capacity`](AcquireError::Capacity), [`ServerCapacity`](AcquireError::ServerCapacity), [`Saturated`](AcquireError::Saturated) | try again when a call has ended; or set [`wait`](Limits::wait), and the pool waits for that |
//! | [`Open`](AcquireError::Open), [`Panicked`](AcquireError::Panicked) | that is the opener's to say: the pool never tries again by itself |
//! | [`Stale`](AcquireError::Stale) | ask for the binding again: the configuration changed, or the server was removed |
//! | [`Closed`](AcquireError::Closed) | nothing: somebody closed what you asked for, or shut the pool down |
//!
//! `examples/rmcp_sessions.rs` pools the sessions of another MCP library, one for each conversation.
//!
//! # The rules
//!
//! | when | then |
//! | --- | --- |
//! | a key's session is live | it is had, busy or not, and takes no new slot |
//! | a key's session is opening | whoever comes joins: one opening, one answer for all |
//! | neither, and every slot is busy | [`Capacity`](AcquireError::Capacity), before anything opens |
//! | neither, and a slot is free or idle | it is opened, at most [`openings`](Limits::openings) at a time, in order; asked again whether there is room when its turn comes |
//! | it has opened | it takes a free slot, or that of the least recently used idle session of all domains, which is closed before anybody has the new one |
//! | it has opened and every slot became busy | all who wait get `Capacity`, and it is closed |
//! | opening fails or panics | all who wait get the error; no session lost its slot for it |
//! | who began the opening goes away | it stays with those who joined; if nobody is left, it is cancelled |
//! | a call runs | its [`Lease`] keeps its session, and no other, from being evicted, until it is dropped: after an answer, an error, a timeout, a cancel or a panic |
//! | an explicit close, or a changed configuration | all that is meant, busy or not, holds no slot any more and is told at once; the returned [`Closing`] waits for it, at most [`close_limit`](Limits::close_limit) for each |
//! | it is closed while it opens | it never comes to life: all who wait get [`Closed`](AcquireError::Closed), or [`Stale`](AcquireError::Stale) if its configuration went |
//! | a [drain](Pool::drain_scope) | no call begins any more; running ones end, at most until the limit; then it is closed. Until then it keeps its slot, and whoever comes has a new session opened |
//! | a session is found dead | [`evict`](Pool::evict) takes it out by its [`SessionId`], and so never the one that replaced it |
//! | a server's configuration changes or goes | its [`Binding`] is stale for ever and opens nothing; other servers and domains are untouched |
//! | the last [`Pool`] is dropped | everything is told to close |
//!
//! ## Where limits are set
//!
//! None of these is set unless you set it.
//!
//! | limit | what it does |
//! | --- | --- |
//! | [`idle_ttl`](Limits::idle_ttl) | a session is closed that was not promoted, got or released for so long; one stamp orders this and who has to make room; a call, however long, is never cut |
//! | [`max_lifetime`](Limits::max_lifetime) | a session that lived for so long is closed if it is idle, else drained without a limit |
//! | [`sessions_per_server`](Limits::sessions_per_server) | a server with so many sessions makes room with its own idle ones only, or refuses with [`ServerCapacity`](AcquireError::ServerCapacity) |
//! | [`calls_per_session`](Limits::calls_per_session) | a session with so many calls in flight begins no other: [`Saturated`](AcquireError::Saturated) |
//! | [`wait`](Limits::wait) | whoever would be refused for want of room waits for it instead, at most so long, in order of arrival among those whom a freed slot can serve; newcomers do not overtake them. What was opened for a slot that idle sessions' own scopes took up again meanwhile is refused all the same |
//!
//! # Inside
//!
//! The [`registry`] decides and waits for nothing; it can be used alone. The [`Desk`] is the whole pool in that manner,
//! for a host that opens and closes its sessions itself: it says what to do, and is told what was done. Around the
//! registry, the pool runs openings and closings as tokio tasks behind one lock, which is held for the steps of a
//! decision only: those are the same few at every size, and no session's code runs under it but its `clone`. Only
//! [`snapshot`](Pool::snapshot) looks at every session while it holds it.
//!
//! # Beside others
//!
//! What each does when every session has a call in flight is a test (`tests/peers.rs`). The ratios are of `make bench`,
//! link-time optimised, on two busy cores: all take turns in many short rounds with the same keys and hasher, and the
//! middle of the rounds' ratios counts.
//!
//! | | when all are busy | a call at 256 sessions | at 10,000 | at 1,000,000 | 256, two threads |
//! | --- | --- | --- | --- | --- | --- |
//! | a map behind a mutex: look up, clone | grows | 1 | 1 | 1 | 1 |
//! | a least-recently-used map behind a mutex: the same | drops a busy session | 1.0 | 0.9 | 1.0 | 1.1 |
//! | [`registry`] behind a mutex: get, pin, release | refuses, or queues | 1.3 | 1.1 | 1.1 | |
//! | [`Pool`]: get, pin, release | refuses, or waits in order up to a deadline | 1.7 | 1.3 | 1.2 | 1.8 |
//! | [`Pool`] with limits of time: two looks at the clock more | the same | 2.9 | 1.5 | 1.2 | |
//! | `deadpool`: get, return; knows no keys | waits, for ever unless told otherwise | 2.9 | | | 3.5 |
//! | `bb8`: get, return; knows no keys | waits half a minute unless told otherwise, then fails | 3.2 | | | 3.9 |
//!
//! To open a session where another has to make room costs the registry behind a mutex 2.2 to 2.4 times what it costs the
//! least-recently-used map, which keeps one list where the registry keeps four: as much if none or 255 are busy, and 1.4
//! to 1.6 times if all but one are. The steps are the same few at every size, which a test counts. The pool opens and
//! closes in tasks, and takes 6 to 16 times as long as that map, which does neither.
#![forbid(unsafe_code)]

mod binding;
mod closing;
mod desk;
mod event;
mod key;
mod lease;
mod pool;
pub mod registry;
mod runtime;
mod slab;
mod steps;
mod tasks;
mod time;

pub use binding::{Binding, Changes, Fingerprint};
pub use closing::Closing;
pub use desk::{Action, Desk, Refused, Ticket};
pub use event::{Counters, Event, SessionStatus, Snapshot, Stage, Why};
pub use key::{Key, Part, PoolKey, SessionId};
pub use lease::{BeginError, Detached, Handle, Lease};
pub use pool::{AcquireError, Limits, Pool, Session};
pub use registry::Tally;
pub use time::Timestamp;
