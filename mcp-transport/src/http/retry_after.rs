//! `Retry-After`: seconds, or a date, which is measured against the answer's own `Date` and not against our clock.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

/// The longest that a server can make us wait.
const MOST: Duration = Duration::from_secs(3600);

/// How long the server asks to be left alone, at most an hour.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = seconds_of_date(value)?;
            let now = headers
                .get(header::DATE)
                .map(HeaderValue::to_str)?
                .ok()
                .and_then(seconds_of_date)?;
            Duration::from_secs(until.saturating_sub(now))
        }
    };
    Some(wait.min(MOST))
}

/// Seconds since 1970 of an HTTP date as it must be sent: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut parts = text.split_once(", ")?.1.split(' ');
    let day = number(parts.next()?, 31)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year = number(parts.next()?, 9999)?;
    let mut time = parts.next()?.split(':');
    let hour = number(time.next()?, 23)?;
    let minute = number(time.next()?, 59)?;
    let second = number(time.next()?, 60)?;
    if parts.next() != Some("GMT") || day == 0 || year < 1970 {
        return None;
    }
    // Days of the civil calendar, counted in years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn number(text: &str, most: u64) -> Option<u64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(header::HeaderName, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name, value.parse().expect("a header value"));
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_are_taken_up_to_an_hour() {
        assert_eq!(
            asked(&[(header::RETRY_AFTER, " 7 ")]),
            Some(Duration::from_secs(7))
        );
        assert_eq!(asked(&[(header::RETRY_AFTER, "86400")]), Some(MOST));
        assert_eq!(asked(&[(header::RETRY_AFTER, "-1")]), None);
        assert_eq!(asked(&[(header::RETRY_AFTER, "soon")]), None);
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn a_date_is_measured_against_the_date_of_the_answer() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(seconds_of_date(date), Some(784_111_777));
        assert_eq!(seconds_of_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            seconds_of_date("Thu, 29 Feb 2024 00:00:00 GMT"),
            Some(1_709_164_800)
        );
        let later = "Sun, 06 Nov 1994 08:50:07 GMT";
        assert_eq!(
            asked(&[(header::RETRY_AFTER, later), (header::DATE, date)]),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            asked(&[(header::RETRY_AFTER, date), (header::DATE, later)]),
            Some(Duration::ZERO)
        );
        assert_eq!(asked(&[(header::RETRY_AFTER, later)]), None);
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "Sun, ",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 +8:49:37 GMT",
            "Sun, 06 Nov 1901 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(seconds_of_date(text), None, "{text:?}");
        }
    }
}
