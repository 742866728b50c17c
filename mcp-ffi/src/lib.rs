//! An MCP client's connections, done right: the client that stitches `mcp-budget`, `mcp-pool` and `mcp-transport`
//! together, and, behind the feature `capi`, its C face: library `libmcpconn`, header `mcpconn.h`.
//!
//! ```no_run
//! use mcpconn::{CallOptions, Client, ClientOptions, EventKind, Scope};
//!
//! # fn main() -> Result<(), mcpconn::Error> {
//! let client = Client::new(ClientOptions::default())?;
//! client.configure("", r#"{"mcpServers": {"files": {"command": "files-server"}}}"#)?;
//! let chat = Scope::new("", "chat-1");
//! let id = client.call_tool(&chat, "files", "read", r#"{"path": "a"}"#, CallOptions::default())?;
//! while client.wait(None)? {
//!     while let Some(event) = client.next_event() {
//!         match event.kind {
//!             EventKind::Result(answer) if event.id == id => println!("{}", answer.text()),
//!             EventKind::Error(error) if event.id == id => return Err(error),
//!             _ => {}
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A call completes with exactly one event, and says what is known of it when it failed: whether it was never sent, was
//! refused, was answered, or may have run ([`Outcome`]).

#[cfg(feature = "capi")]
pub mod abi;
mod client;
mod millis;
#[cfg(feature = "capi")]
mod numbered;
mod sys;

pub use client::*;
