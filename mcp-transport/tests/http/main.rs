//! The Streamable HTTP transport against a server that does what each test says.

mod answers;
mod backlog;
mod closing;
mod connections;
mod cookies;
mod credentials;
mod legacy_sse;
mod redirects;
mod reports;
mod resuming;
mod secrets;
mod server;
mod session;
mod standing;
mod upset;
