//! Sessions of the official Rust SDK, `rmcp`, pooled per conversation: each conversation has a session of its own, and
//! so a server that keeps state keeps it for that conversation alone. There is room for two.
//!
//! The server runs in this process, at the other end of a pipe, so that nothing else is needed:
//! `cargo run -p mcp-pool --example rmcp_sessions`. With a server of yours only `connect` changes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use mcp_pool::{AcquireError, Key, Limits, Pool, Session};
use rmcp::{
    ErrorData, Peer, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, ServerCapabilities, ServerInfo},
    service::{ClientInitializeError, RequestContext, RunningService},
};

/// A server that counts the calls of its session.
#[derive(Default)]
struct Counter {
    calls: AtomicU32,
}

impl ServerHandler for Counter {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let text = ContentBlock::text(format!("call {call} of this session"));
        Ok(CallToolResult::success(vec![text]))
    }
}

/// One session of `rmcp`, as the pool wants it.
#[derive(Clone)]
struct Connection {
    peer: Peer<RoleClient>,
    running: Arc<Mutex<Option<RunningService<RoleClient, ()>>>>,
}

impl Session for Connection {
    fn retire(&self) {
        let running = self.running.lock().expect("nothing panics with it");
        if let Some(running) = &*running {
            running.cancellation_token().cancel();
        }
    }

    async fn closed(&self) {
        let running = self.running.lock().expect("nothing panics with it").take();
        if let Some(running) = running {
            let _ = running.waiting().await;
        }
    }
}

/// Opens a session: the transport, and the handshake over it.
async fn connect() -> Result<Connection, Arc<ClientInitializeError>> {
    let (ours, theirs) = tokio::io::duplex(4096);
    tokio::spawn(async move {
        if let Ok(server) = Counter::default().serve(theirs).await {
            let _ = server.waiting().await;
        }
    });
    let running = ().serve(ours).await?;
    Ok(Connection {
        peer: running.peer().clone(),
        running: Arc::new(Mutex::new(Some(running))),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(Limits {
        capacity: 2,
        ..Limits::default()
    });
    let binding = pool.ensure_binding(&"deployment".into(), &"counter".into(), 1_u64);
    let key = |conversation: &str| Key::<Arc<str>>::new("deployment", "counter", conversation);
    let call = async |conversation: &str| {
        let lease = pool.acquire(&key(conversation), &binding, connect).await?;
        let count = CallToolRequestParams::new("count");
        let answer = lease.session().peer.call_tool(count).await?;
        let text = answer.content.first().and_then(|content| content.as_text());
        let text = text.map_or("nothing", |text| &text.text);
        println!("{conversation}, session {}: {text}", lease.id());
        Ok::<_, Box<dyn std::error::Error>>(lease)
    };

    drop(call("Alice").await?);
    drop(call("Bob").await?);
    drop(call("Alice").await?);

    // A third conversation takes the slot that was used least recently, Bob's; Alice's state is still there.
    let carol = call("Carol").await?;
    let alice = call("Alice").await?;

    // While both have a call in flight there is no room: nothing is opened, and nobody's call is cut.
    match pool.acquire(&key("Bob"), &binding, connect).await {
        Err(AcquireError::Capacity { busy, .. }) => println!("Bob: refused, {busy} are busy"),
        Err(other) => return Err(other.into()),
        Ok(_) => return Err("there is no room for Bob".into()),
    }
    drop((carol, alice));
    drop(call("Bob").await?);

    pool.shutdown().await;
    println!("closed: {} live", pool.len());
    Ok(())
}
