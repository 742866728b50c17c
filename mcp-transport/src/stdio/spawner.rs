//! The thread that children are started from.
//!
//! The parent-death signal of a child is sent when the thread that started it ends, be the process alive or
//! not. So children are started from one thread that outlives them. It also takes note of the end of those
//! that were killed while nobody waited for them.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};

use super::{
    command::Command,
    guardian::{self, Guardian},
    inherited::{End, Inherited},
    process::{Guard, Process},
    spawn, sys,
};

/// Starts child processes, from a thread of its own that lives as long as any of them.
///
/// Clones share the thread. It is started with the first child, has all signals blocked (SIGCHLD only where the
/// host handles it), and ends once every clone is dropped, those that transports hold included, and every child has
/// ended.
///
/// Beside the thread there is one *guardian*: a process (`mcp-guardian`) that ends the children, and whatever is in
/// their groups, when this process has ended in whatever way: by `exit`, `abort`, or a signal, also SIGKILL. It runs
/// in a session of its own, holds none of the host's descriptors and next to none of its memory, and ends by itself
/// with the thread. Where it is ended from outside it is replaced. A host that waits for all its children sees it
/// as one more.
#[derive(Debug, Clone)]
pub struct Spawner {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mailbox: Mutex<Option<Arc<Mailbox>>>,
    guarded: bool,
    inherited: Arc<Inherited>,
}

impl Default for Spawner {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mailbox = self
            .mailbox
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(mailbox) = mailbox.take() {
            mailbox.post(Letter::End);
        }
    }
}

/// A child that runs, and our ends of its pipes.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) guard: Guard,
    pub(super) stdin: End,
    pub(super) stdout: End,
    pub(super) stderr: End,
}

impl Spawner {
    /// A spawner without a thread yet.
    pub fn new() -> Self {
        Self::with_guardian(true)
    }

    /// A spawner that starts no guardian.
    ///
    /// When this process ends without closing them, each child is killed by the kernel all the same, but not what
    /// it has started itself.
    pub fn without_guardian() -> Self {
        Self::with_guardian(false)
    }

    fn with_guardian(guarded: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                mailbox: Mutex::new(None),
                guarded,
                inherited: Arc::default(),
            }),
        }
    }

    /// Starts a process. When the future is dropped, so is the process.
    pub(super) async fn spawn(&self, command: Command) -> Result<Started, Error> {
        let (reply, answer) = oneshot::channel();
        let spawner = self.clone();
        self.mailbox()?.post(Letter::Spawn {
            command,
            spawner,
            reply,
        });
        answer.await.unwrap_or_else(|_| {
            let message = "the thread that starts processes has failed";
            Err(Error::new(ErrorKind::Internal, message))
        })
    }

    /// Takes note of the end of a process that was killed with its group, once it comes.
    pub(super) fn killed(&self, process: Arc<Process>) {
        // Where there is no thread, there is none of its children.
        if let Ok(mailbox) = self.mailbox() {
            mailbox.post(Letter::Killed(process));
        }
    }

    /// Nobody is left of the group with this key. The guardian is told on this thread, and the spawner's when it wakes by
    /// itself.
    pub(super) fn over(&self, key: u64) {
        // Where there is no thread, there is none of its children.
        let Ok(mailbox) = self.mailbox() else { return };
        match mailbox.line.over(key) {
            told @ Some(_) => mailbox.leave(Letter::Over { key, told }),
            told => mailbox.post(Letter::Over { key, told }),
        }
    }

    /// Ends the thread, once no child is left, and waits for that, at most `limit`; then the guardian is gone too. It
    /// blocks: for an owner whose transports are closed or dropped and who wants to leave nothing behind. A child that
    /// is started later begins anew.
    pub fn finish(&self, limit: Duration) {
        let mailbox = self
            .shared
            .mailbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mailbox) = mailbox {
            mailbox.post(Letter::End);
            mailbox.join(limit);
        }
    }

    /// In a child that the host forked: closes its copies of what leads to servers and guardian, which otherwise do
    /// not hear of it when the host closes its own, for as long as the child lives. It takes no lock and waits for nothing; nothing
    /// else of this spawner and its transports may be used there.
    ///
    /// In any other process it would cut the servers off.
    pub fn close_in_forked_child(&self) {
        self.shared.inherited.close();
    }

    fn mailbox(&self) -> Result<Arc<Mailbox>, Error> {
        let mut mailbox = self
            .shared
            .mailbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(mailbox) = &*mailbox {
            return Ok(mailbox.clone());
        }
        let started = start_thread(self.shared.guarded, &self.shared.inherited)
            .map_err(|error| Error::local("no thread can be started now", &error))?;
        Ok(mailbox.insert(started).clone())
    }
}

/// What the thread is told.
enum Letter {
    Spawn {
        command: Command,
        spawner: Spawner,
        reply: oneshot::Sender<Result<Started, Error>>,
    },
    Killed(Arc<Process>),
    Over {
        key: u64,
        /// Which guardian knows.
        told: Option<guardian::Number>,
    },
    End,
}

/// Where letters lie until the thread takes them; its descriptor is what the thread waits for beside processes.
#[derive(Debug)]
struct Mailbox {
    /// `None` once nobody takes them any more.
    letters: Mutex<Option<Vec<Letter>>>,
    /// Told when nobody takes them any more.
    ended: Condvar,
    posted: File,
    line: Arc<guardian::Line>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Spawn { .. } => "Spawn",
            Self::Killed(_) => "Killed",
            Self::Over { .. } => "Over",
            Self::End => "End",
        })
    }
}

impl Mailbox {
    fn letters(&self) -> MutexGuard<'_, Option<Vec<Letter>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, letter: Letter) {
        self.put(letter);
        self.ring();
    }

    /// For a letter that can wait for the next: it wakes the thread only when there are many.
    fn leave(&self, letter: Letter) {
        if self.put(letter) >= MANY {
            self.ring();
        }
    }

    /// Says how many lie there then.
    fn put(&self, letter: Letter) -> usize {
        let mut letters = self.letters();
        // Where nobody takes it, it is dropped, and with it what would answer it.
        let Some(letters) = &mut *letters else {
            return 0;
        };
        letters.push(letter);
        letters.len()
    }

    fn ring(&self) {
        // It fails only where it was rung 2^64 times for nothing.
        let _ = (&self.posted).write(&1u64.to_ne_bytes());
    }

    /// Waits until the thread that takes them has ended, at most for so long.
    fn join(&self, limit: Duration) {
        let letters = self.letters();
        let (letters, _) = self
            .ended
            .wait_timeout_while(letters, limit, |letters| letters.is_some())
            .unwrap_or_else(PoisonError::into_inner);
        if letters.is_some() {
            return;
        }
        drop(letters);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // How it ended was seen where it ended.
            let _ = thread.join();
        }
    }

    fn take(&self) -> Vec<Letter> {
        let _ = (&self.posted).read(&mut [0; 8]);
        self.letters()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

/// Held by the thread: however that ends, its letters are not waited for in vain.
struct Taker(Arc<Mailbox>);

impl Drop for Taker {
    fn drop(&mut self) {
        let letters = self.0.letters().take();
        self.0.ended.notify_all();
        // Outside of the lock: what is dropped with them may post again.
        drop(letters);
    }
}

fn start_thread(guarded: bool, inherited: &Arc<Inherited>) -> io::Result<Arc<Mailbox>> {
    let mailbox = Arc::new(Mailbox {
        letters: Mutex::new(Some(Vec::new())),
        ended: Condvar::new(),
        posted: sys::eventfd()?.into(),
        line: Arc::default(),
        thread: Mutex::default(),
    });
    let taker = Taker(mailbox.clone());
    let thread = thread::Builder::new().name("mcp-spawner".into());
    let guardian = Guardian::new(guarded, inherited.clone(), mailbox.line.clone());
    let thread = sys::with_signals_blocked(|| thread.spawn(move || run(&taker.0, guardian)))?;
    *mailbox
        .thread
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(thread);
    Ok(mailbox)
}

/// How many letters that can wait do so.
const MANY: usize = 16;

/// How long what was killed with its leader may take to be gone, and how often that is looked at: what is left then
/// cannot be killed.
const DYING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// A process that was killed with its group.
struct Dying {
    process: Arc<Process>,
    /// Since when its leader has been reaped.
    reaped: Option<Instant>,
}

impl Dying {
    /// Whether there is nothing more to wait for.
    fn is_over(&mut self) -> bool {
        if self.process.reap().is_none() {
            return false;
        }
        let reaped = *self.reaped.get_or_insert_with(Instant::now);
        self.process.signal_group(libc::SIGKILL);
        reaped.elapsed() > DYING || !self.process.others_run()
    }
}

fn run(mailbox: &Mailbox, mut guardian: Guardian) {
    let mut dying: Vec<Dying> = Vec::new();
    let mut ending = false;
    let mut sigchld = None;
    // It may have ended before it was waited for.
    let mut guardian_ended = true;
    loop {
        sys::block_sigchld_if_handled(&mut sigchld);
        dying.retain_mut(|dying| {
            let over = dying.is_over();
            if over {
                guardian.over(dying.process.key, None);
            }
            !over
        });
        if guardian_ended {
            guardian.check();
        }
        if ending && dying.is_empty() {
            guardian.stop();
            return;
        }
        guardian_ended = wait(mailbox, &dying, &guardian);
        for letter in mailbox.take() {
            match letter {
                Letter::Spawn {
                    command,
                    spawner,
                    reply,
                } => {
                    // Where nobody waits any more, what was started is dropped here, and killed.
                    let _ = reply.send(start(&command, spawner, &mut guardian));
                }
                Letter::Killed(process) => {
                    if !dying.iter().any(|d| d.process.key == process.key) {
                        dying.push(Dying {
                            process,
                            reaped: None,
                        });
                    }
                }
                Letter::Over { key, told } => guardian.over(key, told),
                Letter::End => ending = true,
            }
        }
    }
}

/// Waits for a letter, the end of a process that dies, or that of the guardian. Says whether it was that.
fn wait(mailbox: &Mailbox, dying: &[Dying], guardian: &Guardian) -> bool {
    let mut fds = vec![mailbox.posted.as_fd()];
    let guardian = guardian.as_fd();
    fds.extend(guardian);
    let (reaped, unreaped): (Vec<_>, Vec<_>) = dying.iter().partition(|d| d.reaped.is_some());
    fds.extend(unreaped.iter().map(|dying| dying.process.as_fd()));
    let readable = sys::poll_readable(&fds, (!reaped.is_empty()).then_some(LOOK));
    guardian.is_some() && readable[1]
}

fn start(command: &Command, spawner: Spawner, guardian: &mut Guardian) -> Result<Started, Error> {
    let key = guardian.new_key();
    let notice = guardian.notice(key);
    let spawned = sys::with_signals_blocked(|| spawn::spawn(command, notice.as_ref()));
    let spawn::Child {
        pid,
        pidfd,
        stdin,
        stdout,
        stderr,
        announced,
    } = spawned.inspect_err(|_| guardian.over(key, None))?;
    let process = Arc::new(Process::new(pid, pidfd, key));
    guardian.opened(&process, announced);
    let inherited = spawner.shared.inherited.clone();
    let guard = Guard::new(process, spawner);
    let listed = |end| {
        End::new(end, &inherited)
            .map_err(|error| Error::local("the server's pipes cannot be used", &error))
    };
    Ok(Started {
        guard,
        stdin: listed(stdin)?,
        stdout: listed(stdout)?,
        stderr: listed(stderr)?,
    })
}
