//! A child process and its group, which it leads.
//!
//! Signals go to the group by descriptor where the kernel can (Linux 6.9). Elsewhere they go by the leader's
//! number, as long as it has not been reaped: so long the number is its own, dead or alive. After that they go
//! to each member's descriptor, for the number may be another's by then.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    spawner::Spawner,
    sys::{self, Exit},
};

/// A child of ours.
#[derive(Debug)]
pub(super) struct Process {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    reaped: Mutex<Option<Exit>>,
    over: AtomicBool,
}

impl Process {
    pub(super) fn new(pid: libc::pid_t, pidfd: OwnedFd) -> Self {
        Self {
            pid,
            pidfd,
            reaped: Mutex::new(None),
            over: AtomicBool::new(false),
        }
    }

    /// The process id, as long as it is the process's own.
    pub(super) fn pid(&self) -> Option<u32> {
        self.reaped().is_none().then_some(self.pid as u32)
    }

    fn reaped(&self) -> MutexGuard<'_, Option<Exit>> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of its end, if it has ended.
    pub(super) fn reap(&self) -> Option<Exit> {
        let mut reaped = self.reaped();
        if reaped.is_none() {
            // The only errors are those of the arguments, which are good.
            *reaped = sys::reap(self.as_fd()).unwrap_or(Some(Exit::Unknown));
        }
        *reaped
    }

    /// Sends a signal to everyone in the group, or asks with signal 0 whether there is anyone.
    /// Says whether there was; a leader that was not reaped counts.
    pub(super) fn signal_group(&self, signal: libc::c_int) -> bool {
        // Held to the end, so that the leader is not reaped meanwhile.
        let reaped = self.reaped();
        match sys::pidfd_signal_group(self.as_fd(), signal) {
            Ok(()) => true,
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                signal_group_by_number(self.pid, self.as_fd(), reaped.is_some(), signal)
            }
            // Somebody is there who has become another user.
            Err(e) => e.raw_os_error() == Some(libc::EPERM),
        }
    }

    /// Nobody of the group is left.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl AsFd for Process {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// Whoever holds it answers for the process: when it is dropped, the process and its group are killed at once,
/// if they have not ended before.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) process: Arc<Process>,
    spawner: Spawner,
}

impl Guard {
    pub(super) fn new(process: Arc<Process>, spawner: Spawner) -> Self {
        Self { process, spawner }
    }

    /// A second one for the same process.
    pub(super) fn another(&self) -> Self {
        Self {
            process: self.process.clone(),
            spawner: self.spawner.clone(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.process.over.load(Ordering::Relaxed) {
            return;
        }
        self.process.signal_group(libc::SIGKILL);
        if self.process.reaped().is_none() {
            self.spawner.reap_later(self.process.clone());
        }
    }
}

/// As [`Process::signal_group`], for kernels before 6.9.
fn signal_group_by_number(
    pid: libc::pid_t,
    pidfd: BorrowedFd<'_>,
    reaped: bool,
    signal: libc::c_int,
) -> bool {
    let is_gone = |e: io::Error| e.raw_os_error() == Some(libc::ESRCH);
    // A host that ignores SIGCHLD or waits for every child may have reaped it before us; the descriptor knows.
    if !reaped && !sys::pidfd_signal(pidfd, 0).is_err_and(is_gone) {
        return !sys::kill(-pid, signal).is_err_and(is_gone);
    }
    // Most often nobody else was in the group, and one call tells.
    if sys::kill(-pid, 0).is_err_and(is_gone) {
        return false;
    }
    let mut anyone = false;
    for member in members(pid) {
        anyone |= sys::pidfd_signal(member.as_fd(), signal).is_ok();
    }
    anyone
}

/// Descriptors of the processes in the group that the process `leader` led, now that it is gone.
///
/// The number of a group is not given to a new process while anyone is in the group. If a process bears it all
/// the same, the group had died out and this is another's.
fn members(leader: libc::pid_t) -> Vec<OwnedFd> {
    if sys::kill(leader, 0).is_ok() {
        return Vec::new();
    }
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| is_member(pid, leader))
        // Asked again once the descriptor is there: now it is known to be the same process.
        .filter_map(|pid| sys::pidfd_open(pid).ok().filter(|_| is_member(pid, leader)))
        .collect()
}

/// Whether the process runs in the session and group of that leader.
fn is_member(pid: libc::pid_t, leader: libc::pid_t) -> bool {
    let look = || {
        // pid (name) state ppid pgrp session …; the name may hold anything, also blanks and brackets.
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let after = &stat[memchr::memrchr(b')', &stat)? + 1..];
        let mut fields = std::str::from_utf8(after).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        let group: libc::pid_t = fields.nth(1)?.parse().ok()?;
        let session: libc::pid_t = fields.next()?.parse().ok()?;
        Some(!matches!(state, "Z" | "X") && group == leader && session == leader)
    };
    look().unwrap_or(false)
}
