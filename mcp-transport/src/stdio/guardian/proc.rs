//! Signals to a whole group, and what `/proc` tells, without an allocation: for the guardian, which may make
//! none.
//!
//! Beside `process.rs`, which does the same for the host in std's words and holds the leader from being reaped
//! meanwhile, which the guardian cannot.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    os::fd::RawFd,
    sync::atomic::{Ordering, compiler_fence},
};

/// Sends a signal to everyone in the group, or asks with signal 0 whether there is anyone. Says whether there was.
pub(super) fn signal_group(pidfd: RawFd, leader: libc::pid_t, signal: libc::c_int) -> bool {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    if send(pidfd, signal, PIDFD_SIGNAL_PROCESS_GROUP) {
        return true;
    }
    match errno() {
        // Before Linux 6.9.
        libc::EINVAL => signal_members(pidfd, leader, signal),
        // Somebody is there who has become another user.
        libc::EPERM => true,
        _ => false,
    }
}

/// One by one and each by descriptor, for the number of a group may be given to another at any time.
pub(super) fn signal_members(pidfd: RawFd, leader: libc::pid_t, signal: libc::c_int) -> bool {
    let mut anyone = send(pidfd, signal, 0);
    // SAFETY: signal 0 only asks.
    if !anyone && unsafe { libc::kill(leader, 0) } == 0 {
        // The number is another's by now, which it cannot be while anyone is in the group.
        return false;
    }
    each_process(|pid| {
        if pid == leader || !is_member(pid, leader) {
            return;
        }
        // SAFETY: it only makes a descriptor.
        let member = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
        if member >= 0 {
            // Asked again once the descriptor is there: now it is known to be the same process.
            if is_member(pid, leader) {
                anyone |= send(member, signal, 0);
            }
            close(member);
        }
    });
    anyone
}

fn send(pidfd: RawFd, signal: libc::c_int, flags: libc::c_uint) -> bool {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null pointer asks the kernel to fill in the information itself.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, no_info, flags) == 0 }
}

fn errno() -> libc::c_int {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() }
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: whose it is is the caller's care.
    unsafe { libc::close(fd) };
}

/// Reads up to the buffer's end; gives what was read.
pub(super) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: the path ends with NUL; the kernel writes no more than the buffer's length.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return &[];
        }
        let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(fd);
        usize::try_from(read)
            .ok()
            .and_then(|read| buffer.get(..read))
            .unwrap_or_default()
    }
}

/// The fields of a `/proc/<pid>/stat` after the name, which may hold anything, also blanks and brackets; the first
/// is the state.
pub(super) fn fields(stat: &[u8]) -> impl Iterator<Item = &[u8]> {
    let after = stat.iter().rposition(|&b| b == b')').map_or(0, |at| at + 1);
    stat.get(after..)
        .unwrap_or_default()
        .split(|&b| b == b' ' || b == b'\n')
        .filter(|field| !field.is_empty())
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.is_ascii_digit().then(|| digit.wrapping_sub(b'0'))?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Whether the process runs in the session and group of that leader.
fn is_member(pid: libc::pid_t, leader: libc::pid_t) -> bool {
    let mut path = [0; 32];
    let Some(path) = stat_path(pid, &mut path) else {
        return false;
    };
    let mut buffer = [0; 512];
    let stat = read_file(path, &mut buffer);
    let mut fields = fields(stat);
    let leader = u64::try_from(leader).ok();
    let state = fields.next().unwrap_or_default();
    let group = fields.nth(1).and_then(number);
    let session = fields.next().and_then(number);
    !matches!(state, b"" | b"Z" | b"X") && group == leader && session == leader
}

/// `/proc/<pid>/stat`.
fn stat_path(pid: libc::pid_t, room: &mut [u8; 32]) -> Option<&CStr> {
    let mut rest = u32::try_from(pid).ok()?;
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    loop {
        at = at.checked_sub(1)?;
        *digits.get_mut(at)? = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts = [b"/proc/", digits.get(at..)?, b"/stat\0"];
    let bytes = parts.into_iter().flatten();
    for (to, from) in room.iter_mut().zip(bytes) {
        *to = *from;
    }
    CStr::from_bytes_until_nul(room).ok()
}

fn each_process(mut each: impl FnMut(libc::pid_t)) {
    // The head of the kernel's `linux_dirent64`: inode, offset, length, type, then the name.
    const LEN_AT: usize = 16;
    const NAME_AT: usize = 19;
    let mut buffer = [0u64; 512];
    // SAFETY: the path ends with NUL.
    let dir = unsafe {
        libc::open(
            c"/proc".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        )
    };
    if dir < 0 {
        return;
    }
    loop {
        // SAFETY: the kernel writes no more than the buffer's size.
        let read = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                dir,
                buffer.as_mut_ptr(),
                size_of_val(&buffer),
            )
        };
        compiler_fence(Ordering::SeqCst);
        let Some(read) = usize::try_from(read).ok().filter(|&read| read > 0) else {
            break;
        };
        // SAFETY: the bytes of the buffer, all of them initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), size_of_val(&buffer))
        };
        let mut rest = bytes.get(..read).unwrap_or_default();
        while let (Some(&a), Some(&b)) = (rest.get(LEN_AT), rest.get(LEN_AT + 1)) {
            let len = usize::from(u16::from_ne_bytes([a, b]));
            let name = rest.get(NAME_AT..len).unwrap_or_default();
            let name = name.split(|&b| b == 0).next().unwrap_or_default();
            if let Some(pid) = number(name).and_then(|pid| libc::pid_t::try_from(pid).ok()) {
                each(pid);
            }
            if len == 0 {
                break;
            }
            rest = rest.get(len..).unwrap_or_default();
        }
    }
    close(dir);
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::process::CommandExt};

    use super::{super::super::sys, *};

    #[test]
    fn every_process_is_seen_and_a_member_is_told_from_a_stranger() {
        let me = std::process::id() as libc::pid_t;
        let mut seen = false;
        each_process(|pid| seen |= pid == me);
        assert!(seen);
        // SAFETY: it only asks.
        let session = unsafe { libc::getsid(0) };
        assert!(!is_member(me, session + 1));
        let mut room = [0; 32];
        assert_eq!(stat_path(12_345, &mut room), Some(c"/proc/12345/stat"));
        let mut room = [0; 32];
        assert_eq!(
            stat_path(i32::MAX, &mut room),
            Some(c"/proc/2147483647/stat")
        );
    }

    #[test]
    fn names_with_brackets_and_blanks_do_not_shift_the_fields() {
        let stat = b"12 (a) b (c)) S 1 77 78 0\n";
        let fields: Vec<_> = fields(stat).take(4).collect();
        assert_eq!(fields, [&b"S"[..], b"1", b"77", b"78"]);
        assert_eq!(number(b"0077"), Some(77));
        assert_eq!(number(b"7a"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"99999999999999999999999"), None);
    }

    #[test]
    fn without_the_newer_call_each_member_is_signalled_by_descriptor() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 1000 & exec sleep 1000"]);
        // SAFETY: setsid may be called after a fork.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut leader = command.spawn().unwrap();
        let pid = leader.id() as libc::pid_t;
        let pidfd = sys::pidfd_open(pid).unwrap();
        let others = || {
            let mut others = 0;
            each_process(|other| others += i32::from(other != pid && is_member(other, pid)));
            others
        };
        while others() == 0 {
            std::thread::yield_now();
        }
        leader.kill().unwrap();
        leader.wait().unwrap();
        assert!(signal_members(pidfd.as_raw_fd(), pid, 0));
        assert!(signal_members(pidfd.as_raw_fd(), pid, libc::SIGKILL));
        while others() != 0 {
            std::thread::yield_now();
        }
        assert!(!signal_members(pidfd.as_raw_fd(), pid, libc::SIGKILL));
    }
}
