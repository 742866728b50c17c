//! Keeps SIGPIPE off a thread while it writes.
//!
//! Only Rust's own `main` ignores the signal. In a C host it has its default, which ends the process when a
//! server goes while we write to it. A pipe has no flag against that, nor has a vectored write to a socket, so
//! that the signal is blocked on the writing thread, and taken off it where a write raised it.
#![allow(unsafe_code)]

use std::{cell::Cell, marker::PhantomData, mem::MaybeUninit};

thread_local! {
    /// Whether a guard holds on this thread.
    static OFF: Cell<bool> = const { Cell::new(false) };
}

/// Keeps SIGPIPE off the current thread while it lives.
///
/// Writes to a server guard themselves, with two system calls each. A thread that drives sessions holds one of
/// these instead, for its own life or for as long as it drives, and its writes then cost nothing more.
#[derive(Debug)]
#[must_use = "the signal is off only while it lives"]
pub struct SigpipeOff {
    /// What is undone at the end; `None` where an outer guard holds.
    undo: Option<Undo>,
    /// The mask is the thread's: the guard stays on it.
    _stays: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Undo {
    /// The thread had it blocked before.
    blocked: bool,
    /// One waited already, on a thread that has it blocked itself: it is not ours to take.
    waited: bool,
}

impl SigpipeOff {
    /// Blocks the signal on this thread.
    pub fn new() -> Self {
        let undo = (!OFF.replace(true)).then(|| {
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: the set was initialised; the call fails only for a `how` that is none, and else writes the
            // mask before to `before`.
            let blocked = unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe_set(), before.as_mut_ptr());
                libc::sigismember(before.as_ptr(), libc::SIGPIPE) == 1
            };
            Undo {
                blocked,
                waited: blocked && is_pending(),
            }
        });
        Self {
            undo,
            _stays: PhantomData,
        }
    }
}

impl Default for SigpipeOff {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SigpipeOff {
    fn drop(&mut self) {
        let Some(undo) = &self.undo else { return };
        OFF.set(false);
        // One that our writes raised waits on this thread; where the process ignores it, there is none.
        if !undo.waited && is_pending() {
            let at_once = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: set and time were initialised; a null pointer asks for nothing back.
            unsafe { libc::sigtimedwait(&sigpipe_set(), std::ptr::null_mut(), &at_once) };
        }
        if !undo.blocked {
            // SAFETY: the set was initialised; a null pointer asks for nothing back.
            unsafe {
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &sigpipe_set(), std::ptr::null_mut());
            }
        }
    }
}

fn sigpipe_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, and SIGPIPE is a signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigpending initialises the set, and does not fail with a good pointer.
    unsafe {
        libc::sigpending(pending.as_mut_ptr()) == 0
            && libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked() -> bool {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: a null set changes nothing; the mask is written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), libc::SIGPIPE) == 1
        }
    }

    fn raise() {
        // SAFETY: raised for this very thread, which has it blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
    }

    /// On a thread of its own, for the mask is the thread's; the process ignores the signal as every test does,
    /// but one that is blocked waits all the same.
    fn on_a_thread(test: fn()) {
        std::thread::spawn(test).join().expect("it holds");
    }

    #[test]
    fn the_guard_takes_what_a_write_raised_and_gives_the_mask_back() {
        on_a_thread(|| {
            let off = SigpipeOff::new();
            assert!(is_blocked());
            raise();
            drop(off);
            assert!(!is_blocked());
            assert!(!is_pending());
        });
    }

    #[test]
    fn an_inner_guard_leaves_all_to_the_outer() {
        on_a_thread(|| {
            let outer = SigpipeOff::new();
            drop(SigpipeOff::new());
            assert!(is_blocked());
            drop(outer);
            assert!(!is_blocked());
        });
    }

    #[test]
    fn a_thread_that_has_it_blocked_itself_keeps_the_one_that_waits() {
        on_a_thread(|| {
            // SAFETY: the set was initialised; a null pointer asks for nothing back.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe_set(), std::ptr::null_mut());
            }
            raise();
            let waits = is_pending();
            drop(SigpipeOff::new());
            assert!(is_blocked());
            assert_eq!(is_pending(), waits);
        });
    }
}
