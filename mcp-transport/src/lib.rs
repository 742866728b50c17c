//! MCP transports, and one client session over them.
//!
//! A [`Transport`](transport::Transport) carries the messages of one session; [`stdio::StdioTransport`] is one
//! whose server is a child process. A [`Session`](session::Session) does the handshake over it, and finds for each
//! request its answer.
//!
//! ```no_run
//! # async fn example() -> Result<(), mcp_transport::error::Error> {
//! use std::{sync::Arc, time::Duration};
//! use mcp_transport::{
//!     config::StdioConfig,
//!     session::{RequestOptions, Session, SessionOptions, list_all},
//!     stdio::StdioTransport,
//! };
//! use tokio::time::Instant;
//!
//! let mut config = StdioConfig::new("npx");
//! config.args = vec!["-y".into(), "@modelcontextprotocol/server-everything".into()];
//! let session = Session::open(
//!     Arc::new(StdioTransport::new(config)),
//!     SessionOptions {
//!         client_name: "example".into(),
//!         client_version: "1.0".into(),
//!         connect_deadline: Instant::now() + Duration::from_secs(60),
//!         handler: Arc::new(()),
//!     },
//! )
//! .await?;
//! let tools = list_all(&session, "tools/list", "tools", None).await?;
//! let params = r#"{"name": "echo", "arguments": {"message": "hello"}}"#;
//! let limits = RequestOptions::until(Instant::now() + Duration::from_secs(300));
//! let result = session.request("tools/call", Some(params.into()), limits).await?;
//! session.close(Duration::from_secs(4)).await;
//! # drop((tools, result));
//! # Ok(())
//! # }
//! ```
//!
//! Three things hold throughout:
//!
//! - Params and results are raw JSON: the bytes that came, as [`bytes::Bytes`]. Only the envelope is parsed.
//! - Every [`Error`](error::Error) says what is known of the call: [`Outcome`](error::Outcome) tells a request that
//!   may be sent again from one that may have run.
//! - Nothing reconnects. A session that has ended stays so, and [`Session::ended`](session::Session::ended) says
//!   why and how grave it is.
#![deny(unsafe_code)]

mod challenge;
pub mod config;
pub mod error;
pub mod host;
pub mod http;
mod json;
pub mod jsonrpc;
pub mod line;
pub mod revision;
mod secrets;
pub mod session;
pub mod sse;
pub mod stdio;
mod text;
pub mod transport;
