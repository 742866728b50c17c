//! A reconnect budget.

#![forbid(unsafe_code)]

mod action;
mod allowance;
mod budget;
mod jitter;
mod loss;
mod openings;
mod park;
mod policy;
mod schedule;
#[cfg(feature = "tokio")]
mod supervisor;
mod time;
mod transition;
mod verdict;

pub use action::{Action, Attempt, Outlook, Refusal};
pub use budget::Budget;
pub use loss::{Cause, Loss};
pub use policy::Policy;
#[cfg(feature = "tokio")]
pub use supervisor::{
    Connect, Failure, Leave, Live, Observer, Options, Scoped, Session, Status, Supervisor,
    Unavailable, Want, Why,
};
pub use time::Timestamp;
pub use transition::{Reason, State, Transition};
