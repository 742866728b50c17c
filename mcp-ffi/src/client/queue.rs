//! What waits for the host: one queue a server, taken in turn, so that a busy server delays no other.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::RawFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{
    event::{Event, EventKind},
    list::ListKind,
    waiting::{Taken, Waiting},
};
use crate::sys::EventFd;

/// The queue of a server, or [`Lane::CLIENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lane(pub(super) u64);

impl Lane {
    /// For what is about no single server.
    pub(super) const CLIENT: Self = Self(0);
}

#[derive(Debug)]
pub(super) struct EventQueue {
    state: Mutex<State>,
    fd: EventFd,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<Lane, Waiting<Entry>>,
    /// The lanes that are not empty, the next one first.
    turns: VecDeque<Lane>,
    /// The newest of each kind that only the newest is kept of.
    newest: HashMap<Latest, Event>,
    end: End,
    fd_is_used: bool,
    /// How often the descriptor was raised, or is about to be, and that was not read back.
    raised: u64,
}

/// Whoever put something into an empty queue raises the descriptor, after the lock was given back: it wakes the host,
/// which takes that very lock.
#[must_use = "the host waits for it"]
#[derive(Debug, PartialEq, Eq)]
enum Then {
    Raise,
    Nothing,
}

#[derive(Debug)]
enum Entry {
    One(Event),
    /// Whatever is the newest when it is taken.
    Latest(Latest),
}

/// Events of which a later one makes an earlier one worthless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Latest {
    Progress(u64),
    ServerState(Lane, u64),
    Session(u64),
    Catalogue(Lane, ListKind),
    Credentials(Lane),
}

#[derive(Debug, Default)]
enum End {
    #[default]
    Open,
    /// The last event waits for all others to be taken.
    Closing(Event),
    Closed,
}

impl EventQueue {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            fd: EventFd::new()?,
            arrived: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable while an event waits, and when none will come any more; from the first time that somebody asks for it, so that it costs a host nothing
    /// that does not.
    pub(super) fn fd(&self) -> RawFd {
        let mut state = self.state();
        if !state.fd_is_used {
            state.fd_is_used = true;
            if !state.is_empty() || matches!(state.end, End::Closed) {
                state.raised += 1;
                self.fd.raise();
            }
        }
        self.fd.as_raw_fd()
    }

    /// Adds an event. One that comes after [`EventQueue::end`] is dropped.
    pub(super) fn push(&self, lane: Lane, event: Event) {
        drop(self.put(lane, event));
    }

    /// As [`push`](Self::push). Gives the event that makes way, for whoever holds a lock: with it may go what held up
    /// its server, which is read on then and there.
    #[must_use = "it is to be dropped outside of every lock"]
    pub(super) fn put(&self, lane: Lane, event: Event) -> Option<Event> {
        let (gone, then) = self.add(lane, event);
        self.follow(then);
        gone
    }

    fn add(&self, lane: Lane, event: Event) -> (Option<Event>, Then) {
        let mut state = self.state();
        if !matches!(state.end, End::Open) {
            return (Some(event), Then::Nothing);
        }
        let was_empty = state.is_empty();
        let gone = state.push(lane, event);
        (gone, self.announce(&mut state, was_empty))
    }

    /// Takes a server's request out again, if it was not taken yet.
    pub(super) fn take_back(&self, lane: Lane, id: u64) -> Option<Event> {
        let mut state = self.state();
        let event = state.take_back(lane, id)?;
        self.hush_if_empty(&mut state);
        Some(event)
    }

    /// Adds the last event.
    pub(super) fn end(&self, event: Event) {
        let mut state = self.state();
        if !matches!(state.end, End::Open) {
            return;
        }
        let was_empty = state.is_empty();
        state.end = End::Closing(event);
        let then = self.announce(&mut state, was_empty);
        self.arrived.notify_waiters();
        drop(state);
        self.follow(then);
    }

    fn announce(&self, state: &mut State, was_empty: bool) -> Then {
        if !was_empty {
            return Then::Nothing;
        }
        self.arrived.notify_waiters();
        if !state.fd_is_used {
            return Then::Nothing;
        }
        state.raised += 1;
        Then::Raise
    }

    fn follow(&self, then: Then) {
        if then == Then::Raise {
            self.fd.raise();
            // What was announced may have been taken before.
            self.hush_if_empty(&mut self.state());
        }
    }

    pub(super) fn pop(&self) -> Option<Event> {
        let mut state = self.state();
        let event = state.pop();
        // Also where there is none: whoever raised it late may not come to hushing it while the host asks in vain.
        self.hush_if_empty(&mut state);
        event
    }

    /// With the lock held, so that what is announced meanwhile is not hushed with it. At its end it stays readable, as a
    /// stream does: a host that polls it for ever after is told so by whatever it calls then.
    fn hush_if_empty(&self, state: &mut State) {
        if state.raised > 0 && state.is_empty() && !matches!(state.end, End::Closed) {
            state.raised -= self.fd.clear();
        }
    }

    /// The last event was taken: nothing will come any more.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state().end, End::Closed)
    }

    pub(super) fn has_event(&self) -> bool {
        !self.state().is_empty()
    }

    /// Completes once the last event is in the queue, or was taken.
    pub(super) async fn ended(&self) {
        self.until(|state| !matches!(state.end, End::Open)).await;
    }

    /// Completes once an event waits, or none will come any more.
    pub(super) async fn ready(&self) {
        self.until(|state| !state.is_empty() || matches!(state.end, End::Closed))
            .await;
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let mut arrived = std::pin::pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if holds(&self.state()) {
                return;
            }
            arrived.await;
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.turns.is_empty() && !matches!(self.end, End::Closing(_))
    }

    /// Gives the event that made way for this one, if one did.
    fn push(&mut self, lane: Lane, event: Event) -> Option<Event> {
        let latest = match &event.kind {
            EventKind::Progress(_) => Some(Latest::Progress(event.id)),
            EventKind::ServerState(status) => Some(Latest::ServerState(lane, status.generation)),
            EventKind::Session(news) => Some(Latest::Session(news.session_id)),
            EventKind::CatalogueChanged(list) => Some(Latest::Catalogue(lane, *list)),
            EventKind::CredentialsNeeded(_) => Some(Latest::Credentials(lane)),
            _ => None,
        };
        if let Some(latest) = latest {
            let before = self.newest.insert(latest, event);
            if before.is_none() {
                self.lane(lane).keep(Entry::Latest(latest));
            }
            return before;
        }
        match &event.kind {
            EventKind::Log(_) | EventKind::ResourceUpdated(_) | EventKind::Notification { .. } => {
                self.lane(lane).add(event)
            }
            _ => {
                self.lane(lane).keep(Entry::One(event));
                None
            }
        }
    }

    /// For adding to it.
    fn lane(&mut self, lane: Lane) -> &mut Waiting<Entry> {
        self.lanes.entry(lane).or_insert_with(|| {
            self.turns.push_back(lane);
            Waiting::default()
        })
    }

    fn take_back(&mut self, lane: Lane, id: u64) -> Option<Event> {
        let waiting = self.lanes.get_mut(&lane)?;
        let entry = waiting.take_back(|entry| {
            matches!(entry, Entry::One(event)
                if event.id == id && matches!(event.kind, EventKind::Request { .. }))
        })?;
        if waiting.is_empty() {
            self.lanes.remove(&lane);
            self.turns.retain(|turn| *turn != lane);
        }
        match entry {
            Entry::One(event) => Some(event),
            Entry::Latest(_) => None,
        }
    }

    fn pop(&mut self) -> Option<Event> {
        let Some(lane) = self.turns.pop_front() else {
            return match std::mem::take(&mut self.end) {
                End::Open => None,
                End::Closing(event) => {
                    self.end = End::Closed;
                    Some(event)
                }
                End::Closed => {
                    self.end = End::Closed;
                    None
                }
            };
        };
        let waiting = self.lanes.get_mut(&lane)?;
        let taken = waiting.take()?;
        if waiting.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        match taken {
            Taken::Event(event) | Taken::Kept(Entry::One(event)) => Some(event),
            Taken::Kept(Entry::Latest(latest)) => self.newest.remove(&latest),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        thread,
        time::{Duration, Instant},
    };

    use bytes::Bytes;
    use tokio::{
        io::{Interest, unix::AsyncFd},
        time::timeout,
    };

    use super::*;
    use crate::sys::is_readable;

    fn queue() -> EventQueue {
        EventQueue::new().unwrap()
    }

    fn event(id: u64, kind: EventKind) -> Event {
        Event {
            kind,
            id,
            token: 0,
            server: "server".into(),
            domain: "".into(),
            scope: None,
            context: None,
            held: None,
        }
    }

    fn request(id: u64) -> Event {
        let kind = EventKind::Request {
            kind: mcp_transport::session::ServerRequestKind::Roots,
            params: Bytes::new(),
        };
        event(id, kind)
    }

    fn failure(id: u64) -> Event {
        event(id, EventKind::Error(crate::client::Error::closed()))
    }

    fn ids(queue: &EventQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop())
            .map(|event| event.id)
            .collect()
    }

    #[test]
    fn servers_are_served_in_turn_and_each_in_order() {
        let queue = queue();
        for id in 1..=3 {
            queue.push(Lane(1), failure(id));
        }
        queue.push(Lane(2), failure(4));
        assert_eq!(ids(&queue), [1, 4, 2, 3]);
    }

    #[test]
    fn of_a_calls_progress_the_newest_is_kept_and_it_comes_before_the_end() {
        let queue = queue();
        queue.push(
            Lane(1),
            event(7, EventKind::Progress(Bytes::from_static(b"1"))),
        );
        queue.push(
            Lane(1),
            event(7, EventKind::Progress(Bytes::from_static(b"2"))),
        );
        queue.push(Lane(1), failure(7));
        let Some(EventKind::Progress(newest)) = queue.pop().map(|event| event.kind) else {
            panic!("progress comes first");
        };
        assert_eq!(newest, "2");
        assert_eq!(ids(&queue), [7]);
    }

    #[test]
    fn a_request_that_was_not_taken_can_be_taken_back() {
        let queue = queue();
        queue.push(Lane(1), request(1));
        assert!(queue.take_back(Lane(1), 1).is_some());
        assert!(!queue.has_event());
        assert!(queue.take_back(Lane(1), 1).is_none());
        for id in 2..=4 {
            queue.push(Lane(1), request(id));
        }
        queue.push(Lane(2), failure(5));
        assert_eq!(queue.take_back(Lane(1), 3).map(|event| event.id), Some(3));
        // A call's end is no request, whatever its id.
        assert!(queue.take_back(Lane(2), 5).is_none());
        assert_eq!(ids(&queue), [2, 5, 4]);
    }

    #[test]
    fn the_last_event_comes_after_all_others_and_nothing_after_it() {
        let queue = queue();
        queue.push(Lane(1), failure(1));
        queue.end(event(0, EventKind::Closed));
        queue.push(Lane(1), failure(2));
        assert_eq!(ids(&queue), [1, 0]);
        assert!(queue.is_closed());
        queue.push(Lane(1), failure(3));
        assert_eq!(ids(&queue), [0; 0]);
    }

    #[test]
    fn the_descriptor_tells_what_waits_also_of_before_it_was_asked_for() {
        let queue = queue();
        queue.push(Lane(1), failure(1));
        let fd = queue.fd();
        assert!(is_readable(fd));
        queue.pop();
        assert!(!is_readable(fd));
        queue.push(Lane(1), failure(2));
        assert!(is_readable(queue.fd()));
        assert_eq!(ids(&queue), [2]);
        assert!(!is_readable(fd));
    }

    #[test]
    fn an_event_that_was_taken_before_the_descriptor_told_of_it_leaves_it_silent() {
        let queue = queue();
        let fd = queue.fd();
        let (_, late) = queue.add(Lane(1), failure(1));
        assert_eq!(ids(&queue), [1]);
        // Another comes and goes meanwhile.
        queue.push(Lane(1), failure(2));
        assert!(is_readable(fd));
        assert_eq!(ids(&queue), [2]);
        assert!(!is_readable(fd));
        queue.follow(late);
        assert!(!is_readable(fd));
        // And one that stays is told of, whoever is late.
        let (_, late) = queue.add(Lane(1), failure(3));
        assert_eq!(ids(&queue), [3]);
        queue.push(Lane(1), failure(4));
        queue.follow(late);
        assert!(is_readable(fd));
        assert_eq!(ids(&queue), [4]);
        assert!(!is_readable(fd));
    }

    #[test]
    fn a_host_that_finds_nothing_is_not_called_again_for_it() {
        let queue = queue();
        let fd = queue.fd();
        let (_, late) = queue.add(Lane(1), failure(1));
        assert_eq!(ids(&queue), [1]);
        // Who announced it is held up between its two steps.
        queue.fd.raise();
        assert!(is_readable(fd));
        assert!(queue.pop().is_none());
        assert!(!is_readable(fd));
        queue.push(Lane(1), failure(2));
        assert!(is_readable(fd));
        queue.hush_if_empty(&mut queue.state());
        assert!(is_readable(fd), "it tells of the second");
        assert_eq!(ids(&queue), [2]);
        assert!(!is_readable(fd));
        assert_eq!(late, Then::Raise);
    }

    const PRODUCERS: u64 = 4;
    const EACH: u64 = 5000;

    /// Each by a thread of its own, with a breath now and then, so that the host finds the queue empty again and again.
    fn produce(queue: &Arc<EventQueue>) -> Vec<thread::JoinHandle<()>> {
        let produce = |lane: u64, queue: Arc<EventQueue>| {
            for id in 0..EACH {
                queue.push(Lane(lane), failure(id));
                if id % 7 == lane {
                    thread::yield_now();
                }
            }
        };
        (1..=PRODUCERS)
            .map(|lane| (lane, queue.clone()))
            .map(|(lane, queue)| thread::spawn(move || produce(lane, queue)))
            .collect()
    }

    #[tokio::test]
    // What takes its place is unsafe, and the descriptor is the queue's, which lives longer. Older tokio has no other.
    #[allow(deprecated)]
    async fn a_host_that_is_told_of_edges_alone_misses_no_event() {
        let queue = Arc::new(queue());
        let edges = AsyncFd::with_interest(queue.fd(), Interest::READABLE).unwrap();
        let producers = produce(&queue);
        let mut taken = 0;
        while taken < PRODUCERS * EACH {
            let edge = timeout(Duration::from_secs(60), edges.readable());
            let mut edge = edge.await.expect("an edge was missed").unwrap();
            edge.clear_ready();
            taken += ids(&queue).len() as u64;
        }
        for producer in producers {
            producer.join().unwrap();
        }
        assert!(!is_readable(queue.fd()));
        assert_eq!(queue.state().raised, 0);
    }

    #[test]
    fn a_host_that_takes_one_event_whenever_the_descriptor_is_readable_takes_them_all() {
        let queue = Arc::new(queue());
        let fd = queue.fd();
        let producers = produce(&queue);
        let begun = Instant::now();
        let mut taken = 0;
        while taken < PRODUCERS * EACH {
            assert!(begun.elapsed() < Duration::from_secs(60), "{taken}");
            if is_readable(fd) {
                taken += u64::from(queue.pop().is_some());
            }
        }
        for producer in producers {
            producer.join().unwrap();
        }
        assert!(!is_readable(fd));
        assert_eq!(queue.state().raised, 0);
    }

    #[test]
    fn the_descriptor_stays_readable_once_the_last_event_was_taken() {
        let end = || event(0, EventKind::Closed);
        let queue = queue();
        let fd = queue.fd();
        queue.push(Lane(1), failure(1));
        queue.end(end());
        assert_eq!(ids(&queue), [1, 0]);
        assert!(queue.is_closed() && is_readable(fd));
        assert!(queue.pop().is_none());
        assert!(is_readable(fd));
        // Also for whoever asks for it only then.
        let queue = EventQueue::new().unwrap();
        queue.end(end());
        assert_eq!(ids(&queue), [0]);
        assert!(is_readable(queue.fd()));
    }

    #[tokio::test]
    async fn ready_completes_when_an_event_arrives() {
        let queue = queue();
        let (_, ()) = tokio::join!(queue.ready(), async { queue.push(Lane(1), failure(1)) });
        queue.ready().await;
    }
}
