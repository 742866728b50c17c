//! How a remote server is reached, where the defaults do not do: the authorities that are trusted, a certificate of
//! ours, a proxy, the addresses that may be connected to.
//!
//! ```json
//! { "search": { "url": "https://example.org/mcp", "mcpconn": {
//!     "tls": { "ca_file": "/etc/ours.pem", "cert_file": "/etc/me.pem", "key_file": "/etc/me.key" },
//!     "proxy": "http://proxy:3128", "no_proxy": "example.net,10.0.0.0/8",
//!     "deny_addresses": ["private", "link_local", "metadata"], "redirects": false
//! } } }
//! ```
//!
//! Files are read with the configuration, and what is in them makes the connection: the same configuration given again
//! after one was renewed is another one.

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use url::Url;

use super::{Bad, Reader, bad, shown};
use crate::{
    error::Error,
    http::{AddressClass, AddressPolicy, HttpClient, HttpClientOptions},
};

/// The most that a file of certificates or a key may have.
const LARGEST: u64 = 1 << 20;

const MEMBERS: [&str; 5] = ["tls", "proxy", "no_proxy", "deny_addresses", "redirects"];

const CLASSES: [(&str, AddressClass); 5] = [
    ("loopback", AddressClass::Loopback),
    ("private", AddressClass::Private),
    ("link_local", AddressClass::LinkLocal),
    ("metadata", AddressClass::Metadata),
    ("special", AddressClass::Special),
];

/// How a remote server is reached.
///
/// `Debug` shows no content of a file and no user or password of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reach {
    /// Certificates that are trusted in place of the platform's.
    pub roots: Option<PemFile>,
    /// A certificate that is shown to the server, and its key.
    pub identity: Option<(PemFile, PemFile)>,
    /// What proxy is used.
    pub proxy: Proxy,
    /// Which addresses may be connected to.
    pub addresses: AddressPolicy,
    /// Redirects are errors, also those within the server's own origin.
    pub refuses_redirects: bool,
}

/// What proxy is used. This machine is never reached through one.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Proxy {
    /// The one that the environment names.
    #[default]
    OfEnvironment,
    /// None.
    None,
    /// The one at this URL, but for what the list names: hosts, domains and networks, with commas between.
    At(Url, String),
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfEnvironment => f.write_str("OfEnvironment"),
            Self::None => f.write_str("None"),
            Self::At(url, but_for) => {
                let mut url = url.clone();
                // They fail only for URLs that cannot have them.
                let _ = url.set_username("");
                let _ = url.set_password(None);
                f.debug_tuple("At")
                    .field(&shown(&url))
                    .field(but_for)
                    .finish()
            }
        }
    }
}

/// A file and what was in it. `Debug` shows where it is.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Where it is.
    pub path: PathBuf,
    /// What was in it.
    pub pem: Vec<u8>,
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PemFile").field(&self.path).finish()
    }
}

impl Reach {
    /// The connections to a server that is reached so.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::error::ErrorKind::Config) if a certificate or key cannot be used.
    pub fn client(&self) -> Result<HttpClient, Error> {
        self.options().map_err(|(_, error)| error)?.build()
    }

    /// The same, with the member that does not do.
    fn options(&self) -> Result<HttpClientOptions, (&'static str, Error)> {
        let mut options = HttpClientOptions::new()
            .with_address_policy(self.addresses)
            .with_redirects(!self.refuses_redirects);
        if let Some(roots) = &self.roots {
            options = options
                .with_roots_pem(&roots.pem)
                .map_err(|error| ("tls.ca_file", error))?;
        }
        if let Some((certificate, key)) = &self.identity {
            options = options
                .with_client_certificate_pem(&certificate.pem, &key.pem)
                .map_err(|error| ("tls.cert_file", error))?;
        }
        match &self.proxy {
            Proxy::OfEnvironment => Ok(options),
            Proxy::None => Ok(options.with_proxies_of_environment(false)),
            Proxy::At(url, but_for) => options
                .with_proxy(url.as_str(), but_for)
                .map_err(|error| ("proxy", error)),
        }
    }

    /// Tells each part of it, so that no two tell the same.
    pub(super) fn put(&self, put: &mut dyn FnMut(&[u8])) {
        let file = |file: &PemFile, put: &mut dyn FnMut(&[u8])| {
            put(file.path.as_os_str().as_encoded_bytes());
            put(&file.pem);
        };
        put(&[u8::from(self.roots.is_some())]);
        self.roots.iter().for_each(|roots| file(roots, put));
        put(&[u8::from(self.identity.is_some())]);
        if let Some((certificate, key)) = &self.identity {
            file(certificate, put);
            file(key, put);
        }
        match &self.proxy {
            Proxy::OfEnvironment => put(b"environment"),
            Proxy::None => put(b"none"),
            Proxy::At(url, but_for) => {
                put(url.as_str().as_bytes());
                put(but_for.as_bytes());
            }
        }
        for (_, class) in CLASSES {
            put(&[u8::from(self.addresses.has_denied(class))]);
        }
        put(&[u8::from(self.refuses_redirects)]);
    }
}

impl<L: Fn(&str) -> Option<String>> Reader<'_, L> {
    /// Takes what makes the connection out of the member `mcpconn`.
    pub(super) fn reach(&self, mcpconn: &mut Option<Value>) -> Result<Reach, Bad> {
        let Some(Value::Object(mcpconn)) = mcpconn else {
            return Ok(Reach::default());
        };
        let mut take = |member: &str| mcpconn.remove(member).filter(|value| !value.is_null());
        let mut reach = Reach::default();
        match take("tls") {
            None => {}
            Some(Value::Object(tls)) => self.tls(&tls, &mut reach)?,
            Some(_) => return bad("mcpconn.tls", "it must be an object"),
        }
        reach.proxy = self.proxy(take("proxy"), take("no_proxy"))?;
        reach.addresses = addresses(take("deny_addresses"))?;
        reach.refuses_redirects = match take("redirects") {
            None | Some(Value::Bool(true)) => false,
            Some(Value::Bool(false)) => true,
            Some(_) => return bad("mcpconn.redirects", "it must be true or false"),
        };
        // Here it is known which member is wrong; whoever builds it later finds it sound.
        match reach.options() {
            Ok(_) => Ok(reach),
            Err((member, error)) => bad(format!("mcpconn.{member}"), error.message),
        }
    }

    /// A child process is not reached over a network.
    pub(super) fn no_reach(&self, mcpconn: Option<&Value>) -> Result<(), Bad> {
        let given = |member: &&&str| mcpconn.is_some_and(|mcpconn| !mcpconn[**member].is_null());
        match MEMBERS.iter().find(given) {
            Some(member) => bad(
                format!("mcpconn.{member}"),
                "only a server with a `url` has it",
            ),
            None => Ok(()),
        }
    }

    fn tls(&self, tls: &Map<String, Value>, reach: &mut Reach) -> Result<(), Bad> {
        const FILES: [&str; 3] = ["ca_file", "cert_file", "key_file"];
        if let Some(other) = tls.keys().find(|name| !FILES.contains(&name.as_str())) {
            return bad(
                format!("mcpconn.tls.{other}"),
                "there is no such member; there are ca_file, cert_file and key_file",
            );
        }
        let file = |name: &str| {
            let member = format!("mcpconn.tls.{name}");
            let path = self.text(&member, tls.get(name))?;
            path.map(|path| read(&member, path)).transpose()
        };
        reach.roots = file("ca_file")?;
        reach.identity = match (file("cert_file")?, file("key_file")?) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => return bad("mcpconn.tls.key_file", "it is missing"),
            (None, Some(_)) => return bad("mcpconn.tls.cert_file", "it is missing"),
        };
        Ok(())
    }

    fn proxy(&self, proxy: Option<Value>, but_for: Option<Value>) -> Result<Proxy, Bad> {
        let proxy = self.text("mcpconn.proxy", proxy.as_ref())?;
        let but_for = self.text("mcpconn.no_proxy", but_for.as_ref())?;
        let Some(proxy) = proxy.as_deref().map(str::trim) else {
            return match but_for {
                None => Ok(Proxy::OfEnvironment),
                Some(_) => bad("mcpconn.no_proxy", "it goes with `proxy`"),
            };
        };
        if proxy == "none" {
            return Ok(Proxy::None);
        }
        // The text is not repeated: it may hold a password.
        match Url::parse(proxy) {
            Ok(url) => Ok(Proxy::At(url, but_for.unwrap_or_default())),
            Err(error) => bad(
                "mcpconn.proxy",
                format!("it is neither \"none\" nor a URL: {error}"),
            ),
        }
    }
}

fn addresses(denied: Option<Value>) -> Result<AddressPolicy, Bad> {
    const MEMBER: &str = "mcpconn.deny_addresses";
    let denied = match denied {
        None => return Ok(AddressPolicy::any()),
        Some(Value::Array(denied)) => denied,
        Some(_) => return bad(MEMBER, "it must be an array of kinds of addresses"),
    };
    let mut policy = AddressPolicy::any();
    for name in denied {
        let class = CLASSES.iter().find(|(known, _)| name == *known);
        let Some((_, class)) = class else {
            let known = CLASSES.map(|(known, _)| known).join(", ");
            return bad(MEMBER, format!("{name} is none of {known}"));
        };
        policy = policy.deny(*class);
    }
    Ok(policy)
}

/// A file that is small and no device: reading it ends.
fn read(member: &str, path: String) -> Result<PemFile, Bad> {
    let unreadable = |why: &dyn fmt::Display| Bad {
        member: member.to_owned(),
        problem: format!("cannot read {path}: {why}"),
    };
    let at = Path::new(&path);
    let of_file = fs::metadata(at).map_err(|error| unreadable(&error))?;
    if !of_file.is_file() {
        return Err(unreadable(&"it is no file"));
    }
    let file = fs::File::open(at).map_err(|error| unreadable(&error))?;
    let mut pem = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut pem)
        .map_err(|error| unreadable(&error))?;
    if pem.len() as u64 > LARGEST {
        return Err(unreadable(&"it is larger than 1 MiB"));
    }
    Ok(PemFile {
        path: PathBuf::from(path),
        pem,
    })
}
