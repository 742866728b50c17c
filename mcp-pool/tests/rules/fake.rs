//! Sessions that open, answer and close when the test says so.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_pool::{AcquireError, BeginError, Binding, Handle, Lease, Limits, Session, SessionId};
use tokio::{sync::watch, task::JoinHandle};

pub(crate) type Key = mcp_pool::Key<&'static str, &'static str, &'static str>;
pub(crate) type Pool = mcp_pool::Pool<Key, Fake, OpenFailed>;
pub(crate) type Error = AcquireError<OpenFailed>;

pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The key of a scope of the one server of the usual domain.
pub(crate) fn key(scope: &'static str) -> Key {
    Key::new("deployment", "server", scope)
}

/// A pool of this capacity, and the binding of its one server.
pub(crate) fn pool_of(capacity: usize) -> (Pool, Binding) {
    pool_with(Limits {
        capacity,
        close_limit: CLOSE_LIMIT,
        ..Limits::default()
    })
}

pub(crate) fn pool_with(limits: Limits) -> (Pool, Binding) {
    let pool = Pool::new(limits);
    let binding = pool.ensure_binding(&"deployment", &"server", 1u64);
    (pool, binding)
}

/// Lets all other tasks run until this holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// Something that happens once and can be awaited.
#[derive(Debug, Clone)]
pub(crate) struct Flag(Arc<watch::Sender<bool>>);

impl Flag {
    pub(crate) fn lowered() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn raised() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }

    pub(crate) fn raise(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn wait(&self) {
        let mut flag = self.0.subscribe();
        let raised = flag.wait_for(|raised| *raised).await;
        raised.expect("the flag itself keeps the sender");
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct OpenFailed(pub(crate) &'static str);

/// One server's session. Clones are the same session.
#[derive(Debug, Clone)]
pub(crate) struct Fake(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// How often its opener was run.
    opened: AtomicUsize,
    /// How many calls reached it.
    calls: AtomicUsize,
    /// What the pool calls it.
    name: OnceLock<SessionId>,
    /// The opener began.
    pub(crate) opening: Flag,
    /// The opener was dropped before it was done.
    pub(crate) given_up: Flag,
    /// The opener may go on.
    pub(crate) may_open: Flag,
    /// It panics when it is told to close.
    pub(crate) panics_when_told: Flag,
    pub(crate) retired: Flag,
    /// The closing had its turn.
    pub(crate) closing: Flag,
    /// The closing may go on.
    pub(crate) may_close: Flag,
    pub(crate) closed: Flag,
}

impl std::ops::Deref for Fake {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Fake {
    fn with(may_open: Flag, may_close: Flag) -> Self {
        Self(Arc::new(Inner {
            opened: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            name: OnceLock::new(),
            opening: Flag::lowered(),
            given_up: Flag::lowered(),
            may_open,
            panics_when_told: Flag::lowered(),
            retired: Flag::lowered(),
            closing: Flag::lowered(),
            may_close,
            closed: Flag::lowered(),
        }))
    }

    /// Opens and closes at once.
    pub(crate) fn new() -> Self {
        Self::with(Flag::raised(), Flag::raised())
    }

    /// Opens when `may_open` is raised.
    pub(crate) fn slow_to_open() -> Self {
        Self::with(Flag::lowered(), Flag::raised())
    }

    /// Closes when `may_close` is raised.
    pub(crate) fn slow_to_close() -> Self {
        Self::with(Flag::raised(), Flag::lowered())
    }

    pub(crate) fn is(&self, other: &Fake) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn opened(&self) -> usize {
        self.0.opened.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn name(&self) -> Option<SessionId> {
        self.0.name.get().copied()
    }

    /// What opens it.
    pub(crate) fn opener(&self) -> impl FnOnce() -> Opens + Send + use<> {
        let fake = self.clone();
        move || {
            Box::pin(async move {
                let unless_done = RaiseOnDrop(Some(fake.given_up.clone()));
                fake.0.opened.fetch_add(1, Ordering::SeqCst);
                fake.opening.raise();
                fake.may_open.wait().await;
                unless_done.disarm();
                Ok(fake)
            })
        }
    }

    /// What fails to open it, when it may.
    pub(crate) fn failing_opener(&self) -> impl FnOnce() -> Opens + Send + use<> {
        let open = self.opener();
        move || {
            Box::pin(async move {
                open().await?;
                Err(OpenFailed("refused"))
            })
        }
    }
}

pub(crate) type Opens =
    std::pin::Pin<Box<dyn Future<Output = Result<Fake, OpenFailed>> + Send + 'static>>;

impl Session for Fake {
    fn named(&self, id: SessionId) {
        self.0.name.set(id).expect("a session is named once");
    }

    fn retire(&self) {
        assert!(!self.retired.is_raised(), "a session is told once");
        self.retired.raise();
        assert!(!self.panics_when_told.is_raised(), "as the test wants it");
    }

    async fn closed(&self) {
        assert!(self.retired.is_raised(), "told before it is awaited");
        self.closing.raise();
        self.may_close.wait().await;
        self.closed.raise();
    }
}

struct RaiseOnDrop(Option<Flag>);

impl RaiseOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.raise();
        }
    }
}

/// An opener for where nothing is to be opened.
pub(crate) fn never_opened() -> Opens {
    panic!("this must not be opened")
}

/// How a call ends once it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Well,
    ToolError,
    ProtocolError,
    TransportFault,
    Panic,
    /// Not at all: only its deadline ends it.
    Never,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// Refused before it reached the session.
    NotBegun(BeginError),
    Closed,
    Protocol,
    Transport,
    Timeout,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) is_error: bool,
}

pub(crate) const FINISHED: Result<Answer, CallError> = Ok(Answer { is_error: false });

/// A call under way.
pub(crate) struct Call {
    pub(crate) release: Flag,
    pub(crate) task: JoinHandle<Result<Answer, CallError>>,
}

impl Call {
    /// Begins a call and waits until it reached the session.
    pub(crate) async fn begin(handle: &Handle<Fake>, ends: Ends) -> Self {
        let lease = handle.begin().expect("a pooled session");
        Self::with(lease, ends).await
    }

    pub(crate) async fn with(lease: Lease<Fake>, ends: Ends) -> Self {
        let (started, release) = (Flag::lowered(), Flag::lowered());
        let task = tokio::spawn(run(lease, started.clone(), release.clone(), ends));
        started.wait().await;
        Self { release, task }
    }

    /// Lets the call end, and returns its answer.
    pub(crate) async fn finish(self) -> Result<Answer, CallError> {
        self.release.raise();
        self.task.await.expect("the call does not panic")
    }
}

/// A call by way of a handle, as a client makes it.
pub(crate) async fn call(handle: &Handle<Fake>) -> Result<Answer, CallError> {
    let lease = handle.begin().map_err(CallError::NotBegun)?;
    run(lease, Flag::lowered(), Flag::raised(), Ends::Well).await
}

async fn run(
    lease: Lease<Fake>,
    started: Flag,
    release: Flag,
    ends: Ends,
) -> Result<Answer, CallError> {
    let session = lease.session();
    session.0.calls.fetch_add(1, Ordering::SeqCst);
    started.raise();
    let deadline = Duration::from_secs(300);
    let released = async {
        match ends {
            Ends::Never => std::future::pending().await,
            _ => release.wait().await,
        }
    };
    tokio::select! {
        biased;
        () = session.retired.wait() => Err(CallError::Closed),
        released = tokio::time::timeout(deadline, released) => match (released, ends) {
            (Err(_), _) => Err(CallError::Timeout),
            (Ok(()), Ends::ProtocolError) => Err(CallError::Protocol),
            (Ok(()), Ends::TransportFault) => Err(CallError::Transport),
            (Ok(()), Ends::Panic) => panic!("the call panics, as the test wants it to"),
            (Ok(()), ends) => Ok(Answer { is_error: ends == Ends::ToolError }),
        },
    }
}
