//! The fleet under a budget for each server and one gate for all.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Instant,
};

use mcp_budget::{Action, Budget, Cause, Gate, GateLimits, Outlook, Policy, Ticket, Urgency};

use crate::{
    score::Score,
    world::{Fate, Millis, SERVERS, YEAR, connect, millis, next_call, stamp, takes},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The budget may want something.
    Due,
    /// The gate may let somebody in.
    Gate,
    /// An attempt came to its end.
    Attempted(u64, Ticket, bool),
    /// A call was answered.
    Answered(u64),
    Lost(u64),
    /// Somebody calls a server that is not connected.
    Call,
    /// And waits no longer.
    Hangup,
}

struct Server {
    budget: Budget,
    queued: Option<(Ticket, Urgency)>,
    due: Millis,
    calls: u64,
    calling: bool,
    fate: Fate,
}

struct Fleet {
    now: Millis,
    servers: Vec<Server>,
    gate: Gate,
    tickets: HashMap<Ticket, u32>,
    gate_at: Millis,
    events: BinaryHeap<Reverse<(Millis, u32, Event)>>,
    score: Score,
}

pub(crate) fn run() -> Score {
    let begun = Instant::now();
    let server = |n: u32| {
        let mut budget = Budget::new(Policy::default(), u64::from(n));
        budget.keep_open(stamp(0), true);
        Server {
            budget,
            queued: None,
            due: Millis::MAX,
            calls: 0,
            calling: false,
            fate: Fate::Refuses,
        }
    };
    let mut fleet = Fleet {
        now: 0,
        servers: (0..SERVERS).map(server).collect(),
        gate: Gate::new(GateLimits::default()),
        tickets: HashMap::new(),
        gate_at: Millis::MAX,
        events: BinaryHeap::new(),
        score: Score::new("budget and gate"),
    };
    for server in 0..SERVERS {
        fleet.settle(server);
    }
    while let Some(Reverse((now, server, event))) = fleet.events.pop() {
        if now >= YEAR {
            break;
        }
        fleet.now = now;
        fleet.happens(server, event);
    }
    fleet.score.end();
    fleet.score.real_time = begun.elapsed();
    fleet.score
}

impl Fleet {
    fn after(&mut self, wait: Millis, server: u32, event: Event) {
        self.events.push(Reverse((self.now + wait, server, event)));
    }

    fn happens(&mut self, n: u32, event: Event) {
        let now = stamp(self.now);
        let server = &mut self.servers[n as usize];
        match event {
            Event::Gate => {
                self.gate_at = Millis::MAX;
                return self.admit();
            }
            Event::Due => server.due = Millis::MAX,
            Event::Attempted(generation, ticket, opened) => {
                self.gate.leave(now, ticket);
                if opened {
                    server.budget.opened(now, generation);
                    self.opened(n, generation);
                } else {
                    server.budget.lost(now, generation, Cause::Transient.into());
                    self.score.lost(n, self.now);
                }
                self.admit();
            }
            Event::Answered(generation) => {
                server.budget.proven(now, generation);
            }
            Event::Lost(generation) => {
                if server.budget.lost(now, generation, Cause::Transient.into()) {
                    self.score.lost(n, self.now);
                    self.call_later(n);
                }
            }
            Event::Call => match server.budget.outlook(now) {
                Outlook::Open { .. } | Outlook::Stopped => server.calling = false,
                Outlook::Parked(_) => {
                    server.budget.knock(now);
                    server.calling = false;
                    self.call_later(n);
                }
                Outlook::Connecting | Outlook::Waiting(_) => {
                    server.budget.attend(now, true);
                    self.after(30_000, n, Event::Hangup);
                }
            },
            Event::Hangup => {
                server.budget.attend(now, false);
                server.calling = false;
                if !matches!(server.budget.outlook(now), Outlook::Open { .. }) {
                    self.call_later(n);
                }
            }
        }
        self.settle(n);
    }

    fn opened(&mut self, n: u32, generation: u64) {
        let server = &mut self.servers[n as usize];
        server.calls += 1;
        let call = next_call(n, server.calls);
        let (lives, answers) = match server.fate {
            Fate::Serves { until } => (until.saturating_sub(self.now), Some(call)),
            Fate::DiesYoung => (30_000, Some(1_000)),
            _ => (2_000, None),
        };
        if let Some(call) = answers {
            self.score.serves(n, self.now);
            if call < lives {
                self.after(call, n, Event::Answered(generation));
            }
        }
        self.after(lives, n, Event::Lost(generation));
    }

    fn call_later(&mut self, n: u32) {
        let server = &mut self.servers[n as usize];
        if !server.calling {
            server.calling = true;
            server.calls += 1;
            let wait = next_call(n, server.calls);
            self.after(wait, n, Event::Call);
        }
    }

    /// Draws the consequences for one server.
    fn settle(&mut self, n: u32) {
        let now = stamp(self.now);
        let server = &mut self.servers[n as usize];
        let urgency = server.budget.due(now);
        if server.queued.map(|(_, urgency)| urgency) != urgency {
            if let Some((ticket, _)) = server.queued.take() {
                self.gate.leave(now, ticket);
                self.tickets.remove(&ticket);
            }
            if let Some(urgency) = urgency {
                let ticket = self.gate.ask(now, u64::from(n), urgency);
                server.queued = Some((ticket, urgency));
                self.tickets.insert(ticket, n);
                self.admit();
            }
        } else if urgency.is_none() {
            while let Some(Action::Probe { generation }) = server.budget.poll(now) {
                server.budget.proven(now, generation);
            }
            if let Some(at) = server.budget.timeout() {
                let at = millis(at).max(self.now);
                if at < server.due {
                    server.due = at;
                    self.events.push(Reverse((at, n, Event::Due)));
                }
            }
        }
    }

    /// Lets in who may.
    fn admit(&mut self) {
        let now = stamp(self.now);
        while let Some(ticket) = self.gate.poll(now) {
            let Some(n) = self.tickets.remove(&ticket) else {
                continue;
            };
            let server = &mut self.servers[n as usize];
            server.queued = None;
            let Some(Action::Connect(attempt)) = server.budget.poll(now) else {
                self.gate.leave(now, ticket);
                continue;
            };
            self.score.attempt(n, self.now);
            let fate = connect(n, self.now);
            server.fate = fate;
            let opens = !matches!(fate, Fate::Refuses | Fate::Hangs);
            let done = Event::Attempted(attempt.generation, ticket, opens);
            let takes = takes(n, fate, self.now);
            self.after(takes, n, done);
        }
        if let Some(at) = self.gate.timeout() {
            let at = millis(at).max(self.now);
            if at < self.gate_at {
                self.gate_at = at;
                self.events.push(Reverse((at, 0, Event::Gate)));
            }
        }
    }
}
