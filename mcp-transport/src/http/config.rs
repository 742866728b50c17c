//! What a Streamable HTTP server is reached with.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use url::Url;

use crate::error::{Error, ErrorKind};

/// Where to find a server that speaks Streamable HTTP, and what to send along.
///
/// `Debug` shows the origin and the names of the headers only: paths, queries and header values may be secrets.
#[derive(Clone)]
pub struct HttpConfig {
    pub(super) url: Url,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body_limit: usize,
    pub(super) stream: bool,
    pub(super) legacy_sse: bool,
}

/// What the transport itself decides; a header of the configuration cannot.
const OURS: [HeaderName; 3] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::ACCEPT_ENCODING,
];

/// What would break the framing of the message or the state of the session.
const REFUSED: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl HttpConfig {
    /// The default of [`HttpConfig::with_body_limit`].
    pub const BODY_LIMIT: usize = 64 << 20;

    /// A server at `url` (`http` or `https`), with `headers` sent along with each request. A header given twice is
    /// sent twice. `Accept`, `Accept-Encoding` and `Content-Type` are the transport's own and left out.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the URL cannot be used or a header is not one; the text names the header, never its
    /// value, and no part of a URL that could not be read.
    pub fn new(url: &str, headers: &[(String, String)]) -> Result<Self, Error> {
        let config = |problem: String| Error::new(ErrorKind::Config, problem);
        let mut url = Url::parse(url.trim())
            .map_err(|error| config(format!("the URL cannot be used: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(config(format!(
                "the URL cannot be used: its scheme is {:?}, and a remote server needs http or https",
                url.scheme()
            )));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(config(format!(
                "the URL of {} has a user or password in it: give them as an Authorization header",
                origin(&url)
            )));
        }
        url.set_fragment(None);
        let uri = uri_of(&url)?;
        Ok(Self {
            headers: header_map(headers).map_err(config)?,
            url,
            uri,
            body_limit: Self::BODY_LIMIT,
            stream: false,
            legacy_sse: false,
        })
    }

    /// Whether a stream is held open, on a connection of its own, for what the server says outside of answers:
    /// notifications and requests. It is opened after the handshake, before anything else is sent (unless the server
    /// takes more than a second to say whether it gives it), and read on where it broke. Off by default, for it costs a
    /// connection and a server may not have it, which is no error.
    #[must_use]
    pub fn with_stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Whether the server is known to speak HTTP+SSE of 2024-11-05 (`"type": "sse"`). Without it that is found out:
    /// by `initialize` being refused with 400, 404 or 405.
    #[must_use]
    pub fn with_legacy_sse(mut self, legacy_sse: bool) -> Self {
        self.legacy_sse = legacy_sse;
        self
    }

    /// The most bytes that an answer's body, or one event of a stream, may have.
    #[must_use]
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Scheme, host and port: all of the URL that is ever shown.
    pub fn origin(&self) -> String {
        origin(&self.url)
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("origin", &self.origin())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body_limit", &self.body_limit)
            .field("stream", &self.stream)
            .field("legacy_sse", &self.legacy_sse)
            .finish_non_exhaustive()
    }
}

/// Scheme, host and port of a URL, which hold no secret.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The URL as hyper takes it.
pub(super) fn uri_of(url: &Url) -> Result<Uri, Error> {
    url.as_str().parse().map_err(|_| {
        Error::new(
            ErrorKind::Config,
            format!(
                "the URL of {} cannot be used: a character in it is not allowed",
                origin(url)
            ),
        )
    })
}

pub(super) fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (index, (name, value)) in headers.iter().enumerate() {
        // A name that is none may be a whole header line pasted with its secret: it is not shown.
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| format!("the name of header {} is not a header name", index + 1))?;
        if REFUSED.contains(&name.as_str()) {
            return Err(format!(
                "the header {name} is the transport's own and cannot be given"
            ));
        }
        if OURS.contains(&name) {
            continue;
        }
        let mut value: HeaderValue = value.trim().parse().map_err(|_| {
            format!("the value of the header {name} has a character that headers cannot have")
        })?;
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}
