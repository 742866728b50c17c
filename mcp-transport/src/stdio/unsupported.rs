//! What stands in for stdio where it has not been built yet.

use std::{sync::Arc, time::Duration};

use crate::{
    config::StdioConfig,
    error::{Error, ErrorKind},
    jsonrpc::RequestId,
    revision::Revision,
    transport::{BoxFuture, Outgoing, Receiver, Transport},
};

/// Starts child processes; on this platform it cannot.
#[derive(Debug, Clone, Default)]
pub struct Spawner(());

impl Spawner {
    /// A spawner that can start nothing.
    pub fn new() -> Self {
        Self(())
    }

    /// There is nothing to close.
    pub fn close_in_forked_child(&self) {}

    /// There is nothing to wait for.
    pub fn finish(&self, _limit: Duration) {}

    /// The same.
    pub fn without_guardian() -> Self {
        Self(())
    }
}

/// A server that is a child process; on this platform it cannot be started.
#[derive(Debug)]
pub struct StdioTransport(());

impl StdioTransport {
    /// A transport whose start fails.
    pub fn new(_config: StdioConfig) -> Self {
        Self(())
    }

    /// A transport whose start fails.
    pub fn with_spawner(_config: StdioConfig, _spawner: Spawner) -> Self {
        Self(())
    }

    /// The longest frame that would be taken.
    #[must_use]
    pub fn max_frame(self, _bytes: usize) -> Self {
        self
    }
}

impl Transport for StdioTransport {
    fn start(&self, _receiver: Arc<dyn Receiver>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            let message = "servers over stdio are not supported on this platform yet";
            Err(Error::new(ErrorKind::Config, message))
        })
    }
    fn send(&self, _message: Outgoing) {}
    fn negotiated(&self, _revision: Revision) {}
    fn abandon(&self, _request: RequestId) {}
    fn close(&self, _limit: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Keeps SIGPIPE off the current thread while it lives; on this platform not yet.
#[derive(Debug, Default)]
#[must_use = "the signal is off only while it lives"]
pub struct SigpipeOff(());

impl SigpipeOff {
    /// A guard that guards nothing.
    pub fn new() -> Self {
        Self(())
    }

    /// A guard that guards nothing.
    pub fn before_a_write() -> Self {
        Self(())
    }
}

/// A write that could raise the signal is about to come.
pub(crate) fn about_to_write() {}

/// Runs `f`; signals are not blocked on this platform yet.
pub fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    f()
}
