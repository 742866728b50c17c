//! A reconnect budget.

#![forbid(unsafe_code)]

mod allowance;
mod budget;
mod jitter;
mod loss;
mod openings;
mod park;
mod policy;
#[cfg(feature = "tokio")]
mod supervisor;
mod time;
mod transition;
mod verdict;

pub use budget::{Action, Attempt, Budget, Outlook, Refusal};
pub use loss::{Cause, Loss};
pub use policy::Policy;
#[cfg(feature = "tokio")]
pub use supervisor::{
    Connect, Failure, Leave, Live, Observer, Options, Scoped, Session, Status, Supervisor,
    Unavailable, Want, Why,
};
pub use time::Timestamp;
pub use transition::{Reason, State, Transition};
