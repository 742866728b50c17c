//! How long a connection may be idle and still be used: less than the server keeps it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Extensions, HeaderMap, HeaderName};
use hyper_util::client::legacy::connect::CaptureConnection;

/// An idle connection is not used any more after this: many servers close theirs after five seconds, and a request
/// that meets the closing half way has an outcome that nobody knows.
pub(super) const LONGEST: Duration = Duration::from_secs(4);

/// How much sooner than the server says: its clock began before ours.
const MARGIN: Duration = Duration::from_secs(1);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How long a connection may be idle by what the server says, where that is less than [`LONGEST`].
fn limit(headers: &HeaderMap) -> Option<Duration> {
    let parameters = headers.get_all(KEEP_ALIVE).iter();
    let parameters = parameters.filter_map(|value| value.to_str().ok());
    let seconds = parameters
        .flat_map(|value| value.split(','))
        .filter_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let value = value.trim().trim_matches('"');
            let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
            is_timeout.then(|| value.parse().ok()).flatten()
        })
        .min()?;
    let limit = Duration::from_secs(seconds).saturating_sub(MARGIN);
    (limit < LONGEST).then_some(limit)
}

/// Counts the answers that came on one connection; goes along with each of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses(Arc<AtomicU64>);

/// What a server says about its idle connections. Most say nothing of interest, and then nothing is done about it.
#[derive(Debug)]
pub(super) struct IdleLimits {
    is_of_interest: AtomicBool,
}

impl IdleLimits {
    pub(super) fn new() -> Self {
        Self {
            is_of_interest: AtomicBool::new(true),
        }
    }

    /// Whether the connection of the next request is to be known.
    pub(super) fn is_of_interest(&self) -> bool {
        self.is_of_interest.load(Ordering::Relaxed)
    }

    /// An answer came on this connection. What this gives sees to it that the connection is not used any more once it
    /// was idle for too long.
    pub(super) fn answered(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        connection: CaptureConnection,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let limit = limit(headers);
        self.is_of_interest
            .store(limit.is_some(), Ordering::Relaxed);
        let (limit, uses) = (limit?, extensions.get::<Uses>()?.clone());
        let use_of_now = uses.0.fetch_add(1, Ordering::Relaxed) + 1;
        Some(async move {
            tokio::time::sleep(limit).await;
            if uses.0.load(Ordering::Relaxed) == use_of_now {
                if let Some(connection) = connection.connection_metadata().as_ref() {
                    connection.poison();
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_connections_shortly_is_heard_less_a_second() {
        for (said, seconds) in [
            ("timeout=1", Some(0)),
            ("timeout=0", Some(0)),
            ("timeout=3", Some(2)),
            ("max=100, Timeout = \"2\"", Some(1)),
            ("timeout=4, timeout=2", Some(1)),
            ("timeout=5, max=100", None),
            ("timeout=18446744073709551615", None),
            ("timeout=-1", None),
            ("timeout", None),
            ("max=3", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(KEEP_ALIVE, said.parse().expect("a value"));
            assert_eq!(limit(&headers), seconds.map(Duration::from_secs), "{said}");
        }
        assert_eq!(limit(&HeaderMap::new()), None);
    }
}
