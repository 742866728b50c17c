//! Values in numbered slots that can be linked into lists without allocating: insert, remove, link and unlink are O(1).

use crate::steps::step;

/// No slot.
const NONE: u32 = u32::MAX;

/// Neighbours of a slot in one list.
#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

const UNLINKED: Link = Link {
    prev: NONE,
    next: NONE,
};

#[derive(Debug)]
struct Slot<T, const LISTS: usize> {
    links: [Link; LISTS],
    value: Option<T>,
}

/// Slots of values, each of which may be in `LISTS` lists at once.
///
/// A freed slot is used again: whoever keeps a slot number must also keep something that tells the values apart.
#[derive(Debug)]
pub(crate) struct Slab<T, const LISTS: usize = 0> {
    slots: Vec<Slot<T, LISTS>>,
    free: Vec<u32>,
}

impl<T, const LISTS: usize> Slab<T, LISTS> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot that the next [`insert`](Self::insert) will use.
    pub(crate) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or_else(|| {
            u32::try_from(self.slots.len())
                .ok()
                .filter(|slot| *slot != NONE)
                .expect("fewer than 2^32 - 1 sessions")
        })
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        step();
        let slot = self.next_slot();
        let filled = Slot {
            links: [UNLINKED; LISTS],
            value: Some(value),
        };
        match self.free.pop() {
            Some(_) => self.slots[slot as usize] = filled,
            None => self.slots.push(filled),
        }
        slot
    }

    /// Takes the value out. It must be in no list any more.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        step();
        let value = self.slots.get_mut(slot as usize)?.value.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// Every value with its slot, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(slot, filled)| Some((slot, filled.value.as_ref()?)))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        step();
        self.slots.get(slot as usize)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        step();
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }
}

/// A slot that is known to be filled.
impl<T, const LISTS: usize> std::ops::Index<u32> for Slab<T, LISTS> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        self.get(slot).expect("a filled slot")
    }
}

impl<T, const LISTS: usize> std::ops::IndexMut<u32> for Slab<T, LISTS> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        self.get_mut(slot).expect("a filled slot")
    }
}

/// A list through the slots of one slab, over the links numbered `LIST`.
#[derive(Debug)]
pub(crate) struct List<const LIST: usize> {
    front: u32,
    back: u32,
    len: usize,
}

impl<const LIST: usize> List<LIST> {
    pub(crate) fn new() -> Self {
        Self {
            front: NONE,
            back: NONE,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<u32> {
        (self.front != NONE).then_some(self.front)
    }

    /// The slot after this one, which is in this list.
    pub(crate) fn next<T, const LISTS: usize>(
        &self,
        slab: &Slab<T, LISTS>,
        slot: u32,
    ) -> Option<u32> {
        step();
        let next = slab.slots[slot as usize].links[LIST].next;
        (next != NONE).then_some(next)
    }

    /// Puts a slot that is not in this list before one that is.
    pub(crate) fn insert_before<T, const LISTS: usize>(
        &mut self,
        slab: &mut Slab<T, LISTS>,
        slot: u32,
        next: u32,
    ) {
        step();
        let prev = std::mem::replace(&mut slab.slots[next as usize].links[LIST].prev, slot);
        slab.slots[slot as usize].links[LIST] = Link { prev, next };
        match prev {
            NONE => self.front = slot,
            prev => slab.slots[prev as usize].links[LIST].next = slot,
        }
        self.len += 1;
    }

    /// Appends a slot that is not in this list.
    pub(crate) fn push_back<T, const LISTS: usize>(
        &mut self,
        slab: &mut Slab<T, LISTS>,
        slot: u32,
    ) {
        step();
        slab.slots[slot as usize].links[LIST] = Link {
            prev: self.back,
            next: NONE,
        };
        match self.back {
            NONE => self.front = slot,
            back => slab.slots[back as usize].links[LIST].next = slot,
        }
        self.back = slot;
        self.len += 1;
    }

    /// Takes out a slot that is in this list.
    pub(crate) fn remove<T, const LISTS: usize>(&mut self, slab: &mut Slab<T, LISTS>, slot: u32) {
        step();
        let Link { prev, next } =
            std::mem::replace(&mut slab.slots[slot as usize].links[LIST], UNLINKED);
        match prev {
            NONE => self.front = next,
            prev => slab.slots[prev as usize].links[LIST].next = next,
        }
        match next {
            NONE => self.back = prev,
            next => slab.slots[next as usize].links[LIST].prev = prev,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every slot of the list, front first.
    fn slots(list: &List<0>, slab: &Slab<char, 1>) -> Vec<u32> {
        let next = |slot: &u32| slab.slots[*slot as usize].links[0].next;
        std::iter::successors(list.front(), |slot| {
            Some(next(slot)).filter(|slot| *slot != NONE)
        })
        .collect()
    }

    #[test]
    fn a_list_keeps_its_order_when_any_of_its_slots_is_taken_out() {
        for gone in 0..3 {
            let mut slab = Slab::<char, 1>::new();
            let mut list = List::<0>::new();
            for value in ['a', 'b', 'c'] {
                let slot = slab.insert(value);
                list.push_back(&mut slab, slot);
            }
            list.remove(&mut slab, gone);
            let left: Vec<u32> = (0..3).filter(|slot| *slot != gone).collect();
            assert_eq!(slots(&list, &slab), left);
            list.push_back(&mut slab, gone);
            assert_eq!(slots(&list, &slab), [left[0], left[1], gone]);
            assert_eq!(list.len(), 3);
        }
    }

    #[test]
    fn a_slot_is_put_before_the_first_or_between_two() {
        let mut slab = Slab::<char, 1>::new();
        let mut list = List::<0>::new();
        let [a, b, c] = ['a', 'b', 'c'].map(|value| slab.insert(value));
        list.push_back(&mut slab, c);
        list.insert_before(&mut slab, a, c);
        list.insert_before(&mut slab, b, c);
        assert_eq!(slots(&list, &slab), [a, b, c]);
        assert_eq!(list.next(&slab, a), Some(b));
        list.remove(&mut slab, a);
        assert_eq!(slots(&list, &slab), [b, c]);
    }

    #[test]
    fn a_freed_slot_is_used_again_and_announced_before() {
        let mut slab = Slab::<char>::new();
        let first = slab.insert('a');
        assert_eq!(slab.next_slot(), 1);
        assert_eq!(slab.insert('b'), 1);
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.next_slot(), first);
        assert_eq!(slab.insert('c'), first);
        assert_eq!(slab[first], 'c');
    }
}
