//! How the connections of a client are made, where the defaults do not do.

use std::fmt;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{
    address::AddressPolicy,
    client::HttpClient,
    connect::{Identity, Tls},
    proxy::{self, Proxies},
    resolve::Resolver,
};
use crate::error::{Error, ErrorKind};

/// How an [`HttpClient`] makes its connections.
///
/// `Debug` shows no certificate and no key.
pub struct HttpClientOptions {
    roots: Option<RootCertStore>,
    identity: Option<Identity>,
    policy: AddressPolicy,
    /// `None` for those that the environment names.
    proxies: Option<Proxies>,
    redirects: bool,
}

impl HttpClientOptions {
    /// The platform's root certificates, no certificate of ours, every address, and the proxies of the environment.
    pub fn new() -> Self {
        Self {
            roots: None,
            identity: None,
            policy: AddressPolicy::any(),
            proxies: None,
            redirects: true,
        }
    }

    /// Trusts the certificates in this PEM text, in place of the platform's: a private authority.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is none in it, or one that is not usable.
    pub fn with_roots_pem(mut self, pem: &[u8]) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots
                .add(certificate)
                .map_err(|error| config(format!("a root certificate cannot be used: {error}")))?;
        }
        self.roots = Some(roots);
        Ok(self)
    }

    /// Shows this certificate (with those it hangs on, each after its own) to servers that ask for one, and proves
    /// it with the key. Both are PEM texts; the key is one of PKCS#8, PKCS#1 or SEC1, not encrypted.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is none in them, or they do not fit. The text has no part of the key.
    pub fn with_client_certificate_pem(
        mut self,
        certificate: &[u8],
        key: &[u8],
    ) -> Result<Self, Error> {
        let certificates = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| config("the client's key is no private key in PEM".into()))?;
        let identity = (certificates, key);
        Tls::new(None, Some((identity.0.clone(), identity.1.clone_key()))).map_err(|error| {
            config(format!(
                "the client's certificate and key cannot be used: {error}"
            ))
        })?;
        self.identity = Some(identity);
        Ok(self)
    }

    /// Connects only to addresses that the policy allows.
    #[must_use]
    pub fn with_address_policy(mut self, policy: AddressPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether the proxies that the environment names are used (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, but for
    /// what `NO_PROXY` names). This machine is never reached through one.
    #[must_use]
    pub fn with_proxies_of_environment(mut self, use_proxies: bool) -> Self {
        self.proxies = (!use_proxies).then(Proxies::default);
        self
    }

    /// Uses this proxy instead of those that the environment names: a URL with the scheme `http`, `socks5` or `socks5h`
    /// (which resolves names itself), perhaps with a user and password, but not for `but_for`: hosts, domains and
    /// networks, with commas between. This machine is never reached through it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is no such URL. The text has no part of it but the scheme.
    pub fn with_proxy(mut self, url: &str, but_for: &str) -> Result<Self, Error> {
        let url = url::Url::parse(url)
            .map_err(|error| config(format!("the proxy's URL cannot be used: {error}")))?;
        if !proxy::SCHEMES.contains(&url.scheme()) || !url.has_host() {
            return Err(config(format!(
                "the proxy's URL has the scheme {:?} or no host; http, socks5 and socks5h can be used",
                url.scheme()
            )));
        }
        self.proxies = Some(Proxies::one(url.as_str(), but_for));
        Ok(self)
    }

    /// Whether redirects are followed, where they may be: within the server's own origin, and from http to https of the
    /// same host. Else each is an error that names where it leads.
    #[must_use]
    pub fn with_redirects(mut self, redirects: bool) -> Self {
        self.redirects = redirects;
        self
    }

    /// A pool of such connections. The environment is asked for proxies now.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if certificate and key do not fit.
    pub fn build(self) -> Result<HttpClient, Error> {
        let tls = Tls::new(self.roots, self.identity)
            .map_err(|error| config(format!("TLS cannot be set up: {error}")))?;
        let proxies = self.proxies.unwrap_or_else(Proxies::of_environment);
        Ok(HttpClient::over(
            tls,
            Resolver::new(self.policy),
            proxies,
            self.redirects,
        ))
    }
}

impl Default for HttpClientOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HttpClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClientOptions")
            .field("roots", &self.roots.as_ref().map(RootCertStore::len))
            .field("client_certificate", &self.identity.is_some())
            .field("policy", &self.policy)
            .field("redirects", &self.redirects)
            .finish_non_exhaustive()
    }
}

fn config(problem: String) -> Error {
    Error::new(ErrorKind::Config, problem)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| config("a certificate is not sound PEM".into()))?;
    if found.is_empty() {
        return Err(config("there is no certificate in the PEM text".into()));
    }
    Ok(found)
}
