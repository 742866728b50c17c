//! The guardian: a small process that ends the servers when the host has ended, in whatever way.
//!
//! There is one per spawner. It is told of each group of processes when that is opened and when nobody of it is
//! left, over a socket of which only the host holds the other end. When that end is closed, or the host has ended
//! (it watches both, for a host that forks leaves copies of the end in its children), it sends TERM to the groups
//! that are still open, and KILL to those that do not heed it, and ends.
//!
//! It is a fork of the host that runs nothing else, and not a program of its own: a library has none that it could
//! rely on. `/proc/self/exe` is the host's, a shell may not be there and cannot hold on to a process by descriptor,
//! and a helper would have to be installed, found, and of the same version. What a fork costs otherwise it gives
//! back: it drops the host's memory, descriptors and name (see [`keeper`]).
//!
//! A group is known by a number that is never used again and by the descriptor of its leader, which goes along:
//! what is signalled is that group or nothing, also when its id has been given to others.

mod keeper;
mod notice;
mod proc;

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tracing::warn;

pub(super) use self::notice::Notice;
use super::{
    inherited::{End, Inherited},
    process::Process,
    sys::{self, Exit},
};

/// How long a guardian may leave what it is told unread before it counts as stuck.
const STUCK: Duration = Duration::from_secs(1);
/// One that ends sooner than this died young.
const YOUNG: Duration = Duration::from_secs(1);
/// How many in a row that died young are replaced at once; after that the next server brings the next.
const MOST_YOUNG: u32 = 3;
/// How long one without groups may take to end.
const LEAVING: Duration = Duration::from_secs(5);

/// The host's side. It belongs to the spawner's thread.
#[derive(Debug)]
pub(super) struct Guardian {
    wanted: bool,
    inherited: Arc<Inherited>,
    running: Option<Running>,
    line: Arc<Line>,
    /// How many were started.
    started: u64,
    /// The groups that are open, by their keys. Whoever answers for a process holds it until it is over.
    open: HashMap<u64, Weak<Process>>,
    last_key: u64,
    died_young: u32,
}

/// The way to the guardian that runs now, for those on other threads.
#[derive(Debug, Default)]
pub(super) struct Line(Mutex<Option<(Number, Arc<End>)>>);

/// Which of a spawner's guardians.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(u64);

impl Line {
    fn other_end(&self) -> MutexGuard<'_, Option<(Number, Arc<End>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that nobody of the group is left, and gives who was told; `None` if that cannot be said at once.
    pub(super) fn over(&self, key: u64) -> Option<Number> {
        let other_end = self.other_end();
        let (number, socket) = other_end.as_ref()?;
        let sent = Notice::new(socket.as_fd(), key).send_over();
        sent.is_ok().then_some(*number)
    }
}

#[derive(Debug)]
struct Running {
    number: Number,
    socket: Arc<End>,
    pidfd: OwnedFd,
    since: Instant,
}

impl Guardian {
    /// Without a process yet; if not `wanted`, for ever.
    pub(super) fn new(wanted: bool, inherited: Arc<Inherited>, line: Arc<Line>) -> Self {
        Self {
            wanted,
            inherited,
            running: None,
            line,
            started: 0,
            open: HashMap::new(),
            last_key: 0,
            died_young: 0,
        }
    }

    /// A key for a group that is about to be opened.
    pub(super) fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// With what a child announces its group itself, before it runs its program. Starts the guardian, if there is
    /// none.
    pub(super) fn notice(&mut self, key: u64) -> Option<Notice<'_>> {
        self.died_young = 0;
        if self.wanted && self.running.is_none() {
            self.start();
        }
        let running = self.running.as_ref()?;
        Some(Notice::new(running.socket.as_fd(), key))
    }

    /// The child runs: from here on it is told to every guardian, until it is [`over`](Self::over). `announced`: the
    /// child has told this one itself. Where that one is about to end, the next is told.
    pub(super) fn opened(&mut self, process: &Arc<Process>, announced: bool) {
        if self.wanted {
            if !announced {
                self.tell(|socket| Notice::new(socket, process.key).send(process));
            }
            self.open.insert(process.key, Arc::downgrade(process));
        }
    }

    /// Nobody of the group is left, or nobody ever was. Which guardian was `told` of that already, if any was.
    pub(super) fn over(&mut self, key: u64, told: Option<Number>) {
        self.open.remove(&key);
        let runs = self.running.as_ref().map(|running| running.number);
        if told.is_some() && told == runs {
            return;
        }
        self.tell(|socket| Notice::new(socket, key).send_over());
    }

    /// Readable once the guardian has ended.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().map(|running| running.pidfd.as_fd())
    }

    /// Looks whether the guardian has ended, and replaces it if there is anything to guard.
    pub(super) fn check(&mut self) {
        let Some(running) = &self.running else { return };
        let Ok(Some(exit)) = sys::reap(running.pidfd.as_fd()) else {
            return;
        };
        self.died_young = if running.since.elapsed() < YOUNG {
            self.died_young + 1
        } else {
            0
        };
        self.running = None;
        *self.line.other_end() = None;
        let replaced = self.died_young <= MOST_YOUNG;
        warn_of_end(exit, replaced);
        if replaced && !self.open.is_empty() {
            self.start();
        }
    }

    /// Lets the guardian go, now that nothing is open.
    pub(super) fn stop(&mut self) {
        let Some(Running { socket, pidfd, .. }) = self.running.take() else {
            return;
        };
        *self.line.other_end() = None;
        drop(socket);
        if !sys::poll_readable(&[pidfd.as_fd()], Some(LEAVING))[0] {
            let _ = sys::pidfd_signal(pidfd.as_fd(), libc::SIGKILL);
            sys::poll_readable(&[pidfd.as_fd()], None);
        }
        let _ = sys::reap(pidfd.as_fd());
    }

    fn start(&mut self) {
        self.started += 1;
        match start(Number(self.started), &self.inherited) {
            Ok(running) => {
                *self.line.other_end() = Some((running.number, running.socket.clone()));
                self.running = Some(running);
                let open: Vec<_> = self.open.values().filter_map(Weak::upgrade).collect();
                for process in open {
                    self.tell(|socket| Notice::new(socket, process.key).send(&process));
                }
            }
            // The servers go on; the next one tries again.
            Err(error) => warn!(
                %error,
                "no guardian can be started now: servers may outlive this process if it is killed"
            ),
        }
    }

    /// Says something to the guardian. One that does not listen is ended, and [`check`](Self::check) replaces it.
    fn tell(&mut self, send: impl Fn(BorrowedFd<'_>) -> io::Result<()>) {
        let Some(running) = &self.running else { return };
        let mut result = send(running.socket.as_fd());
        if is_full(&result) && sys::poll_writable(running.socket.as_fd(), STUCK) {
            result = send(running.socket.as_fd());
        }
        if is_full(&result) {
            warn!("the guardian does not listen and is replaced");
            let _ = sys::pidfd_signal(running.pidfd.as_fd(), libc::SIGKILL);
        }
        // Any other failure is that it has ended, which its descriptor tells.
    }
}

fn is_full(result: &io::Result<()>) -> bool {
    matches!(result, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

fn warn_of_end(exit: Exit, replaced: bool) {
    warn!(?exit, replaced, "the guardian of the servers has ended");
}

fn start(number: Number, inherited: &Arc<Inherited>) -> io::Result<Running> {
    let (socket, theirs) = sys::socket_pair()?;
    let socket = End::new(socket, inherited)?;
    let host = sys::pidfd_open(std::process::id() as libc::pid_t)?;
    let fork = || keeper::fork(theirs.as_raw_fd(), host.as_raw_fd());
    let (_, pidfd) = sys::with_signals_blocked(fork)?;
    Ok(Running {
        number,
        socket: Arc::new(socket),
        // Where it cannot be had, as that of the host could a moment ago, the guardian ends with the socket.
        pidfd: pidfd?,
        since: Instant::now(),
    })
}
