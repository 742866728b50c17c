//! Who waits for room, and whose turn it is.
//!
//! A creation that waits for a slot is a node like any other creation, so that it is joined, closed, rebound and given
//! up in the same ways; it stands in the queue of its server besides. Of the servers that could use a slot that any
//! other leaves, the one whose first in the queue came first is served. So those who wait are served in order of
//! arrival among those whom a slot can serve, and finding them takes no search.

use crate::{
    event::{Event, Why},
    key::{PoolKey, SessionId},
    registry::{Full, Notice, Refusal, Registry, TurnId},
    slab::List,
};

/// A wait for a place on a session.
pub(super) struct Turn {
    pub(super) id: TurnId,
    node: u32,
}

/// Links of the turns of one session.
pub(super) const TURNS: usize = 0;

impl<K: PoolKey, O, S> Registry<K, O, S> {
    /// What became of somebody who waited, in order. To be asked after everything that may have made room, until there
    /// is nothing left.
    pub fn next_notice(&mut self) -> Option<Notice> {
        while let Some(notice) = self.notices.pop_front() {
            match notice {
                // It may have left again since.
                Notice::Open(id) if self.opening_slot(id).is_none() => {}
                notice => return Some(notice),
            }
        }
        None
    }

    /// Whether the creation still waits for a slot.
    pub fn is_queued(&self, id: SessionId) -> bool {
        self.slot(id).is_some_and(|slot| self.nodes[slot].queued)
    }

    /// Whether [`next_notice`](Self::next_notice) or [`next_event`](Self::next_event) has something.
    pub fn has_news(&self) -> bool {
        !(self.notices.is_empty() && self.events.is_empty())
    }

    /// Somebody who waits for this creation would rather be refused now than wait for a slot (any longer). Returns the
    /// refusal if it is a slot that it waits for; else it goes on, and will not wait for a slot again.
    pub fn lose_patience(&mut self, id: SessionId) -> Option<Refusal> {
        let slot = self.opening_slot(id)?;
        let node = &mut self.nodes[slot];
        if !node.queued {
            node.patient = false;
            return None;
        }
        let refusal = self.has_room(self.nodes[slot].binding).err();
        self.tally.refused += 1;
        if self.observed {
            let key = self.nodes[slot].key.clone();
            self.tell(|| Event::Refused { key });
        }
        Some(refusal.unwrap_or_else(|| Refusal::Full(self.full())))
    }

    /// Waits no more for a place on a session. `false` if the notice was given already, to be taken yet or not.
    pub fn cancel_turn(&mut self, turn: TurnId) -> bool {
        let Some(waiting) = self.turns.get(turn.slot).filter(|it| it.id == turn) else {
            return false;
        };
        let node = waiting.node;
        self.nodes[node].turns.remove(&mut self.turns, turn.slot);
        self.turns.remove(turn.slot);
        true
    }

    /// A wait for a place on a session was over before there was one.
    pub fn count_overdue_turn(&mut self) {
        self.tally.saturated += 1;
    }

    pub(super) fn wait_turn(&mut self, slot: u32) -> TurnId {
        self.tally.waited += 1;
        self.turn_serial += 1;
        let id = TurnId {
            serial: self.turn_serial,
            slot: self.turns.next_slot(),
        };
        let turn = self.turns.insert(Turn { id, node: slot });
        self.nodes[slot].turns.push_back(&mut self.turns, turn);
        id
    }

    /// Gives the places of this session that are free to those who wait for one. It is not among the idle ones, also if
    /// its last call ended just now.
    pub(super) fn give_turns(&mut self, slot: u32) {
        while let Some(turn) = self.nodes[slot].turns.front() {
            if self.has_place(slot).is_err() {
                return;
            }
            self.nodes[slot].turns.remove(&mut self.turns, turn);
            let turn = self.turns.remove(turn).expect("a turn that was listed");
            let node = &mut self.nodes[slot];
            node.pins += 1;
            self.notices.push_back(Notice::Turn(turn.id, node.id));
        }
    }

    /// Nobody gets a place on this session any more.
    pub(super) fn lose_turns(&mut self, slot: u32, why: Why) {
        while let Some(turn) = self.nodes[slot].turns.front() {
            self.nodes[slot].turns.remove(&mut self.turns, turn);
            let turn = self.turns.remove(turn).expect("a turn that was listed");
            let id = self.nodes[slot].id;
            self.notices.push_back(Notice::Lost(turn.id, id, why));
        }
    }

    /// Whether one more call may be in flight on this session, else how many are.
    pub(super) fn has_place(&self, slot: u32) -> Result<(), usize> {
        let Some(most) = self.rules.calls_per_session else {
            return Ok(());
        };
        let calls = self.nodes[slot].pins;
        if calls < most { Ok(()) } else { Err(calls) }
    }

    /// Whether there is a slot for a session of this server: a free one, or an idle one that may go for it.
    pub(super) fn has_room(&self, binding: u32) -> Result<(), Refusal> {
        if let Some(most) = self.rules.sessions_per_server {
            let bound = &self.bindings[binding];
            if bound.live >= most && bound.idle.is_empty() {
                return Err(Refusal::ServerFull(Full {
                    capacity: most,
                    busy: bound.live,
                }));
            }
        }
        if self.live < self.rules.capacity || !self.idle.is_empty() {
            Ok(())
        } else {
            Err(Refusal::Full(self.full()))
        }
    }

    /// Whether somebody waits who would be served before a newcomer of this server.
    pub(super) fn would_overtake(&self, binding: u32) -> bool {
        self.queued > 0 && (!self.ready.is_empty() || !self.bindings[binding].queue.is_empty())
    }

    /// Whether there is a slot for a session of this server that no creation under way is going to need.
    pub(super) fn has_unclaimed_room(&self, binding: u32) -> bool {
        self.has_unclaimed_slot() && self.server_has_unclaimed_room(binding)
    }

    fn has_unclaimed_slot(&self) -> bool {
        let opening = self.nodes.len() - self.live - self.queued;
        self.busy() + opening < self.rules.capacity
    }

    fn server_has_unclaimed_room(&self, binding: u32) -> bool {
        let bound = &self.bindings[binding];
        let Some(most) = self.rules.sessions_per_server else {
            return true;
        };
        let opening = bound.nodes.len() - bound.live - bound.queue.len();
        bound.live - bound.idle.len() + opening < most
    }

    /// Puts a creation among those who wait, in order of arrival: at the end, unless it was there before.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let node = &mut self.nodes[slot];
        node.queued = true;
        let (id, binding) = (node.id, node.binding);
        let queue = &mut self.bindings[binding].queue;
        let mut next = queue.front();
        if self.nodes[slot].served {
            while let Some(other) = next.filter(|other| self.nodes[*other].id < id) {
                next = queue.next(&self.nodes, other);
            }
        } else {
            next = None;
        }
        match next {
            Some(next) => queue.insert_before(&mut self.nodes, slot, next),
            None => queue.push_back(&mut self.nodes, slot),
        }
        self.queued += 1;
        self.tally.waited += 1;
        self.refresh(binding);
        let node = &self.nodes[slot];
        let (id, key) = (node.id, &node.key);
        if self.observed {
            let key = key.clone();
            self.tell(|| Event::Waiting { id, key });
        }
    }

    /// Takes a creation out of those who wait.
    pub(super) fn dequeue(&mut self, slot: u32) {
        let node = &mut self.nodes[slot];
        node.queued = false;
        node.served = true;
        let binding = node.binding;
        self.bindings[binding].queue.remove(&mut self.nodes, slot);
        self.queued -= 1;
        self.refresh(binding);
    }

    /// Sees to it that the server is among those to be served exactly if it has somebody who waits and may have a slot.
    pub(super) fn refresh(&mut self, binding: u32) {
        let front = self.bindings[binding].queue.front();
        let front = front.filter(|_| self.server_has_unclaimed_room(binding));
        let front = front.map(|slot| self.nodes[slot].id);
        let listed = std::mem::replace(&mut self.bindings[binding].ready, front);
        if listed != front {
            if let Some(listed) = listed {
                self.ready.remove(&listed);
            }
            if let Some(front) = front {
                self.ready.insert(front);
            }
        }
    }

    /// The numbers of this server changed.
    pub(super) fn touched(&mut self, binding: u32) {
        if self.queued > 0 {
            self.refresh(binding);
        }
    }

    /// Gives what room there is to those who wait.
    pub(super) fn serve(&mut self) {
        while self.queued > 0 && self.has_unclaimed_slot() {
            let Some(id) = self.ready.first().copied() else {
                return;
            };
            self.dequeue(id.slot);
            self.notices.push_back(Notice::Open(id));
            let key = &self.nodes[id.slot].key;
            if self.observed {
                let key = key.clone();
                self.tell(|| Event::Opening { id, key });
            }
        }
    }

    /// Every wait of this registry for a place on a session.
    pub fn queued_calls(&self) -> usize {
        self.turns.len()
    }
}

pub(super) type Turns = List<TURNS>;
