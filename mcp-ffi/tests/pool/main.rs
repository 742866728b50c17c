//! The session pool alone, through its C functions.
#![cfg(feature = "capi")]

mod bindings;
mod closings;
mod histories;
mod host;
mod misuse;
mod pressure;
mod reports;
mod status;
