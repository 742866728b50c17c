//! How a connection is made: names resolved, TCP, TLS with the platform's roots, and in words what went wrong.

use std::{
    error::Error as StdError,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Uri, uri::Scheme};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiAddrs, GaiResolver, Name},
    },
    rt::TokioIo,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::CertificateResult;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::error::{Cause, Error, ErrorKind};

type BoxError = Box<dyn StdError + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Makes connections for `http` and `https`. TLS is set up when the first `https` URL needs it.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector<Resolver>,
    tls: Arc<Tls>,
}

impl Connector {
    pub(super) fn new(tls: Tls) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            tcp,
            tls: Arc::new(tls),
        }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let mut tcp = self.tcp.clone();
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(tcp.call(uri).await?)) });
        }
        let tls = self.tls.clone();
        Box::pin(async move {
            // Reading and parsing a few hundred certificates is no work for a thread that serves others.
            let config = tokio::task::spawn_blocking(move || tls.config()).await??;
            HttpsConnector::from((tcp, config)).call(uri).await
        })
    }
}

/// The TLS configuration, made once. A failure is not kept: roots that are installed later are found.
#[derive(Default)]
pub(super) struct Tls(Mutex<Option<Arc<ClientConfig>>>);

impl Tls {
    /// Trusts these roots in place of the platform's.
    #[cfg(test)]
    pub(super) fn trusting(roots: RootCertStore) -> Self {
        let config = client_config(roots).expect("ring has every default");
        Self(Mutex::new(Some(Arc::new(config))))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, NoTls> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*made {
            return Ok(config.clone());
        }
        let roots = root_store(rustls_native_certs::load_native_certs())?;
        let config = Arc::new(client_config(roots).map_err(|error| NoTls(error.to_string()))?);
        *made = Some(config.clone());
        Ok(config)
    }
}

fn root_store(found: CertificateResult) -> Result<RootCertStore, NoTls> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let why = match found.errors.first() {
        Some(error) => error.to_string(),
        None => "there is none where this platform keeps them".into(),
    };
    Err(NoTls(format!(
        "no root certificate to check https servers with ({why}); install the system's CA certificates, \
         or name a file of them in SSL_CERT_FILE"
    )))
}

fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct NoTls(String);

impl fmt::Display for NoTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NoTls {}

/// The system's resolver, with an error that can be told from others.
#[derive(Clone)]
struct Resolver(GaiResolver);

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<GaiAddrs, Unresolved>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        self.0.poll_ready(cx).map_err(Unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.0.call(name);
        Box::pin(async move { found.await.map_err(Unresolved) })
    }
}

#[derive(Debug)]
struct Unresolved(io::Error);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Unresolved {}

/// What it means that no connection to `origin` could be made. Nothing was sent.
pub(super) fn failure(origin: &str, error: &(dyn StdError + 'static)) -> Error {
    let mut last = error;
    for cause in causes(error) {
        last = cause;
        if let Some(no_tls) = cause.downcast_ref::<NoTls>() {
            return Error::new(
                ErrorKind::Config,
                format!("cannot connect to {origin}: {no_tls}"),
            );
        }
        if let Some(Unresolved(error)) = cause.downcast_ref() {
            let kind = if resolver_is_down(error) {
                ErrorKind::Local
            } else {
                ErrorKind::Transport
            };
            return Error::new(
                kind,
                format!("cannot connect to {origin}: the host name is not resolved: {error}"),
            );
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return Error::new(
                ErrorKind::Transport,
                format!("cannot connect to {origin}: TLS failed: {error}"),
            );
        }
        if let Some(code) = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
        {
            let kind = if is_ours(code) {
                ErrorKind::Local
            } else {
                ErrorKind::Transport
            };
            return Error::new(kind, format!("cannot connect to {origin}: {cause}"));
        }
    }
    Error::new(
        ErrorKind::Transport,
        format!("cannot connect to {origin}: {last}"),
    )
    .with_cause(Cause::Transient)
}

/// An error and all that caused it. An `io::Error` skips what it wraps, so that is looked into.
pub(super) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(wrapped) => Some(wrapped as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

/// Whether the fault is on our side: no descriptors, memory, ports or network.
fn is_ours(code: i32) -> bool {
    matches!(
        code,
        libc::EMFILE
            | libc::ENFILE
            | libc::ENOMEM
            | libc::ENOBUFS
            | libc::EADDRNOTAVAIL
            | libc::ENETUNREACH
            | libc::ENETDOWN
    )
}

/// Whether the resolver itself gave no answer (`EAI_AGAIN`), as without a network. The code is not handed through
/// by the standard library, only the text of the C library (glibc's and musl's).
fn resolver_is_down(error: &io::Error) -> bool {
    if let Some(code) = error.raw_os_error() {
        return is_ours(code);
    }
    let text = error.to_string();
    text.contains("Temporary failure in name resolution") || text.contains("Try again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Outcome;

    #[test]
    fn a_missing_root_store_is_named_with_its_remedy() {
        let no_tls = root_store(CertificateResult::default()).expect_err("there is no root");
        let error = failure("https://h", &no_tls);
        assert_eq!(
            (error.kind, error.cause),
            (ErrorKind::Config, Cause::Permanent)
        );
        assert!(error.message.contains("https://h") && error.message.contains("SSL_CERT_FILE"));
    }

    #[test]
    fn what_our_side_lacks_is_told_from_what_the_server_lacks() {
        for (error, kind, cause) in [
            (
                io::Error::from_raw_os_error(libc::EMFILE),
                ErrorKind::Local,
                Cause::Local,
            ),
            (
                io::Error::from_raw_os_error(libc::ENETUNREACH),
                ErrorKind::Local,
                Cause::Local,
            ),
            (
                io::Error::from_raw_os_error(libc::ECONNREFUSED),
                ErrorKind::Transport,
                Cause::Transient,
            ),
            (
                io::Error::from_raw_os_error(libc::EHOSTUNREACH),
                ErrorKind::Transport,
                Cause::Transient,
            ),
            (
                io::Error::other(io::Error::from_raw_os_error(libc::EMFILE)),
                ErrorKind::Local,
                Cause::Local,
            ),
            (
                io::Error::other("something"),
                ErrorKind::Transport,
                Cause::Transient,
            ),
        ] {
            let failure = failure("http://h", &error);
            assert_eq!(
                (failure.kind, failure.cause, failure.outcome),
                (kind, cause, Outcome::NotSent)
            );
        }
        for (text, kind) in [
            (
                "failed to lookup address information: Temporary failure in name resolution",
                ErrorKind::Local,
            ),
            (
                "failed to lookup address information: Try again",
                ErrorKind::Local,
            ),
            (
                "failed to lookup address information: Name or service not known",
                ErrorKind::Transport,
            ),
        ] {
            let failure = failure("http://h", &Unresolved(io::Error::other(text)));
            assert_eq!(failure.kind, kind);
            assert!(failure.message.contains("http://h"));
        }
    }
}
