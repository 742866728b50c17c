//! Small pieces of text for messages that people read.

use std::{fmt, io, time::Duration};

/// An error of the system's, and what can be done about it.
pub(crate) fn with_remedy(error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; this process has as many descriptors as its limit allows, which can be raised (ulimit -n)"
        }
        Some(libc::ENFILE) => "; the whole machine has as many open files as its limit allows",
        _ => "",
    };
    format!("{error}{remedy}")
}

/// Bytes of which `Debug` shows only how many: a peer's word may hold secrets.
pub(crate) struct Length<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Length<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What strangers wrote, as a part of one line: control characters and runs of blanks become one blank,
/// broken UTF-8 is replaced, and it ends after about `max` bytes.
pub(crate) fn one_line(bytes: &[u8], max: usize) -> String {
    let mut out = String::new();
    // Broken sequences can be three times as long once replaced; twice the limit is enough to fill it.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2 * max + 4)]);
    let mut cut = bytes.len() > 2 * max + 4;
    for c in text.chars() {
        if out.len() >= max {
            cut = true;
            break;
        }
        if c.is_control() || c.is_whitespace() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
        } else {
            out.push(c);
        }
    }
    let kept = out.trim_end().len();
    out.truncate(kept);
    if cut {
        out.push('…');
    }
    out
}

/// A duration as people write it: about three digits of it.
pub(crate) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let unit = match seconds {
        100.0.. => 1.0,
        10.0.. => 10.0,
        1.0.. => 100.0,
        _ => 1000.0,
    };
    format!("{} s", (seconds * unit).round() / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_text_becomes_one_line() {
        assert_eq!(
            one_line(b"  a\r\n\tb\x1b[0m \n\n c\xff\n", 100),
            "a b [0m c\u{fffd}"
        );
        assert_eq!(one_line(b"abcdef", 3), "abc…");
        assert_eq!(one_line(b"abc", 3), "abc");
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_secs(60)), "60 s");
        assert_eq!(seconds(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(seconds(Duration::from_millis(59_996)), "60 s");
        assert_eq!(seconds(Duration::from_millis(50)), "0.05 s");
        assert_eq!(seconds(Duration::ZERO), "0 s");
    }
}
