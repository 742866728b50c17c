//! The demo server is what other tests measure by, so it is itself held to the specification here.

mod http;
mod stdio;

/// The program under test.
const DEMO_SERVER: &str = env!("CARGO_BIN_EXE_demo-server");
