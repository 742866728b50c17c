//! A TCP proxy on loopback that stands in the way: it can hold connections up, let them go, and cut them.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::child::PATIENCE;

/// A proxy before one server. Its threads end with the connections that they carry.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: AtomicU16,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    /// What a client may not send while it is held up.
    holding: Option<String>,
    /// Something that a client sent is held up.
    held_up: bool,
    /// Both ends of every connection that was made, to cut them.
    streams: Vec<TcpStream>,
    stopped: bool,
}

impl Proxy {
    /// A proxy before the server that listens on this port of loopback.
    pub fn before(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            server: AtomicU16::new(port),
            gate: Mutex::default(),
            changed: Condvar::new(),
        });
        let ours = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if ours.lock().stopped {
                    return;
                }
                // A client that is gone already, or a server that does not listen, ends that connection alone.
                drop(client.and_then(|client| ours.carry(client)));
            }
        });
        Self { address, shared }
    }

    /// The URL of the server's endpoint, through the proxy.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The same URL as the server's own, through the proxy.
    pub fn url_of(&self, url: &str) -> String {
        let port = self.shared.server.load(Ordering::SeqCst);
        url.replace(&format!("127.0.0.1:{port}"), &self.address.to_string())
    }

    /// From now on connections lead to the server on this port, as if it were the old one started anew; all that
    /// there are are cut.
    pub fn lead_to(&self, port: u16) {
        self.shared.server.store(port, Ordering::SeqCst);
        self.cut();
    }

    /// From now on a connection is held up, in what its client sends, as soon as that contains `part`; with an empty
    /// part at once. What the server sends still passes.
    pub fn hold(&self, part: &str) {
        self.shared.lock().holding = Some(part.to_owned());
    }

    /// Waits until a client has sent something that is held up.
    #[track_caller]
    pub fn await_held_up(&self) {
        let until = Instant::now() + PATIENCE;
        let mut gate = self.shared.lock();
        while !gate.held_up {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nobody sent anything that was held up");
            gate = self.shared.wait(gate, left);
        }
    }

    /// Lets go what was held up, and everything after it.
    pub fn let_go(&self) {
        let mut gate = self.shared.lock();
        gate.holding = None;
        gate.held_up = false;
        self.shared.changed.notify_all();
    }

    /// Cuts every connection there is.
    pub fn cut(&self) {
        self.shared.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        self.shared.cut();
        // The thread that accepts looks at `stopped` when somebody comes.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, gate: MutexGuard<'a, Gate>, limit: Duration) -> MutexGuard<'a, Gate> {
        self.changed
            .wait_timeout(gate, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn cut(&self) {
        for stream in self.lock().streams.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    fn carry(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server.load(Ordering::SeqCst)))?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            self.lock().streams.push(stream.try_clone()?);
        }
        let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
        let ours = self.clone();
        thread::spawn(move || pump(from_client, server, |bytes| ours.pass(bytes)));
        thread::spawn(move || pump(from_server, client, |_| true));
        Ok(())
    }

    /// Waits while the proxy holds this up; false if it was stopped meanwhile. (A part that comes in two pieces would
    /// be missed; small requests come whole.)
    fn pass(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let mut gate = self.lock();
        while gate
            .holding
            .as_ref()
            .is_some_and(|part| text.contains(part))
            && !gate.stopped
        {
            gate.held_up = true;
            self.changed.notify_all();
            gate = self.wait(gate, PATIENCE);
        }
        !gate.stopped
    }
}

/// Carries bytes one way until either end is gone, each piece only once `pass` lets it.
fn pump(mut from: TcpStream, mut to: TcpStream, pass: impl Fn(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !pass(&buffer[..length]) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let answers = connection.try_clone().expect("a descriptor");
                thread::spawn(move || pump(connection, answers, |_| true));
            }
        });
        port
    }

    fn ask(connection: &mut TcpStream) -> io::Result<[u8; 4]> {
        let mut answer = [0; 4];
        connection.write_all(b"ping")?;
        connection.read_exact(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn it_holds_up_lets_go_and_cuts() {
        let proxy = Proxy::before(echo());
        let mut connection = TcpStream::connect(proxy.address).expect("it listens");
        assert_eq!(&ask(&mut connection).expect("an answer"), b"ping");

        proxy.hold("pi");
        let asking = thread::spawn(move || (ask(&mut connection).expect("an answer"), connection));
        proxy.await_held_up();
        assert!(!asking.is_finished());
        proxy.let_go();
        let (answer, mut connection) = asking.join().expect("no panic");
        assert_eq!(&answer, b"ping");

        proxy.cut();
        assert!(ask(&mut connection).is_err());
    }
}
