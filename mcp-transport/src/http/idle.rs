//! How long a connection may be idle and still be used: less than the server keeps it.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// An idle connection is not used any more after this: many servers close theirs after five seconds, and a request
/// that meets the closing half way has an outcome that nobody knows.
pub(super) const LONGEST: Duration = Duration::from_secs(4);

/// How much sooner than the server says: its clock began before ours.
const MARGIN: Duration = Duration::from_secs(1);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How long a connection may be idle after an answer with these headers.
pub(super) fn limit(headers: &HeaderMap) -> Duration {
    // Most servers say nothing.
    let parameters = headers.get_all(KEEP_ALIVE).iter();
    let parameters = parameters.filter_map(|value| value.to_str().ok());
    let said = parameters
        .flat_map(|value| value.split(','))
        .filter_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let value = value.trim().trim_matches('"');
            let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
            is_timeout.then(|| value.parse().ok()).flatten()
        })
        .min();
    said.map_or(LONGEST, |seconds| {
        Duration::from_secs(seconds)
            .saturating_sub(MARGIN)
            .min(LONGEST)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_connections_shortly_is_heard_less_a_second() {
        for (said, seconds) in [
            ("timeout=1", 0),
            ("timeout=0", 0),
            ("timeout=3", 2),
            ("max=100, Timeout = \"2\"", 1),
            ("timeout=4, timeout=2", 1),
            ("timeout=5, max=100", 4),
            ("timeout=18446744073709551615", 4),
            ("timeout=-1", 4),
            ("timeout", 4),
            ("max=3", 4),
            ("", 4),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(KEEP_ALIVE, said.parse().expect("a value"));
            assert_eq!(limit(&headers), Duration::from_secs(seconds), "{said}");
        }
        assert_eq!(limit(&HeaderMap::new()), LONGEST);
    }
}
