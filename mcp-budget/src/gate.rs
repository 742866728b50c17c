//! Who of a whole fleet may connect now.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::time::Timestamp;

/// The constants of a [`Gate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateLimits {
    /// Connects in flight at a time, at least 1. Default 16.
    pub in_flight: u32,
    /// Connects that begin per second, at least 1. Default 20.
    pub per_second: u32,
    /// Connects that may begin at once after a quiet time, at least 1. Default 16.
    pub burst: u32,
    /// For how long at most a connect counts as in flight. After that the rate alone holds, so that servers that hang
    /// hold up nobody. Default 5 s.
    pub counted_for: Duration,
    /// How often others may be let in before somebody of lesser urgency who waits: the next goes to him. Default 16.
    pub passed_over: u32,
}

impl Default for GateLimits {
    fn default() -> Self {
        Self {
            in_flight: 16,
            per_second: 20,
            burst: 16,
            counted_for: Duration::from_secs(5),
            passed_over: 16,
        }
    }
}

/// How much depends on a connect, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Urgency {
    /// A call waits for it.
    Awaited,
    /// A session that was there is to be there again.
    Reconnect,
    /// To see whether it would work: the probe of a parked binding, a check after the machine slept.
    Probe,
}

/// A place before the gate, and then behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Bounds how many connects of a fleet are in flight and how many begin per second.
///
/// A thousand servers that come back together, or a laptop that wakes, are no reason for a thousand handshakes at once. Connects that a call waits for go first, then reconnects, then probes; within each, servers take turns, and
/// the tickets of one server keep their order. Whoever is less urgent waits, but is not passed over for ever.
///
/// One for each client, shared by all its bindings. It has no clock: ask for a ticket, then take from
/// [`poll`](Self::poll) whose turn it is, until that answers `None`, and again at [`timeout`](Self::timeout). Every
/// ticket must be given back with [`leave`](Self::leave), whether its turn came or not.
///
/// ```
/// use mcp_budget::{Gate, GateLimits, Timestamp, Urgency};
///
/// let mut gate = Gate::new(GateLimits::default());
/// let now = Timestamp::ZERO;
/// let probe = gate.ask(now, 1, Urgency::Probe);
/// let awaited = gate.ask(now, 2, Urgency::Awaited);
/// assert_eq!(gate.poll(now), Some(awaited));
/// assert_eq!(gate.poll(now), Some(probe));
/// gate.leave(now, awaited); // the connect has ended, or nobody wants it any more
/// ```
#[derive(Debug, Clone)]
pub struct Gate {
    limits: GateLimits,
    now: Timestamp,
    last_ticket: u64,
    queues: [Queue; 3],
    /// Where those stand who wait.
    waiting: BTreeMap<Ticket, (Urgency, u64)>,
    /// Who was let in and until when that counts, in the order of both.
    inside: VecDeque<(Timestamp, Ticket)>,
    /// When a whole burst may be let in again.
    full_at: Timestamp,
}

/// Those of one urgency.
#[derive(Debug, Clone, Default)]
struct Queue {
    /// Servers in the order of their turns; one whose tickets were all withdrawn still stands here, once.
    turns: VecDeque<u64>,
    tickets: BTreeMap<u64, VecDeque<Ticket>>,
    len: usize,
    /// How often somebody more urgent was let in while someone waited here.
    passed_over: u32,
}

impl Queue {
    fn push(&mut self, server: u64, ticket: Ticket) {
        let turns = &mut self.turns;
        let tickets = self.tickets.entry(server).or_insert_with(|| {
            turns.push_back(server);
            VecDeque::new()
        });
        tickets.push_back(ticket);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Ticket> {
        while let Some(server) = self.turns.pop_front() {
            let Some(tickets) = self.tickets.get_mut(&server) else {
                continue;
            };
            let ticket = tickets.pop_front();
            if tickets.is_empty() {
                self.tickets.remove(&server);
            } else {
                self.turns.push_back(server);
            }
            if ticket.is_some() {
                self.len -= 1;
                self.passed_over = 0;
                return ticket;
            }
        }
        None
    }

    fn remove(&mut self, server: u64, ticket: Ticket) {
        // The server keeps its turn, which is not searched for.
        if let Some(tickets) = self.tickets.get_mut(&server) {
            let before = tickets.len();
            tickets.retain(|other| *other != ticket);
            self.len -= before - tickets.len();
        }
        if self.len == 0 {
            self.turns.clear();
            self.tickets.clear();
        }
    }
}

impl Gate {
    /// A gate that nobody waits at.
    pub fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            now: Timestamp::ZERO,
            last_ticket: 0,
            queues: Default::default(),
            waiting: BTreeMap::new(),
            inside: VecDeque::new(),
            full_at: Timestamp::ZERO,
        }
    }

    /// The limits.
    pub fn limits(&self) -> &GateLimits {
        &self.limits
    }

    /// A server wants to connect. Servers are told apart by any number of the caller's.
    pub fn ask(&mut self, now: Timestamp, server: u64, urgency: Urgency) -> Ticket {
        self.advance(now);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.queues[urgency as usize].push(server, ticket);
        self.waiting.insert(ticket, (urgency, server));
        ticket
    }

    /// Whose turn it is now; ask until it is `None`.
    pub fn poll(&mut self, now: Timestamp) -> Option<Ticket> {
        let now = self.advance(now);
        if self.waiting.is_empty() || self.opens_at() > now {
            return None;
        }
        let next = self.next();
        let ticket = self.queues[next].pop()?;
        self.waiting.remove(&ticket);
        for queue in &mut self.queues[next + 1..] {
            if queue.len > 0 {
                queue.passed_over = queue.passed_over.saturating_add(1);
            }
        }
        self.inside
            .push_back((now.plus(self.limits.counted_for), ticket));
        self.full_at = self.full_at.max(now).plus(self.interval());
        Some(ticket)
    }

    /// The ticket is given back: the connect has ended, well or badly, or is not wanted any more. More than once does
    /// no harm.
    pub fn leave(&mut self, now: Timestamp, ticket: Ticket) {
        self.advance(now);
        if let Some((urgency, server)) = self.waiting.remove(&ticket) {
            self.queues[urgency as usize].remove(server, ticket);
        } else {
            self.inside.retain(|(_, other)| *other != ticket);
        }
    }

    /// When to ask [`poll`](Self::poll) again if nothing happens before; it may have passed. `None`: nobody waits.
    pub fn timeout(&self) -> Option<Timestamp> {
        (!self.waiting.is_empty()).then(|| self.opens_at())
    }

    /// Whether the ticket's turn is still to come.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// How many wait before the gate.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many count as in flight.
    pub fn in_flight(&self) -> usize {
        self.inside.len()
    }

    /// When the next may be let in, if nobody leaves before.
    fn opens_at(&self) -> Timestamp {
        let burst = self.interval() * (self.limits.burst.max(1) - 1);
        let by_rate = self.full_at.minus(burst);
        let most = self.limits.in_flight.max(1) as usize;
        match self.inside.len().checked_sub(most) {
            // So many of those inside must have stopped counting.
            Some(over) => by_rate.max(self.inside[over].0),
            None => by_rate,
        }
    }

    /// The most urgent queue, unless another was passed over too often.
    fn next(&self) -> usize {
        let tired = |queue: &Queue| queue.len > 0 && queue.passed_over >= self.limits.passed_over;
        let tired = self.queues.iter().rposition(tired);
        let first = || self.queues.iter().position(|queue| queue.len > 0);
        tired.or_else(first).unwrap_or(0)
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.limits.per_second.max(1)
    }

    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        while self
            .inside
            .front()
            .is_some_and(|(until, _)| *until <= self.now)
        {
            self.inside.pop_front();
        }
        self.now
    }
}
