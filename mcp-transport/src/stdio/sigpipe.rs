//! Keeps SIGPIPE off a write.
//!
//! Only Rust's own `main` ignores the signal. In a C host it has its default, which ends the process when a
//! server goes while we write to it. A pipe has no flag against that, so that the signal is blocked on the
//! writing thread, and taken off it where the write raised it.
#![allow(unsafe_code)]

use std::{cell::Cell, io, mem::MaybeUninit};

thread_local! {
    /// Whether this thread has SIGPIPE blocked for good.
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Blocks SIGPIPE on this thread for good: for threads that are one's own, such as a runtime's. Writes to a
/// server's stdin then cost nothing more; on other threads they guard themselves, with two system calls.
pub fn block_sigpipe_on_this_thread() {
    let set = sigpipe_set();
    // SAFETY: the set was initialised; a null pointer asks for nothing back.
    let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    BLOCKED.set(result == 0);
}

/// Runs a write so that it raises no SIGPIPE, whatever the thread and the process have made of that signal.
pub(super) fn without_sigpipe<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if BLOCKED.get() {
        return write();
    }
    let set = sigpipe_set();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set was initialised; the mask before is written to `before`.
    if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::other("SIGPIPE could not be blocked"));
    }
    // SAFETY: pthread_sigmask succeeded and wrote it.
    let before = unsafe { before.assume_init() };
    // One that waits already, on a thread that has it blocked itself, is not ours to take.
    // SAFETY: the set was written by pthread_sigmask.
    let waited = unsafe { libc::sigismember(&before, libc::SIGPIPE) } == 1 && is_pending();
    let result = write();
    if matches!(&result, Err(e) if e.raw_os_error() == Some(libc::EPIPE)) && !waited {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: set and time were initialised; a null pointer asks for nothing back. It is raised for this
        // thread; where the process ignores it, there is none and this returns at once all the same.
        while unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &at_once) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    // SAFETY: the set was written by pthread_sigmask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
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
