//! Servers whose bytes the host moves: over a socket, a serial line, a web worker, whatever it has.
//!
//! The host implements [`HostIo`] and feeds what comes into the [`HostLink`] it is given, from any thread, also
//! from inside a call of its own methods. It is never called with a lock held, and by one thread at a time.
//!
//! ```no_run
//! use mcp_transport::{error::{Error, ErrorKind}, host::{Framing, HostIo, HostLink, HostTransport}};
//! use std::sync::{Arc, Mutex};
//!
//! #[derive(Default)]
//! struct Loopback(Mutex<Option<HostLink>>);
//!
//! impl HostIo for Loopback {
//!     fn open(&self, link: HostLink) {
//!         let _ = link.opened();
//!         *self.0.lock().unwrap() = Some(link);
//!     }
//!     fn send(&self, link: &HostLink) {
//!         if let Some(bytes) = link.take() {
//!             let _ = link.sent(bytes.len());
//!             let _ = link.received(&bytes);
//!         }
//!     }
//!     fn close(&self) {
//!         if let Some(link) = self.0.lock().unwrap().take() {
//!             let _ = link.closed(Error::new(ErrorKind::Closed, "the link was closed"));
//!         }
//!     }
//! }
//!
//! let transport = HostTransport::new(Arc::new(Loopback::default()), Framing::Bytes);
//! ```

mod core;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::watch, time::timeout};
use tracing::warn;

use crate::{
    error::{Error, ErrorKind},
    jsonrpc::RequestId,
    line::MAX_FRAME,
    revision::Revision,
    transport::{BoxFuture, Incoming, Outgoing, Receiver, Transport},
};

use self::core::{Core, Effect};

/// How many lines that are no messages are logged; the rest are counted.
const NOISE_LOGGED: u64 = 8;

/// What a host moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// A stream of bytes: messages are lines, as over stdio, and may come cut anywhere.
    Bytes,
    /// Messages: one in each call, without a newline of ours.
    Messages,
}

/// What a host does for a link. It is asked, and answers through the [`HostLink`], at once or later.
///
/// Called from whichever thread sends, feeds or closes; it must not block.
pub trait HostIo: Send + Sync + 'static {
    /// Connect. [`HostLink::opened`] says that it is done, [`HostLink::closed`] that it cannot be.
    fn open(&self, link: HostLink);

    /// There is a message to send: [`HostLink::take`] gives it, now or when the host is ready for it. Said once for
    /// each.
    fn send(&self, link: &HostLink);

    /// Close the link, and say [`HostLink::closed`]. Called once at most; not for a link that was said to be closed.
    fn close(&self);

    /// Feed nothing for now (`true`), or go on (`false`): what came before has not been taken. What is fed all the
    /// same is kept.
    fn hold(&self, held: bool) {
        let _ = held;
    }
}

/// Why a word about a link was not taken; nothing has happened then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotTaken {
    /// The link is closed, or its transport is gone.
    #[error("the link is closed")]
    Closed,
    /// More was said to have gone than was taken.
    #[error("{said} bytes were said to have gone, of {taken} that were taken and had not gone")]
    TooMuch {
        /// How much was said to have gone.
        said: u64,
        /// How much was taken and had not gone.
        taken: u64,
    },
}

/// How a host feeds a link. Clones are the same link, which it does not keep alive.
#[derive(Debug, Clone)]
pub struct HostLink(Weak<Shared>);

impl HostLink {
    /// The link is open. Said again, it changes nothing.
    ///
    /// # Errors
    /// [`NotTaken::Closed`].
    pub fn opened(&self) -> Result<(), NotTaken> {
        self.tell(Core::is_closing, Core::opened)
    }

    /// The next message to send, if there is one that can be sent now: with [`Framing::Messages`] as it is, with
    /// [`Framing::Bytes`] and its newline. From here on it may be on its way; what is not taken may be taken back.
    ///
    /// While 64 KiB were taken and not [said to have gone](Self::sent), there is none.
    pub fn take(&self) -> Option<Bytes> {
        let mut taken = None;
        let take = |core: &mut Core| {
            let (bytes, effects) = core.take();
            taken = bytes;
            effects
        };
        self.0.upgrade()?.tell(take);
        taken
    }

    /// These bytes came, or this message.
    ///
    /// # Errors
    /// [`NotTaken::Closed`].
    pub fn received(&self, bytes: &[u8]) -> Result<(), NotTaken> {
        self.tell(Core::is_closing, |core| core.received(bytes))
    }

    /// As [`received`](Self::received), for a message that is there as [`Bytes`] already: it is not copied with
    /// [`Framing::Messages`].
    ///
    /// # Errors
    /// As there.
    pub fn received_message(&self, message: Bytes) -> Result<(), NotTaken> {
        self.tell(Core::is_closing, |core| core.received_bytes(message))
    }

    /// So many bytes more of what was [taken](Self::take) have gone. What was not said to have gone by the time the
    /// link is [`closed`](Self::closed) counts as never sent, and may be sent again elsewhere.
    ///
    /// # Errors
    /// [`NotTaken::TooMuch`], and [`NotTaken::Closed`].
    pub fn sent(&self, bytes: usize) -> Result<(), NotTaken> {
        let said = bytes as u64;
        let mut taken = 0;
        self.tell(Core::is_closed, |core| {
            taken = core.not_gone();
            if said > taken {
                Vec::new()
            } else {
                core.sent(said)
            }
        })?;
        if said > taken {
            return Err(NotTaken::TooMuch { said, taken });
        }
        Ok(())
    }

    /// The link is closed, or cannot be opened, and this is why. The last word about it.
    ///
    /// # Errors
    /// [`NotTaken::Closed`] if that was said before.
    pub fn closed(&self, why: Error) -> Result<(), NotTaken> {
        self.tell(Core::is_closed, |core| core.closed(why))
    }

    /// Tells the core, unless this says that it is too late for that.
    fn tell(
        &self,
        over: impl FnOnce(&Core) -> bool,
        what: impl FnOnce(&mut Core) -> Vec<Effect>,
    ) -> Result<(), NotTaken> {
        let shared = self.0.upgrade().ok_or(NotTaken::Closed)?;
        let mut taken = true;
        shared.tell(|core| {
            taken = !over(core);
            if taken { what(core) } else { Vec::new() }
        });
        if taken { Ok(()) } else { Err(NotTaken::Closed) }
    }
}

/// A transport over a link that the host moves.
pub struct HostTransport {
    shared: Arc<Shared>,
}

struct Shared {
    host: Arc<dyn HostIo>,
    receiver: OnceLock<Arc<dyn Receiver>>,
    core: Mutex<Core>,
    effects: Mutex<Effects>,
    stage: watch::Sender<Stage>,
}

/// What is to be done, in order, by one thread at a time: whoever finds nobody at it does it all, and what is added
/// meanwhile, from another thread or from inside, is done by the same.
#[derive(Default)]
struct Effects {
    queue: VecDeque<Effect>,
    busy: bool,
}

/// How far a link has come, for who waits.
#[derive(Debug, Clone)]
enum Stage {
    Before,
    Open,
    Closed(Error),
}

impl HostTransport {
    /// A link that this host moves.
    pub fn new(host: Arc<dyn HostIo>, framing: Framing) -> Self {
        Self::with_max_frame(host, framing, MAX_FRAME)
    }

    /// As [`new`](Self::new), with the longest message that is taken, in bytes, in place of 64 MiB.
    pub fn with_max_frame(host: Arc<dyn HostIo>, framing: Framing, max_frame: usize) -> Self {
        let shared = Shared {
            host,
            receiver: OnceLock::new(),
            core: Mutex::new(Core::new(framing, max_frame)),
            effects: Mutex::default(),
            stage: watch::Sender::new(Stage::Before),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// What feeds it; the same that [`HostIo::open`] is given.
    pub fn link(&self) -> HostLink {
        HostLink(Arc::downgrade(&self.shared))
    }

    async fn connect(&self, receiver: Arc<dyn Receiver>) -> Result<(), Error> {
        if self.shared.receiver.set(receiver).is_err() {
            let message = "a transport is started once";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let given_up = GivenUp(&self.shared);
        self.shared.tell(Core::open);
        let mut stage = self.shared.stage.subscribe();
        let stage = stage
            .wait_for(|stage| !matches!(stage, Stage::Before))
            .await;
        // The sender is ours, and there as long as we are.
        let result = match stage.as_deref() {
            Ok(Stage::Closed(why)) => Err(why.clone()),
            _ => Ok(()),
        };
        drop(stage);
        std::mem::forget(given_up);
        result
    }
}

/// Closes the link of an opening that nobody waits for any more.
struct GivenUp<'a>(&'a Arc<Shared>);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.0.tell(Core::close);
    }
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn effects(&self) -> MutexGuard<'_, Effects> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the core, and does what follows.
    fn tell(self: &Arc<Self>, what: impl FnOnce(&mut Core) -> Vec<Effect>) {
        {
            let mut core = self.core();
            let effects = what(&mut core);
            for id in core.requests_taken() {
                // Under the lock, so that who takes a request back finds it told.
                self.deliver(Incoming::Written(id));
            }
            // Too, so that effects are in the order of what caused them.
            self.effects().queue.extend(effects);
        }
        self.work();
    }

    fn work(self: &Arc<Self>) {
        let mut worker = {
            let mut effects = self.effects();
            if effects.busy {
                return;
            }
            effects.busy = true;
            Worker {
                shared: self,
                done: false,
            }
        };
        loop {
            let effect = {
                let mut effects = self.effects();
                let Some(effect) = effects.queue.pop_front() else {
                    effects.busy = false;
                    worker.done = true;
                    return;
                };
                effect
            };
            self.perform(effect);
        }
    }

    fn perform(self: &Arc<Self>, effect: Effect) {
        match effect {
            Effect::Open => self.host.open(HostLink(Arc::downgrade(self))),
            Effect::Send => self.host.send(&HostLink(Arc::downgrade(self))),
            Effect::Close => self.host.close(),
            Effect::Opened => {
                self.stage.send_replace(Stage::Open);
            }
            Effect::Message(message) => {
                self.deliver(Incoming::Message(message));
                self.look_at_backlog();
            }
            Effect::Failed(id, error) => self.deliver(Incoming::Failed(id, error)),
            Effect::Ended(why) => {
                self.deliver(Incoming::Ended(why.clone()));
                self.stage.send_replace(Stage::Closed(why));
            }
            Effect::Hold(held) => self.host.hold(held),
            Effect::Noise { bytes, count } => {
                if count <= NOISE_LOGGED {
                    warn!(bytes, "skipped what came over a link and is no message");
                }
            }
        }
    }

    fn look_at_backlog(&self) {
        let has_room = || self.receiver.get().is_none_or(|r| r.wants_more());
        let mut room = has_room();
        loop {
            {
                let mut core = self.core();
                let effects = core.hold(!room);
                self.effects().queue.extend(effects);
            }
            // What was taken between the look and the word has been told already, and would not be told again.
            let now = has_room();
            if now == room {
                return;
            }
            room = now;
        }
    }

    fn deliver(&self, incoming: Incoming) {
        if let Some(receiver) = self.receiver.get() {
            receiver.receive(incoming);
        }
    }
}

/// Held by the thread that does the effects. If what it calls panics, the link is at its end, and others must not
/// wait for a thread that is gone.
struct Worker<'a> {
    shared: &'a Arc<Shared>,
    done: bool,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let why = Error::new(
            ErrorKind::Internal,
            "what takes the server's messages, or moves its bytes, panicked",
        );
        let mut core = self.shared.core();
        let effects = core.failed(why);
        let mut queue = self.shared.effects();
        queue.queue.extend(effects);
        queue.busy = false;
        drop((queue, core));
        self.shared.work();
    }
}

impl Transport for HostTransport {
    fn start(&self, receiver: Arc<dyn Receiver>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.connect(receiver))
    }

    fn send(&self, message: Outgoing) {
        self.shared.tell(|core| core.send(message));
    }

    fn negotiated(&self, _revision: Revision) {}

    fn abandon(&self, request: RequestId) {
        self.shared.core().withdraw(request);
    }

    fn resume(&self) {
        self.shared.look_at_backlog();
        self.shared.work();
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        self.shared.tell(Core::close);
        let mut stage = self.shared.stage.subscribe();
        let shared = self.shared.clone();
        Box::pin(async move {
            let closed = stage.wait_for(|stage| matches!(stage, Stage::Closed(_)));
            if timeout(limit, closed).await.is_err() {
                // The host owes its word; the link is over for us all the same.
                let why = Error::new(ErrorKind::Closed, "the link was closed");
                shared.tell(|core| core.closed(why));
            }
        })
    }

    fn diagnosis(&self) -> Option<String> {
        let core = self.shared.core();
        let told: Vec<_> = [core.describe_owed(), core.describe_noise()]
            .into_iter()
            .flatten()
            .collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

impl Drop for HostTransport {
    fn drop(&mut self) {
        self.shared.tell(Core::close);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("core", &*self.core())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HostTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTransport")
            .field("core", &*self.shared.core())
            .finish_non_exhaustive()
    }
}
