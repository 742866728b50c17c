//! What waits for the host of one server: in order, some of it kept whatever comes, and of the rest the newest.

use std::collections::VecDeque;

use super::event::{Dropped, Event, EventKind};

/// The most that is kept of what may be dropped.
pub(super) const RING: usize = 1024;

/// Entries of the kind `K` are kept; events that may be dropped go into a ring.
#[derive(Debug)]
pub(super) struct Waiting<K> {
    /// The number of the next entry, of either kind.
    next: u64,
    kept: VecDeque<(u64, K)>,
    ring: VecDeque<(u64, Event)>,
    dropped: Dropped,
}

/// What was taken out.
pub(super) enum Taken<K> {
    Kept(K),
    Event(Event),
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self {
            next: 0,
            kept: VecDeque::new(),
            ring: VecDeque::new(),
            dropped: Dropped::default(),
        }
    }
}

impl<K> Waiting<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.ring.is_empty()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn keep(&mut self, entry: K) {
        let number = self.number();
        self.kept.push_back((number, entry));
    }

    /// Adds an event that may be dropped, and gives the one that it pushed out.
    pub(super) fn add(&mut self, event: Event) -> Option<Event> {
        let oldest = if self.ring.len() < RING {
            None
        } else {
            self.ring.pop_front().map(|(_, event)| event)
        };
        if let Some(oldest) = &oldest {
            self.dropped.count(&oldest.kind);
        }
        let number = self.number();
        self.ring.push_back((number, event));
        oldest
    }

    /// The next in the order in which they came. That some were dropped is told where they would have come.
    pub(super) fn take(&mut self) -> Option<Taken<K>> {
        let kept = self.kept.front().map(|(number, _)| *number);
        match self.ring.front() {
            Some((number, first)) if kept.is_none_or(|kept| *number < kept) => {
                if self.dropped != Dropped::default() {
                    let dropped = std::mem::take(&mut self.dropped);
                    return Some(Taken::Event(Event {
                        kind: EventKind::Dropped(dropped),
                        // Of whichever session of the server they were.
                        scope: None,
                        held: None,
                        ..first.clone()
                    }));
                }
                self.ring.pop_front().map(|(_, event)| Taken::Event(event))
            }
            _ => self.kept.pop_front().map(|(_, entry)| Taken::Kept(entry)),
        }
    }

    /// Takes the first kept one that is wanted, out of order.
    pub(super) fn take_back(&mut self, wanted: impl Fn(&K) -> bool) -> Option<K> {
        let at = self.kept.iter().position(|(_, entry)| wanted(entry))?;
        self.kept.remove(at).map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::client::{log::Log, origin::Origin};

    fn log(number: usize) -> Event {
        let log = Log::new(Bytes::from(number.to_string()));
        Event::of(EventKind::Log(log), &Origin::default())
    }

    fn all(waiting: &mut Waiting<u32>) -> Vec<String> {
        std::iter::from_fn(|| waiting.take())
            .map(|taken| match taken {
                Taken::Kept(kept) => format!("kept {kept}"),
                Taken::Event(Event {
                    kind: EventKind::Dropped(dropped),
                    ..
                }) => format!("dropped {}", dropped.logs),
                Taken::Event(Event {
                    kind: EventKind::Log(log),
                    ..
                }) => format!("log {}", String::from_utf8_lossy(&log.params)),
                Taken::Event(event) => panic!("{event:?}"),
            })
            .collect()
    }

    #[test]
    fn both_kinds_come_in_the_order_in_which_they_went() {
        let mut waiting = Waiting::default();
        assert!(waiting.add(log(1)).is_none());
        waiting.keep(2);
        waiting.keep(3);
        assert!(waiting.add(log(4)).is_none());
        assert_eq!(all(&mut waiting), ["log 1", "kept 2", "kept 3", "log 4"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn of_what_may_be_dropped_the_newest_stay_and_the_gap_is_told_in_its_place() {
        let mut waiting = Waiting::default();
        waiting.keep(0);
        for number in 0..RING + 3 {
            assert_eq!(waiting.add(log(number)).is_some(), number >= RING);
        }
        waiting.keep(1);
        let all = all(&mut waiting);
        assert_eq!(all[..3], ["kept 0", "dropped 3", "log 3"]);
        assert_eq!(all.len(), 1 + 1 + RING + 1);
        assert_eq!(all.last().unwrap(), "kept 1");
    }
}
