//! The system calls that std has no safe face for: the host's descriptor and signal masks.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// A descriptor that is readable between [`EventFd::raise`] and [`EventFd::clear`].
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the flags are valid.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just gave us this descriptor, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is 8 bytes long and outlives the call. The counter cannot overflow,
        // because it is cleared between two raises, so the write cannot fail.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer is 8 bytes long and outlives the call. A read of a cleared counter
        // fails with EAGAIN, which is what we want of it.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Blocks every signal on the current thread for good: the host's handlers never run on a thread of ours.
pub(crate) fn block_all_signals() {
    // SAFETY: `set` is filled before it is read; the old mask is not asked for.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Keeps SIGPIPE off the current thread while it lives: a socket or pipe that the peer closed must become an
/// error of a write, not the end of a C host whose SIGPIPE has its default disposition.
#[derive(Debug)]
pub(crate) struct SigpipeOff {
    /// Whether this guard blocked the signal and must unblock it.
    blocked: bool,
}

impl SigpipeOff {
    pub(crate) fn new() -> Self {
        // SAFETY: both sets are filled before they are read.
        let blocked = unsafe {
            let mut old = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe(), &mut old);
            libc::sigismember(&old, libc::SIGPIPE) == 0
        };
        Self { blocked }
    }
}

impl Drop for SigpipeOff {
    fn drop(&mut self) {
        if !self.blocked {
            return;
        }
        // A SIGPIPE of our own writes is pending on this thread: it is taken before the signal is unblocked.
        // SAFETY: the sets and the timeout live through the calls.
        unsafe {
            let zero = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            while libc::sigtimedwait(&sigpipe(), std::ptr::null_mut(), &zero) == libc::SIGPIPE {}
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &sigpipe(), std::ptr::null_mut());
        }
    }
}

fn sigpipe() -> libc::sigset_t {
    // SAFETY: sigemptyset fills the set before sigaddset reads it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: &EventFd) -> bool {
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, alive through the call.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_from_raise_to_clear() {
        let fd = EventFd::new().unwrap();
        assert!(!readable(&fd));
        fd.raise();
        assert!(readable(&fd));
        fd.clear();
        assert!(!readable(&fd));
        fd.clear();
        assert!(!readable(&fd));
    }

    #[test]
    fn a_broken_pipe_under_the_guard_is_an_error_and_no_signal_is_left() {
        std::thread::spawn(|| {
            // Rust's test runner ignores SIGPIPE, so that only the pending set can show what happened.
            let mut ends = [0; 2];
            // SAFETY: the array has room for two descriptors.
            let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
            assert_eq!(made, 0);
            let guard = SigpipeOff::new();
            // SAFETY: our own descriptors, closed once each.
            unsafe {
                libc::close(ends[0]);
                assert_eq!(libc::write(ends[1], b"x".as_ptr().cast(), 1), -1);
                libc::close(ends[1]);
            }
            drop(guard);
            // SAFETY: the set is filled by the call.
            let pending = unsafe {
                let mut set = std::mem::zeroed();
                libc::sigpending(&mut set);
                libc::sigismember(&set, libc::SIGPIPE)
            };
            assert_eq!(pending, 0);
        })
        .join()
        .unwrap();
    }
}
