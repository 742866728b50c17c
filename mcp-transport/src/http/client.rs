//! The connections to a server, shared by all sessions of a binding, and the sending of one request over them.

use std::{
    error::Error as StdError,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use url::Url;

use super::{
    address::AddressPolicy,
    body::{self, Outbound, Payload, Taken},
    config,
    connect::{self, Connector, Tls},
    connections::{Connections, Failed},
    cookies::Cookies,
    credentials::Credentials,
    http1::Arriving,
    proxy::Proxies,
    resolve::Resolver,
    tasks::Tasks,
};
use crate::error::{Error, ErrorKind, Outcome};

/// How many redirects one request follows.
const REDIRECTS: usize = 4;

/// The pool of connections that the sessions of one binding share. Cloning is cheap and shares the pool; dropping
/// the last clone closes every connection, also those still being made.
#[derive(Clone)]
pub struct HttpClient {
    inner: Arc<Inner>,
}

struct Inner {
    connections: Connections,
    /// The connections of streams that are held open, which so hold up nothing else: also over HTTP/2, where a
    /// connection carries only so many.
    streams: Connections,
    credentials: Credentials,
    proxies: Arc<Proxies>,
    follows_redirects: bool,
    /// What works on connections while nobody waits for it. Ends with the last clone.
    _tasks: Arc<Tasks>,
}

impl HttpClient {
    /// A pool without a connection, with the options' defaults. Nothing is opened before the first request; the
    /// environment is asked for proxies now.
    pub fn new() -> Self {
        Self::over(
            Tls::default(),
            Resolver::new(AddressPolicy::any()),
            Proxies::of_environment(),
            true,
        )
    }

    pub(super) fn over(
        tls: Tls,
        resolver: Resolver,
        proxies: Proxies,
        follows_redirects: bool,
    ) -> Self {
        let tasks = Arc::new(Tasks::default());
        let proxies = Arc::new(proxies);
        let connector = Connector::new(tls, resolver, proxies.clone());
        Self {
            inner: Arc::new(Inner {
                connections: Connections::new(connector.clone(), &tasks),
                streams: Connections::new(connector, &tasks),
                credentials: Credentials::new(),
                proxies,
                follows_redirects,
                _tasks: tasks,
            }),
        }
    }

    /// Sends this header, from the next request on, in place of what the configurations of all sessions over this
    /// client say: new credentials after [`ErrorKind::Auth`]. `None` goes back to the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no header or one that is the transport's own; the text never has the value.
    pub fn set_header(&self, name: &str, value: Option<&str>) -> Result<(), Error> {
        let invalid = |problem| Error::new(ErrorKind::Invalid, problem);
        let given = (name.to_owned(), value.unwrap_or_default().to_owned());
        let mut header = config::header_map(&[given]).map_err(invalid)?.into_iter();
        match header.next() {
            Some((Some(name), header)) => {
                let value = value.is_some().then_some(header);
                self.inner.credentials.replace(name, value);
                Ok(())
            }
            _ => Err(invalid(format!(
                "the header {} is the transport's own and cannot be given",
                name.trim().to_ascii_lowercase()
            ))),
        }
    }

    /// Has `tell` called when a session is refused the stream on which the server speaks on its own, for want of
    /// credentials: no request fails by that, and the stream is asked for again once a header was set. What is told of
    /// is [`ErrorKind::Auth`], or without a challenge to 403 [`ErrorKind::Protocol`]. Called on the runtime that the
    /// session lives on, and must not block. The first `tell` stays.
    pub fn tell_of_refused_streams(&self, tell: impl Fn(&Error) + Send + Sync + 'static) {
        self.inner.credentials.hear_of_streams(tell);
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.inner.credentials
    }

    /// Sends one request and gives the head of what came, following the redirects that may be followed.
    ///
    pub(super) async fn send(&self, outgoing: Outgoing<'_>) -> Result<Response<Arriving>, Error> {
        // Lets the runtime look at its sockets once, so that a connection which the server has closed meanwhile is
        // seen as closed before it is picked.
        tokio::task::yield_now().await;
        let mut url = outgoing.url.clone();
        let mut uri = outgoing.uri.clone();
        let mut redirect = None;
        for _ in 0..=REDIRECTS {
            let mut request =
                Request::new(Outbound::new(outgoing.body.clone(), outgoing.taken.clone()));
            *request.method_mut() = outgoing.method.clone();
            *request.uri_mut() = uri;
            let mut headers = outgoing.headers.clone();
            outgoing.cookies().add_to(&url, &mut headers);
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
            if let Some(shown) = self.inner.proxies.credentials(request.uri()) {
                headers.insert(header::PROXY_AUTHORIZATION, shown);
            }
            *request.headers_mut() = headers;
            let connections = match outgoing.is_stream {
                true => &self.inner.streams,
                false => &self.inner.connections,
            };
            let response = match connections.send(request).await {
                Ok(response) => response,
                Err(error) => {
                    let error = failure(&config::origin(&url), &error, &outgoing);
                    return Err(match redirect {
                        Some(status) => after_redirect(error, &outgoing, status),
                        None => error,
                    });
                }
            };
            if response.headers().contains_key(header::SET_COOKIE) {
                outgoing.cookies().take(&url, response.headers());
            }
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED
            {
                return Ok(response);
            }
            redirect = Some(response.status());
            let may = self.inner.follows_redirects;
            (url, uri) = follow(&url, response.status(), response.headers(), may)
                .and_then(|url| config::uri_of(&url).map(|uri| (url, uri)))
                .map_err(|error| error.with_outcome(outgoing.outcome()))?;
            // Read to its end, so that its connection serves the next hop.
            let (head, body) = response.into_parts();
            let body = Payload::new(&head.headers, body);
            body::beginning(body, 16 << 10, Duration::from_secs(1)).await;
        }
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "{} redirects in a circle: gave up after {REDIRECTS} redirects",
                config::origin(&url)
            ),
        )
        .with_outcome(outgoing.outcome()))
    }
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// One request.
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) url: &'a Url,
    pub(super) uri: &'a http::Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) taken: Option<Taken>,
    pub(super) cookies: &'a Mutex<Cookies>,
    /// It asks for a stream that will be held open.
    pub(super) is_stream: bool,
}

impl Outgoing<'_> {
    fn cookies(&self) -> MutexGuard<'_, Cookies> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self) -> Outcome {
        match &self.taken {
            Some(taken) if !taken.is_taken() => Outcome::NotSent,
            _ => Outcome::Unknown,
        }
    }
}

fn failure(origin: &str, error: &Failed, outgoing: &Outgoing<'_>) -> Error {
    let error = match error {
        Failed::NotConnected(error) => return connect::failure(origin, &**error),
        Failed::Broken(error) => error,
    };
    let last = connect::causes(error).last();
    let why = last.map(ToString::to_string).unwrap_or_default();
    let outcome = if connect::causes(error).any(is_unprocessed) {
        Outcome::NotSent
    } else {
        outgoing.outcome()
    };
    Error::new(
        ErrorKind::Transport,
        format!("the connection to {origin} broke before an answer came: {why}"),
    )
    .with_outcome(outcome)
}

/// What became of a request that a redirect led on. The server had it already, whatever happened after.
fn after_redirect(mut error: Error, outgoing: &Outgoing<'_>, status: StatusCode) -> Error {
    error.message = format!(
        "{} answered with a redirect (HTTP {}) that could not be followed: {}",
        config::origin(outgoing.url),
        status.as_u16(),
        error.message
    );
    error.with_outcome(outgoing.outcome())
}

/// Whether the server said over HTTP/2 that it has not begun with the request: it refused the stream, or left with a
/// GOAWAY below it (a stream that GOAWAY still covers never fails by it).
fn is_unprocessed(error: &(dyn StdError + 'static)) -> bool {
    error.downcast_ref::<h2::Error>().is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away()
                || (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)))
    })
}

/// Where a redirect leads, if it may be followed: with the method and the body kept (307, 308), and to the same
/// origin, or from http to https on the same host and the default ports. So no credential goes anywhere else. `may`:
/// any is followed at all.
fn follow(from: &Url, status: StatusCode, headers: &HeaderMap, may: bool) -> Result<Url, Error> {
    let refused = |why: &str| {
        Error::new(
            ErrorKind::Config,
            format!(
                "{} answered with a redirect (HTTP {}) {why}",
                config::origin(from),
                status.as_u16()
            ),
        )
    };
    let target = headers
        .get(header::LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| from.join(location).ok())
        .ok_or_else(|| refused("to nowhere"))?;
    let destination = if target.origin() == from.origin() {
        "within itself".to_owned()
    } else {
        format!("to {}", config::origin(&target))
    };
    if !matches!(
        status,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    ) {
        return Err(refused(&format!(
            "{destination} that would change the method; the URL should be the final one"
        )));
    }
    if !may {
        return Err(refused(&format!(
            "{destination}, and the configuration says not to follow any; the URL should be the final one"
        )));
    }
    let upgrade = from.scheme() == "http"
        && target.scheme() == "https"
        && from.host() == target.host()
        && from.port_or_known_default() == Some(80)
        && target.port_or_known_default() == Some(443);
    if target.origin() != from.origin() && !upgrade {
        return Err(refused(&format!(
            "{destination}, where the credentials must not go; the URL should be the final one"
        )));
    }
    let mut target = target;
    target.set_fragment(None);
    // An origin has no user: what stands in the Location is dropped. Both calls only fail without a host.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(from: &str, location: &str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, location.parse().expect("a header value"));
        let from = Url::parse(from).expect("a URL");
        follow(&from, StatusCode::TEMPORARY_REDIRECT, &headers, true)
            .map(|url| url.to_string())
            .map_err(|error| error.message)
    }

    #[test]
    fn a_redirect_is_followed_within_the_origin_and_to_https_on_the_same_host() {
        for (from, location, to) in [
            ("http://h/a", "https://h/a", "https://h/a"),
            ("http://h:80/a", "https://h:443/b?c", "https://h/b?c"),
            ("https://h/a", "b#f", "https://h/b"),
            ("https://h:8443/a", "//h:8443/b", "https://h:8443/b"),
            ("https://h/a", "https://u:p@h/b", "https://h/b"),
        ] {
            assert_eq!(followed(from, location).as_deref(), Ok(to));
        }
    }

    #[test]
    fn a_redirect_goes_to_no_other_origin() {
        for (from, location) in [
            ("https://h/a", "http://h/a"),
            ("http://h/a", "https://h:8443/a"),
            ("http://h:8080/a", "https://h/a"),
            ("http://h/a", "http://h:81/a"),
            ("http://h/a", "http://www.h/a"),
            ("http://h/a", "https://www.h/a"),
            ("http://h/a", "//other/a"),
            ("http://h/a", "file:///etc/passwd"),
        ] {
            let error = followed(from, location).expect_err(location);
            assert!(error.contains("HTTP 307"), "{error}");
        }
    }
}
