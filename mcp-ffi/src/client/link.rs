//! Links: servers whose bytes the host moves, as it is asked for them and speaks of them.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use mcp_transport::{
    config::HostConfig,
    error::{self, Cause, ErrorKind},
    host::{Framing, HostIo, HostLink, HostTransport, NotTaken},
};
use tokio::runtime::Handle;

use super::{
    error::{Error, Kind},
    event::{Event, EventKind},
    open::Whose,
    queue::{EventQueue, Lane},
};

/// A link to a server, which the host moves: it is asked to open it by [`EventKind::LinkOpen`], and says by the methods
/// of this what becomes of it. Clones are the same link, and bear what the host attached to it.
///
/// Every method may be called from any thread, at any time. A link carries one session and is never used for another;
/// once it is over, or its client is gone, all that is said of it is refused as [`Kind::Closed`], and touches nothing.
#[derive(Clone)]
pub struct Link(Arc<About>);

struct About {
    whose: Whose,
    framing: Framing,
    data: String,
    token: AtomicU64,
    opened: AtomicBool,
    stage: Mutex<Stage>,
    #[cfg(feature = "capi")]
    process: u32,
    mover: Weak<Mover>,
}

/// What the host has heard of a link, and what it is still to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not taken the event that asks for it.
    Unheard,
    Heard,
    /// The event that asks it to close is in the queue, or was taken.
    AskedToClose,
    /// It has said the last word, or is never to hear of it.
    Over,
}

impl Link {
    /// The domain of the server.
    pub fn domain(&self) -> &str {
        &self.0.whose.origin.domain
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.0.whose.origin.server
    }

    /// The scope whose session it is to carry; `None` for the home session.
    pub fn scope(&self) -> Option<&str> {
        self.0.whose.origin.scope.as_deref()
    }

    /// Which session of the server it is to carry, counted from 1.
    pub fn generation(&self) -> u64 {
        self.0.whose.generation
    }

    /// What is moved over it: bytes, or whole messages.
    pub fn framing(&self) -> Framing {
        self.0.framing
    }

    /// What the configuration has for the host (`link` of the server's `mcpconn`), as JSON; `null` if it has nothing.
    pub fn data(&self) -> &str {
        &self.0.data
    }

    /// Attaches a number of the host's own: each event of the link that is taken from now on bears it as
    /// [`Event::token`].
    pub fn set_token(&self, token: u64) {
        self.0.token.store(token, Ordering::Relaxed);
    }

    /// The link is open.
    ///
    /// # Errors
    /// [`Kind::Closed`].
    pub fn opened(&self) -> Result<(), Error> {
        self.feed(|link| {
            self.0.opened.store(true, Ordering::Relaxed);
            link.opened()
        })
    }

    /// These bytes came from the server, or this message. They may be cut anywhere, unless they are messages.
    ///
    /// # Errors
    /// [`Kind::Capacity`] if too much that came is still waiting for the host: nothing was taken, and the same can be
    /// given again after [`EventKind::LinkResume`]. [`Kind::Closed`].
    pub fn received(&self, bytes: &[u8]) -> Result<(), Error> {
        let mover = self.mover()?;
        if mover.reading().refuses() {
            let message = format!("{self} takes nothing now: what came before waits for the host");
            return Err(Error::new(Kind::Capacity, message));
        }
        self.feed(|link| link.received(bytes))
    }

    /// So many bytes more, of those that the events [`EventKind::LinkSend`] had, have gone to the server. While more
    /// than 64 KiB have not, no more comes. What was not said to have gone by the time the link is
    /// [`closed`](Self::closed) counts as never sent, and may be sent again elsewhere.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if these are more than there are, and nothing happens; [`Kind::Closed`].
    pub fn sent(&self, bytes: u64) -> Result<(), Error> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.feed(|link| link.sent(bytes))
    }

    /// The link is closed, or could not be opened, and the text says why, for a person. The last word about it.
    ///
    /// `None` if it ended in good order. [`Kind::Config`] and [`Kind::Protocol`] mean that trying again cannot help,
    /// [`Kind::Auth`] that credentials are needed, [`Kind::Local`] that this side is at fault, which is no fault of the
    /// server's; any other, that it broke.
    ///
    /// # Errors
    /// [`Kind::Closed`] if it was closed before.
    pub fn closed(&self, why: Option<Kind>, text: &str) -> Result<(), Error> {
        let before = std::mem::replace(&mut *self.stage(), Stage::Over);
        if before == Stage::Over {
            return Err(self.over());
        }
        self.feed(|link| link.closed(self.end(why, text)))
    }

    fn end(&self, why: Option<Kind>, text: &str) -> error::Error {
        let kind = match why {
            Some(Kind::Config) => ErrorKind::Config,
            Some(Kind::Protocol) => ErrorKind::Protocol,
            Some(Kind::Auth) => ErrorKind::Auth,
            Some(Kind::Local) => ErrorKind::Local,
            Some(Kind::Timeout) => ErrorKind::Timeout,
            _ => ErrorKind::Transport,
        };
        let what = match (self.0.opened.load(Ordering::Relaxed), why) {
            (false, _) => "could not be opened by the host",
            (true, None) => "ended",
            (true, Some(_)) => "broke",
        };
        let said = if text.is_empty() { "" } else { ": " };
        let error = error::Error::new(kind, format!("the link {what}{said}{text}"));
        match why {
            None => error.with_cause(Cause::Routine),
            Some(_) => error,
        }
    }

    fn feed(&self, what: impl FnOnce(&HostLink) -> Result<(), NotTaken>) -> Result<(), Error> {
        let mover = self.mover()?;
        // What came may be answered by the library's own tasks.
        let _runtime = mover.runtime.enter();
        let link = mover.feed.get().ok_or_else(|| self.over())?;
        what(link).map_err(|not_taken| match not_taken {
            NotTaken::TooMuch { .. } => Error::new(Kind::Invalid, format!("{self}: {not_taken}")),
            _ => self.over(),
        })
    }

    fn mover(&self) -> Result<Arc<Mover>, Error> {
        self.0.mover.upgrade().ok_or_else(|| self.over())
    }

    fn over(&self) -> Error {
        Error::new(Kind::Closed, format!("{self} is closed"))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, kind: EventKind) -> Event {
        Event::of(kind, &self.0.whose.origin)
    }

    /// The process that the link was made in.
    #[cfg(feature = "capi")]
    pub(crate) fn process(&self) -> u32 {
        self.0.process
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the link {} to server \"{}\"",
            self.generation(),
            self.server()
        )
    }
}

impl fmt::Debug for Link {
    /// Without what the host says to itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("whose", &self.0.whose)
            .field("framing", &self.0.framing)
            .field("stage", &*self.stage())
            .finish_non_exhaustive()
    }
}

/// Makes an event of a link what it is at the time at which the host takes it. `false` if there is nothing to hear any
/// more.
pub(super) fn settle(event: &mut Event) -> bool {
    let link = match &mut event.kind {
        EventKind::LinkOpen(link) => {
            let mut stage = link.stage();
            if *stage != Stage::Unheard {
                return false;
            }
            *stage = Stage::Heard;
            drop(stage);
            link
        }
        EventKind::LinkSend(link, bytes) => match link.take() {
            Some(taken) => {
                *bytes = taken;
                link
            }
            None => return false,
        },
        EventKind::LinkClose(link) | EventKind::LinkResume(link) => {
            if *link.stage() == Stage::Over {
                return false;
            }
            link
        }
        _ => return true,
    };
    event.token = link.0.token.load(Ordering::Relaxed);
    true
}

impl Link {
    /// What is to be sent next, if it was not taken back meanwhile.
    fn take(&self) -> Option<Bytes> {
        let mover = self.mover().ok()?;
        let _runtime = mover.runtime.enter();
        mover.feed.get()?.take()
    }
}

/// Asks the host, by events.
struct Mover {
    link: Link,
    feed: OnceLock<HostLink>,
    reading: Mutex<Reading>,
    lane: Lane,
    queue: Arc<EventQueue>,
    runtime: Handle,
    links: Arc<Links>,
    id: u64,
}

/// Whether what the host feeds is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    Held,
    /// Held, and something was refused: the host waits for word.
    Refused,
}

impl Reading {
    fn refuses(&mut self) -> bool {
        if *self == Self::Held {
            *self = Self::Refused;
        }
        *self == Self::Refused
    }
}

impl Mover {
    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, kind: EventKind) {
        self.queue.push(self.lane, self.link.event(kind));
    }
}

impl HostIo for Mover {
    fn open(&self, link: HostLink) {
        let _ = self.feed.set(link);
        if *self.link.stage() == Stage::Over {
            self.cut();
        } else {
            self.say(EventKind::LinkOpen(self.link.clone()));
        }
    }

    fn send(&self, _link: &HostLink) {
        self.say(EventKind::LinkSend(self.link.clone(), Bytes::new()));
    }

    fn close(&self) {
        let before = {
            let mut stage = self.link.stage();
            let before = *stage;
            *stage = match before {
                Stage::Unheard => Stage::Over,
                Stage::Heard => Stage::AskedToClose,
                said => said,
            };
            before
        };
        match before {
            Stage::Heard => self.say(EventKind::LinkClose(self.link.clone())),
            // It is never asked to open what nobody wants any more, and so has nothing to close.
            Stage::Unheard => self.cut(),
            Stage::AskedToClose | Stage::Over => {}
        }
    }

    fn hold(&self, held: bool) {
        let now = if held { Reading::Held } else { Reading::On };
        let before = std::mem::replace(&mut *self.reading(), now);
        if before == Reading::Refused {
            self.say(EventKind::LinkResume(self.link.clone()));
        }
    }
}

impl Mover {
    /// Ends it without the host's word.
    fn cut(&self) {
        if let Some(link) = self.feed.get() {
            let why = error::Error::new(ErrorKind::Closed, "the link was closed");
            // It may be over already.
            let _ = link.closed(why);
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.links.registry().movers.remove(&self.id);
    }
}

/// The links of a client.
#[derive(Debug)]
pub(super) struct Links {
    queue: Arc<EventQueue>,
    runtime: Handle,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    movers: HashMap<u64, Weak<Mover>>,
    last_id: u64,
    closed: bool,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("movers", &self.movers.len())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Links {
    pub(super) fn new(queue: Arc<EventQueue>, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            queue,
            runtime,
            registry: Mutex::default(),
        })
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The transport of one session over a link, which the host is asked for when that starts.
    pub(super) fn transport(
        self: &Arc<Self>,
        config: &HostConfig,
        whose: Whose,
    ) -> Result<HostTransport, error::Error> {
        let mover = {
            let mut registry = self.registry();
            if registry.closed {
                return Err(error::Error::new(ErrorKind::Closed, "the client is closed"));
            }
            registry.last_id += 1;
            let id = registry.last_id;
            let mover = self.mover(config, whose, id);
            registry.movers.insert(id, Arc::downgrade(&mover));
            mover
        };
        Ok(HostTransport::new(mover, config.framing))
    }

    fn mover(self: &Arc<Self>, config: &HostConfig, whose: Whose, id: u64) -> Arc<Mover> {
        Arc::new_cyclic(|mover| Mover {
            feed: OnceLock::new(),
            reading: Mutex::new(Reading::On),
            lane: whose.lane,
            queue: self.queue.clone(),
            runtime: self.runtime.clone(),
            links: self.clone(),
            id,
            link: Link(Arc::new(About {
                whose,
                framing: config.framing,
                data: config.link.to_string(),
                token: AtomicU64::new(0),
                opened: AtomicBool::new(false),
                stage: Mutex::new(Stage::Unheard),
                #[cfg(feature = "capi")]
                process: std::process::id(),
                mover: mover.clone(),
            })),
        })
    }

    /// No link is opened any more, those among them that the host has not yet heard of.
    pub(super) fn open_none(&self) {
        let _runtime = self.runtime.enter();
        self.registry().closed = true;
        for mover in self.movers() {
            let unheard = *mover.link.stage() == Stage::Unheard;
            if unheard {
                mover.close();
            }
        }
    }

    /// Ends every link, and asks the host to close those that it was not asked to close yet.
    pub(super) fn close_all(&self) {
        let _runtime = self.runtime.enter();
        for mover in self.movers() {
            mover.close();
            mover.cut();
        }
    }

    fn movers(&self) -> Vec<Arc<Mover>> {
        let registry = self.registry();
        registry.movers.values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{super::origin::Origin, *};

    fn link(queue: &Arc<EventQueue>) -> (Arc<Links>, HostTransport) {
        let links = Links::new(queue.clone(), Handle::current());
        let config = HostConfig {
            framing: Framing::Bytes,
            link: Value::Null,
        };
        let whose = Whose {
            origin: Origin {
                domain: "domain".into(),
                server: "server".into(),
                scope: None,
            },
            generation: 1,
            lane: Lane(1),
        };
        let transport = links.transport(&config, whose).unwrap();
        (links, transport)
    }

    fn next(queue: &EventQueue) -> Option<Event> {
        std::iter::from_fn(|| queue.pop()).find_map(|mut event| settle(&mut event).then_some(event))
    }

    #[tokio::test]
    async fn a_link_that_was_given_up_before_the_host_heard_of_it_is_never_heard_of() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let (_links, transport) = link(&queue);
        let opening = mcp_transport::transport::Transport::start(&transport, Arc::new(Deaf));
        tokio::select! {
            biased;
            _ = opening => panic!("nobody opened it"),
            () = tokio::task::yield_now() => {}
        }
        assert!(queue.has_event());
        assert!(next(&queue).is_none());
    }

    #[tokio::test]
    async fn a_held_link_takes_nothing_until_it_says_that_it_does_again() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let (links, transport) = link(&queue);
        let mover = links.registry().movers[&1].upgrade().unwrap();
        mover.open(transport.link());
        let Some(EventKind::LinkOpen(link)) = next(&queue).map(|event| event.kind) else {
            panic!("it is asked for")
        };
        mover.hold(true);
        mover.hold(false);
        assert!(next(&queue).is_none(), "nothing was refused");
        mover.hold(true);
        assert_eq!(link.received(b"x").unwrap_err().kind, Kind::Capacity);
        mover.hold(false);
        link.received(b"x").unwrap();
        assert!(matches!(
            next(&queue).map(|event| event.kind),
            Some(EventKind::LinkResume(_))
        ));
    }

    #[tokio::test]
    async fn what_is_said_of_a_link_whose_transport_is_gone_is_refused() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let (links, transport) = link(&queue);
        let link = links.registry().movers[&1].upgrade().unwrap().link.clone();
        drop(transport);
        for said in [
            link.opened(),
            link.received(b"x"),
            link.sent(1),
            link.closed(None, ""),
            link.closed(None, ""),
        ] {
            assert_eq!(said.unwrap_err().kind, Kind::Closed);
        }
        assert!(links.registry().movers.is_empty());
    }

    #[derive(Debug)]
    struct Deaf;

    impl mcp_transport::transport::Receiver for Deaf {
        fn receive(&self, _: mcp_transport::transport::Incoming) {}
    }
}
