//! Who of a whole fleet may connect now.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

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
/// Thousand servers that come back together, or a laptop that wakes, are no reason for thousand processes or handshakes
/// at once. Connects that a call waits for go first, then reconnects, then probes; within each, servers take turns, and
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
    /// Servers in the order of their turns; one whose tickets were all withdrawn may still stand here, once.
    turns: VecDeque<u64>,
    tickets: BTreeMap<u64, VecDeque<Ticket>>,
    /// How often somebody more urgent was let in while someone waited here.
    passed_over: u32,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.tickets.values().all(VecDeque::is_empty)
    }

    fn push(&mut self, server: u64, ticket: Ticket) {
        let tickets = self.tickets.entry(server).or_insert_with(|| {
            self.turns.push_back(server);
            VecDeque::new()
        });
        tickets.push_back(ticket);
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
                return ticket;
            }
        }
        None
    }

    fn remove(&mut self, server: u64, ticket: Ticket) {
        if let Some(tickets) = self.tickets.get_mut(&server) {
            // An empty queue stays where its server's turn is and is cleared away there, so that asking anew costs
            // the server its turn no more than once and nothing is searched for.
            tickets.retain(|other| *other != ticket);
        }
    }
}
