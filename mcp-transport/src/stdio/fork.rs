//! One fork, with a descriptor of the child.
//!
//! `clone3` gives the descriptor together with the child. One that is opened by number afterwards may be another
//! process's, in a host that ignores SIGCHLD or waits for every child.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    ptr,
};

use super::sys;

/// `struct clone_args` of the kernel, in its first version that has a size (64 bytes).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Forks. The child runs `child`, with `with`, and never returns from here. In the parent, the child's id and its descriptor.
///
/// All signals should be blocked on the calling thread, so that no handler of the host's runs in the child.
///
/// # Safety
/// `child` may want to be called in a new process alone, and may call only what is async-signal-safe: other threads of this process are not there in the child, and
/// what they had locked stays so. It must not panic.
pub(super) unsafe fn fork<T>(
    child: unsafe fn(&T) -> !,
    with: &T,
) -> io::Result<(libc::pid_t, io::Result<OwnedFd>)> {
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM this is a fork: the child goes on with a copy of this stack. What it may call is the
    // caller's care.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match pid {
        // SAFETY: it runs in a process that was forked just now.
        0 => unsafe { child(with) },
        1.. => {
            // SAFETY: the kernel has just made it, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            return Ok((pid as libc::pid_t, sys::above_stdio(pidfd)));
        }
        _ => {}
    }
    let error = io::Error::last_os_error();
    // Sandboxes forbid clone3, for they cannot look into its arguments.
    if !matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EINVAL)
    ) {
        return Err(error);
    }
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        // SAFETY: it runs in a process that was forked just now.
        0 => unsafe { child(with) },
        pid if pid > 0 => Ok((pid, sys::pidfd_open(pid))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As [`fork`], for a child that soon runs another program or ends: this thread waits until it does, and the child
/// has the memory of this process meanwhile, not a copy. A copy costs what the host is large: some 8 ms in one of a
/// few hundred MB, where this costs 0.1 ms in any.
///
/// # Errors
/// Also where a kernel or a sandbox does not have it.
///
/// # Safety
/// As for [`fork`]. What the child writes to memory is written here too.
pub(super) unsafe fn fork_for_exec<T>(
    child: unsafe fn(&T) -> !,
    with: &T,
) -> io::Result<(libc::pid_t, io::Result<OwnedFd>)> {
    struct Call<'a, T> {
        child: unsafe fn(&T) -> !,
        with: &'a T,
    }
    extern "C" fn enter<T>(call: *mut libc::c_void) -> libc::c_int {
        // SAFETY: it is the one below, whose frame waits.
        let call = unsafe { &*call.cast::<Call<'_, T>>() };
        // SAFETY: it runs in a process that was made just now.
        unsafe { (call.child)(call.with) }
    }
    // Its own, for it may not return through ours. Aligned as every machine wants it, and not filled, which would cost
    // more than the child does.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let mut call = Call { child, with };
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: stack and call outlive the child's use of them, for this thread goes on only when the child has left
    // this memory. What it calls is the caller's care.
    let pid = unsafe {
        let call = (&raw mut call).cast();
        libc::clone(enter::<T>, top.cast(), flags, call, &raw mut pidfd)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pidfd < 0 {
        return Ok((pid, sys::pidfd_open(pid)));
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pid, sys::above_stdio(pidfd)))
}

/// What a child needs before it runs its program, and much more.
const STACK: usize = 256 << 10;

/// Every signal's default: exec takes handlers off, but an ignored signal stays ignored.
///
/// # Safety
/// Only in a process that was forked just now.
pub(super) unsafe fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: all zero is SIG_DFL without flags. KILL, STOP and the two that the C library keeps for itself
        // are refused, and are as they should be.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &default, ptr::null_mut());
        }
    }
}
