//! The cookies of one session. Servers behind a balancer keep a session on its machine by them.

use std::collections::HashMap;

use http::{HeaderMap, HeaderValue, header};
use url::{Origin, Url};

/// How many cookies one origin may set, and how long one may be.
const MOST: (usize, usize) = (32, 4096);

/// Cookies by the origin that set them, and sent to no other. What a cookie says of domains and paths is not
/// followed: within one session all goes to one endpoint.
#[derive(Default)]
pub(super) struct Cookies {
    origins: HashMap<Origin, Vec<(String, String)>>,
}

impl Cookies {
    /// Takes what an answer from `url` sets.
    pub(super) fn take(&mut self, url: &Url, headers: &HeaderMap) {
        for value in headers.get_all(header::SET_COOKIE) {
            let Some((name, value, keep)) = value.to_str().ok().and_then(read) else {
                continue;
            };
            let cookies = self.origins.entry(url.origin()).or_default();
            cookies.retain(|(kept, _)| *kept != name);
            if keep && cookies.len() < MOST.0 {
                cookies.push((name, value));
            }
        }
    }

    /// Adds what goes along to `url`, after what stands in the header already.
    pub(super) fn add_to(&self, url: &Url, headers: &mut HeaderMap) {
        if self.origins.is_empty() {
            return;
        }
        let Some(cookies) = self.origins.get(&url.origin()) else {
            return;
        };
        let mut line = headers
            .get(header::COOKIE)
            .and_then(|given| given.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        for (name, value) in cookies {
            if !line.is_empty() {
                line.push_str("; ");
            }
            line.extend([name, "=", value]);
        }
        if let Ok(mut line) = HeaderValue::try_from(line) {
            line.set_sensitive(true);
            headers.insert(header::COOKIE, line);
        }
    }

    /// The values, which are secrets.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.origins
            .values()
            .flatten()
            .map(|(_, value)| value.as_str())
    }
}

/// Name, value, and whether it is set or taken back.
fn read(line: &str) -> Option<(String, String, bool)> {
    if line.len() > MOST.1 {
        return None;
    }
    let mut parts = line.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() {
        return None;
    }
    // An expiry by date is that of a cookie taken back, or one far ahead: a session is shorter.
    let is_over = parts.any(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "max-age" => value.trim().starts_with(['0', '-']),
            "expires" => value.contains(" 1970 ") || value.contains("-1970 "),
            _ => false,
        }
    });
    Some((name.to_owned(), value.to_owned(), !is_over))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str) -> Url {
        Url::parse(url).expect("a URL")
    }

    fn set(cookies: &mut Cookies, at: &str, lines: &[&str]) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::SET_COOKIE, line.parse().expect("a value"));
        }
        cookies.take(&url(at), &headers);
    }

    fn sent(cookies: &Cookies, to: &str, given: Option<&'static str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        if let Some(given) = given {
            headers.insert(header::COOKIE, HeaderValue::from_static(given));
        }
        cookies.add_to(&url(to), &mut headers);
        let line = headers.get(header::COOKIE)?;
        Some(line.to_str().expect("text").to_owned())
    }

    #[test]
    fn cookies_go_back_to_their_origin_and_nowhere_else() {
        let mut cookies = Cookies::default();
        let lines = [
            "a=1; Path=/; Domain=elsewhere; HttpOnly",
            "b=x=y ;Secure",
            "nonsense",
            "=x",
        ];
        set(&mut cookies, "https://h/mcp", &lines);
        assert_eq!(
            sent(&cookies, "https://h/other", None).as_deref(),
            Some("a=1; b=x=y")
        );
        assert_eq!(
            sent(&cookies, "https://h/", Some("own=0")).as_deref(),
            Some("own=0; a=1; b=x=y")
        );
        for other in ["http://h/mcp", "https://h:8443/mcp", "https://elsewhere/"] {
            assert_eq!(sent(&cookies, other, None), None);
            assert_eq!(
                sent(&cookies, other, Some("own=0")).as_deref(),
                Some("own=0")
            );
        }
    }

    #[test]
    fn a_cookie_is_replaced_and_taken_back_by_its_name() {
        let mut cookies = Cookies::default();
        let at = "http://h/";
        set(&mut cookies, at, &["a=1", "b=1", "c=1"]);
        set(&mut cookies, at, &["a=2"]);
        set(
            &mut cookies,
            at,
            &["b=; Max-Age=0", "c=; expires=Thu, 01 Jan 1970 00:00:00 GMT"],
        );
        assert_eq!(sent(&cookies, at, None).as_deref(), Some("a=2"));
    }

    #[test]
    fn an_origin_can_set_only_so_many() {
        let mut cookies = Cookies::default();
        for index in 0..100 {
            set(&mut cookies, "http://h/", &[&format!("n{index}=1")]);
        }
        set(
            &mut cookies,
            "http://i/",
            &[&format!("n={}", "x".repeat(5000))],
        );
        assert_eq!(cookies.values().count(), MOST.0);
        assert_eq!(sent(&cookies, "http://i/", None), None);
    }
}
