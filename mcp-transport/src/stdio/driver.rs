//! The task that moves a server's bytes and watches its life.

use std::{
    cell::Cell,
    fs::File,
    future::poll_fn,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, RawFd},
    pin::pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    error::{Cause, Error, ErrorKind, Outcome},
    jsonrpc,
    line::{Line, Splitter},
    secrets::Secrets,
    text,
    transport::{Incoming, Receiver},
};

use super::{
    ending::{Ending, Left, Step},
    inherited::End,
    process::{Guard, Process},
    sys::{self, Exit},
    tail::Tail,
    transport::{Link, unwatched},
};

/// How much is read at once: what a pipe holds.
const READ: usize = 64 << 10;
/// How much of stderr is kept, and how much of that an error shows.
const STDERR_KEPT: usize = 8 << 10;
const STDERR_SHOWN: usize = 1000;
/// How many noise lines are logged; the rest are counted.
const NOISE_LOGGED: u64 = 8;
/// How much of a noise line is looked at for an error's text.
const NOISE_READ: usize = 4 << 10;
/// How long a pipe that others hold open is still read after the server has ended.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// How long a server may live on that has closed its stdin or stdout.
const BROKEN: Duration = Duration::from_secs(1);
/// How often it is looked whether what a server left behind has ended.
const LEFTOVERS: Duration = Duration::from_millis(10);

/// What was seen of a server beside its messages.
#[derive(Debug)]
pub(super) struct Seen {
    noise: u64,
    last_noise: String,
    stderr: Tail,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            noise: 0,
            last_noise: String::new(),
            stderr: Tail::new(STDERR_KEPT),
        }
    }
}

impl Seen {
    fn note_noise(&mut self, line: &[u8], secrets: &Secrets) -> u64 {
        self.noise += 1;
        // More than is shown, so that it is not cut inside a secret.
        let beginning = String::from_utf8_lossy(&line[..line.len().min(NOISE_READ)]);
        self.last_noise = text::one_line(secrets.redact(&beginning).as_bytes(), 120);
        self.noise
    }

    /// One line, or nothing.
    pub(super) fn describe(&self, secrets: &Secrets) -> Option<String> {
        let mut parts = Vec::new();
        if self.noise > 0 {
            let lines = if self.noise == 1 {
                "line on its stdout was"
            } else {
                "lines on its stdout were"
            };
            parts.push(format!(
                "{} {lines} no JSON-RPC, the last {:?}",
                self.noise, self.last_noise
            ));
        }
        let stderr = self.stderr.text();
        // Before it is cut, for what is cut is not recognised.
        let stderr = String::from_utf8_lossy(&stderr);
        let stderr = secrets.redact(&stderr);
        let stderr = stderr.as_bytes();
        let stderr = &stderr[stderr.len().saturating_sub(STDERR_SHOWN)..];
        let stderr = text::one_line(stderr, STDERR_SHOWN);
        if !stderr.is_empty() {
            parts.push(format!("stderr: {stderr}"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The process, as something to wait for.
#[derive(Debug)]
struct Pidfd(Arc<Process>);

impl AsRawFd for Pidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Reads, writes, and brings the server to its end. Dropped, it kills.
pub(super) struct Driver {
    link: Arc<Link>,
    guard: Guard,
    pidfd: AsyncFd<Pidfd>,
    stdout: Option<AsyncFd<End>>,
    stderr: Option<AsyncFd<End>>,
    /// Once it was full: most servers read what they are sent.
    stdin: Option<AsyncFd<Arc<End>>>,
    receiver: Arc<dyn Receiver>,
    splitter: Splitter,
    /// Not before it is known how the process ended.
    exit: Option<Exit>,
    /// Until when stdout is still read, once it cannot go on for long.
    patience: Option<Instant>,
    ending: Option<Ending>,
    /// Whether our side asked for the end.
    closed: bool,
    told: bool,
    _on_gone: watch::Sender<()>,
}

/// What there is to do.
enum Event {
    Exited,
    Go,
    /// The runtime ends.
    Lost,
}

impl Driver {
    pub(super) fn new(
        link: Arc<Link>,
        guard: Guard,
        stdout: AsyncFd<End>,
        stderr: AsyncFd<End>,
        receiver: Arc<dyn Receiver>,
        max_frame: usize,
        on_gone: watch::Sender<()>,
    ) -> Result<Self, Error> {
        let pidfd = Pidfd(guard.process.clone());
        let pidfd = sys::watch(pidfd, Interest::READABLE).map_err(unwatched)?;
        Ok(Self {
            link,
            guard,
            pidfd,
            stdout: Some(stdout),
            stderr: Some(stderr),
            stdin: None,
            receiver,
            splitter: Splitter::new(max_frame),
            exit: None,
            patience: None,
            ending: None,
            closed: false,
            told: false,
            _on_gone: on_gone,
        })
    }

    pub(super) async fn run(mut self) {
        while let Some(next) = self.decide(Instant::now()) {
            match self.event(next).await {
                Event::Exited => self.on_exit(),
                Event::Go => {}
                Event::Lost => return,
            }
        }
    }

    /// Does what is due, and says when there is something to do again by time alone. `None`: all is done.
    fn decide(&mut self, now: Instant) -> Option<Option<Instant>> {
        if let Some(asked) = self.link.take_ending() {
            self.closed = true;
            self.close_stdin();
            self.ending = Some(self.ending.map_or(asked, |before| before.sooner(asked)));
        }
        self.notice_broken_pipes(now);
        if !self.told {
            let patient = self.patience.is_none_or(|until| now < until);
            let ended = self.exit.is_some() && (self.closed || self.stdout.is_none() || !patient);
            if ended || !patient {
                self.tell_end(self.reason());
            }
        }
        if self.told && self.ending.is_none() {
            self.ending = Some(Ending::by_signals(now));
        }
        let Some(ending) = &mut self.ending else {
            return Some(self.patience);
        };
        loop {
            let left = match self.exit {
                None => Left::Leader,
                Some(_) if self.guard.process.others_run() => Left::Others,
                Some(_) => Left::Nobody,
            };
            match ending.next(now, left) {
                Step::Terminate => self.guard.process.signal_group(libc::SIGTERM),
                Step::Kill => self.guard.process.signal_group(libc::SIGKILL),
                Step::Wait(until) if left == Left::Others => {
                    return Some(Some(until.min(now + LEFTOVERS)));
                }
                Step::Wait(until) => return Some(Some(until)),
                Step::Done => {
                    if left == Left::Nobody {
                        self.guard.set_over();
                    }
                    if !self.told {
                        self.tell_end(self.reason());
                    }
                    return None;
                }
            };
        }
    }

    /// A server that cannot hear or be heard any more is expected to end by itself, but not waited for long.
    fn notice_broken_pipes(&mut self, now: Instant) {
        let broken = self.stdout.is_none() || self.link.outbox.is_broken();
        if broken && self.patience.is_none() && !self.closed {
            self.patience = Some(now + BROKEN);
        }
    }

    /// Waits until something happens, and does the reading and writing meanwhile.
    async fn event(&mut self, until: Option<Instant>) -> Event {
        let link = self.link.clone();
        let mut woken = pin!(link.outbox.wake.notified());
        let mut time = pin!(until.map(sleep_until));
        let is_full = self.watch_full_stdin();
        poll_fn(|cx| {
            if self.exit.is_none() {
                match self.pidfd.poll_read_ready(cx) {
                    Poll::Ready(Ok(_)) => return Poll::Ready(Event::Exited),
                    Poll::Ready(Err(_)) => return Poll::Ready(Event::Lost),
                    Poll::Pending => {}
                }
            }
            // Once per turn each, so that none holds up the others.
            let mut busy = false;
            match self.poll_stdout(cx) {
                Poll::Ready(Ok(())) => busy = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Lost),
                Poll::Pending => {}
            }
            match self.poll_stderr(cx) {
                Poll::Ready(Ok(())) => busy = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Lost),
                Poll::Pending => {}
            }
            if let (true, Some(stdin)) = (is_full, &self.stdin) {
                match stdin.poll_write_ready(cx) {
                    Poll::Ready(Ok(mut guard)) => {
                        self.link.outbox.flush();
                        if self.link.outbox.full().is_some() {
                            guard.clear_ready();
                        }
                        busy = true;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Event::Lost),
                    Poll::Pending => {}
                }
            }
            if woken.as_mut().poll(cx).is_ready() {
                self.link.outbox.flush();
                busy = true;
            }
            if let Some(time) = time.as_mut().as_pin_mut() {
                busy |= time.poll(cx).is_ready();
            }
            if busy {
                Poll::Ready(Event::Go)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    fn poll_stdout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stdout) = &self.stdout else {
            return Poll::Pending;
        };
        // Looked at again when the transport is told to resume, which wakes.
        if !self.receiver.wants_more() {
            return Poll::Pending;
        }
        let mut guard = ready!(stdout.poll_read_ready(cx))?;
        let (result, lines) = read_lines(stdout.get_ref(), &mut self.splitter);
        if is_drained(&result) {
            guard.clear_ready();
        }
        drop(guard);
        self.on_read(result, lines);
        Poll::Ready(Ok(()))
    }

    /// Delivers what was read, and takes note of the stream's end.
    fn on_read(&mut self, result: io::Result<usize>, lines: Vec<Line>) {
        if matches!(result, Ok(1..)) {
            self.link.outbox.heard();
        }
        for line in lines {
            self.deliver(line);
        }
        let is_over = match result {
            Ok(read) => read == 0,
            Err(e) => !matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        };
        if is_over {
            self.stdout = None;
            if let Some(line) = self.splitter.finish() {
                self.deliver(line);
            }
        }
    }

    fn deliver(&self, line: Line) {
        match line {
            Line::Frame(frame) => self.receiver.receive(Incoming::Message(frame)),
            Line::Noise(line) => {
                let count = {
                    let mut seen = self
                        .link
                        .seen
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    seen.note_noise(&line, &self.link.secrets)
                };
                if count <= NOISE_LOGGED {
                    warn!(
                        bytes = line.len(),
                        "skipped a line of the server that is no message"
                    );
                }
            }
            Line::TooLong { head, tail, len } => {
                warn!(
                    bytes = len,
                    "dropped a message of the server that is over the limit"
                );
                if let Some(id) = jsonrpc::id_of_cut_answer(&head, &tail) {
                    let message = format!("the answer has {len} bytes, which is over the limit");
                    let error = Error::new(ErrorKind::Protocol, message)
                        .with_outcome(Outcome::Answered)
                        .with_cause(Cause::Transient);
                    self.receiver.receive(Incoming::Failed(id, error));
                }
            }
        }
    }

    fn poll_stderr(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stderr) = &self.stderr else {
            return Poll::Pending;
        };
        let mut guard = ready!(stderr.poll_read_ready(cx))?;
        let result = self.read_stderr(stderr.get_ref());
        if is_drained(&result) {
            guard.clear_ready();
        }
        drop(guard);
        if matches!(result, Ok(0)) {
            self.stderr = None;
        }
        Poll::Ready(Ok(()))
    }

    fn read_stderr(&self, mut stderr: &File) -> io::Result<usize> {
        with_scratch(|scratch| {
            let read = stderr.read(scratch)?;
            let mut seen = self
                .link
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            seen.stderr.push(&scratch[..read]);
            Ok(read)
        })
    }

    /// The process has ended: what it wrote before lies in the pipes.
    fn on_exit(&mut self) {
        self.exit = self.guard.process.reap();
        if self.exit.is_none() {
            return;
        }
        // No more than pipes hold, for others may go on writing.
        const MOST: usize = (1 << 20) / READ + 1;
        for _ in 0..MOST {
            let Some(stdout) = &self.stdout else {
                break;
            };
            let (result, lines) = read_lines(stdout.get_ref(), &mut self.splitter);
            let more = matches!(result, Ok(1..));
            self.on_read(result, lines);
            if !more {
                break;
            }
        }
        for _ in 0..MOST {
            match &self.stderr {
                Some(stderr) if matches!(self.read_stderr(stderr.get_ref()), Ok(1..)) => {}
                _ => break,
            }
        }
        let until = Instant::now() + STRAGGLERS;
        self.patience = Some(self.patience.map_or(until, |before| before.min(until)));
    }

    /// Why the connection is gone.
    fn reason(&self) -> Error {
        if self.closed {
            return Error::new(ErrorKind::Closed, "the server was closed");
        }
        let mut message = match self.exit {
            Some(Exit::Code(code)) => format!("the server exited with code {code}"),
            Some(Exit::Signal(signal)) => format!("the server was ended by signal {signal}"),
            Some(Exit::Unknown) => {
                "the server ended, with what status is unknown: this process ignores SIGCHLD or waits for all its children"
                    .to_owned()
            }
            None if self.stdout.is_none() => "the server closed its stdout and lives on".to_owned(),
            None => "the server closed its stdin and lives on".to_owned(),
        };
        let seen = self
            .link
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = seen.describe(&self.link.secrets) {
            message.push_str("; ");
            message.push_str(&seen);
        }
        Error::new(ErrorKind::Transport, message)
    }

    /// Says the last word to the receiver; nothing is read after it.
    fn tell_end(&mut self, reason: Error) {
        self.told = true;
        // An unfinished last line may be the last answer; where it is not whole, it is no JSON.
        if let Some(line) = self.splitter.finish() {
            self.deliver(line);
        }
        self.stdout = None;
        self.close_stdin();
        self.receiver.receive(Incoming::Ended(reason));
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
        self.link.outbox.close();
    }

    /// Has the runtime watch a full stdin for room. Says whether it is full.
    fn watch_full_stdin(&mut self) -> bool {
        let Some(full) = self.link.outbox.full() else {
            return false;
        };
        if self.stdin.is_none() {
            match sys::watch(full, Interest::WRITABLE) {
                Ok(stdin) => self.stdin = Some(stdin),
                Err(error) => {
                    warn!(%error, "a full stdin of the server cannot be waited for");
                    self.link.outbox.give_up();
                }
            }
        }
        self.stdin.is_some()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.told {
            let reason = if std::thread::panicking() {
                Error::new(
                    ErrorKind::Internal,
                    "what takes the server's messages panicked",
                )
            } else {
                Error::new(
                    ErrorKind::Closed,
                    "the runtime of the connection was shut down",
                )
            };
            self.told = true;
            self.link.outbox.close();
            self.receiver.receive(Incoming::Ended(reason));
        }
    }
}

/// Whether the pipe has nothing more for now. After a read that gave less than it asked for, asking again would
/// only tell so.
fn is_drained(result: &io::Result<usize>) -> bool {
    match result {
        Ok(read) => *read < READ,
        Err(e) => e.kind() != io::ErrorKind::Interrupted,
    }
}

/// Reads once, and cuts what came into lines.
fn read_lines(mut stdout: &File, splitter: &mut Splitter) -> (io::Result<usize>, Vec<Line>) {
    let mut lines = Vec::new();
    let mut each = |line| lines.push(line);
    let result = match splitter.growing() {
        Some(buffer) => {
            let searched = buffer.len();
            let result = sys::read_to_end_of(stdout.as_fd(), buffer, READ);
            splitter.grown(searched, &mut each);
            result
        }
        None => with_scratch(|scratch| {
            let read = stdout.read(scratch)?;
            splitter.feed(&scratch[..read], &mut each);
            Ok(read)
        }),
    };
    (result, lines)
}

/// One buffer per thread serves all connections, so that an idle one needs none.
fn with_scratch<T>(f: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    }
    let mut scratch = SCRATCH.take().unwrap_or_else(|| vec![0; READ].into());
    let result = f(&mut scratch);
    SCRATCH.set(Some(scratch));
    result
}
