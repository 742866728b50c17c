//! What the tests share: the fault server, sessions to it, and ways to see processes come and go.
#![allow(dead_code, unreachable_pub)]

pub mod fake;

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use mcp_transport::{
    config::StdioConfig,
    error::Error,
    session::{Handler, RequestOptions, Session, SessionOptions},
    stdio::StdioTransport,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

/// Longer than anything takes on a busy machine; only a failure waits so long.
pub const LONG: Duration = Duration::from_secs(60);

/// The fault server with these options.
pub fn fault_server(options: &[&str]) -> StdioConfig {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/fault_server.py");
    let mut config = StdioConfig::new("python3");
    config.args = vec!["-S".into(), script.to_str().unwrap().into()];
    config.args.extend(options.iter().map(|o| (*o).to_owned()));
    config
}

/// A server that is a line of shell.
pub fn shell(script: &str) -> StdioConfig {
    let mut config = StdioConfig::new("sh");
    config.args = vec!["-c".into(), script.into()];
    config
}

/// Keeps the notifications that came, to be waited for.
pub struct Heard {
    sender: mpsc::UnboundedSender<(String, Bytes)>,
}

impl Handler for Heard {
    fn notification(&self, method: &str, params: Bytes) {
        let _ = self.sender.send((method.to_owned(), params));
    }
}

/// The notifications of a session.
#[derive(Debug)]
pub struct Notifications(mpsc::UnboundedReceiver<(String, Bytes)>);

impl Notifications {
    pub fn new() -> (Arc<Heard>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Arc::new(Heard { sender }), Self(receiver))
    }

    /// Waits for the next one with this method; gives its params.
    pub async fn next(&mut self, method: &str) -> Value {
        loop {
            let next = tokio::time::timeout(LONG, self.0.recv()).await;
            let (heard, params) = next.expect("nothing heard").expect("the session is gone");
            if heard == method {
                return serde_json::from_slice(&params).unwrap_or(Value::Null);
            }
        }
    }
}

pub fn options(handler: Arc<dyn Handler>) -> SessionOptions {
    SessionOptions {
        client_name: "test".into(),
        client_version: "1".into(),
        connect_deadline: Instant::now() + LONG,
        handler,
    }
}

pub async fn open_with(transport: StdioTransport) -> Result<(Session, Notifications), Error> {
    let (heard, notifications) = Notifications::new();
    let session = Session::open(Arc::new(transport), options(heard)).await?;
    Ok((session, notifications))
}

/// A session to the fault server.
pub async fn open(options: &[&str]) -> (Session, Notifications) {
    open_with(StdioTransport::new(fault_server(options)))
        .await
        .unwrap()
}

/// The params of `tools/call`.
pub fn tool(name: &str, arguments: Value) -> Option<Bytes> {
    Some(
        json!({"name": name, "arguments": arguments})
            .to_string()
            .into(),
    )
}

pub fn long() -> RequestOptions {
    RequestOptions::until(Instant::now() + LONG)
}

/// Calls a tool of the fault server.
pub async fn call(session: &Session, name: &str, arguments: Value) -> Result<Value, Error> {
    let result = session
        .request("tools/call", tool(name, arguments), long())
        .await?;
    Ok(serde_json::from_slice(&result).unwrap())
}

/// Whether a process of this id exists; a zombie counts.
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether a process of this id runs; a zombie does not.
pub fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim_start()
        .starts_with('Z')
}

/// Waits, without an upper bound that a healthy run comes near, until it is so.
pub async fn until(what: &str, so: impl Fn() -> bool) {
    let give_up = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < give_up, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Sends a signal to a process.
#[cfg(target_os = "linux")]
pub fn kill(pid: u32, signal: i32) {
    // SAFETY: it touches no memory.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}
