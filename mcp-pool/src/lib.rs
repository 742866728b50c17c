//! A busy-aware session pool.
#![forbid(unsafe_code)]

pub mod binding;
pub mod key;
pub mod registry;
mod slab;

pub use binding::{Binding, Changes, Fingerprint};
pub use key::{Key, Part, PoolKey, SessionId};
