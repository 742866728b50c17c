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
        // because it is cleared before there are many raises, so the write cannot fail.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Says how often it was raised since it was last cleared.
    pub(crate) fn clear(&self) -> u64 {
        let mut count = [0u8; 8];
        // SAFETY: the buffer is 8 bytes long and outlives the call. A read of a cleared counter
        // fails with EAGAIN, which leaves the buffer as it is.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        u64::from_ne_bytes(count)
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Blocks every signal on the current thread for good, where somebody else started it for us.
pub(crate) fn block_all_signals() {
    // SAFETY: `all` is filled before it is read; the old mask is not asked for.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Whether the descriptor is readable now.
#[cfg(test)]
pub(crate) fn is_readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, alive through the call.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: &EventFd) -> bool {
        is_readable(fd.as_raw_fd())
    }

    #[test]
    fn the_descriptor_is_readable_from_raise_to_clear() {
        let fd = EventFd::new().unwrap();
        assert!(!readable(&fd));
        fd.raise();
        fd.raise();
        assert!(readable(&fd));
        assert_eq!(fd.clear(), 2);
        assert!(!readable(&fd));
        assert_eq!(fd.clear(), 0);
        assert!(!readable(&fd));
    }
}
