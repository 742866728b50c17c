//! Keeps SIGPIPE off a thread while it writes.
//!
//! Only Rust's own `main` ignores the signal. In a C host it has its default, which ends the process when a
//! server goes while we write to it. A pipe has no flag against that before Linux 6.18, nor has a vectored write to a
//! socket, so that the signal is blocked on the writing thread, and taken off it where a write raised it.
#![allow(unsafe_code)]

use std::{
    cell::Cell,
    io::{self, IoSlice},
    marker::PhantomData,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
};

thread_local! {
    static HOLD: Cell<Hold> = const { Cell::new(Hold::None) };
}

/// What holds on a thread.
#[derive(Debug, Clone, Copy)]
enum Hold {
    /// No guard.
    None,
    /// A guard that has had nothing to do yet.
    Ready,
    /// The signal is blocked.
    Off(Undo),
}

/// Keeps SIGPIPE off the current thread while it lives.
///
/// Writes to a child guard themselves, with some system calls each where the kernel has no flag for it (before Linux
/// 6.18). A thread that drives sessions holds one of these instead, for its own life or for as long as it drives, and its
/// writes then cost nothing more. Of those to remote servers only the ones under such a guard are guarded.
#[derive(Debug)]
#[must_use = "the signal is off only while it lives"]
pub struct SigpipeOff {
    /// An inner guard leaves all to the outer.
    is_outer: bool,
    /// The mask is the thread's: the guard stays on it.
    _stays: PhantomData<*const ()>,
}

#[derive(Debug, Clone, Copy)]
struct Undo {
    /// The thread had it blocked before.
    blocked: bool,
    /// One waited already, on a thread that has it blocked itself: it is not ours to take.
    waited: bool,
}

impl SigpipeOff {
    /// Blocks the signal on this thread.
    pub fn new() -> Self {
        let guard = Self::before_a_write();
        block();
        guard
    }

    /// Blocks the signal on this thread before the first of our writes that could raise it. For a thread that drives
    /// for a short time, in which it most often has nothing to write that could.
    pub fn before_a_write() -> Self {
        let is_outer = matches!(HOLD.get(), Hold::None);
        if is_outer {
            HOLD.set(Hold::Ready);
        }
        Self {
            is_outer,
            _stays: PhantomData,
        }
    }
}

/// A write that could raise the signal is about to come; under no guard it is left to the host.
pub(crate) fn about_to_write() {
    if matches!(HOLD.get(), Hold::Ready) {
        block();
    }
}

/// Blocks the signal for as long as a guard lives.
fn block() {
    if matches!(HOLD.get(), Hold::Off(_)) {
        return;
    }
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set was initialised; the call fails only for a `how` that is none, and else writes the mask before
    // to `before`.
    let blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe_set(), before.as_mut_ptr());
        libc::sigismember(before.as_ptr(), libc::SIGPIPE) == 1
    };
    HOLD.set(Hold::Off(Undo {
        blocked,
        waited: blocked && is_pending(),
    }));
}

impl Default for SigpipeOff {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SigpipeOff {
    fn drop(&mut self) {
        if !self.is_outer {
            return;
        }
        let Hold::Off(undo) = HOLD.replace(Hold::None) else {
            return;
        };
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

/// The kernel does not know the flag, or a sandbox forbids the call.
static NO_FLAG: AtomicBool = AtomicBool::new(false);

/// Writes without raising the signal.
pub(super) fn write(to: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    if !NO_FLAG.load(Ordering::Relaxed) {
        let written = write_with_flag(to, slices);
        let unknown = [libc::ENOSYS, libc::EOPNOTSUPP, libc::EINVAL, libc::EPERM];
        match &written {
            // None of them is said of a pipe otherwise.
            Err(error) if error.raw_os_error().is_some_and(|e| unknown.contains(&e)) => {
                NO_FLAG.store(true, Ordering::Relaxed);
            }
            _ => return written,
        }
    }
    write_guarded(to, slices)
}

fn write_with_flag(to: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // A whole word, for the kernel's sixth argument is passed as one.
    const RWF_NOSIGNAL: libc::c_long = 0x100;
    // Where the descriptor stands, as for writev.
    const NOWHERE: libc::c_long = -1;
    let count = slices.len() as libc::c_int;
    // SAFETY: an IoSlice is an iovec, and each is of memory that is borrowed; the kernel only reads them.
    let written = unsafe {
        libc::syscall(
            libc::SYS_pwritev2,
            to.as_raw_fd(),
            slices.as_ptr(),
            count,
            NOWHERE,
            NOWHERE,
            RWF_NOSIGNAL,
        )
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

fn write_guarded(to: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let _off = SigpipeOff::new();
    let count = slices.len() as libc::c_int;
    // SAFETY: as above.
    let written = unsafe { libc::writev(to.as_raw_fd(), slices.as_ptr().cast(), count) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
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
    fn a_guard_that_is_ready_blocks_the_signal_with_the_first_write_that_needs_it() {
        on_a_thread(|| {
            about_to_write();
            assert!(!is_blocked());
            let off = SigpipeOff::before_a_write();
            assert!(!is_blocked());
            about_to_write();
            assert!(is_blocked());
            raise();
            drop(off);
            assert!(!is_blocked());
            assert!(!is_pending());
            // Or with none.
            drop(SigpipeOff::before_a_write());
            assert!(!is_blocked());
        });
    }

    #[test]
    fn a_write_to_a_pipe_that_nobody_reads_fails_and_raises_nothing() {
        use super::super::sys;
        use std::os::fd::AsFd;
        type Way = fn(BorrowedFd<'_>, &[IoSlice<'_>]) -> io::Result<usize>;
        for way in [write as Way, write_guarded] {
            let raised = std::thread::spawn(move || {
                // Blocked, so that what was raised waits to be seen, whatever the process does with it.
                let mut was_blocked = MaybeUninit::<libc::sigset_t>::uninit();
                // SAFETY: the set was initialised, and the mask before is written.
                unsafe {
                    libc::pthread_sigmask(
                        libc::SIG_BLOCK,
                        &sigpipe_set(),
                        was_blocked.as_mut_ptr(),
                    );
                }
                let (read, write) = sys::pipe().unwrap();
                let slices = [IoSlice::new(b"one"), IoSlice::new(b"two")];
                assert_eq!(way(write.as_fd(), &slices).unwrap(), 6);
                drop(read);
                let error = way(write.as_fd(), &slices).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
                is_pending()
            });
            assert!(!raised.join().expect("it holds"));
        }
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
