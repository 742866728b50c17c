//! A binding's place at the gate that the bindings of a client share.

use super::gate::{GatePass, SharedGate};
use crate::{gate::Urgency, openings::Side};

/// Where openings pass the gate, if there is one: the home session's and the scoped ones each queue by themselves, one
/// at a time.
pub(super) struct Place {
    gate: Option<(SharedGate, u64)>,
    home: Turn,
    scoped: Turn,
}

#[derive(Default)]
struct Turn {
    /// How urgently it should be queued for.
    asks: Option<Urgency>,
    pass: Option<GatePass>,
}

impl Place {
    pub(super) fn new(gate: Option<&SharedGate>) -> Self {
        Self {
            gate: gate.map(|gate| (gate.clone(), gate.server())),
            home: Turn::default(),
            scoped: Turn::default(),
        }
    }

    /// The gate, and the binding's number there.
    pub(super) fn gate(&self) -> Option<(SharedGate, u64)> {
        self.gate.clone()
    }

    /// An opening is due: whether it may begin now, and what it holds meanwhile. `None`: it has to queue.
    pub(super) fn enter(&mut self, side: Side, urgency: Urgency) -> Option<Option<GatePass>> {
        let Some((gate, server)) = &self.gate else {
            return Some(None);
        };
        let server = *server;
        let turn = match side {
            Side::Home => &mut self.home,
            Side::Scoped => &mut self.scoped,
        };
        let pass = match turn.pass.take() {
            Some(pass) => Some(pass),
            // While it queues already its own ticket stands before it.
            None if turn.asks.is_some() => None,
            None => gate.try_pass(server, urgency),
        };
        turn.asks = pass.is_none().then_some(urgency);
        pass.map(Some)
    }

    /// No opening is due.
    pub(super) fn refrain(&mut self, side: Side) {
        *self.turn(side) = Turn::default();
    }

    /// Its turn came.
    pub(super) fn admitted(&mut self, side: Side, pass: GatePass) {
        self.turn(side).pass = Some(pass);
    }

    /// How urgently it should be queued for.
    pub(super) fn asks(&self, side: Side) -> Option<Urgency> {
        match side {
            Side::Home => self.home.asks,
            Side::Scoped => self.scoped.asks,
        }
    }

    fn turn(&mut self, side: Side) -> &mut Turn {
        match side {
            Side::Home => &mut self.home,
            Side::Scoped => &mut self.scoped,
        }
    }
}
