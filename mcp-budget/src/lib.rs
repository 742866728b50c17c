//! A reconnect budget: *when* a connection may be tried again.
//!
//! # Why
//!
//! A client that reconnects for ever storms a server that cannot live: it starts it again and again, thousands of
//! times a day. A client that gives up after so many attempts loses, after some months, a server that is restarted
//! every night. And a client that counts attempts but begins anew after each connect does the first while it looks
//! like the second, because **a handshake proves nothing**: a server that crashes on its first real request, or loses
//! its database half a minute later, greets as well as any other.
//!
//! So a binding (one server as one user of it sees it) has a *budget*. What fails without having proved itself costs
//! a *charge*, and more charges than the budget has *park* the binding: from then on there is a rare probe, and
//! whatever the host explicitly asks for. Charges are given back for *proof* only: the session answered a request of
//! the host's, or lived a while ([`Policy::healthy_after`]) and then answered a probe. A server that proves itself
//! before each of its deaths is reconnected for ever, ever more slowly if nobody waits for it.
//!
//! # The states
//!
#![doc = include_str!("../docs/states.svg")]
//!
//! From every state the owner's shutdown, and the fatal loss of a session that is there, lead to stopped.
//!
//! | state | what it does | what a call meets |
//! | --- | --- | --- |
//! | [`Idle`](State::Idle) | nothing, until a call comes | a connect |
//! | [`Connecting`](State::Connecting) | one attempt | waits for it |
//! | [`Unproven`](State::Unproven) | serves; is probed at `healthy_after` | the session |
//! | [`Proven`](State::Proven) | serves | the session |
//! | [`Waiting`](State::Waiting) | waits out backoff, floor or the server's `Retry-After` | waits, or fails at once if its deadline is sooner |
//! | [`Parked`](State::Parked) | a probe after 5 min, then 10, … 60 | fails at once, and brings the probe forward |
//! | [`Stopped`](State::Stopped) | nothing, for good | fails at once |
//!
//! What a loss leads to depends on its [`Cause`]; of several that come together the gravest decides. The whole relation,
//! every event in every state, is in [`transitions`].
//!
//! # One budget, many sessions
//!
//! A binding has one *home* session, which is held and reconnected, and any number of *scoped* ones, which somebody
//! else holds and for whose opening the budget gives leave. Charges are counted by *rounds*: the first failure of a
//! round is charged and ends the round, and whatever else fails of it costs nothing, so that a restart which takes 200
//! unproven sessions with it is one charge. While charges stand, sessions are opened one by one, each after the
//! backoff's delay. A server that never proves anything is opened at most `1 + max_retries` times by its home session
//! alone, and at most `1 + max_unproven + max_retries` times by home and scopes together. A session gives charges back
//! only if it was opened in the present round: an old one does not vouch for a new one.
//!
//! # How to use it
//!
//! With the feature `tokio` a `Supervisor` does it all for any connector (`examples/rmcp_client` supervises another SDK's
//! client). Without it, [`Budget`] is a state machine
//! without clock, threads or I/O: tell it what happened and when, and do what it answers.
//!
//! ```
//! use mcp_budget::{Action, Budget, Cause, Policy, State, Timestamp};
//!
//! let mut budget = Budget::new(Policy::default(), 42);
//! let mut now = Timestamp::ZERO;
//! let mut connects = 0;
//! budget.hold(now);
//! while budget.standing().state != State::Parked {
//!     if let Some(Action::Connect(attempt)) = budget.poll(now) {
//!         connects += 1;
//!         budget.opened(now, attempt.generation); // it greets …
//!         budget.lost(now, attempt.generation, Cause::Transient.into()); // … and is gone
//!     }
//!     now = budget.timeout().unwrap();
//! }
//! assert_eq!(connects, 1 + 5);
//! ```
//!
//! # What stands beside the budget
//!
//! * [`Breaker`]: calls to a server that is connected and answers none.
//! * [`Gate`]: how many connects of a whole fleet are in flight and begin per second, the urgent ones first.
//! * [`Keepalive`]: whether a silent session is still there. [`SleepWatch`]: whether the machine slept.
//! * [`Snapshot`]: what of a budget outlives the host; with the feature `serde` it can be written and read.
//!
//! # What it is worth
//!
//! A simulated year of 10,000 servers (`examples/fleet`): restarted every night, all gone for one hour, every Monday all
//! connections dead because the client's machine slept, one in a hundred flapping for 63 hours until somebody mends it,
//! one in a hundred dying half a minute after each answer for as long.
//!
#![doc = include_str!("../docs/fleet.md")]
//!
#![doc = include_str!("../docs/fleet.svg")]
//!
//! The price of never storming is the time in which a thousand servers and more come back together: the gate lets in 20
//! a second, those that a call waits for first.
//!
//! # Without std
//!
//! Without the feature `tokio` the crate needs `alloc` only.

#![forbid(unsafe_code)]
#![cfg_attr(not(any(feature = "tokio", test)), no_std)]

extern crate alloc;

#[doc = include_str!("../docs/transitions.md")]
pub mod transitions {}

mod action;
mod allowance;
mod breaker;
mod budget;
mod counters;
#[cfg(any(feature = "tokio", test))]
mod echo;
mod gate;
mod jitter;
mod keepalive;
mod loss;
mod openings;
mod park;
mod policy;
mod schedule;
mod sleep;
mod snapshot;
#[cfg(feature = "tokio")]
mod supervisor;
mod time;
mod transition;
mod verdict;

pub use action::{Action, Attempt, Outlook, Refusal};
pub use breaker::{Admitted, Breaker, BreakerOpen, BreakerState, CallEnd};
pub use budget::Budget;
pub use counters::Counters;
pub use gate::{Gate, GateLimits, Ticket, Urgency};
pub use keepalive::{Keepalive, Pulse, VitalSign};
pub use loss::{Cause, Loss};
pub use policy::Policy;
pub use sleep::SleepWatch;
pub use snapshot::{ParkedSnapshot, Snapshot};
#[cfg(feature = "tokio")]
pub use supervisor::{
    Connect, Failure, Leave, Live, Observer, Options, Scoped, Session, SharedGate, Status,
    Supervisor, Unavailable, Want, Why, keep_alive,
};
pub use time::Timestamp;
pub use transition::{Reason, State, Transition};
