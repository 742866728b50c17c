//! A busy-aware session pool.
#![forbid(unsafe_code)]

pub mod binding;
pub mod key;
pub mod lease;
pub mod pool;
pub mod registry;
mod slab;

pub use binding::{Binding, Changes, Fingerprint};
pub use key::{Key, Part, PoolKey, SessionId};
pub use lease::{Detached, Handle, Lease};
pub use pool::{AcquireError, Closing, Counters, Limits, Pool, Session};
