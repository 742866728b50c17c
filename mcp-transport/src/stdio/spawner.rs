//! The thread that children are started from.
//!
//! The parent-death signal of a child is sent when the thread that started it ends, be the process alive or
//! not. So children are started from one thread that outlives them. It also takes note of the end of those
//! that were killed while nobody waited for them.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};

use super::{
    command::Command,
    process::{Guard, Process},
    spawn, sys,
};

/// Starts child processes, from a thread of its own that lives as long as any of them.
///
/// Clones share the thread. It is started with the first child, has all signals blocked (SIGCHLD only where the host
/// handles it), and ends once every clone is dropped, those that transports hold included, and every child has ended.
#[derive(Debug, Clone, Default)]
pub struct Spawner {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    mailbox: Mutex<Option<Arc<Mailbox>>>,
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
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Spawner {
    /// A spawner without a thread yet.
    pub fn new() -> Self {
        Self::default()
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

    /// Takes note of the end of a process that was killed, once it comes.
    pub(super) fn reap_later(&self, process: Arc<Process>) {
        // Where there is no thread, none of its children can have been killed.
        if let Ok(mailbox) = self.mailbox() {
            mailbox.post(Letter::Reap(process));
        }
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
        let started = start_thread().map_err(|e| {
            Error::new(
                ErrorKind::Local,
                format!("no thread can be started now: {e}"),
            )
        })?;
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
    Reap(Arc<Process>),
    End,
}

/// Where letters lie until the thread takes them; its descriptor is what the thread waits for beside processes.
#[derive(Debug)]
struct Mailbox {
    /// `None` once nobody takes them any more.
    letters: Mutex<Option<Vec<Letter>>>,
    posted: File,
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Spawn { .. } => "Spawn",
            Self::Reap(_) => "Reap",
            Self::End => "End",
        })
    }
}

impl Mailbox {
    fn letters(&self) -> MutexGuard<'_, Option<Vec<Letter>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, letter: Letter) {
        // Where nobody takes it, it is dropped, and with it what would answer it.
        if let Some(letters) = &mut *self.letters() {
            letters.push(letter);
        }
        // It fails only where 2^64 letters lie there untaken.
        let _ = (&self.posted).write(&1u64.to_ne_bytes());
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
        // Outside of the lock: what is dropped with them may post again.
        drop(letters);
    }
}

fn start_thread() -> io::Result<Arc<Mailbox>> {
    let mailbox = Arc::new(Mailbox {
        letters: Mutex::new(Some(Vec::new())),
        posted: sys::eventfd()?.into(),
    });
    let taker = Taker(mailbox.clone());
    let thread = thread::Builder::new().name("mcp-spawner".into());
    sys::with_signals_blocked(|| thread.spawn(move || run(&taker.0)))?;
    Ok(mailbox)
}

fn run(mailbox: &Mailbox) {
    let mut dying: Vec<Arc<Process>> = Vec::new();
    let mut ending = false;
    loop {
        sys::block_sigchld_if_handled();
        dying.retain(|process| process.reap().is_none());
        if ending && dying.is_empty() {
            return;
        }
        let mut fds = vec![mailbox.posted.as_fd()];
        fds.extend(dying.iter().map(|process| process.as_fd()));
        sys::poll_readable(&fds, None);
        for letter in mailbox.take() {
            match letter {
                Letter::Spawn {
                    command,
                    spawner,
                    reply,
                } => {
                    // Where nobody waits any more, what was started is dropped here, and killed.
                    let _ = reply.send(start(&command, spawner));
                }
                Letter::Reap(process) => dying.push(process),
                Letter::End => ending = true,
            }
        }
    }
}

fn start(command: &Command, spawner: Spawner) -> Result<Started, Error> {
    let spawn::Child {
        pid,
        pidfd,
        stdin,
        stdout,
        stderr,
    } = sys::with_signals_blocked(|| spawn::spawn(command))?;
    let guard = Guard::new(Arc::new(Process::new(pid, pidfd)), spawner);
    Ok(Started {
        guard,
        stdin,
        stdout,
        stderr,
    })
}
