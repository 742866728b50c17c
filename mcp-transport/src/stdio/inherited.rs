//! What a forked child of the host inherits of what leads to servers and guardian, in a list that it can read without
//! a lock.
//!
//! In a forked child no thread of ours is there, and whatever another one had locked stays so. So a slot holds a
//! descriptor from after it was opened until before it is closed, and is read and written by single steps: what a child
//! finds in its copy was open at the fork.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    ops::Deref,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
};

/// Nothing is in the slot, or somebody is about to put something there.
const FREE: RawFd = -1;
const TAKEN: RawFd = -2;

/// How many slots are made at a time.
const SLOTS: usize = 64;

/// The ends that are open.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    first: Chunk,
}

#[derive(Debug)]
struct Chunk {
    slots: [Slot; SLOTS],
    next: OnceLock<Box<Chunk>>,
}

#[derive(Debug)]
struct Slot {
    fd: AtomicI32,
    /// What the descriptor was when it came here: a child may have closed it, and opened something else.
    device: AtomicU64,
    inode: AtomicU64,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot {
                fd: AtomicI32::new(FREE),
                device: AtomicU64::new(0),
                inode: AtomicU64::new(0),
            }),
            next: OnceLock::new(),
        }
    }
}

/// Our end of a pipe or socket to a process of ours, on the list for as long as it is open.
#[derive(Debug)]
pub(super) struct End {
    // Dropped first: off the list before it is closed.
    _entry: Entry,
    end: File,
}

#[derive(Debug)]
struct Entry {
    list: Arc<Inherited>,
    place: usize,
}

impl End {
    pub(super) fn new(end: OwnedFd, list: &Arc<Inherited>) -> io::Result<Self> {
        let end = File::from(end);
        Ok(Self {
            _entry: Entry {
                place: list.add(&end)?,
                list: list.clone(),
            },
            end,
        })
    }
}

impl Deref for End {
    type Target = File;

    fn deref(&self) -> &File {
        &self.end
    }
}

impl AsRawFd for End {
    fn as_raw_fd(&self) -> RawFd {
        self.end.as_raw_fd()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(slot) = self.list.slot(self.place) {
            slot.fd.store(FREE, Ordering::Release);
        }
    }
}

impl Inherited {
    /// Closes all of them, in a child that was forked. It waits for nothing.
    ///
    /// In the process that opened them it would cut what is in use.
    pub(super) fn close(&self) {
        let mut chunk = Some(&self.first);
        while let Some(Chunk { slots, next }) = chunk {
            for slot in slots {
                let fd = slot.fd.swap(FREE, Ordering::Acquire);
                let was = (
                    slot.device.load(Ordering::Relaxed),
                    slot.inode.load(Ordering::Relaxed),
                );
                if fd >= 0 && identity(fd) == Some(was) {
                    // SAFETY: it is the very end that we opened, and nobody of ours runs in this process.
                    unsafe { libc::close(fd) };
                }
            }
            chunk = next.get().map(|next| &**next);
        }
    }

    fn add(&self, end: &File) -> io::Result<usize> {
        let about = end.metadata()?;
        let (mut chunk, mut before) = (&self.first, 0);
        loop {
            for (i, slot) in chunk.slots.iter().enumerate() {
                let free =
                    slot.fd
                        .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
                if free.is_ok() {
                    slot.device.store(about.dev(), Ordering::Relaxed);
                    slot.inode.store(about.ino(), Ordering::Relaxed);
                    slot.fd.store(end.as_raw_fd(), Ordering::Release);
                    return Ok(before + i);
                }
            }
            before += SLOTS;
            chunk = chunk.next.get_or_init(Box::default);
        }
    }

    fn slot(&self, place: usize) -> Option<&Slot> {
        let mut chunk = &self.first;
        for _ in 0..place / SLOTS {
            chunk = chunk.next.get()?;
        }
        chunk.slots.get(place % SLOTS)
    }
}

/// What a descriptor is, as far as it is anything.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the struct, or fails.
    let done = unsafe { libc::fstat(fd, stat.as_mut_ptr()) } == 0;
    // SAFETY: it was filled.
    done.then(|| unsafe { stat.assume_init() })
        .map(|stat| (stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::super::sys;
    use super::*;

    fn pipes(list: &Arc<Inherited>, count: usize) -> Vec<(OwnedFd, End)> {
        (0..count)
            .map(|_| {
                let (read, write) = sys::pipe().unwrap();
                (read, End::new(write, list).unwrap())
            })
            .collect()
    }

    fn listed(list: &Inherited) -> Vec<RawFd> {
        let mut listed = Vec::new();
        let mut chunk = Some(&list.first);
        while let Some(Chunk { slots, next }) = chunk {
            let fds = slots.iter().map(|slot| slot.fd.load(Ordering::Relaxed));
            listed.extend(fds.filter(|fd| *fd >= 0));
            chunk = next.get().map(|next| &**next);
        }
        listed.sort_unstable();
        listed
    }

    #[test]
    fn what_is_open_is_listed_however_many_and_what_was_closed_is_not() {
        let list = Arc::new(Inherited::default());
        let mut open = pipes(&list, 3 * SLOTS);
        assert_eq!(listed(&list).len(), 3 * SLOTS);
        open.retain(|(read, _)| read.as_raw_fd() % 3 == 0);
        let mut expected: Vec<_> = open.iter().map(|(_, pipe)| pipe.as_raw_fd()).collect();
        expected.sort_unstable();
        assert_eq!(listed(&list), expected);
        let more = pipes(&list, SLOTS);
        assert_eq!(listed(&list).len(), expected.len() + SLOTS);
        drop((open, more));
        assert!(listed(&list).is_empty());
    }
}
