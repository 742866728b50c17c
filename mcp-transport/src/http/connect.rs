//! How a connection is made: names resolved, TCP, TLS with the platform's roots, and in words what went wrong.

use std::{
    error::Error as StdError,
    fmt,
    future::{Ready, poll_fn, ready},
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::Connection;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use rustls_native_certs::CertificateResult;
use tokio::time::timeout;
use tower_service::Service;

use super::{
    address::{AddressPolicy, Denied},
    dial::{Dialer, Tcp},
    proxy::{self, Proxies, Refused, Way},
    resolve::{Resolver, Unresolved},
    socks, tunnel,
};
use crate::{
    error::{Cause, Error, ErrorKind},
    stdio::about_to_write,
};

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// A connection that nobody waits for any more is not tried for longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Makes connections for `http` and `https`. TLS is set up when the first `https` URL needs it.
#[derive(Clone)]
pub(super) struct Connector {
    direct: Dialer,
    /// To proxies, which the policy for addresses does not concern.
    to_proxy: Dialer,
    tls: Arc<Tls>,
    proxies: Arc<Proxies>,
}

impl Connector {
    pub(super) fn new(tls: Tls, resolver: Resolver, proxies: Arc<Proxies>) -> Self {
        Self {
            direct: Dialer { resolver },
            to_proxy: Dialer {
                resolver: Resolver::new(AddressPolicy::any()),
            },
            tls: Arc::new(tls),
            proxies,
        }
    }

    pub(super) async fn connect(self, uri: Uri) -> Result<Link, BoxError> {
        let mut linking = pin!(self.link(uri));
        let writing = poll_fn(|cx| {
            about_to_write();
            linking.as_mut().poll(cx)
        });
        match timeout(LONGEST, writing).await {
            Ok(made) => made,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it took longer than {} seconds", LONGEST.as_secs()),
            )
            .into()),
        }
    }

    async fn link(self, uri: Uri) -> Result<Link, BoxError> {
        if let Some(address) = uri.host().and_then(proxy::address_in) {
            self.direct.resolver.policy().check(address)?;
        }
        let tls = match uri.scheme() == Some(&Scheme::HTTPS) {
            // Reading and parsing a few hundred certificates is no work for a thread that serves others.
            true => Some(tokio::task::spawn_blocking(move || self.tls.config()).await??),
            false => None,
        };
        let (stream, is_forwarded) = match self.proxies.way(&uri) {
            Way::Direct => (self.direct.dial(&uri).await?, false),
            Way::Forwarded(proxy) => {
                let dialled = self.to_proxy.dial(&proxy).await;
                (dialled.map_err(|error| at(&proxy, error))?, true)
            }
            Way::Tunnel(proxy, shown) => {
                let tunnel = async {
                    let mut stream = self.to_proxy.dial(&proxy).await?.into_inner();
                    let host = uri.host().unwrap_or_default();
                    tunnel::open(&mut stream, host, port(&uri), shown.as_ref()).await?;
                    Ok(Tcp::new(stream))
                };
                (
                    Box::pin(tunnel).await.map_err(|error| at(&proxy, error))?,
                    false,
                )
            }
            Way::Socks {
                proxy,
                login,
                local_names,
            } => {
                let host = uri.host().unwrap_or_default();
                let target = match proxy::address_in(host) {
                    Some(address) => socks::Target::Address(address),
                    None if local_names => {
                        socks::Target::Address(self.direct.addresses(host).await?[0].ip())
                    }
                    None => socks::Target::Name(host),
                };
                let login = login
                    .as_ref()
                    .map(|(user, password)| (&**user, &**password));
                let connection = async {
                    let mut stream = self.to_proxy.dial(&proxy).await?.into_inner();
                    socks::open(&mut stream, target, port(&uri), login).await?;
                    Ok(Tcp::new(stream))
                };
                (
                    Box::pin(connection)
                        .await
                        .map_err(|error| at(&proxy, error))?,
                    false,
                )
            }
            Way::Unknown(scheme) => return Err(BadProxy(scheme).into()),
        };
        let stream = match tls {
            Some(config) => {
                let mut tls = HttpsConnector::from((Made(Some(stream)), config));
                tls.call(uri).await?
            }
            None => MaybeHttpsStream::Http(stream),
        };
        Ok(Link {
            stream: Box::new(stream),
            is_forwarded,
        })
    }
}

fn port(uri: &Uri) -> u16 {
    let usual = match uri.scheme() == Some(&Scheme::HTTPS) {
        true => 443,
        false => 80,
    };
    uri.port_u16().unwrap_or(usual)
}

/// A connection that is made already, to put TLS over it.
struct Made(Option<Tcp>);

impl Service<Uri> for Made {
    type Response = Tcp;
    type Error = io::Error;
    type Future = Ready<io::Result<Tcp>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(
            self.0
                .take()
                .ok_or_else(|| io::ErrorKind::NotConnected.into()),
        )
    }
}

/// A connection that was made.
pub(super) struct Link {
    /// Boxed, for one with TLS is large, and moved often until it is in its place.
    stream: Box<MaybeHttpsStream<Tcp>>,
    is_forwarded: bool,
}

impl Link {
    /// The stream, to be read or written: with TLS either may write, and in several pieces at once, which raises SIGPIPE.
    fn stream(&mut self) -> Pin<&mut MaybeHttpsStream<Tcp>> {
        about_to_write();
        Pin::new(&mut *self.stream)
    }

    /// Whether what is at its other end is a proxy that is told whole URLs.
    pub(super) fn is_forwarded(&self) -> bool {
        self.is_forwarded
    }

    /// Whether both sides agreed on HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.stream.connected().is_negotiated_h2()
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bytes)
    }
}

/// A proxy that cannot be used.
#[derive(Debug)]
struct BadProxy(String);

impl fmt::Display for BadProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the proxy that is named has the scheme {:?}; http, socks5 and socks5h can be used",
            self.0
        )
    }
}

impl StdError for BadProxy {}

/// What went wrong at a proxy, which is named by its host and port.
#[derive(Debug)]
struct AtProxy(String, BoxError);

fn at(proxy: &Uri, error: BoxError) -> BoxError {
    let proxy = proxy.authority().map(ToString::to_string);
    AtProxy(proxy.unwrap_or_default(), error).into()
}

impl fmt::Display for AtProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "through the proxy {}", self.0)
    }
}

impl StdError for AtProxy {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.1)
    }
}

/// A certificate of ours with its key.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The TLS configuration, made once. A failure is not kept: roots that are installed later are found.
#[derive(Default)]
pub(super) struct Tls {
    made: Mutex<Option<Arc<ClientConfig>>>,
    identity: Option<Identity>,
}

impl Tls {
    /// With these roots in place of the platform's, and with an identity of ours if the server asks for one.
    ///
    /// # Errors
    /// What is wrong with the identity.
    pub(super) fn new(
        roots: Option<RootCertStore>,
        identity: Option<Identity>,
    ) -> Result<Self, rustls::Error> {
        let config = client_config(
            roots.clone().unwrap_or_else(RootCertStore::empty),
            identity.as_ref(),
        )?;
        Ok(Self {
            made: Mutex::new(roots.map(|_| Arc::new(config))),
            identity,
        })
    }

    fn config(&self) -> Result<Arc<ClientConfig>, NoTls> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*made {
            return Ok(config.clone());
        }
        let roots = root_store(rustls_native_certs::load_native_certs())?;
        let config = client_config(roots, self.identity.as_ref())
            .map_err(|error| NoTls(error.to_string()))?;
        let config = Arc::new(config);
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

fn client_config(
    roots: RootCertStore,
    identity: Option<&Identity>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((certificates, key)) => {
            config.with_client_auth_cert(certificates.clone(), key.clone_key())?
        }
        None => config.with_no_client_auth(),
    };
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

/// What it means that no connection to `origin` could be made. Nothing was sent.
pub(super) fn failure(origin: &str, error: &(dyn StdError + 'static)) -> Error {
    let mut last = error;
    let at_proxy = causes(error).find(|cause| cause.is::<AtProxy>());
    let what = match at_proxy {
        Some(through) => format!("cannot connect to {origin} {through}"),
        None => format!("cannot connect to {origin}"),
    };
    for cause in causes(error) {
        last = cause;
        if let Some(no_tls) = cause.downcast_ref::<NoTls>() {
            return Error::new(ErrorKind::Config, format!("{what}: {no_tls}"));
        }
        let is_ours_to_mend = matches!(cause.downcast_ref(), Some(Refused::Credentials(_)))
            || cause.is::<Denied>()
            || cause.is::<BadProxy>();
        if is_ours_to_mend {
            return Error::new(ErrorKind::Config, format!("{what}: {cause}"));
        }
        if let Some(Unresolved(error)) = cause.downcast_ref() {
            let kind = if resolver_is_down(error) {
                ErrorKind::Local
            } else {
                ErrorKind::Transport
            };
            return Error::new(
                kind,
                format!("{what}: the host name is not resolved: {error}"),
            );
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return Error::new(ErrorKind::Transport, format!("{what}: TLS failed: {error}"));
        }
        let of_system = cause.downcast_ref::<io::Error>();
        if let Some((error, code)) = of_system.and_then(|e| Some((e, e.raw_os_error()?))) {
            return if is_ours(code) {
                Error::local(what, error)
            } else {
                Error::new(ErrorKind::Transport, format!("{what}: {error}"))
            };
        }
    }
    Error::new(ErrorKind::Transport, format!("{what}: {last}")).with_cause(Cause::Transient)
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
pub(super) fn is_ours(code: i32) -> bool {
    matches!(
        code,
        libc::EMFILE
            | libc::ENFILE
            | libc::EAGAIN
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
