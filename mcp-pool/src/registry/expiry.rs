//! What has to go because of its time: idle for too long, lived for long enough, drained up to the limit.

use crate::{
    event::{Event, Why},
    key::{PoolKey, SessionId},
    registry::{AllRetired, Registry, Target},
    slab::List,
    steps::step,
    time::Timestamp,
};

impl<K: PoolKey, O, S> Registry<K, O, S> {
    /// No call begins any more on what is meant; what has no call in flight, creations included, leaves at once, the
    /// rest when its last call ended, at the latest at the deadline, when [`expire`](Self::expire) returns it.
    ///
    /// What drains keeps its slot, for it is busy. Its key is free: whoever comes begins a new creation. Returns what
    /// left, and what drains.
    pub fn drain(
        &mut self,
        now: Timestamp,
        target: Target<'_, K>,
        deadline: Timestamp,
    ) -> (AllRetired<K, O, S>, Vec<SessionId>) {
        self.tick(now);
        let (mut retired, mut draining) = (Vec::new(), Vec::new());
        for slot in self.meant(target) {
            let node = &self.nodes[slot];
            if node.pins > 0 && node.opening.is_none() {
                draining.push(node.id);
                self.let_drain(slot, Why::Drained, deadline);
            } else {
                self.tally.drained += 1;
                retired.push(self.remove(slot, Why::Drained));
            }
        }
        self.serve();
        (retired, draining)
    }

    /// Everything whose time is over by now: idle sessions that were idle for too long or lived for long enough, and
    /// draining ones that reached their limit. A busy session that lived for long enough begins to drain, without a
    /// limit.
    pub fn expire(&mut self, now: Timestamp) -> AllRetired<K, O, S> {
        self.tick(now);
        let mut retired = Vec::new();
        if let Some(ttl) = self.rules.idle_ttl {
            while let Some(slot) = self.idle.front() {
                if self.nodes[slot].stamp.plus(ttl) > self.now {
                    break;
                }
                self.tally.idle_too_long += 1;
                retired.push(self.remove(slot, Why::IdleTooLong));
            }
        }
        if let Some(lifetime) = self.rules.max_lifetime {
            while let Some(slot) = self.by_age.front() {
                if self.nodes[slot].born.plus(lifetime) > self.now {
                    break;
                }
                self.tally.lifetime_over += 1;
                if self.nodes[slot].pins == 0 {
                    retired.push(self.remove(slot, Why::LifetimeOver));
                } else {
                    self.let_drain(slot, Why::LifetimeOver, Timestamp::NEVER);
                }
            }
        }
        while let Some(((deadline, _), slot)) = self.drain_deadlines.first_key_value() {
            if *deadline > self.now {
                break;
            }
            let slot = *slot;
            let why = self.count_drained(slot);
            retired.push(self.remove(slot, why));
        }
        self.serve();
        retired
    }

    /// When [`expire`](Self::expire) is to be called next, or `None` if nothing is bound to expire as things stand.
    pub fn timeout(&self) -> Option<Timestamp> {
        let idle = self.rules.idle_ttl.and_then(|ttl| {
            let slot = self.idle.front()?;
            Some(self.nodes[slot].stamp.plus(ttl))
        });
        let age = self.rules.max_lifetime.and_then(|lifetime| {
            let slot = self.by_age.front()?;
            Some(self.nodes[slot].born.plus(lifetime))
        });
        let drain = self.drain_deadlines.first_key_value();
        let drain = drain.map(|((deadline, _), _)| *deadline);
        let times = [idle, age, drain].into_iter().flatten();
        times.min().filter(|time| *time < Timestamp::NEVER)
    }

    /// The limit of this drain has come before its deadline. Nothing happens to a session that does not drain.
    pub fn cut_drain(&mut self, id: SessionId) -> Option<crate::registry::Retired<K, O, S>> {
        let slot = self.slot(id)?;
        self.nodes[slot].drain?;
        let why = self.count_drained(slot);
        let retired = self.remove(slot, why);
        self.serve();
        Some(retired)
    }

    /// Its last call ended or its limit came. Returns why it drained.
    pub(super) fn count_drained(&mut self, slot: u32) -> Why {
        let why = self.nodes[slot]
            .drain
            .map_or(Why::Drained, |drain| drain.why);
        self.tally.drained += u64::from(why == Why::Drained);
        why
    }

    /// No call begins any more on this session, which is busy, nor does anybody find it by its key.
    fn let_drain(&mut self, slot: u32, why: Why, deadline: Timestamp) {
        let node = &mut self.nodes[slot];
        let id = node.id;
        if let Some(drain) = node.drain {
            // It drains already. The sooner limit counts, and with it the reason that set it.
            if drain.deadline <= deadline {
                return;
            }
            self.drain_deadlines.remove(&(drain.deadline, id));
        }
        let before = node.drain.replace(Drain { why, deadline });
        if deadline < Timestamp::NEVER {
            self.drain_deadlines.insert((deadline, id), slot);
        }
        if before.is_some() {
            return;
        }
        let key = node.key.clone();
        step();
        self.keys.remove(&key);
        if self.rules.max_lifetime.is_some() {
            self.by_age.remove(&mut self.nodes, slot);
        }
        self.lose_turns(slot, why);
        self.draining += 1;
        step();
        let same_key = self
            .draining_keys
            .entry(key.clone())
            .or_insert_with(List::new);
        same_key.push_back(&mut self.nodes, slot);
        self.tell(|| Event::Draining { id, key, why });
    }

    /// Takes a draining session out of what only draining ones are in.
    pub(super) fn end_drain(&mut self, slot: u32, drain: Drain) {
        let node = &self.nodes[slot];
        self.drain_deadlines.remove(&(drain.deadline, node.id));
        let key = node.key.clone();
        self.draining -= 1;
        step();
        if let Some(same_key) = self.draining_keys.get_mut(&key) {
            same_key.remove(&mut self.nodes, slot);
            if same_key.is_empty() {
                self.draining_keys.remove(&key);
            }
        }
    }
}

/// Why and until when a session drains.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) why: Why,
    pub(super) deadline: Timestamp,
}
