//! The gate that supervisors share.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    sync::{Notify, oneshot, watch},
    time::sleep_until,
};

use super::{clock::Clock, sentry::Sentry};
use crate::gate::{Gate, GateLimits, Ticket, Urgency};

/// A [`Gate`] for the supervisors of one client: give the same one to each in
/// [`Options::gate`](super::Options::gate). Every opening, home and scoped, then also waits its turn there.
///
/// Clones are the same gate.
#[derive(Clone)]
pub struct SharedGate(Arc<Inner>);

pub(super) struct Inner {
    clock: Clock,
    desk: Mutex<Desk>,
    /// Somebody came or went.
    changed: Notify,
    servers: AtomicU64,
    /// Counts how often everybody was told to check.
    checks: watch::Sender<u64>,
    /// A task watches for the machine's sleep.
    guarded: AtomicBool,
}

struct Desk {
    gate: Gate,
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
    /// A task watches the gate's time.
    watched: bool,
}

impl SharedGate {
    /// A gate that nobody waits at.
    pub fn new(limits: GateLimits) -> Self {
        Self(Arc::new(Inner {
            clock: Clock::start(),
            desk: Mutex::new(Desk {
                gate: Gate::new(limits),
                waiting: BTreeMap::new(),
                watched: false,
            }),
            changed: Notify::new(),
            servers: AtomicU64::new(0),
            checks: watch::Sender::new(0),
            guarded: AtomicBool::new(false),
        }))
    }

    /// How many openings wait before the gate.
    pub fn waiting(&self) -> usize {
        self.0.lock().gate.waiting()
    }

    /// How many openings count as in flight.
    pub fn in_flight(&self) -> usize {
        self.0.lock().gate.in_flight()
    }

    /// Connections may have died unseen, as after the network changed: every supervisor at this gate does as told by
    /// [`Supervisor::check`](super::Supervisor::check). Happens by itself when the machine slept.
    pub fn check_all(&self) {
        self.0.check_all();
    }

    /// Where a supervisor hears that it should check.
    pub(super) fn checks(&self) -> watch::Receiver<u64> {
        let checks = self.0.checks.subscribe();
        if !self.0.guarded.swap(true, Ordering::AcqRel) {
            tokio::spawn(Sentry(Arc::downgrade(&self.0)).run());
        }
        checks
    }

    /// A number for one more server.
    pub(super) fn server(&self) -> u64 {
        self.0.servers.fetch_add(1, Ordering::Relaxed)
    }

    /// In at once, if that is fair to those who wait.
    pub(super) fn try_pass(&self, server: u64, urgency: Urgency) -> Option<GatePass> {
        let mut desk = self.0.lock();
        let now = self.0.clock.now();
        if desk.gate.waiting() > 0 {
            return None;
        }
        let ticket = desk.gate.ask(now, server, urgency);
        let pass = GatePass {
            gate: Arc::clone(&self.0),
            ticket,
        };
        let admitted = desk.gate.poll(now) == Some(ticket);
        // A pass that is dropped gives its ticket back, and takes the lock for that.
        drop(desk);
        admitted.then_some(pass)
    }

    /// Waits for its turn. Dropped, the place is given up.
    pub(super) async fn pass(&self, server: u64, urgency: Urgency) -> GatePass {
        let ticket = {
            let mut desk = self.0.lock();
            desk.gate.ask(self.0.clock.now(), server, urgency)
        };
        let pass = GatePass {
            gate: Arc::clone(&self.0),
            ticket,
        };
        loop {
            let (admit, admitted) = oneshot::channel();
            let watch = {
                let mut desk = self.0.lock();
                // Its turn may have come while nobody listened.
                if !desk.gate.is_waiting(ticket) {
                    return pass;
                }
                desk.waiting.insert(ticket, admit);
                !std::mem::replace(&mut desk.watched, true)
            };
            if watch {
                let watch = Watch {
                    gate: Arc::clone(&self.0),
                    finished: false,
                };
                tokio::spawn(watch.run());
            } else {
                self.0.changed.notify_one();
            }
            // The watch may end with the runtime it was started on; then another takes over.
            if admitted.await.is_ok() {
                return pass;
            }
        }
    }
}

impl Inner {
    pub(super) fn check_all(&self) {
        self.checks.send_modify(|checks| *checks += 1);
    }

    pub(super) fn listeners(&self) -> usize {
        self.checks.receiver_count()
    }

    /// The task that watched for sleep has ended.
    pub(super) fn unguarded(&self) {
        self.guarded.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that lets in whose turn it is, for as long as somebody waits.
struct Watch {
    gate: Arc<Inner>,
    finished: bool,
}

impl Watch {
    async fn run(mut self) {
        let gate = Arc::clone(&self.gate);
        loop {
            let next = {
                let mut desk = gate.lock();
                let now = gate.clock.now();
                while let Some(ticket) = desk.gate.poll(now) {
                    if let Some(admit) = desk.waiting.remove(&ticket) {
                        let _ = admit.send(());
                    }
                }
                match desk.gate.timeout() {
                    Some(at) => gate.clock.instant(at),
                    None => {
                        desk.watched = false;
                        self.finished = true;
                        return;
                    }
                }
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = gate.changed.notified() => {}
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // If it was cut short with its runtime, those who wait hear that and one of them watches on.
        if !self.finished {
            let mut desk = self.gate.lock();
            desk.watched = false;
            desk.waiting.clear();
        }
    }
}

/// A place before the gate or behind it, given back when it is dropped.
#[must_use = "dropping it gives the place up"]
pub(super) struct GatePass {
    gate: Arc<Inner>,
    ticket: Ticket,
}

impl Drop for GatePass {
    fn drop(&mut self) {
        let mut desk = self.gate.lock();
        desk.waiting.remove(&self.ticket);
        desk.gate.leave(self.gate.clock.now(), self.ticket);
        drop(desk);
        self.gate.changed.notify_one();
    }
}

impl Default for SharedGate {
    fn default() -> Self {
        Self::new(GateLimits::default())
    }
}

impl fmt::Debug for SharedGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGate")
            .field("waiting", &self.waiting())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GatePass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatePass").field(&self.ticket).finish()
    }
}
