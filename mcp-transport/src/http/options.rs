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
    proxy::Proxies,
};
use crate::error::{Error, ErrorKind};

/// How an [`HttpClient`] makes its connections.
///
/// `Debug` shows no certificate and no key.
pub struct HttpClientOptions {
    roots: Option<RootCertStore>,
    identity: Option<Identity>,
    policy: AddressPolicy,
    use_proxies: bool,
}

impl HttpClientOptions {
    /// The platform's root certificates, no certificate of ours, every address, and the proxies of the environment.
    pub fn new() -> Self {
        Self {
            roots: None,
            identity: None,
            policy: AddressPolicy::any(),
            use_proxies: true,
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
        self.use_proxies = use_proxies;
        self
    }

    /// A pool of such connections. The environment is asked for proxies now.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if certificate and key do not fit.
    pub fn build(self) -> Result<HttpClient, Error> {
        let tls = Tls::new(self.roots, self.identity)
            .map_err(|error| config(format!("TLS cannot be set up: {error}")))?;
        let proxies = match self.use_proxies {
            true => Proxies::of_environment(),
            false => Proxies::default(),
        };
        Ok(HttpClient::over(tls, self.policy, proxies))
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
            .field("use_proxies", &self.use_proxies)
            .finish()
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
