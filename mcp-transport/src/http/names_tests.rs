//! Names that lead elsewhere a moment later, and names that lead to several addresses.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket},
};

use super::{
    AddressClass, AddressPolicy, HttpClient, HttpClientOptions,
    connect::Tls,
    proxy::Proxies,
    resolve::Resolver,
    testing::{ANSWER, Authority, Ping, accepted, in_time, listener, read_request},
};
use crate::error::{Cause, ErrorKind, Outcome};

/// A client for which every name has these addresses, the first time, the second time and so on; and how often one
/// was looked up.
fn leading_to(policy: AddressPolicy, each: Vec<Vec<SocketAddr>>) -> (HttpClient, Arc<AtomicUsize>) {
    trusting(Tls::default(), policy, each)
}

/// As [`leading_to`], with these authorities.
fn trusting(
    tls: Tls,
    policy: AddressPolicy,
    each: Vec<Vec<SocketAddr>>,
) -> (HttpClient, Arc<AtomicUsize>) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    let look_up = move |_: &str| {
        let time = count.fetch_add(1, Ordering::SeqCst);
        Ok(each[time.min(each.len() - 1)].clone())
    };
    let resolver = Resolver::by(policy, look_up);
    let client = HttpClient::over(tls, resolver, Proxies::default(), true);
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

/// That the client, asked for `http` of this host at `plain`, follows it to `https` at `secure`, and with what.
async fn is_led_to_https(
    host: &str,
    client: HttpClient,
    authority: &Authority,
    [plain, secure]: [&TcpListener; 2],
) {
    client
        .set_header("authorization", Some("Bearer secret"))
        .expect("a header");
    let ping = Ping::sent(&format!("http://{host}/mcp"), client).await;
    let mut stream = accepted(plain).await;
    let first = read_request(&mut stream).await;
    let answer = format!(
        "HTTP/1.1 308 Permanent Redirect\r\nlocation: https://{host}/other\r\n\
        set-cookie: c=1\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.expect("it reads");
    let stream = accepted(secure).await;
    let tls = authority.acceptor("http/1.1").accept(stream).await;
    let mut stream = tls.expect("the certificate is trusted");
    let second = read_request(&mut stream).await;
    assert!(first.starts_with("POST /mcp HTTP/1.1"), "{first}");
    assert!(second.starts_with("POST /other HTTP/1.1"), "{second}");
    assert!(second.contains("authorization: Bearer secret"), "{second}");
    assert!(!second.contains("cookie"), "{second}");
    let body = |request: &str| request.rsplit("\r\n\r\n").next().map(str::to_owned);
    assert_eq!(body(&first), body(&second));
    stream.write_all(ANSWER.as_bytes()).await.expect("it reads");
    stream.flush().await.expect("it reads");
    ping.ended().await.expect("answered");
}

/// At what the client thinks are ports 80 and 443 of one host.
#[tokio::test]
async fn from_http_to_https_of_the_same_host_a_redirect_is_followed_with_all_but_the_cookies() {
    let authority = Authority::new();
    let (plain, plain_port) = listener().await;
    let (secure, secure_port) = listener().await;
    let each = vec![vec![loopback(plain_port)], vec![loopback(secure_port)]];
    let tls = Tls::new(Some(authority.roots()), None).expect("good");
    let (client, _) = trusting(tls, AddressPolicy::any(), each);
    is_led_to_https("h.invalid", client, &authority, [&plain, &secure]).await;
}

/// Set in the process that has a network of its own.
#[cfg(target_os = "linux")]
const IS_APART: &str = "MCP_TRANSPORT_TEST_IS_APART";

/// Says so, also in the list that the run keeps of what it skipped.
#[cfg(target_os = "linux")]
fn skipped(wanted: &str) {
    use std::io::Write;

    eprintln!("skipped for want of {wanted}");
    if let Some(list) = std::env::var_os("MCPCONN_SKIPPED") {
        let list = std::fs::OpenOptions::new().append(true).open(list);
        let noted = list.and_then(|mut list| writeln!(list, "redirect to port 443: {wanted}"));
        noted.expect("a list of what was skipped");
    }
}

/// At the very ports, in a network that this process is root of.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn from_port_80_to_port_443_a_redirect_is_followed() {
    if std::env::var_os(IS_APART).is_some() {
        let authority = Authority::new();
        let options = HttpClientOptions::new().with_roots_pem(authority.pem.as_bytes());
        let client = options.and_then(HttpClientOptions::build).expect("good");
        let at = |port| TcpListener::bind(loopback(port));
        let plain = at(80).await.expect("port 80");
        let secure = at(443).await.expect("port 443");
        is_led_to_https("localhost", client, &authority, [&plain, &secure]).await;
        return;
    }
    let apart = |program: &str| {
        let mut command = std::process::Command::new("unshare");
        let up = "ip link set lo up && exec \"$0\" \"$@\"";
        command.args(["-rn", "sh", "-c", up, program]);
        command
    };
    match apart("true").output() {
        Ok(output) if output.status.success() => {}
        tried => return skipped(&format!("a network of its own: {tried:?}")),
    }
    let this = std::env::current_exe().expect("this program");
    let mut child = apart(this.to_str().expect("text"));
    let test = "http::names_tests::from_port_80_to_port_443_a_redirect_is_followed";
    child.args(["--exact", test]).env(IS_APART, "1");
    let output = child.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn from_http_to_https_on_any_other_ports_a_redirect_gets_nothing() {
    for (url, location) in [
        ("http://h.invalid/mcp", "https://h.invalid:8443/mcp"),
        ("http://h.invalid:8080/mcp", "https://h.invalid/mcp"),
        ("http://h.invalid:8080/mcp", "https://h.invalid:8080/mcp"),
        ("http://h.invalid/mcp", "https://other.invalid/mcp"),
    ] {
        let (server, port) = listener().await;
        let (elsewhere, other) = listener().await;
        // The port of the URL counts where it has one.
        let url = url.replace(":8080", &format!(":{port}"));
        let location = location.replace(":8080", &format!(":{port}"));
        let each = vec![vec![loopback(port)], vec![loopback(other)]];
        let (client, lookups) = leading_to(AddressPolicy::any(), each);
        let ping = Ping::sent(&url, client).await;
        let mut stream = accepted(&server).await;
        read_request(&mut stream).await;
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.expect("it reads");
        let error = ping.ended().await.expect_err(&location);
        assert_eq!(error.kind, ErrorKind::Config);
        let origin = location.trim_end_matches("/mcp");
        for said in ["HTTP 307", origin, "credentials must not go"] {
            assert!(error.message.contains(said), "{said}: {error}");
        }
        assert_eq!(lookups.load(Ordering::SeqCst), 1);
        is_untouched(&elsewhere).await;
    }
}

/// One of the kernel's sockets (`/proc/net/tcp`, proc(5)).
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Socket {
    local: String,
    remote: String,
    state: u8,
    /// What timer runs for it, and in how many hundredths of a second it is due.
    timer: (u8, u64),
}

#[cfg(target_os = "linux")]
impl Socket {
    /// All of them, but for such as come and go while they are read.
    fn all() -> Vec<Self> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the sockets");
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let small = |text: &str| u8::try_from(hex(text)).expect("a small number");
        let socket = |line: &str| {
            let line: Vec<_> = line.split_whitespace().collect();
            let (kind, due) = line[5].split_once(':').expect("a timer");
            Self {
                local: line[1].to_owned(),
                remote: line[2].to_owned(),
                state: small(line[3]),
                timer: (small(kind), hex(due)),
            }
        };
        table.lines().skip(1).map(socket).collect()
    }

    /// Waits for one of which this says something.
    async fn found<T>(say: impl Fn(&Self) -> Option<T>) -> T {
        in_time("a socket", async {
            loop {
                if let Some(said) = Self::all().iter().find_map(&say) {
                    break said;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

/// As the kernel writes it there.
#[cfg(target_os = "linux")]
fn written(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else {
        panic!("not of IPv4")
    };
    let ip = u32::from_ne_bytes(address.ip().octets());
    format!("{ip:08X}:{:04X}", address.port())
}

/// A port of this machine that is taken and refuses connections.
fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(loopback(0)).expect("a free port");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// A port of this machine that answers no attempt to connect, for as many wait already as may.
#[cfg(target_os = "linux")]
struct Swallowing {
    address: SocketAddr,
    _held: (TcpListener, Vec<std::net::TcpStream>),
}

#[cfg(target_os = "linux")]
impl Swallowing {
    fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(loopback(0)).expect("a free port");
        let listener = socket.listen(0).expect("it listens");
        let address = listener.local_addr().expect("an address");
        let mut waiting = Vec::new();
        let soon = std::time::Duration::from_millis(300);
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, soon) {
            waiting.push(stream);
            assert!(waiting.len() < 100, "it takes all");
        }
        Self {
            address,
            _held: (listener, waiting),
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn of_several_addresses_those_that_refuse_or_do_not_answer_are_soon_passed_over() {
    let (silent, silent_too) = (Swallowing::new(), Swallowing::new());
    let (_held, refuses) = refusing();
    for before in [
        vec![refuses],
        vec![silent.address],
        vec![silent.address, silent_too.address],
        vec![refuses, silent.address, refuses],
        vec![silent.address, refuses, silent_too.address],
    ] {
        let (server, port) = listener().await;
        let all = [before.clone(), vec![loopback(port)]].concat();
        let (client, _) = leading_to(AddressPolicy::any(), vec![all]);
        let begun = std::time::Instant::now();
        let ping = Ping::sent("http://h.invalid/mcp", client).await;
        let mut stream = accepted(&server).await;
        // A connect deadline is 30 s; the kernel gives an attempt up after two minutes.
        let elapsed = begun.elapsed().as_secs();
        assert!(elapsed < 10, "{elapsed} s for {before:?}");
        read_request(&mut stream).await;
        stream.write_all(ANSWER.as_bytes()).await.expect("it reads");
        ping.ended().await.expect("answered");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_attempt_that_is_late_goes_on_beside_the_next_and_the_first_to_be_let_in_is_used() {
    const SYN_SENT: u8 = 2;
    let (mut late, silent) = (Swallowing::new(), Swallowing::new());
    let each = vec![vec![late.address, silent.address]];
    let (client, _) = leading_to(AddressPolicy::any(), each);
    let ping = Ping::sent("http://h.invalid/mcp", client).await;
    let next = written(silent.address);
    Socket::found(|socket| (socket.remote == next && socket.state == SYN_SENT).then_some(())).await;
    // Those that waited are taken out, so that there is room when the kernel knocks again.
    let (listener, waiting) = &mut late._held;
    let mut stream = loop {
        let stream = accepted(listener).await;
        let peer = stream.peer_addr().expect("a peer");
        let is_ours = |waited: &std::net::TcpStream| waited.local_addr().is_ok_and(|a| a == peer);
        if !waiting.iter().any(is_ours) {
            break stream;
        }
    };
    read_request(&mut stream).await;
    stream.write_all(ANSWER.as_bytes()).await.expect("it reads");
    ping.ended().await.expect("answered");
}

#[tokio::test]
async fn where_no_address_lets_in_it_is_said_of_one_that_could_be_reached() {
    let (_held, refuses) = refusing();
    // The kernel has no way there for TCP.
    let no_way: SocketAddr = ([255, 255, 255, 255], 80).into();
    for (addresses, kind, said) in [
        (vec![refuses, refuses], ErrorKind::Transport, "refused"),
        (vec![no_way, refuses], ErrorKind::Transport, "refused"),
        (vec![refuses, no_way], ErrorKind::Transport, "refused"),
        (vec![no_way, no_way], ErrorKind::Local, "unreachable"),
    ] {
        let (client, _) = leading_to(AddressPolicy::any(), vec![addresses]);
        let ping = Ping::sent("http://h.invalid/mcp", client).await;
        let error = ping.ended().await.expect_err("refused");
        assert_eq!((error.kind, error.outcome), (kind, Outcome::NotSent));
        assert!(error.message.contains(said), "{error}");
    }
    let (client, _) = leading_to(AddressPolicy::any(), vec![Vec::new()]);
    let ping = Ping::sent("http://h.invalid/mcp", client).await;
    let error = ping.ended().await.expect_err("nowhere to go");
    assert!(error.message.contains("no address"), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_is_silent_for_half_a_minute_is_probed_by_the_kernel() {
    const KEEPALIVE: u8 = 2;
    for name in ["http://127.0.0.1", "http://h.invalid"] {
        let (server, port) = listener().await;
        let (client, _) = leading_to(AddressPolicy::any(), vec![vec![loopback(port)]]);
        let _ping = Ping::sent(&format!("{name}:{port}/mcp"), client).await;
        let mut stream = accepted(&server).await;
        read_request(&mut stream).await;
        let of_client = written(stream.peer_addr().expect("a peer"));
        // Until what it sent is acknowledged there is a timer for that.
        let due = Socket::found(|socket| match socket.timer {
            (KEEPALIVE, due) if socket.local == of_client => Some(due),
            _ => None,
        });
        let due = due.await;
        assert!((2000..=3000).contains(&due), "due in {due} hundredths");
    }
}
