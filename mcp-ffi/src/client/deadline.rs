//! Until when a call waits.

use std::future::Future;

use tokio::time::{Instant, timeout_at};

use super::{
    error::{Error, Kind},
    options::CallOptions,
};

/// The deadline of a call that begins now.
pub(super) fn of(options: &CallOptions) -> Option<Instant> {
    let timeout = options.timeout?;
    Instant::now().checked_add(timeout)
}

/// What the future gives, if it does so by the deadline.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
    late: impl FnOnce() -> String,
) -> Result<T, Error> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future)
            .await
            .map_err(|_| Error::new(Kind::Timeout, late())),
        None => Ok(future.await),
    }
}
