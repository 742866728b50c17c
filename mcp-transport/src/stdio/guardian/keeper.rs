//! The guardian's own process: what it does from the fork to its end.
//!
//! It is a fork of a process with threads that never calls exec, so that all of it must be async-signal-safe: no
//! allocation, no lock, no panic, no thread-local of Rust's. What it keeps lies in a mapping of its own.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{OwnedFd, RawFd},
    ptr,
};

use super::{
    super::fork::{self, default_signals},
    notice::{OPEN, OVER, receive},
    proc::{close, fields, number, read_file, signal_group, signal_members},
};

/// How long groups may take to heed TERM, and how long KILL is waited for, in milliseconds.
const AFTER_TERM: i64 = 1500;
const AFTER_KILL: i64 = 1000;
/// How often it is looked who is left meanwhile.
const LOOK: libc::c_int = 10;
/// Where the two descriptors are that it has at first.
const SOCKET: RawFd = 0;
const HOST: RawFd = 1;
/// Mappings of at least this size are given back.
const SHED: u64 = 128 << 10;
const NAME: &[u8] = b"mcp-guardian\0";

/// Forks the guardian. It holds these two descriptors: its end of the socket, and the host's.
pub(super) fn fork(socket: RawFd, host: RawFd) -> io::Result<(libc::pid_t, io::Result<OwnedFd>)> {
    // SAFETY: `keep` calls only what may be called then.
    unsafe {
        let plan = Plan {
            socket,
            host,
            gives_back: !is_under_a_checker(),
        };
        fork::fork(keep, &plan)
    }
}

/// Whether valgrind or a sanitizer looks on: these keep their own state in memory like what is given back, and need
/// it for every call.
fn is_under_a_checker() -> bool {
    let sanitizers = [
        c"__asan_init",
        c"__hwasan_init",
        c"__msan_init",
        c"__tsan_init",
    ];
    // SAFETY: the names end with NUL; the address is only compared.
    let is_there =
        |name: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() };
    sanitizers.into_iter().any(is_there)
        || std::fs::read("/proc/self/maps")
            .is_ok_and(|maps| memchr::memmem::find(&maps, b"/vgpreload_").is_some())
}

/// What it gets.
struct Plan {
    socket: RawFd,
    host: RawFd,
    /// Whether it gives the host's memory back.
    gives_back: bool,
}

/// # Safety
/// Only in a process that was forked just now.
unsafe fn keep(plan: &Plan) -> ! {
    // SAFETY: all of these may be called after a fork.
    unsafe {
        settle();
        take_descriptors(plan.socket, plan.host);
        rename();
        if plan.gives_back {
            rehearse();
            give_memory_back();
        }
        let mut groups = Groups::new();
        watch(&mut groups);
        end(&mut groups);
        exit(0)
    }
}

/// A session of its own, so that no signal to the host's group or terminal meets it, and signals as by default.
///
/// # Safety
/// As [`keep`].
unsafe fn settle() {
    // SAFETY: see `keep`.
    unsafe {
        default_signals();
        libc::setsid();
        // No directory is held.
        libc::chdir(c"/".as_ptr());
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Keeps the two, and closes whatever else came from the host.
///
/// # Safety
/// As [`keep`]. Neither of the two is 0 or 1.
unsafe fn take_descriptors(socket: RawFd, host: RawFd) {
    // SAFETY: the calls touch descriptors only, and the limit.
    unsafe {
        libc::dup2(socket, SOCKET);
        libc::dup2(host, HOST);
        let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        let mut limit = limit.assume_init();
        if libc::syscall(libc::SYS_close_range, HOST + 1, libc::c_uint::MAX, 0) != 0 {
            // Linux before 5.9.
            let highest = limit.rlim_cur.min(65_536) as RawFd;
            for fd in HOST + 1..highest {
                libc::close(fd);
            }
        }
        // It holds one for each server.
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

/// Takes another name than the host's, by which it can be told, and with which it is not killed by name together
/// with the host.
///
/// # Safety
/// As [`keep`].
unsafe fn rename() {
    // SAFETY: the name ends with NUL; the kernel says where this process's own arguments lie, on its main stack.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr(), 0, 0, 0);
        let mut buffer = [0; 1024];
        let stat = read_file(c"/proc/self/stat", &mut buffer);
        // The 48th and 49th of all, the state being the third.
        let mut bounds = fields(stat).skip(45).map(number);
        let (Some(Some(start)), Some(Some(end))) = (bounds.next(), bounds.next()) else {
            return;
        };
        let len = end.wrapping_sub(start) as usize;
        if start == 0 || end <= start || len > 1 << 21 {
            return;
        }
        let args = start as usize as *mut u8;
        for at in 0..len {
            let byte = NAME.get(at).copied().unwrap_or(0);
            args.wrapping_add(at).write_volatile(byte);
        }
    }
}

/// Calls once what is called later. Where a host binds its functions at their first use, that looks into memory
/// which is about to be given back.
///
/// # Safety
/// As [`keep`].
unsafe fn rehearse() {
    // A group of nobody: an id that no process has.
    signal_members(-1, libc::pid_t::MAX, 0);
    now();
    sleep_until_told(0);
    let _ = receive(-1);
    let mut groups = Groups::new();
    // To itself: nothing is in it, and nothing is done.
    end(&mut groups);
    groups.grow();
    groups.unmap();
}

/// Gives the host's memory back: as long as this process had its pages, whatever the host writes to would be copied
/// and the old kept here.
///
/// Only large anonymous mappings are emptied (not unmapped), and not the one with this stack: code, the data of
/// libraries and this thread's own state stay.
///
/// # Safety
/// As [`keep`]. Nothing on the heap may be touched afterwards.
unsafe fn give_memory_back() {
    let here = 0u8;
    let here = &raw const here as u64;
    // SAFETY: the path ends with NUL; the kernel writes no more than the buffer's length; see above for the rest.
    unsafe {
        let fd = libc::open(
            c"/proc/self/maps".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        );
        if fd < 0 {
            return;
        }
        let mut mapping = Mapping::default();
        let mut buffer = [0u8; 1024];
        loop {
            let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
            let Some(read) = usize::try_from(read).ok().filter(|&read| read > 0) else {
                break;
            };
            for &byte in buffer.get(..read).unwrap_or_default() {
                if let Some((start, end)) = mapping.feed(byte) {
                    if end.wrapping_sub(start) >= SHED && !(start..end).contains(&here) {
                        libc::madvise(
                            start as usize as *mut libc::c_void,
                            end.wrapping_sub(start) as usize,
                            libc::MADV_DONTNEED,
                        );
                    }
                }
            }
        }
        close(fd);
    }
}

/// Reads `/proc/self/maps` byte by byte.
#[derive(Debug, Default)]
struct Mapping {
    field: u8,
    start: u64,
    end: u64,
    in_end: bool,
    letter: usize,
    writable: bool,
    private: bool,
    name: [u8; 6],
}

impl Mapping {
    /// The fields of a line: bounds, permissions, offset, device, inode, name.
    const BOUNDS: u8 = 0;
    const PERMISSIONS: u8 = 1;
    const NAME: u8 = 5;

    /// At a line's end: the mapping's bounds, if it is private and writable memory of no file, and no stack that the
    /// kernel names.
    fn feed(&mut self, byte: u8) -> Option<(u64, u64)> {
        match byte {
            b'\n' => {
                let line = std::mem::take(self);
                let of_no_file = matches!(&line.name, [0, ..] | b"[heap]" | b"[anon:");
                let is_memory = line.writable && line.private && of_no_file;
                return is_memory.then_some((line.start, line.end));
            }
            // Many blanks may stand before a name.
            b' ' if self.field == Self::NAME => {}
            b' ' => {
                self.field = self.field.wrapping_add(1);
                self.letter = 0;
            }
            _ => {
                self.take(byte);
                self.letter = self.letter.wrapping_add(1);
            }
        }
        None
    }

    fn take(&mut self, byte: u8) {
        match self.field {
            Self::BOUNDS if byte == b'-' => self.in_end = true,
            Self::BOUNDS => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let bound = if self.in_end {
                    &mut self.end
                } else {
                    &mut self.start
                };
                *bound = bound.wrapping_mul(16).wrapping_add(digit.into());
            }
            Self::PERMISSIONS => {
                self.writable |= byte == b'w';
                self.private |= byte == b'p';
            }
            Self::NAME => {
                if let Some(letter) = self.name.get_mut(self.letter) {
                    *letter = byte;
                }
            }
            _ => {}
        }
    }
}

/// A group that is open.
#[derive(Clone, Copy)]
struct Group {
    key: u64,
    pidfd: RawFd,
    pid: libc::pid_t,
}

/// The groups that are open, in a mapping of their own.
struct Groups {
    start: *mut Group,
    len: usize,
    capacity: usize,
}

impl Groups {
    const FIRST: usize = 256;

    fn new() -> Self {
        Self {
            start: map(Self::FIRST),
            len: 0,
            capacity: Self::FIRST,
        }
    }

    fn get(&self, at: usize) -> Option<Group> {
        // SAFETY: below `len` they were written.
        (at < self.len).then(|| unsafe { self.start.wrapping_add(at).read() })
    }

    fn position(&self, key: u64) -> Option<usize> {
        (0..self.len).find(|&at| self.get(at).is_some_and(|group| group.key == key))
    }

    fn push(&mut self, group: Group) {
        if self.len == self.capacity {
            self.grow();
        }
        // SAFETY: there is room up to `capacity`.
        unsafe { self.start.wrapping_add(self.len).write(group) };
        self.len = self.len.wrapping_add(1);
    }

    fn remove(&mut self, at: usize) {
        let (Some(gone), Some(last)) = (self.get(at), self.get(self.len.wrapping_sub(1))) else {
            return;
        };
        close(gone.pidfd);
        // SAFETY: `at` is below `len`.
        unsafe { self.start.wrapping_add(at).write(last) };
        self.len = self.len.wrapping_sub(1);
    }

    fn grow(&mut self) {
        let larger = map(self.capacity.wrapping_mul(2));
        for at in 0..self.len {
            if let Some(group) = self.get(at) {
                // SAFETY: the new mapping has room for twice as many.
                unsafe { larger.wrapping_add(at).write(group) };
            }
        }
        self.unmap();
        self.start = larger;
        self.capacity = self.capacity.wrapping_mul(2);
    }

    fn unmap(&self) {
        // SAFETY: it was mapped with this length, and nobody points into it from here on.
        unsafe {
            let bytes = self.capacity.wrapping_mul(size_of::<Group>());
            libc::munmap(self.start.cast(), bytes);
        }
    }
}

/// Memory for this many groups. Where there is none, the guardian ends, and the host notices.
fn map(groups: usize) -> *mut Group {
    // SAFETY: a new mapping touches nothing that is there.
    unsafe {
        let mapped = libc::mmap(
            ptr::null_mut(),
            groups.wrapping_mul(size_of::<Group>()),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if mapped == libc::MAP_FAILED {
            exit(1);
        }
        mapped.cast()
    }
}

/// Listens until the host has ended or let go.
fn watch(groups: &mut Groups) {
    loop {
        let host_has_ended = sleep_until_told(-1);
        // Also what the host said last.
        loop {
            match receive(SOCKET) {
                Ok(Some((record, fd))) => match (record.kind, fd) {
                    (OPEN, Some(pidfd)) if groups.position(record.key).is_none() => {
                        groups.push(Group {
                            key: record.key,
                            pidfd,
                            pid: record.pid,
                        });
                    }
                    (kind, fd) => {
                        if let Some(fd) = fd {
                            close(fd);
                        }
                        if let (OVER, Some(at)) = (kind, groups.position(record.key)) {
                            groups.remove(at);
                        }
                    }
                },
                Ok(None) => break,
                Err(()) => return,
            }
        }
        if host_has_ended {
            return;
        }
    }
}

/// Waits for a word or for the host's end, or for the milliseconds; says whether the host has ended.
fn sleep_until_told(timeout: libc::c_int) -> bool {
    let mut polled = [SOCKET, HOST].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: pointer and length are those of the array.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
    let [_, host] = polled;
    host.revents & libc::POLLIN != 0
}

/// Ends the groups that are open.
fn end(groups: &mut Groups) {
    let begun = now();
    let mut signal = libc::SIGTERM;
    loop {
        let mut at = 0;
        while let Some(group) = groups.get(at) {
            if signal_group(group.pidfd, group.pid, signal) {
                at = at.wrapping_add(1);
            } else {
                groups.remove(at);
            }
        }
        let passed = now().wrapping_sub(begun);
        if groups.len == 0 || passed >= AFTER_TERM.wrapping_add(AFTER_KILL) {
            return;
        }
        // KILL again and again: it does no harm, and who joined meanwhile is met too.
        signal = if passed >= AFTER_TERM {
            libc::SIGKILL
        } else {
            0
        };
        // SAFETY: no descriptors are looked at.
        unsafe { libc::poll(ptr::null_mut(), 0, LOOK) };
    }
}

fn exit(code: libc::c_int) -> ! {
    loop {
        // SAFETY: it does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// Milliseconds of the monotonic clock.
fn now() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Not the same type on every platform.
    #[allow(clippy::useless_conversion)]
    let (seconds, nanos) = (i64::from(time.tv_sec), i64::from(time.tv_nsec));
    seconds.wrapping_mul(1000).wrapping_add(nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_writable_memory_of_no_file_is_given_back() {
        let maps = b"\
1000-2000 r-xp 00000000 08:01 123                        /usr/lib/libc.so
2000-3000 rw-p 00001000 08:01 123                        /usr/lib/libc.so
3000-4000 rw-p 00000000 00:00 0 
5000-9000 rw-p 00000000 00:00 0                          [heap]
a000-b000 ---p 00000000 00:00 0 
7f00aa000000-7f00ab000000 rw-p 00000000 00:00 0          [anon:glibc: malloc]
b000-c000 rw-s 00000000 00:01 9                          /memfd:x (deleted)
d000-e000 rw-p 00000000 00:00 0                          [stack]
";
        let mut mapping = Mapping::default();
        let found: Vec<_> = maps.iter().filter_map(|&byte| mapping.feed(byte)).collect();
        assert_eq!(
            found,
            [
                (0x3000, 0x4000),
                (0x5000, 0x9000),
                (0x7f00_aa00_0000, 0x7f00_ab00_0000)
            ]
        );
    }

    #[test]
    fn groups_are_kept_beyond_the_first_mapping_and_found_by_their_keys() {
        let mut groups = Groups::new();
        for key in 0..1000 {
            groups.push(Group {
                key,
                pidfd: -1,
                pid: 1,
            });
        }
        for key in (0..1000).filter(|key| key % 3 != 0) {
            groups.remove(groups.position(key).unwrap());
        }
        assert_eq!(groups.len, 334);
        assert!((0..1000).all(|key| groups.position(key).is_some() == (key % 3 == 0)));
        assert!(groups.get(334).is_none());
        groups.unmap();
    }
}
