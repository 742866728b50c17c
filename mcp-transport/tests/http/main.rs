//! The Streamable HTTP transport against a server that does what each test says.

mod answers;
mod closing;
mod connections;
mod redirects;
mod secrets;
mod server;
mod session;
