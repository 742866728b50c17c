//! Names that lead elsewhere a moment later, and names that lead to several addresses.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{io::AsyncWriteExt, net::TcpListener};

use super::{
    AddressClass, AddressPolicy, HttpClient,
    connect::Tls,
    proxy::Proxies,
    resolve::Resolver,
    testing::{ANSWER, Ping, accepted, listener, read_request},
};
use crate::error::{Cause, ErrorKind, Outcome};

/// A client for which every name has these addresses, the first time, the second time and so on; and how often one
/// was looked up.
fn leading_to(policy: AddressPolicy, each: Vec<Vec<SocketAddr>>) -> (HttpClient, Arc<AtomicUsize>) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    let look_up = move |_: &str| {
        let time = count.fetch_add(1, Ordering::SeqCst);
        Ok(each[time.min(each.len() - 1)].clone())
    };
    let client = HttpClient::over(
        Tls::default(),
        Resolver::by(policy, look_up),
        Proxies::default(),
        true,
    );
    (client, lookups)
}

/// Denies the address by which [`unspecified`] reaches this machine, and not that of loopback.
fn policy() -> AddressPolicy {
    AddressPolicy::any().deny(AddressClass::Special)
}

/// The listener's port at 0.0.0.0, which is this machine too.
fn unspecified(port: u16) -> SocketAddr {
    ([0, 0, 0, 0], port).into()
}

fn loopback(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// That nothing has connected to it till now.
async fn is_untouched(listener: &TcpListener) {
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("it was connected to"),
        () = tokio::task::yield_now() => {}
    }
}

#[tokio::test]
async fn a_redirect_to_where_the_policy_forbids_is_refused_and_both_are_named() {
    for location in ["/other", "http://h.invalid/other", "https://h.invalid/mcp"] {
        let (server, port) = listener().await;
        let (denied, denied_port) = listener().await;
        let each = vec![vec![loopback(port)], vec![unspecified(denied_port)]];
        // On the default port as far as the client knows: so an upgrade to https may be followed.
        let (client, lookups) = leading_to(policy(), each);
        let ping = Ping::sent("http://h.invalid/mcp", client).await;
        let mut stream = accepted(&server).await;
        read_request(&mut stream).await;
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.expect("it reads");
        drop(stream);
        let error = ping.ended().await.expect_err(location);
        assert_eq!(
            (error.kind, error.cause, error.outcome),
            (ErrorKind::Config, Cause::Permanent, Outcome::Unknown)
        );
        for said in ["0.0.0.0", "policy", "HTTP 307", "http://h.invalid "] {
            assert!(error.message.contains(said), "{said}: {error}");
        }
        assert_eq!(lookups.load(Ordering::SeqCst), 2);
        is_untouched(&denied).await;
    }
}

#[tokio::test]
async fn a_redirect_to_a_forbidden_address_of_another_origin_connects_nowhere() {
    let (server, port) = listener().await;
    let (denied, denied_port) = listener().await;
    let (client, lookups) = leading_to(policy(), vec![vec![loopback(port)]]);
    let ping = Ping::sent("http://h.invalid/mcp", client).await;
    let mut stream = accepted(&server).await;
    read_request(&mut stream).await;
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://0.0.0.0:{denied_port}/\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.expect("it reads");
    let error = ping.ended().await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Config);
    for said in ["HTTP 307", "0.0.0.0", "credentials must not go"] {
        assert!(error.message.contains(said), "{said}: {error}");
    }
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    is_untouched(&denied).await;
}

#[tokio::test]
async fn the_connection_is_made_to_the_address_that_was_checked_and_the_name_not_asked_again() {
    let (server, port) = listener().await;
    let (denied, denied_port) = listener().await;
    let each = vec![
        vec![unspecified(denied_port), loopback(port)],
        vec![unspecified(denied_port)],
    ];
    let (client, lookups) = leading_to(policy(), each);
    let ping = Ping::sent("http://h.invalid/mcp", client).await;
    let mut stream = accepted(&server).await;
    read_request(&mut stream).await;
    stream.write_all(ANSWER.as_bytes()).await.expect("it reads");
    ping.ended().await.expect("answered");
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    is_untouched(&denied).await;
}
