//! What the guardian is told: records over a socket that keeps their bounds, a descriptor beside some.
#![allow(unsafe_code)]

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    ptr,
};

use super::super::process::Process;

/// One record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Record {
    pub(super) kind: u32,
    /// The group's number, with [`OPEN`]. The descriptor of its leader goes along.
    pub(super) pid: i32,
    pub(super) key: u64,
}

pub(super) const OPEN: u32 = 1;
pub(super) const OVER: u32 = 2;

/// Room for one descriptor beside a record, aligned as the kernel wants it.
type Aside = [u64; 4];

/// What is told of one group, and to whom.
#[derive(Debug)]
pub(in super::super) struct Notice<'a> {
    socket: BorrowedFd<'a>,
    key: u64,
}

impl<'a> Notice<'a> {
    pub(super) fn new(socket: BorrowedFd<'a>, key: u64) -> Self {
        Self { socket, key }
    }

    /// Tells of the group that the calling process leads, and says whether it could. For a child that was forked just
    /// now: async-signal-safe.
    pub(in super::super) fn send_for_myself(&self) -> bool {
        // SAFETY: the calls touch descriptors only, and the new one is known here alone.
        unsafe {
            let pid = libc::getpid();
            let pidfd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as RawFd;
            if pidfd < 0 {
                return false;
            }
            let sent = self.send_open(pid, pidfd);
            libc::close(pidfd);
            sent > 0
        }
    }

    pub(super) fn send(&self, process: &Process) -> io::Result<()> {
        told(self.send_open(process.group(), process.as_fd().as_raw_fd()))
    }

    pub(super) fn send_over(&self) -> io::Result<()> {
        let record = Record {
            kind: OVER,
            pid: 0,
            key: self.key,
        };
        told(send(self.socket.as_raw_fd(), record, None))
    }

    fn send_open(&self, pid: libc::pid_t, pidfd: RawFd) -> isize {
        let record = Record {
            kind: OPEN,
            pid,
            key: self.key,
        };
        send(self.socket.as_raw_fd(), record, Some(pidfd))
    }
}

fn told(sent: isize) -> io::Result<()> {
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends without waiting and without SIGPIPE. Async-signal-safe.
fn send(socket: RawFd, mut record: Record, fd: Option<RawFd>) -> isize {
    let mut aside: Aside = [0; 4];
    // SAFETY: the pointers are into this frame; the header is written inside `aside`, which has room for one
    // descriptor.
    unsafe {
        let mut part = libc::iovec {
            iov_base: (&raw mut record).cast(),
            iov_len: size_of::<Record>(),
        };
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            message.msg_control = aside.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast(), fd);
        }
        libc::sendmsg(
            socket,
            &raw const message,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    }
}

/// Takes the next record and what goes along with it. `None`: nothing for now; `Err`: never again, the other end is
/// closed. Async-signal-safe.
pub(super) fn receive(socket: RawFd) -> Result<Option<(Record, Option<RawFd>)>, ()> {
    let mut aside: Aside = [0; 4];
    let mut record = Record::default();
    // SAFETY: the pointers are into this frame; the kernel writes no more than the lengths say.
    unsafe {
        let mut part = libc::iovec {
            iov_base: (&raw mut record).cast(),
            iov_len: size_of::<Record>(),
        };
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = aside.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Aside>() as _;
        match libc::recvmsg(
            socket,
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        ) {
            0 => return Err(()),
            received if received < 0 => {
                return match *libc::__errno_location() {
                    libc::EAGAIN | libc::EINTR => Ok(None),
                    _ => Err(()),
                };
            }
            _ => {}
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let has_fd = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let fd = has_fd.then(|| ptr::read_unaligned(libc::CMSG_DATA(header).cast()));
        Ok(Some((record, fd)))
    }
}
