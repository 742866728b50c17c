//! Whose handle it is: in a forked child there are no threads that could serve.

use std::sync::atomic::{AtomicU8, Ordering};

/// Knows the process that made it from a child that was forked from it, without a system call.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    /// A page that the kernel fills with zeros in a forked child; null where it cannot (before Linux 4.14).
    page: *mut AtomicU8,
}

// SAFETY: the page is the process's, whichever thread looks at it, and what is read and written there is atomic.
unsafe impl Send for Process {}
// SAFETY: as above.
unsafe impl Sync for Process {}

/// The kernel rounds up to whole pages.
const PAGE: usize = 4096;

impl Process {
    pub(crate) fn current() -> Self {
        // SAFETY: new memory, at no fixed place.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let mut process = Self {
            pid: std::process::id(),
            page: std::ptr::null_mut(),
        };
        if page == libc::MAP_FAILED {
            return process;
        }
        process.page = page.cast();
        // SAFETY: it is our mapping of just now, and large enough for one byte.
        unsafe {
            if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) == 0 {
                (*process.page).store(1, Ordering::Relaxed);
            } else {
                libc::munmap(page, PAGE);
                process.page = std::ptr::null_mut();
            }
        }
        process
    }

    pub(crate) fn is_current(&self) -> bool {
        if self.page.is_null() {
            return self.pid == std::process::id();
        }
        // SAFETY: the mapping lives as long as this, in a child too.
        unsafe { (*self.page).load(Ordering::Relaxed) == 1 }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.page.is_null() {
            // SAFETY: it is our mapping, and nobody has a reference into it.
            unsafe { libc::munmap(self.page.cast(), PAGE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_another_process() {
        let process = Process::current();
        assert!(process.is_current());
        // SAFETY: the child calls what may be called after a fork, and ends.
        let child = unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(process.is_current())),
                child => child,
            }
        };
        let mut status = -1;
        // SAFETY: it is our child; the status is written.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert!(process.is_current());
    }
}
