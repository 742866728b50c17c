//! MCP transports, and one client session over them.
#![deny(unsafe_code)]

pub mod config;
pub mod error;
pub mod http;
pub mod jsonrpc;
pub mod line;
pub mod revision;
pub mod session;
pub mod sse;
pub mod stdio;
mod text;
pub mod transport;
