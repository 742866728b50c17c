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
    /// What the guardian knows its group by.
    pub(super) key: u64,
    pid: libc::pid_t,
    pidfd: OwnedFd,
    reaped: Mutex<Option<Exit>>,
    over: AtomicBool,
}

impl Process {
    pub(super) fn new(pid: libc::pid_t, pidfd: OwnedFd, key: u64) -> Self {
        Self {
            key,
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

    /// The number of its group, which may be another's once nobody is left.
    pub(super) fn group(&self) -> libc::pid_t {
        self.pid
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

    /// Whether anyone of the group runs, now that its leader was reaped. A zombie does not: it waits for whoever
    /// inherited it, in a container perhaps for long, and no signal hastens that.
    pub(super) fn others_run(&self) -> bool {
        self.signal_group(0) && !members(self.pid).is_empty()
    }

    /// Sends a signal to everyone in the group, or asks with signal 0 whether there is anyone.
    /// Says whether there was; a leader that was not reaped counts.
    pub(super) fn signal_group(&self, signal: libc::c_int) -> bool {
        // Held to the end, so that the leader is not reaped meanwhile.
        let reaped = self.reaped();
        match sys::pidfd_signal_group(self.as_fd(), signal) {
            Ok(()) => true,
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => false,
            Err(_) => signal_group_by_number(self.pid, self.as_fd(), reaped.is_some(), signal),
        }
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

    /// Nobody of the group is left.
    pub(super) fn set_over(&self) {
        if !self.process.over.swap(true, Ordering::Relaxed) {
            self.spawner.over(self.process.key);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.process.over.load(Ordering::Relaxed) {
            return;
        }
        self.process.signal_group(libc::SIGKILL);
        self.spawner.killed(self.process.clone());
    }
}

/// As [`Process::signal_group`], for kernels before 6.9, and for sandboxes that do not know the call or forbid it.
fn signal_group_by_number(
    pid: libc::pid_t,
    pidfd: BorrowedFd<'_>,
    reaped: bool,
    signal: libc::c_int,
) -> bool {
    let is_gone = |e: io::Error| e.raw_os_error() == Some(libc::ESRCH);
    // A host that ignores SIGCHLD or waits for every child may have reaped it before us. While nobody has, its number is
    // no other's. Somebody who has become another user is there all the same.
    if !reaped && !sys::is_reaped(pidfd) {
        return !sys::kill(-pid, signal).is_err_and(is_gone);
    }
    // Most often nobody else was in the group, and one call tells.
    if sys::kill(-pid, 0).is_err_and(is_gone) {
        return false;
    }
    let mut anyone = false;
    for member in members(pid) {
        anyone |= !sys::pidfd_signal(member.as_fd(), signal).is_err_and(is_gone);
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
        // One whose first thread has ended looks like a zombie, but has others.
        let threads: u32 = fields.nth(13)?.parse().ok()?;
        let runs = !matches!(state, "Z" | "X") || threads > 1;
        Some(runs && group == leader && session == leader)
    };
    look().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::{io::Read, time::Duration};

    use super::{
        super::{command, spawn},
        *,
    };
    use crate::config::StdioConfig;

    /// A leader that waits for EOF, and another in its group that waits for ever.
    struct Group {
        leader: spawn::Child,
        other: libc::pid_t,
    }

    fn group() -> Group {
        let script = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; exec cat";
        group_of("sh", &["-c", script])
    }

    /// The group of a program that says a process id first.
    fn group_of(program: &str, arguments: &[&str]) -> Group {
        let mut config = StdioConfig::new(program);
        config.args = arguments.iter().map(|&a| a.to_owned()).collect();
        let command = command::resolve(&config, std::env::vars_os()).unwrap();
        let leader = spawn::spawn(&command, None).unwrap();
        sys::poll_readable(&[leader.stdout.as_fd()], None);
        let mut line = [0; 64];
        let mut stdout = std::fs::File::from(leader.stdout.try_clone().unwrap());
        let read = stdout.read(&mut line).unwrap();
        let other = std::str::from_utf8(&line[..read])
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        Group { leader, other }
    }

    /// Ends the leader and takes its status, as this library or as the host would.
    fn end_leader(leader: spawn::Child) -> (libc::pid_t, OwnedFd) {
        let spawn::Child {
            pid, pidfd, stdin, ..
        } = leader;
        drop(stdin);
        sys::poll_readable(&[pidfd.as_fd()], None);
        assert_eq!(sys::reap(pidfd.as_fd()).unwrap(), Some(Exit::Code(0)));
        (pid, pidfd)
    }

    fn wait_for_end_of(pid: libc::pid_t) {
        if let Ok(pidfd) = sys::pidfd_open(pid) {
            assert!(sys::poll_readable(&[pidfd.as_fd()], Some(Duration::from_secs(60)))[0]);
        }
    }

    #[test]
    fn without_the_newer_call_a_living_group_is_signalled_by_its_number() {
        let Group { leader, other } = group();
        let signal =
            |signal| signal_group_by_number(leader.pid, leader.pidfd.as_fd(), false, signal);
        assert!(signal(0));
        assert!(signal(libc::SIGKILL));
        wait_for_end_of(other);
        sys::poll_readable(&[leader.pidfd.as_fd()], None);
        // A zombie is still there.
        assert!(signal(0));
        let exit = sys::reap(leader.pidfd.as_fd()).unwrap();
        assert_eq!(exit, Some(Exit::Signal(libc::SIGKILL)));
    }

    #[test]
    fn a_sandbox_that_forbids_signals_by_descriptor_keeps_no_group_alive() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            // The filter goes with its thread.
            let in_sandbox = std::thread::spawn(move || {
                let Group { leader, other } = group();
                sys::forbid_signals_by_descriptor(errno);
                let process = Process::new(leader.pid, leader.pidfd, 1);
                assert!(process.signal_group(libc::SIGKILL));
                wait_for_end_of(other);
                sys::poll_readable(&[process.as_fd()], None);
                assert_eq!(process.reap(), Some(Exit::Signal(libc::SIGKILL)));
                assert!(!process.signal_group(0));
            });
            in_sandbox.join().unwrap();
        }
    }

    #[test]
    fn what_a_reaped_leader_left_is_found_and_signalled_by_descriptor() {
        for known_to_be_reaped in [true, false] {
            let Group { leader, other } = group();
            let (pid, pidfd) = end_leader(leader);
            let signal =
                |signal| signal_group_by_number(pid, pidfd.as_fd(), known_to_be_reaped, signal);
            assert_eq!(members(pid).len(), 1);
            assert!(signal(0));
            assert!(signal(libc::SIGKILL));
            wait_for_end_of(other);
            assert_eq!(members(pid).len(), 0);
        }
    }

    /// A leader that waits for EOF, and a zombie in its group, whose parent is in another and does not wait for it.
    const ZOMBIE: &str = "
import os, signal, sys
if os.fork() == 0:
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    os.setpgid(0, 0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    print(os.getpid(), flush=True)
    signal.pause()
sys.stdin.read()
";

    #[test]
    fn a_zombie_in_the_group_is_nobody_to_wait_for_and_a_process_is() {
        for (zombie, others_run) in [(true, false), (false, true)] {
            let Group { leader, other } = if zombie {
                group_of("python3", &["-S", "-c", ZOMBIE])
            } else {
                group()
            };
            let (pid, pidfd) = end_leader(leader);
            let process = Process::new(pid, pidfd, 1);
            assert!(process.reap().is_some());
            assert_eq!(process.others_run(), others_run);
            sys::kill(other, libc::SIGKILL).unwrap();
            wait_for_end_of(other);
        }
    }

    #[test]
    fn the_newer_call_reaches_a_group_without_its_leader() {
        let Group { leader, other } = group();
        let (_, pidfd) = end_leader(leader);
        match sys::pidfd_signal_group(pidfd.as_fd(), libc::SIGKILL) {
            Ok(()) => {}
            // An older kernel, where the other way is taken.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                sys::kill(other, libc::SIGKILL).unwrap()
            }
            Err(e) => panic!("{e}"),
        }
        wait_for_end_of(other);
    }

    #[test]
    fn a_number_that_is_someone_elses_now_is_not_signalled() {
        let Group { leader, other } = group();
        let (_, pidfd) = end_leader(leader);
        // As if the leader's number had been given to the leader of another group.
        let Group {
            leader: stranger,
            other: strangers,
        } = group();
        assert!(!signal_group_by_number(
            stranger.pid,
            pidfd.as_fd(),
            true,
            libc::SIGKILL
        ));
        assert!(!sys::has_ended(stranger.pidfd.as_fd()));
        for pid in [other, stranger.pid, strangers] {
            sys::kill(pid, libc::SIGKILL).unwrap();
        }
        sys::poll_readable(&[stranger.pidfd.as_fd()], None);
        sys::reap(stranger.pidfd.as_fd()).unwrap();
    }
}
