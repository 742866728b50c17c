//! The transport: starts the child and hands out its driver.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::watch,
    time::Instant,
};

use crate::{
    config::StdioConfig,
    error::{Error, ErrorKind},
    jsonrpc::RequestId,
    line::MAX_FRAME,
    revision::Revision,
    secrets::Secrets,
    transport::{BoxFuture, Outgoing, Receiver, Transport},
};

use super::{
    command,
    driver::{Driver, Seen},
    ending::Ending,
    inherited::End,
    outbox::Outbox,
    process::Guard,
    spawner::{Spawner, Started},
    sys,
};

/// A server that is a child process and speaks over its stdin and stdout.
///
/// It runs in a session and process group of its own. [`close`](Transport::close) ends it: stdin is closed; who
/// has not ended 2 s later gets TERM, and 1.5 s later KILL, with its whole group; a shorter limit scales that.
/// When the transport is dropped without that, or the runtime that it was started on ends, the group is killed at
/// once.
pub struct StdioTransport {
    config: StdioConfig,
    spawner: Spawner,
    max_frame: usize,
    started: AtomicBool,
    closed: AtomicBool,
    link: OnceLock<(Arc<Link>, Guard)>,
}

/// What the transport and its driver share.
pub(super) struct Link {
    pub(super) outbox: Outbox,
    pub(super) seen: Mutex<Seen>,
    /// What must not come back in what it says.
    pub(super) secrets: Secrets,
    /// The ending that was asked for, until the driver takes it.
    ending: Mutex<Option<Ending>>,
    /// Its sender is the driver's: closed once the driver is gone.
    gone: watch::Receiver<()>,
}

impl Link {
    pub(super) fn take_ending(&self) -> Option<Ending> {
        self.ending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn ask_to_end(&self, ending: Ending) {
        let mut asked = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        *asked = Some(asked.map_or(ending, |before| before.sooner(ending)));
        drop(asked);
        // After the ending is set, so that the driver does not take the server's answer to EOF for an end of its own.
        self.outbox.close();
        self.outbox.wake.notify_one();
    }
}

impl StdioTransport {
    /// A server to be started from a thread of its own; see [`with_spawner`](Self::with_spawner) for one thread
    /// for many servers.
    pub fn new(config: StdioConfig) -> Self {
        Self::with_spawner(config, Spawner::new())
    }

    /// A server to be started from the thread of this spawner.
    pub fn with_spawner(config: StdioConfig, spawner: Spawner) -> Self {
        Self {
            config,
            spawner,
            max_frame: MAX_FRAME,
            started: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            link: OnceLock::new(),
        }
    }

    /// The longest message that is taken from the server, in bytes; 64 MiB unless set.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    async fn connect(&self, receiver: Arc<dyn Receiver>) -> Result<(), Error> {
        if self.started.swap(true, Ordering::Relaxed) {
            let message = "a transport is started once";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let command = command::resolve(&self.config, std::env::vars_os())?;
        let Started {
            guard,
            stdin,
            stdout,
            stderr,
        } = self.spawner.spawn(command).await?;
        let (on_gone, gone) = watch::channel(());
        let link = Arc::new(Link {
            outbox: Outbox::new(stdin, receiver.clone()),
            seen: Mutex::default(),
            secrets: Secrets::of_child(&self.config),
            ending: Mutex::default(),
            gone,
        });
        let driver = Driver::new(
            link.clone(),
            guard.another(),
            watched(stdout, Interest::READABLE)?,
            watched(stderr, Interest::READABLE)?,
            receiver,
            self.max_frame,
            on_gone,
        )?;
        tokio::spawn(driver.run());
        // It is set here alone, once.
        let _ = self.link.set((link.clone(), guard));
        if self.closed.load(Ordering::SeqCst) {
            link.ask_to_end(Ending::within(Duration::ZERO, Instant::now()));
            return Err(Error::new(
                ErrorKind::Closed,
                "the transport was closed while it started",
            ));
        }
        Ok(())
    }
}

fn watched(end: End, interest: Interest) -> Result<AsyncFd<End>, Error> {
    sys::watch(end, interest).map_err(unwatched)
}

pub(super) fn unwatched(error: std::io::Error) -> Error {
    Error::local("the server's pipes cannot be waited for", &error)
}

impl fmt::Debug for StdioTransport {
    /// Without what the server said, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioTransport")
            .field("config", &self.config)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

impl Transport for StdioTransport {
    fn start(&self, receiver: Arc<dyn Receiver>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.connect(receiver))
    }

    fn send(&self, message: Outgoing) {
        if let Some((link, _)) = self.link.get() {
            link.outbox.send(message);
        }
    }

    fn negotiated(&self, _revision: Revision) {}

    fn abandon(&self, request: RequestId) {
        if let Some((link, _)) = self.link.get() {
            link.outbox.withdraw(request);
        }
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::SeqCst);
        let gone = self.link.get().map(|(link, _)| {
            // The driver does it, also if nobody waits for it.
            link.ask_to_end(Ending::within(limit, Instant::now()));
            link.gone.clone()
        });
        Box::pin(async move {
            if let Some(mut gone) = gone {
                while gone.changed().await.is_ok() {}
            }
        })
    }

    fn resume(&self) {
        if let Some((link, _)) = self.link.get() {
            link.outbox.wake.notify_one();
        }
    }

    fn diagnosis(&self) -> Option<String> {
        let (link, _) = self.link.get()?;
        link.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .describe(&link.secrets)
    }

    fn redacted(&self, text: &str) -> String {
        match self.link.get() {
            Some((link, _)) => link.secrets.redact(text).into_owned(),
            None => Secrets::of_child(&self.config).redact(text).into_owned(),
        }
    }

    fn pid(&self) -> Option<u32> {
        self.link.get()?.1.process.pid()
    }
}
