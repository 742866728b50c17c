//! What waits to be written to a server's stdin.
//!
//! A message on a quiet connection is written at once, by the thread that sends it. While an answer is awaited
//! messages queue, and the driver writes all that are there in one call. So a caller that goes step by step has
//! no hop to another thread, and many callers share their system calls.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    jsonrpc::RequestId,
    transport::{Incoming, Outgoing, Receiver},
};

use super::{inherited::End, sigpipe};

/// How many messages go into one system call: two slices each, of the 1,024 that the kernel takes.
const AT_ONCE: usize = 256;

/// The queue before stdin.
///
/// `Written` is told with the lock held, so that nothing is told after [`close`](Self::close).
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    receiver: Arc<dyn Receiver>,
    /// Something was heard from the server since a request was last written.
    quiet: AtomicBool,
    /// The driver has something to look at.
    pub(super) wake: Notify,
}

struct Queue {
    stdin: Option<Arc<End>>,
    messages: VecDeque<Outgoing>,
    /// How much of the first message has been written, its newline counted.
    written: usize,
    state: State,
}

/// How far stdin takes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The pipe is full; the driver goes on once there is room.
    Full,
    /// The server has closed its end.
    Broken,
}

impl Outbox {
    pub(super) fn new(stdin: End, receiver: Arc<dyn Receiver>) -> Self {
        Self {
            queue: Mutex::new(Queue {
                stdin: Some(Arc::new(stdin)),
                messages: VecDeque::new(),
                written: 0,
                state: State::Open,
            }),
            receiver,
            quiet: AtomicBool::new(true),
            wake: Notify::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message, and writes it if it may go at once.
    pub(super) fn send(&self, message: Outgoing) {
        let mut queue = self.queue();
        if queue.stdin.is_none() {
            return;
        }
        let is_request = message.request.is_some();
        let first = queue.messages.is_empty();
        queue.messages.push_back(message);
        if first && queue.state == State::Open && self.quiet.load(Ordering::Relaxed) {
            if is_request {
                self.quiet.store(false, Ordering::Relaxed);
            }
            self.write(&mut queue);
            if queue.state == State::Open {
                return;
            }
        } else if !first {
            // The driver has been told of the one before.
            return;
        }
        drop(queue);
        self.wake.notify_one();
    }

    /// Something came from the server.
    pub(super) fn heard(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// Writes what is there; for the driver, and after it found room in a full pipe.
    pub(super) fn flush(&self) {
        let mut queue = self.queue();
        if queue.state != State::Broken {
            // Also where nothing is left to write, because it was withdrawn: the next one tries anew.
            queue.state = State::Open;
            if queue
                .messages
                .iter()
                .any(|message| message.request.is_some())
            {
                self.quiet.store(false, Ordering::Relaxed);
            }
            self.write(&mut queue);
        }
    }

    /// Stdin, if the pipe is full and somebody must wait for room.
    pub(super) fn full(&self) -> Option<Arc<End>> {
        let queue = self.queue();
        if queue.state == State::Full {
            queue.stdin.clone()
        } else {
            None
        }
    }

    /// Nothing more can be written.
    pub(super) fn give_up(&self) {
        self.queue().state = State::Broken;
    }

    /// Whether the server has closed its end.
    pub(super) fn is_broken(&self) -> bool {
        self.queue().state == State::Broken
    }

    /// Takes a request back. If a part of it is out it can no longer be held, and counts as written.
    pub(super) fn withdraw(&self, id: RequestId) {
        let mut queue = self.queue();
        let Some(at) = queue.messages.iter().position(|m| m.request == Some(id)) else {
            return;
        };
        if at > 0 || queue.written == 0 {
            queue.messages.remove(at);
        } else if queue.state != State::Broken {
            self.receiver.receive(Incoming::Written(id));
        }
    }

    /// Closes stdin. Requests that wait are not written any more; what else waits, courtesies and answers to the
    /// server, is tried once. Nothing is told from here on.
    pub(super) fn close(&self) {
        let mut queue = self.queue();
        if queue.written > 0 {
            let first = &queue.messages[0];
            // Many servers take a last line without its newline. Of anything less they make nothing.
            if let (Some(id), true) = (first.request, queue.written >= first.bytes.len()) {
                self.receiver.receive(Incoming::Written(id));
            }
        } else if queue.state == State::Open {
            queue.messages.retain(|message| message.request.is_none());
            self.write(&mut queue);
        }
        queue.stdin = None;
        queue.messages.clear();
        queue.written = 0;
    }

    /// Writes until nothing is left or the pipe takes no more.
    fn write(&self, queue: &mut Queue) {
        let Some(stdin) = queue.stdin.clone() else {
            return;
        };
        while !queue.messages.is_empty() {
            match write_some(&stdin, &queue.messages, queue.written) {
                Ok(0) => {
                    queue.state = State::Full;
                    return;
                }
                Ok(written) => self.advance(queue, written),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    queue.state = State::Full;
                    return;
                }
                // What was not written stays not written; whether the server has ended, its process tells.
                Err(_) => {
                    queue.state = State::Broken;
                    return;
                }
            }
        }
    }

    fn advance(&self, queue: &mut Queue, written: usize) {
        queue.written += written;
        while let Some(first) = queue.messages.front() {
            let len = first.bytes.len() + 1;
            if queue.written < len {
                return;
            }
            queue.written -= len;
            if let Some(Outgoing {
                request: Some(id), ..
            }) = queue.messages.pop_front()
            {
                self.receiver.receive(Incoming::Written(id));
            }
        }
    }
}

fn write_some(stdin: &File, messages: &VecDeque<Outgoing>, written: usize) -> io::Result<usize> {
    // The usual case without an allocation.
    if messages.len() == 1 {
        let mut slices = [IoSlice::new(&messages[0].bytes), IoSlice::new(b"\n")];
        let mut slices = &mut slices[..];
        IoSlice::advance_slices(&mut slices, written);
        return sigpipe::write(stdin.as_fd(), slices);
    }
    let messages = messages.iter().take(AT_ONCE);
    let mut slices: Vec<_> = messages
        .flat_map(|m| [IoSlice::new(&m.bytes), IoSlice::new(b"\n")])
        .collect();
    let mut slices = &mut slices[..];
    IoSlice::advance_slices(&mut slices, written);
    sigpipe::write(stdin.as_fd(), slices)
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue();
        f.debug_struct("Outbox")
            .field("waiting", &queue.messages.len())
            .field("state", &queue.state)
            .finish_non_exhaustive()
    }
}
