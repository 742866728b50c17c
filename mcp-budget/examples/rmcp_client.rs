//! Supervises a client of another SDK, `rmcp`, with this crate alone.
//!
//! A small server is called, killed and called again; then it dies after every handshake until its budget is spent and
//! it is parked; at last it is mended, woken and called. Run it with
//! `cargo run -p mcp-budget --features tokio --example rmcp_client`.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use mcp_budget::{
    Attempt, Cause, Connect, Failure, Live, Options, Policy, Session, State, Supervisor,
    Unavailable, Want,
};
use rmcp::{
    ErrorData, Peer, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock, PingRequest,
        ServerCapabilities, ServerInfo,
    },
    service::{RequestContext, ServiceError},
};
use tokio::{
    process::Command,
    sync::{Notify, watch},
    time::{sleep, timeout},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve(Duration::MAX).await,
        Some("flap") => serve(Duration::from_millis(20)).await,
        _ => host().await,
    }
}

/// What an application does.
async fn host() -> Result<(), Error> {
    let server = Server::default();
    let options = Options {
        // Less patient than the default, so that the example is soon over.
        policy: Policy {
            backoff: Duration::from_millis(100),
            floor: Duration::from_millis(100),
            ..Policy::default()
        },
        observer: Some(Box::new(|step| {
            println!(
                "    {} ({}), {} charges",
                step.state, step.reason, step.charges
            );
        })),
        ..Options::default()
    };
    let supervisor = Supervisor::spawn(server.clone(), options);

    println!("a call: {}", greet(&supervisor).await?);

    println!("the server is killed");
    let killed = supervisor.session(Want::default()).await?;
    killed.session.kill();
    let next = other_than(&supervisor, killed.generation).await?;
    println!(
        "a call: {}, by generation {}",
        greet(&supervisor).await?,
        next.generation
    );

    println!("from now on it dies after each handshake");
    server.flaps.store(true, Ordering::Relaxed);
    let before = server.starts.load(Ordering::Relaxed);
    next.session.kill();
    while supervisor.status().state != State::Parked {
        sleep(Duration::from_millis(20)).await;
    }
    let starts = server.starts.load(Ordering::Relaxed) - before;
    println!("parked after {starts} starts");
    let refused = greet(&supervisor).await.expect_err("it is parked");
    println!("a call: {refused}");

    println!("it is mended, and woken");
    server.flaps.store(false, Ordering::Relaxed);
    supervisor.wake();
    println!("a call: {}", greet(&supervisor).await?);
    let status = supervisor.status();
    println!(
        "{}, {} charges; {:?}",
        status.state, status.charges, status.counters
    );

    supervisor.shutdown(Duration::from_secs(4)).await;
    Ok(())
}

/// One call of the server's tool, on whichever session there is.
async fn greet(supervisor: &Supervisor<Server>) -> Result<String, Error> {
    let live = supervisor.session(Want::default()).await?;
    let call = CallToolRequestParams::new("greet");
    match live.session.peer.call_tool(call).await {
        Ok(result) => {
            supervisor.proven(live.generation);
            let text = result.content.first().and_then(|content| content.as_text());
            Ok(text.map(|text| text.text.clone()).unwrap_or_default())
        }
        Err(error) => {
            match error {
                // Also an error is an answer.
                ServiceError::McpError(_) => supervisor.proven(live.generation),
                _ => supervisor.lost(live.generation, gone()),
            }
            Err(error.into())
        }
    }
}

async fn other_than(
    supervisor: &Supervisor<Server>,
    generation: u64,
) -> Result<Live<Client>, Unavailable> {
    let want = Want {
        other_than: Some(generation),
        ..Want::default()
    };
    supervisor.session(want).await
}

/// The server, and how it is reached: this very program as a child process.
#[derive(Clone, Default)]
struct Server {
    flaps: Arc<AtomicBool>,
    starts: Arc<AtomicU32>,
}

impl Connect for Server {
    type Session = Client;

    async fn connect(&self, _: Attempt) -> Result<Client, Failure> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let role = match self.flaps.load(Ordering::Relaxed) {
            true => "flap",
            false => "serve",
        };
        timeout(Duration::from_secs(10), Client::open(role))
            .await
            .unwrap_or_else(|late| Err(late.into()))
            .map_err(|error| Failure::new(Cause::Transient, error))
    }
}

/// A session of `rmcp`, and the process at its other end.
#[derive(Clone)]
struct Client {
    peer: Peer<RoleClient>,
    gone: watch::Receiver<bool>,
    kill: Arc<Notify>,
    leave: Arc<Notify>,
}

impl Client {
    async fn open(role: &str) -> Result<Self, Error> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let service = ().serve(pipes.ok_or("no pipes")?).await?;
        let (told, gone) = watch::channel(false);
        let client = Self {
            peer: service.peer().clone(),
            gone,
            kill: Arc::new(Notify::new()),
            leave: Arc::new(Notify::new()),
        };
        let (kill, leave) = (Arc::clone(&client.kill), Arc::clone(&client.leave));
        tokio::spawn(async move {
            tokio::select! {
                _ = service.waiting() => {}
                () = leave.notified() => {}
                () = kill.notified() => drop(child.start_kill()),
            }
            // Its stdin is closed now, which is its word to go.
            if timeout(Duration::from_secs(1), child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
            told.send_replace(true);
        });
        Ok(client)
    }

    fn kill(&self) {
        self.kill.notify_one();
    }

    async fn end(&self) {
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }
}

impl Session for Client {
    async fn ended(&self) -> Failure {
        self.end().await;
        gone()
    }

    async fn probe(&self) -> Result<(), Failure> {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        match self.peer.send_request(ping).await {
            Ok(_) | Err(ServiceError::McpError(_)) => Ok(()),
            Err(error) => Err(Failure::new(Cause::Transient, error)),
        }
    }

    async fn close(&self) {
        self.leave.notify_one();
        self.end().await;
    }
}

fn gone() -> Failure {
    Failure::new(Cause::Transient, "the server is gone")
}

/// The server's side.
struct Greeter;

impl ServerHandler for Greeter {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let text = format!("hello from process {}", std::process::id());
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
    }
}

async fn serve(life: Duration) -> Result<(), Error> {
    let service = Greeter
        .serve((tokio::io::stdin(), tokio::io::stdout()))
        .await?;
    let _ = timeout(life, service.waiting()).await;
    // Whatever still reads stdin is no reason to stay.
    std::process::exit(0)
}
