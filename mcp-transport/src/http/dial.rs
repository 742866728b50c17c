//! One of the addresses of a host is connected to: the next is tried when one has refused, and beside it when it has not
//! answered for a while (RFC 8305).

use std::{
    error::Error as StdError,
    future::{Ready, ready},
    io,
    net::SocketAddr,
    option,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use tokio::{net::TcpStream, task::JoinSet, time::sleep};
use tower_service::Service;

use super::{
    connect, proxy,
    resolve::{Resolver, Unresolved},
};

type BoxError = Box<dyn StdError + Send + Sync>;
pub(super) type Tcp = TokioIo<TcpStream>;

/// A peer that vanished without a word is noticed after this and [`PROBES`] of [`PROBE`].
const KEEPALIVE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// How long one address is waited for alone.
const ALONE: Duration = Duration::from_millis(250);
/// How many addresses are tried.
const MOST: usize = 16;

/// Connects over TCP, to addresses that its resolver allows.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    pub(super) resolver: Resolver,
}

impl Dialer {
    /// A connection to the host of `uri`.
    pub(super) async fn dial(&self, uri: &Uri) -> Result<Tcp, BoxError> {
        let host = uri.host().unwrap_or_default();
        if let Some(address) = proxy::address_in(host) {
            self.resolver.policy().check(address)?;
            // The port is that of the URI.
            return Ok(tcp((address, 0).into()).call(uri.clone()).await?);
        }
        match self.addresses(host).await?[..] {
            [address] => Ok(tcp(address).call(uri.clone()).await?),
            ref several => first_of(several.to_vec(), uri).await,
        }
    }

    /// Where the name leads, in the order in which it is to be tried; never none.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let name: Name = name.parse()?;
        let found = self.resolver.clone().call(name).await?;
        let mut addresses = alternating(found.collect());
        addresses.truncate(MOST);
        if addresses.is_empty() {
            let none = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            return Err(Unresolved(none).into());
        }
        Ok(addresses)
    }
}

async fn first_of(addresses: Vec<SocketAddr>, uri: &Uri) -> Result<Tcp, BoxError> {
    let mut addresses = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failed: Option<BoxError> = None;
    loop {
        if let Some(address) = addresses.next() {
            attempts.spawn(tcp(address).call(uri.clone()));
        }
        tokio::select! {
            ended = attempts.join_next() => match (ended, &failed) {
                (Some(Ok(Ok(stream))), _) => return Ok(stream),
                (Some(Ok(Err(_))), Some(said)) if !is_ours(said) => {}
                (Some(Ok(Err(error))), _) => failed = Some(error.into()),
                (Some(Err(panic)), _) => return Err(panic.into()),
                (None, _) => return Err(failed.unwrap_or_else(|| "no address was tried".into())),
            },
            () = sleep(ALONE), if addresses.len() > 0 => {}
        }
    }
}

/// Whether it says of our side alone, as that there is no way to addresses of that family.
fn is_ours(error: &BoxError) -> bool {
    connect::causes(&**error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
        .any(connect::is_ours)
}

/// The families in turns, beginning with that of the first.
fn alternating(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_with_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv6() == begins_with_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::with_capacity(first.len() + second.len());
    while first.len() + second.len() > 0 {
        all.extend(first.next());
        all.extend(second.next());
    }
    all
}

fn tcp(address: SocketAddr) -> HttpConnector<Given> {
    let mut tcp = HttpConnector::new_with_resolver(Given(address));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(PROBE));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp
}

/// Resolves any name to the address that was chosen.
#[derive(Debug, Clone)]
struct Given(SocketAddr);

impl Service<Name> for Given {
    type Response = option::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(Some(self.0).into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_of_addresses_take_turns() {
        let order = |found: &[&str]| {
            let parsed = found.iter().map(|a| a.parse().expect("an address"));
            let order = alternating(parsed.collect()).into_iter();
            order.map(|a| a.to_string()).collect::<Vec<_>>()
        };
        let (a, b, c) = ("[2a00::1]:0", "[2a00::2]:0", "[2a00::3]:0");
        let (x, y) = ("8.8.8.8:0", "8.8.4.4:0");
        assert_eq!(order(&[a, b, c, x, y]), [a, x, b, y, c]);
        assert_eq!(order(&[x, a, y]), [x, a, y]);
        assert_eq!(order(&[y, x]), [y, x]);
        assert!(order(&[]).is_empty());
    }
}
