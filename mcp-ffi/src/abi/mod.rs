//! The C face: it translates, and decides nothing.
//!
//! `include/mcpconn.h` is generated from these files, so that their documentation is written for readers of C. Each
//! function there says which threads may call it: `[any]` thread at any time, or `[one]` at a time.

#![allow(non_camel_case_types)]
// The contract of every function is one for all, and stands at the head of the header.
#![allow(clippy::missing_safety_doc)]
// `[any]` and `[one]` are words for readers of the header, not links.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod answer;
pub mod budget;
pub mod call;
pub mod client;
pub mod credentials;
pub mod error;
pub mod event;
pub mod explicit_close;
mod fail;
mod host;
pub mod link;
pub mod options;
pub mod pool;
pub mod pool_words;
mod process;
pub mod scope;
pub mod server;
pub mod session;
pub mod snapshot;
pub mod status;
pub mod str;
mod takes;
pub mod text;
pub mod version;
