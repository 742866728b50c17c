//! A few words of what a server said, fit to be shown: short, on one line, and without anything that we sent it.

use std::borrow::Cow;

pub(super) use crate::secrets::Secrets;
use crate::secrets::{REDACTED, is_of_word};

/// How many characters are shown.
const SHOWN: usize = 160;
/// How many are looked at, so that no secret is cut by the end of what is shown.
const READ: usize = 2048;

impl Secrets {
    /// The first words of `text`, quoted, or nothing if there are none to show.
    pub(super) fn snippet(&self, text: &[u8], is_html: bool) -> String {
        if self.too_many {
            return String::new();
        }
        let text = String::from_utf8_lossy(text);
        let text = if is_html { words_of_html(&text) } else { text };
        let mut line = one_line(&text);
        for secret in &self.whole {
            if line.contains(secret.as_str()) {
                line = line.replace(secret.as_str(), REDACTED);
            }
        }
        let mut shown = String::new();
        let mut rest = line.as_str();
        while !rest.is_empty() && shown.chars().count() < SHOWN {
            let word = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(
                word.max(
                    rest.chars()
                        .next()
                        .map_or(0, |c| if is_of_word(c) { 0 } else { c.len_utf8() }),
                ),
            );
            if self.words.contains(&word.to_lowercase()) {
                shown.push_str(REDACTED);
            } else {
                shown.push_str(word);
            }
            rest = after;
        }
        if shown.is_empty() {
            return shown;
        }
        if !rest.is_empty() || shown.chars().count() > SHOWN {
            shown = shown.chars().take(SHOWN).collect();
            shown.push('…');
        }
        format!(": \"{shown}\"")
    }
}

/// Blanks and what cannot be shown become single blanks. A text longer than what is read loses its last word, which
/// may be the beginning of a secret.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut length = 0;
    for c in text.chars() {
        let c = if c.is_whitespace() || c.is_control() {
            ' '
        } else {
            c
        };
        if c == ' ' && (line.is_empty() || line.ends_with(' ')) {
            continue;
        }
        if length == READ {
            let whole_words = line.rfind(' ').unwrap_or(0);
            line.truncate(whole_words);
            break;
        }
        line.push(c);
        length += 1;
    }
    line.truncate(line.trim_end().len());
    line
}

/// The title of a page, or else its text without the marks.
fn words_of_html(page: &str) -> Cow<'static, str> {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|start| {
        let start = start + "<title>".len();
        lower[start..]
            .find("</title>")
            .map(|length| &page[start..start + length])
    });
    let mut text = String::new();
    let mut in_mark = false;
    for c in title.unwrap_or(page).chars() {
        match c {
            '<' => in_mark = true,
            '>' if in_mark => {
                in_mark = false;
                text.push(' ');
            }
            c if !in_mark => text.push(c),
            _ => {}
        }
    }
    for (escaped, plain) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(escaped, plain);
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use url::Url;

    use super::*;

    fn secrets() -> Secrets {
        let url = Url::parse("https://host/s/pathtoken99/mcp?api_key=querysecret&x=a%20b")
            .expect("a URL");
        let mut headers = HeaderMap::new();
        headers.insert(
            "authorization",
            HeaderValue::from_static("Bearer sk-Very-Secret_1"),
        );
        headers.insert("x-short", HeaderValue::from_static("1"));
        Secrets::new(&url, &headers, Some(&HeaderValue::from_static("session-4711-abcd")))
            .and_params_of(br#"{"method":"tools/call","params":{"arguments":{"password":"hunter22 & co","list":["deepsecret"]}}}"#)
    }

    #[test]
    fn a_text_is_put_on_one_line_and_cut() {
        let none = Secrets::default();
        assert_eq!(none.snippet(b" a\n\n\tb\x07c ", false), ": \"a b c\"");
        assert_eq!(none.snippet(b" \n ", false), "");
        assert_eq!(none.snippet(b"", true), "");
        let long = none.snippet("ä ".repeat(5000).as_bytes(), false);
        assert!(
            long.ends_with("…\"") && long.chars().count() < SHOWN + 8,
            "{long}"
        );
    }

    #[test]
    fn a_page_is_shown_by_its_title_or_else_by_its_text() {
        let none = Secrets::default();
        assert_eq!(
            none.snippet(
                b"<html><HEAD><Title>502 Bad\nGateway</TITLE></head><body>x</body>",
                true
            ),
            ": \"502 Bad Gateway\""
        );
        assert_eq!(
            none.snippet(b"<p>It&#39;s <b>down</b> &lt;now&gt;</p>", true),
            ": \"It's down <now>\""
        );
        assert_eq!(none.snippet(b"a < b", false), ": \"a < b\"");
    }

    #[test]
    fn nothing_that_was_sent_comes_back_in_it() {
        let echo = "Bad token Bearer sk-Very-Secret_1 (SECRET_1) in session session-4711-abcd, \
                    url /s/pathtoken99/mcp?api_key=querysecret, args hunter22 &amp; co, deepsecret, \
                    sk-very-secret_1 a%20b";
        for is_html in [false, true] {
            let shown = secrets().snippet(echo.as_bytes(), is_html).to_lowercase();
            for secret in ["very", "secret", "4711", "pathtoken", "hunter22", "abcd"] {
                assert!(
                    !shown.replace(REDACTED, "").contains(secret),
                    "{secret} in {shown}"
                );
            }
            assert!(shown.contains("bad token"), "{shown}");
        }
    }

    #[test]
    fn a_secret_at_the_end_of_what_is_read_is_not_shown_in_part() {
        let secret = "q".repeat(3000);
        let mut headers = HeaderMap::new();
        headers.insert("x", secret.parse().expect("a header value"));
        let url = Url::parse("http://host/").expect("a URL");
        let shown =
            Secrets::new(&url, &headers, None).snippet(format!("was {secret}").as_bytes(), false);
        assert!(!shown.contains("qqq") || shown.is_empty(), "{shown}");
    }

    #[test]
    fn after_more_was_sent_than_can_be_looked_for_nothing_is_shown() {
        let huge = format!(r#"{{"params":"{}"}}"#, "s".repeat(2 << 20));
        let secrets = Secrets::default().and_params_of(huge.as_bytes());
        assert_eq!(secrets.snippet(b"anything", false), "");
    }
}
