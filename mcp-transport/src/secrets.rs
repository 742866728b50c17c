//! What must not come back in a text that people read: servers repeat what they were given.

use std::{borrow::Cow, collections::HashSet};

use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use url::Url;

use crate::config::StdioConfig;

pub(crate) const REDACTED: &str = "[redacted]";
/// From how many bytes on a configured value is taken out of what the server says; shorter ones stand in any text.
const SHORTEST: usize = 8;
/// How much of a secret at the edge of a text, which may be cut there, gives it away.
const EDGE: usize = 4;

/// What must not come back in a text: servers echo headers, URLs and arguments on their error pages.
#[derive(Default)]
pub(crate) struct Secrets {
    /// Taken out as they are.
    pub(crate) whole: HashSet<String>,
    /// Taken out word by word in lower case: what was escaped, cut or joined otherwise still has its words.
    pub(crate) words: HashSet<String>,
    /// Too much was sent to look for: nothing is shown.
    pub(crate) too_many: bool,
}

impl Secrets {
    /// What goes along with every request of a session.
    pub(crate) fn new(url: &Url, headers: &HeaderMap, session: Option<&HeaderValue>) -> Self {
        let mut secrets = Self::default();
        for value in headers.values().chain(session) {
            for text in texts_of(value) {
                secrets.hide(&text, 3);
            }
        }
        secrets.and_url(url)
    }

    /// Also the values of cookies.
    #[must_use]
    pub(crate) fn and_values<'a>(mut self, values: impl Iterator<Item = &'a str>) -> Self {
        for value in values {
            self.hide(value, 3);
        }
        self
    }

    /// Also what a URL holds beside its origin.
    #[must_use]
    pub(crate) fn and_url(mut self, url: &Url) -> Self {
        for segment in url.path_segments().into_iter().flatten() {
            self.hide(segment, 4);
        }
        for (name, value) in url.query_pairs() {
            self.hide(&name, 4);
            self.hide(&value, 3);
        }
        self
    }

    /// Also the texts in the parameters of a message that was sent.
    #[must_use]
    pub(crate) fn and_params_of(mut self, message: &[u8]) -> Self {
        const LARGEST: usize = 1 << 20;
        let parsed = (message.len() <= LARGEST)
            .then(|| serde_json::from_slice::<Value>(message).ok())
            .flatten();
        match parsed {
            Some(mut message) => self.hide_texts(&message["params"].take(), 10_000),
            None => self.too_many = true,
        }
        self
    }

    fn hide_texts(&mut self, value: &Value, limit: usize) {
        if self.whole.len() > limit {
            self.too_many = true;
            return;
        }
        match value {
            Value::String(text) => self.hide(text, 6),
            Value::Array(items) => items.iter().for_each(|item| self.hide_texts(item, limit)),
            Value::Object(items) => items.values().for_each(|item| self.hide_texts(item, limit)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Hides a text, its parts between blanks, and its words; each only from `shortest` characters on, for shorter
    /// ones stand in any text.
    fn hide(&mut self, text: &str, shortest: usize) {
        for part in std::iter::once(text).chain(text.split_whitespace()) {
            if part.len() >= shortest {
                self.whole.insert(part.to_owned());
            }
        }
        for word in words(text) {
            if word.len() >= shortest.max(4) {
                self.words.insert(word.to_lowercase());
            }
        }
    }

    /// What a child process was given: its variables, and arguments that are the values of flags for secrets.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn of_child(config: &StdioConfig) -> Self {
        let mut secrets = Self::default();
        for (name, value) in &config.env {
            secrets.hide_value(value, is_for_secrets(name));
        }
        let mut after_flag = false;
        for arg in &config.args {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (arg.as_str(), None),
            };
            let is_flag = arg.starts_with('-');
            if let Some(value) = value.filter(|_| is_for_secrets(name)) {
                secrets.hide_value(value, true);
            } else if after_flag && !is_flag {
                secrets.hide_value(arg, true);
            }
            after_flag = is_flag && value.is_none() && is_for_secrets(name);
        }
        secrets
    }

    /// The values of headers alone.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        let mut secrets = Self::default();
        for value in headers.values() {
            for text in texts_of(value) {
                secrets.hide_value(&text, true);
            }
        }
        secrets
    }

    /// The values of headers, and what else of a URL may be a key to it: its query and what looks like one in its
    /// path.
    pub(crate) fn of_remote<'a>(url: &Url, values: impl Iterator<Item = &'a HeaderValue>) -> Self {
        let mut secrets = Self::default();
        for value in values {
            for text in texts_of(value) {
                secrets.hide_value(&text, true);
            }
        }
        for segment in url.path_segments().into_iter().flatten() {
            secrets.hide_value(segment, false);
        }
        for (_, value) in url.query_pairs() {
            secrets.hide_value(&value, true);
        }
        secrets
    }

    /// Hides a value as it is, as it stands in JSON, and its parts between blanks. One that is not known to be secret
    /// is left if it is a plain word.
    fn hide_value(&mut self, value: &str, is_secret: bool) {
        for part in std::iter::once(value.trim()).chain(value.split_whitespace()) {
            if part.len() < SHORTEST || (!is_secret && is_plain(part)) || is_scheme(part) {
                continue;
            }
            let json = Value::from(part).to_string();
            let json = &json[1..json.len() - 1];
            if json != part {
                self.whole.insert(json.to_owned());
            }
            self.whole.insert(part.to_owned());
        }
    }

    /// The secrets; one that holds another goes before it.
    fn longest_first(&self) -> Vec<&str> {
        let mut whole: Vec<&str> = self.whole.iter().map(String::as_str).collect();
        whole.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        whole
    }

    /// A text that was cut nowhere, without the secrets.
    pub(crate) fn redact_whole<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in self.longest_first() {
            if text.contains(secret) {
                text = text.replace(secret, REDACTED).into();
            }
        }
        text
    }

    /// The text without the secrets, and without what may be a part of one where the text was cut.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let whole = self.longest_first();
        let mut text = self.redact_whole(text);
        for secret in &whole {
            let cuts = || secret.char_indices().map(|(at, _)| at);
            let head = cuts().rfind(|&at| at >= EDGE && text.ends_with(&secret[..at]));
            if let Some(at) = head {
                text = format!("{}{REDACTED}", &text[..text.len() - at]).into();
            }
            let tail = cuts()
                .find(|&at| at > 0 && secret.len() - at >= EDGE && text.starts_with(&secret[at..]));
            if let Some(at) = tail {
                text = format!("{REDACTED}{}", &text[secret.len() - at..]).into();
            }
        }
        text
    }
}

/// What a header's value is, and what it says in another dress: the user and password of `Basic`, which a server reads.
fn texts_of(value: &HeaderValue) -> Vec<String> {
    let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
    let basic = text
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"))
        .and_then(|(_, pair)| from_base64(pair.trim()));
    let mut texts = vec![text];
    if let Some(pair) = basic {
        let pair = String::from_utf8_lossy(&pair).into_owned();
        texts.extend(pair.split(':').map(ToOwned::to_owned));
        // A password may have colons of its own.
        texts.extend(
            pair.split_once(':')
                .map(|(_, password)| password.to_owned()),
        );
        texts.push(pair);
    }
    texts
}

/// `None` if it is no base64.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut group, mut bits) = (0u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        group = group << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// Whether what bears this name is most likely secret.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn is_for_secrets(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "token", "secret", "passw", "auth", "cred", "bearer", "header",
    ]
    .iter()
    .any(|part| name.contains(part))
        || name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| matches!(word, "key" | "apikey" | "pass" | "pwd" | "pat" | "dsn"))
}

/// A word as it stands in any text: `production`, `debug-all`.
fn is_plain(value: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || matches!(c, '-' | '_' | '.');
    value.chars().all(is_plain)
        || value
            .chars()
            .all(|c| is_plain(c.to_ascii_lowercase()) && !c.is_ascii_lowercase())
}

/// A header's own words.
fn is_scheme(value: &str) -> bool {
    value.ends_with(':') || value.starts_with("application/")
}

pub(crate) fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_of_word(c))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child() -> Secrets {
        let mut config = StdioConfig::new("server");
        for (name, value) in [
            ("MODE", "production"),
            ("LEVEL", "info"),
            ("API_KEY", "correcthorse"),
            ("DATABASE", "postgres://u:p4ss@db/x"),
            ("PEM", "-----BEGIN\nMIIabc123\"def\n"),
        ] {
            config.env.insert(name.into(), value.into());
        }
        config.args = [
            "--token",
            "tok-4711-abcd",
            "--verbose",
            "visible-argument",
            "--api-key=key-0815-efgh",
            "-e",
            "GITHUB_TOKEN=ghp_12345678",
            "--header",
            "Authorization: Bearer bear-99-token",
        ]
        .map(String::from)
        .to_vec();
        Secrets::of_child(&config)
    }

    #[test]
    fn what_a_server_reads_out_of_basic_credentials_is_hidden_as_well() {
        // someuser:pass:word:1
        let value = HeaderValue::from_static("Basic c29tZXVzZXI6cGFzczp3b3JkOjE=");
        let mut headers = HeaderMap::new();
        headers.insert("authorization", value);
        let secrets = Secrets::of_headers(&headers);
        for said in ["someuser", "pass:word:1", "c29tZXVzZXI6cGFzczp3b3JkOjE="] {
            let shown = secrets.redact_whole(said).into_owned();
            assert_eq!(shown, REDACTED, "{said}");
        }
        assert_eq!(from_base64("Zm9v"), Some(b"foo".to_vec()));
        assert_eq!(from_base64("Zg=="), Some(b"f".to_vec()));
        assert_eq!(from_base64("Z!"), None);
    }

    #[test]
    fn what_a_child_was_given_is_taken_out_and_plain_words_stay() {
        for secret in [
            "correcthorse",
            "postgres://u:p4ss@db/x",
            "MIIabc123\"def",
            "MIIabc123\\\"def",
            "tok-4711-abcd",
            "key-0815-efgh",
            "ghp_12345678",
            "bear-99-token",
        ] {
            let text = format!("bad <{secret}> in production at info, visible-argument");
            assert_eq!(
                child().redact(&text),
                "bad <[redacted]> in production at info, visible-argument"
            );
        }
    }

    #[test]
    fn a_secret_that_the_texts_edge_cuts_is_taken_out_too() {
        assert_eq!(
            child().redact("4711-abcd was refused"),
            "[redacted] was refused"
        );
        assert_eq!(child().redact("refused tok-4711"), "refused [redacted]");
        assert_eq!(child().redact("a tok"), "a tok");
    }

    #[test]
    fn header_values_and_queries_are_taken_out_and_paths_of_words_stay() {
        let url = Url::parse("https://h/github/s3cr3t-path/mcp?k=query-secret").unwrap();
        let values = ["Bearer sk-very-secret", "application/json"].map(HeaderValue::from_static);
        let secrets = Secrets::of_remote(&url, values.iter());
        assert_eq!(
            secrets.redact("github: sk-very-secret s3cr3t-path query-secret application/json"),
            "github: [redacted] [redacted] [redacted] application/json"
        );
    }
}
