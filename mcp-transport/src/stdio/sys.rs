//! The system calls that std has no safe face for, each with a safe one here.
#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use tokio::io::{Interest, unix::AsyncFd};

/// What a system call says: a negative number is an error.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn checked_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Takes a descriptor that a system call just made.
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that the kernel gave it in this moment, and keeps no other copy.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Has the runtime watch a descriptor.
///
/// tokio deprecates this for types whose descriptor may not stay open as long as it is watched, in favour of an
/// unsafe one that its older versions lack. Ours own theirs: pipe ends as `File`, processes by `Arc`.
#[allow(deprecated)]
pub(super) fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}

/// A pipe, reading end first. Both ends are closed at exec, and neither is one of 0, 1 and 2, whatever the host
/// has closed, so that they can be put in the place of these in a child.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two descriptors into the array.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    let (read, write) = (owned(ends[0]), owned(ends[1]));
    Ok((above_stdio(read)?, above_stdio(write)?))
}

/// Out of the way of what a host that has closed 0, 1 or 2 reads and writes there all the same.
pub(super) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    // SAFETY: it only makes another descriptor.
    let other = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    checked(other).map(owned)
}

/// Two ends of a socket that keeps the bounds of what is sent and takes descriptors along. As with [`pipe`], neither
/// is one of 0, 1 and 2.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors into the array.
    checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    let (one, other) = (owned(ends[0]), owned(ends[1]));
    Ok((above_stdio(one)?, above_stdio(other)?))
}

/// Makes reads and writes of this end of a new [`pipe`] return instead of waiting.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: it only sets the flags of an open descriptor, which has no others yet.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok(())
}

/// Reads at most `max` bytes to the end of the buffer.
pub(super) fn read_to_end_of(
    fd: BorrowedFd<'_>,
    buffer: &mut BytesMut,
    max: usize,
) -> io::Result<usize> {
    buffer.reserve(max);
    let room = buffer.chunk_mut();
    let max = max.min(room.len());
    // SAFETY: the kernel writes at most `max` bytes into room that the buffer has for them.
    let read = unsafe { libc::read(fd.as_raw_fd(), room.as_mut_ptr().cast(), max) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has just written this many bytes there.
    unsafe { buffer.advance_mut(read) };
    Ok(read)
}

/// An eventfd for waking one waiting thread.
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: it only makes a descriptor.
    let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    above_stdio(owned(fd))
}

/// Waits until one of the descriptors is readable or the time is over; says which are.
pub(super) fn poll_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Vec<bool> {
    let mut polled: Vec<_> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = timeout.map_or(-1, |t| {
        libc::c_int::try_from(t.as_millis()).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: the pointer and the length are those of the vector. On an error, EINTR at most, no bit is set.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
    polled.iter().map(|p| p.revents != 0).collect()
}

/// Waits until the descriptor takes something or the time is over; says whether it does.
pub(super) fn poll_writable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut polled = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    let timeout = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: it is one entry.
    unsafe { libc::poll(&raw mut polled, 1, timeout) > 0 }
}

/// A descriptor of the process with this id; none of 0, 1 and 2.
pub(super) fn pidfd_open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: it only makes a descriptor; the kernel closes it at exec.
    let fd = checked_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    above_stdio(owned(fd as RawFd))
}

/// Sends a signal to the process that the descriptor is of: never to another, also after its id is used again.
pub(super) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    pidfd_send_signal(pidfd, signal, 0)
}

/// Sends a signal to the process group of that process, also when it itself is no more. Linux 6.9; `EINVAL`
/// before that.
pub(super) fn pidfd_signal_group(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    pidfd_send_signal(pidfd, signal, PIDFD_SIGNAL_PROCESS_GROUP)
}

fn pidfd_send_signal(
    pidfd: BorrowedFd<'_>,
    signal: libc::c_int,
    flags: libc::c_uint,
) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null pointer asks the kernel to fill in the information itself.
    checked_long(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            no_info,
            flags,
        )
    })?;
    Ok(())
}

/// Has the kernel answer this thread's `pidfd_send_signal` with an error, as sandboxes do.
#[cfg(test)]
pub(super) fn forbid_signals_by_descriptor(errno: libc::c_int) {
    let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(load_number, 0, 0, 0),
        step(is_equal, 0, 1, libc::SYS_pidfd_send_signal as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program lives through the call, and bars one call of this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program),
            0
        );
    }
}

/// Sends a signal by number: to a process, or to a group if negative.
pub(super) fn kill(pid: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: it touches no memory of ours. Whom it meets is the caller's care.
    checked(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It has ended, but somebody else in this process took its status.
    Unknown,
}

/// Takes the status of a child that has ended, and with it the child's id out of the world. `None` while it
/// runs.
pub(super) fn reap(pidfd: BorrowedFd<'_>) -> io::Result<Option<Exit>> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the kernel writes one siginfo_t there.
        let result = unsafe {
            libc::waitid(
                libc::P_PIDFD,
                pidfd.as_raw_fd() as libc::id_t,
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOHANG,
            )
        };
        if let Err(error) = checked(result) {
            return match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // A host that ignores SIGCHLD, or waits for every child, was first. While the process runs the
                // kernel says so too under an ignored SIGCHLD; only the descriptor tells.
                Some(libc::ECHILD) if has_ended(pidfd) => Ok(Some(Exit::Unknown)),
                Some(libc::ECHILD) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: all bits zero are a siginfo_t, and the kernel has filled it in where a child has ended.
        let info = unsafe { info.assume_init() };
        // SAFETY: waitid gives this variant of the union; zero means that no child has ended.
        if unsafe { info.si_pid() } == 0 {
            return Ok(None);
        }
        // SAFETY: as above.
        let status = unsafe { info.si_status() };
        return Ok(Some(match info.si_code {
            libc::CLD_EXITED => Exit::Code(status),
            _ => Exit::Signal(status),
        }));
    }
}

/// Whether the child has ended and its status was taken, by whomever; as long as it was not, its id is no other's.
pub(super) fn is_reaped(pidfd: BorrowedFd<'_>) -> bool {
    let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
    loop {
        // SAFETY: the kernel writes one siginfo_t there, which nobody reads.
        let looked = checked(unsafe {
            libc::waitid(
                libc::P_PIDFD,
                pidfd.as_raw_fd() as libc::id_t,
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
            )
        });
        match looked.map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EINTR)) => {}
            // Said too of one that runs, where the host ignores SIGCHLD.
            Err(Some(libc::ECHILD)) => return has_ended(pidfd),
            _ => return false,
        }
    }
}

/// Whether the process has ended, reaped or not.
pub(super) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    poll_readable(&[pidfd], Some(Duration::ZERO))[0]
}

/// Whether this process might execute the file.
pub(super) fn may_execute(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is a string that ends with NUL.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Has this thread, which starts children, block SIGCHLD only where the host handles it.
///
/// The kernel drops the signal of a child's end where its disposition is the default, but not if the thread that
/// started the child blocks it: then it wakes another thread for nothing, and the host's `epoll_wait` fails with
/// EINTR. Where the host has a handler, that one must not run here.
///
/// `is_blocked` is what the last call made of it, none before the first.
pub(super) fn block_sigchld_if_handled(is_blocked: &mut Option<bool>) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sigemptyset makes the set whole and sigaction the action; neither fails with these arguments.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), action.as_mut_ptr());
        let handled = action.assume_init().sa_sigaction != libc::SIG_DFL;
        if is_blocked.replace(handled) == Some(handled) {
            return;
        }
        let how = if handled {
            libc::SIG_BLOCK
        } else {
            libc::SIG_UNBLOCK
        };
        libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Runs `f` while this thread has every signal blocked: a thread that is started in it never runs a handler of
/// the host's, not even at its start.
pub fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset makes the first set whole, pthread_sigmask the second; neither fails with these
    // arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: the set was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
