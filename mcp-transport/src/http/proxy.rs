//! Proxies that the environment names: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in small letters too.

use std::{error::Error as StdError, fmt, io, net::IpAddr};

use http::{HeaderValue, Uri, uri::Scheme};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// What can be spoken to a proxy.
pub(super) const SCHEMES: [&str; 3] = ["http", "socks5", "socks5h"];

/// The proxies in use; none by default.
#[derive(Debug, Default)]
pub(super) struct Proxies(Option<Matcher>);

/// How a destination is reached.
#[derive(Debug)]
pub(super) enum Way {
    Direct,
    /// Whole requests are sent to the proxy.
    Forwarded(Uri),
    /// A tunnel through the proxy, with what it is to be shown.
    Tunnel(Uri, Option<HeaderValue>),
    Socks {
        proxy: Uri,
        login: Option<(String, String)>,
        /// The name is resolved here and not by the proxy.
        local_names: bool,
    },
    /// A proxy of a kind that is not spoken, by its scheme.
    Unknown(String),
}

impl Proxies {
    /// What the environment says now.
    pub(super) fn of_environment() -> Self {
        Self(Some(Matcher::from_env()))
    }

    /// This one for all but what `no` names.
    pub(super) fn one(proxy: &str, no: &str) -> Self {
        Self(Some(Matcher::builder().all(proxy).no(no).build()))
    }

    fn of(&self, destination: &Uri) -> Option<Intercept> {
        let matcher = self.0.as_ref()?;
        // This machine is reached without anybody's help, as other clients have it too.
        if is_this_machine(destination.host()?) {
            return None;
        }
        matcher.intercept(destination)
    }

    pub(super) fn way(&self, destination: &Uri) -> Way {
        let Some(proxy) = self.of(destination) else {
            return Way::Direct;
        };
        let uri = proxy.uri().clone();
        match uri.scheme_str() {
            Some("http") if destination.scheme() == Some(&Scheme::HTTPS) => {
                Way::Tunnel(uri, proxy.basic_auth().cloned())
            }
            Some("http") => Way::Forwarded(uri),
            Some(scheme @ ("socks5" | "socks5h")) => Way::Socks {
                login: proxy
                    .raw_auth()
                    .map(|(user, password)| (user.to_owned(), password.to_owned())),
                local_names: scheme == "socks5",
                proxy: with_port(&uri, 1080),
            },
            scheme => Way::Unknown(scheme.unwrap_or_default().to_owned()),
        }
    }

    /// What a proxy that whole requests are sent to is shown with each.
    pub(super) fn credentials(&self, destination: &Uri) -> Option<HeaderValue> {
        if destination.scheme() != Some(&Scheme::HTTP) {
            return None;
        }
        let proxy = self.of(destination)?;
        let mut shown = proxy.basic_auth()?.clone();
        shown.set_sensitive(true);
        (proxy.uri().scheme_str() == Some("http")).then_some(shown)
    }
}

/// Why a proxy let nothing through.
#[derive(Debug)]
pub(super) enum Refused {
    /// It wants to be shown credentials, or others.
    Credentials(String),
    Other(String),
    Io(io::Error),
}

impl Refused {
    /// It closed the connection in the middle.
    pub(super) fn cut() -> Self {
        Self::Other("it closed the connection before it had answered".into())
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::cut(),
            _ => Self::Io(error),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(why) | Self::Other(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl StdError for Refused {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Credentials(_) | Self::Other(_) => None,
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || address_in(&host).is_some_and(|address| address.is_loopback())
}

/// The address that a URL's host is, if it is one.
pub(super) fn address_in(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

fn with_port(uri: &Uri, port: u16) -> Uri {
    match (uri.port(), uri.host()) {
        (None, Some(host)) => format!("{}://{host}:{port}", uri.scheme_str().unwrap_or("http"))
            .parse()
            .unwrap_or_else(|_| uri.clone()),
        _ => uri.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(uri: &str) -> Uri {
        uri.parse().expect("a URI")
    }

    #[test]
    fn a_destination_is_reached_by_the_way_that_the_proxy_offers() {
        let proxies = Proxies::one("http://u:p@proxy:3128", "h.internal,10.0.0.0/8");
        assert!(matches!(
            proxies.way(&uri("http://h/")),
            Way::Forwarded(to) if to.authority().is_some_and(|a| a == "proxy:3128")
        ));
        assert!(matches!(
            proxies.way(&uri("https://h/")),
            Way::Tunnel(_, Some(login)) if login == "Basic dTpw"
        ));
        assert_eq!(
            proxies
                .credentials(&uri("http://h/"))
                .as_ref()
                .map(HeaderValue::as_bytes),
            Some(&b"Basic dTpw"[..])
        );
        assert_eq!(proxies.credentials(&uri("https://h/")), None);
        for direct in [
            "http://h.internal/",
            "https://a.h.internal/",
            "http://10.1.2.3/",
            "http://localhost:8080/",
            "http://127.0.0.1/",
            "https://[::1]:8443/",
        ] {
            assert!(matches!(proxies.way(&uri(direct)), Way::Direct), "{direct}");
            assert_eq!(proxies.credentials(&uri(direct)), None);
        }
        assert!(matches!(
            Proxies::default().way(&uri("http://h/")),
            Way::Direct
        ));
        match Proxies::one("socks5h://u:p@proxy", "").way(&uri("https://h/")) {
            Way::Socks {
                proxy,
                login,
                local_names,
            } => {
                assert_eq!(proxy.port_u16(), Some(1080));
                assert_eq!(login, Some(("u".into(), "p".into())));
                assert!(!local_names);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            Proxies::one("https://proxy", "").way(&uri("https://h/")),
            Way::Unknown(scheme) if scheme == "https"
        ));
    }
}
