//! The library as its hosts see it, in C, C++ and Go, built here against the header, with real servers and hostile ones.

mod bad_input;
mod closes;
mod conformance;
mod credentials;
mod ends;
mod examples;
mod expiry;
mod interop;
mod links;
mod main_job;
mod server_everything;
mod stdio_faults;
mod supervision;

use std::path::Path;

use mcpconn_tests::{
    c_host::{self, Language, Link},
    child::Child,
    scratch::Scratch,
};

/// The server of ours that misbehaves when told.
const DEMO_SERVER: &str = env!("CARGO_BIN_EXE_demo-server");

fn demo_server() -> &'static Path {
    Path::new(DEMO_SERVER)
}

/// Compiles a host as C99 against the shared library, the usual case, and starts it.
#[track_caller]
fn start(source: &str, arguments: &[&str], scratch: &Scratch) -> Child {
    let program = c_host::compile(source, Language::C99, Link::Shared, scratch);
    c_host::start(&program, arguments)
}
