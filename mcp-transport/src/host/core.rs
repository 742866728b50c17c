//! What a link does next. Pure: it is told what happened and gives what is to be done.

use std::{collections::VecDeque, fmt};

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    error::{Cause, Error, ErrorKind, Outcome},
    jsonrpc::{self, RequestId},
    line::{Line, Splitter},
    text,
    transport::Outgoing,
};

use super::Framing;

/// How many bytes may be handed out and not have gone, before the next message waits.
const WINDOW: u64 = 64 << 10;

/// Something to be done, in order.
#[cfg_attr(test, derive(Debug))]
pub(super) enum Effect {
    /// The host is asked to connect.
    Open,
    /// To take what can be sent, one message of it.
    Send,
    /// To close.
    Close,
    /// To feed nothing for now, or to go on.
    Hold(bool),
    /// Who waits for the opening is told.
    Opened,
    /// The receiver is told.
    Message(Bytes),
    /// A request failed alone.
    Failed(RequestId, Error),
    /// The link is gone: the receiver and all who wait are told.
    Ended(Error),
    /// Something came that is no message, for the log.
    Noise { bytes: usize, count: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Opening,
    Open,
    /// The host was asked to close.
    Closing,
    Closed,
}

/// The state of one link.
pub(super) struct Core {
    state: State,
    framing: Framing,
    max_frame: usize,
    splitter: Splitter,
    /// What the host has not taken.
    queue: VecDeque<Outgoing>,
    /// The host was told that something can be taken, and has not come for it.
    offered: bool,
    /// The requests that were taken and have not gone, each with the count of bytes at its end.
    on_the_way: VecDeque<(RequestId, u64)>,
    /// Requests that were taken just now.
    taken: Vec<RequestId>,
    given: u64,
    gone: u64,
    held: bool,
    noise: u64,
    last_noise: String,
}

impl Core {
    pub(super) fn new(framing: Framing, max_frame: usize) -> Self {
        Self {
            state: State::New,
            framing,
            max_frame,
            splitter: Splitter::new(max_frame),
            queue: VecDeque::new(),
            offered: false,
            on_the_way: VecDeque::new(),
            taken: Vec::new(),
            given: 0,
            gone: 0,
            held: false,
            noise: 0,
            last_noise: String::new(),
        }
    }

    /// Our side wants the link.
    pub(super) fn open(&mut self) -> Vec<Effect> {
        match self.state {
            State::New => {
                self.state = State::Opening;
                vec![Effect::Open]
            }
            // It was closed before it was started.
            State::Closed => vec![Effect::Ended(closed_by_us())],
            _ => Vec::new(),
        }
    }

    /// The host has connected.
    pub(super) fn opened(&mut self) -> Vec<Effect> {
        if self.state != State::Opening {
            return Vec::new();
        }
        self.state = State::Open;
        let mut effects = vec![Effect::Opened];
        self.offer(&mut effects);
        effects
    }

    /// Our side sends.
    pub(super) fn send(&mut self, message: Outgoing) -> Vec<Effect> {
        let mut effects = Vec::new();
        if matches!(self.state, State::Opening | State::Open) {
            self.queue.push_back(message);
            self.offer(&mut effects);
        }
        effects
    }

    /// Our side takes a request back, if the host has not taken it.
    pub(super) fn withdraw(&mut self, id: RequestId) {
        self.queue.retain(|message| message.request != Some(id));
    }

    /// The host takes the next message, if it may have one now.
    pub(super) fn take(&mut self) -> (Option<Bytes>, Vec<Effect>) {
        self.offered = false;
        let bytes = if self.may_give() { self.give() } else { None };
        let mut effects = Vec::new();
        self.offer(&mut effects);
        (bytes, effects)
    }

    /// How many bytes the host has taken and not said to have gone.
    pub(super) fn not_gone(&self) -> u64 {
        self.given - self.gone
    }

    /// The host has sent so many bytes more, of those that have not gone.
    pub(super) fn sent(&mut self, bytes: u64) -> Vec<Effect> {
        self.gone += bytes.min(self.not_gone());
        while self
            .on_the_way
            .front()
            .is_some_and(|&(_, end)| end <= self.gone)
        {
            self.on_the_way.pop_front();
        }
        let mut effects = Vec::new();
        self.offer(&mut effects);
        effects
    }

    /// The host has received.
    pub(super) fn received(&mut self, bytes: &[u8]) -> Vec<Effect> {
        match self.framing {
            Framing::Messages => self.received_bytes(Bytes::copy_from_slice(bytes)),
            Framing::Bytes => {
                let mut effects = Vec::new();
                if self.is_listening() {
                    let mut lines = Vec::new();
                    self.splitter.feed(bytes, |line| lines.push(line));
                    effects.extend(lines.into_iter().filter_map(|line| self.line(line)));
                }
                effects
            }
        }
    }

    pub(super) fn received_bytes(&mut self, bytes: Bytes) -> Vec<Effect> {
        match self.framing {
            Framing::Bytes => self.received(&bytes),
            Framing::Messages if !self.is_listening() => Vec::new(),
            Framing::Messages => {
                let line = if bytes.len() > self.max_frame {
                    Line::TooLong {
                        head: bytes.slice(..bytes.len().min(256)),
                        tail: bytes.slice(bytes.len().saturating_sub(256)..),
                        len: bytes.len() as u64,
                    }
                } else {
                    // What it is shows when its envelope is read.
                    Line::Frame(bytes)
                };
                self.line(line).into_iter().collect()
            }
        }
    }

    /// Whether what comes is heard: a server may speak before the host has said that the link is open.
    fn is_listening(&self) -> bool {
        matches!(self.state, State::Opening | State::Open)
    }

    fn line(&mut self, line: Line) -> Option<Effect> {
        match line {
            Line::Frame(message) => Some(Effect::Message(message)),
            Line::Noise(line) => Some(self.note_noise(&line, line.len())),
            Line::TooLong { head, tail, len } => {
                let Some(id) = jsonrpc::id_of_cut_answer(&head, &tail) else {
                    return Some(self.note_noise(&head, len as usize));
                };
                let message = format!("the answer has {len} bytes, which is over the limit");
                let error = Error::new(ErrorKind::Protocol, message)
                    .with_outcome(Outcome::Answered)
                    .with_cause(Cause::Transient);
                Some(Effect::Failed(id, error))
            }
        }
    }

    fn note_noise(&mut self, line: &[u8], bytes: usize) -> Effect {
        self.noise += 1;
        self.last_noise = text::one_line(line, 120);
        Effect::Noise {
            bytes,
            count: self.noise,
        }
    }

    /// Whether our side has closed it, or either side has said the last word.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing | State::Closed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// What the host has not done, in one line.
    pub(super) fn describe_owed(&self) -> Option<String> {
        let not_gone = self.not_gone();
        match self.state {
            State::Opening => Some("the host has not said that the link is open".into()),
            State::Open if not_gone > 0 => Some(format!(
                "the host has not said that {not_gone} bytes which it took have gone"
            )),
            State::Open if self.offered => Some("the host has not taken what is to be sent".into()),
            _ => None,
        }
    }

    /// What came that was no message, in one line.
    pub(super) fn describe_noise(&self) -> Option<String> {
        let lines = if self.noise == 1 {
            "line of the link was"
        } else {
            "lines of the link were"
        };
        (self.noise > 0).then(|| {
            format!(
                "{} {lines} no JSON-RPC, the last {:?}",
                self.noise, self.last_noise
            )
        })
    }

    /// The receiver takes nothing more for now, or does again.
    pub(super) fn hold(&mut self, held: bool) -> Vec<Effect> {
        if self.held == held || !self.is_listening() {
            return Vec::new();
        }
        self.held = held;
        vec![Effect::Hold(held)]
    }

    /// Our side wants no more.
    pub(super) fn close(&mut self) -> Vec<Effect> {
        match self.state {
            State::New => {
                self.state = State::Closed;
                Vec::new()
            }
            State::Opening | State::Open => {
                self.state = State::Closing;
                self.queue.clear();
                vec![Effect::Close]
            }
            State::Closing | State::Closed => Vec::new(),
        }
    }

    /// The host says that the link is closed.
    pub(super) fn closed(&mut self, why: Error) -> Vec<Effect> {
        let by_us = match self.state {
            State::New | State::Closed => return Vec::new(),
            State::Closing => true,
            State::Opening | State::Open => false,
        };
        let mut effects = Vec::new();
        // An unfinished last line may be the last answer; where it is not whole, it is no JSON.
        if let (false, Some(line)) = (by_us, self.splitter.finish()) {
            effects.extend(self.line(line));
        }
        self.state = State::Closed;
        self.queue.clear();
        let unsent = std::mem::take(&mut self.on_the_way).into_iter();
        effects.extend(
            unsent.map(|(id, _)| Effect::Failed(id, why.clone().with_outcome(Outcome::NotSent))),
        );
        let why = if by_us { closed_by_us() } else { why };
        effects.push(Effect::Ended(why));
        effects
    }

    /// Something of the host's or ours broke: the link ends, and the host is asked to close it.
    pub(super) fn failed(&mut self, why: Error) -> Vec<Effect> {
        let asked = self.close();
        if self.state == State::Closed {
            return Vec::new();
        }
        self.state = State::Closed;
        self.on_the_way.clear();
        // First who waits, for the host may panic once more.
        [Effect::Ended(why)].into_iter().chain(asked).collect()
    }

    /// The requests that were taken since this was asked last.
    pub(super) fn requests_taken(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.taken)
    }

    fn may_give(&self) -> bool {
        self.state == State::Open && self.not_gone() < WINDOW
    }

    fn offer(&mut self, effects: &mut Vec<Effect>) {
        if !self.offered && self.may_give() && !self.queue.is_empty() {
            self.offered = true;
            effects.push(Effect::Send);
        }
    }

    fn give(&mut self) -> Option<Bytes> {
        let message = self.queue.pop_front()?;
        let bytes = match self.framing {
            Framing::Messages => message.bytes,
            Framing::Bytes => {
                // In place where there is room, as messages of ours have.
                let mut bytes = BytesMut::from(message.bytes);
                bytes.put_u8(b'\n');
                bytes.freeze()
            }
        };
        self.given += bytes.len() as u64;
        if let Some(id) = message.request {
            self.on_the_way.push_back((id, self.given));
            self.taken.push(id);
        }
        Some(bytes)
    }
}

fn closed_by_us() -> Error {
    Error::new(ErrorKind::Closed, "the link was closed")
}

impl fmt::Debug for Core {
    /// Without what goes over the link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("state", &self.state)
            .field("framing", &self.framing)
            .field("queue", &self.queue.len())
            .field("on_the_way", &self.not_gone())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(framing: Framing) -> Core {
        let mut core = Core::new(framing, 1000);
        assert!(matches!(core.open()[..], [Effect::Open]));
        assert!(matches!(core.opened()[..], [Effect::Opened]));
        core
    }

    fn request(id: u64, len: usize) -> Outgoing {
        Outgoing {
            bytes: Bytes::from(vec![b'x'; len]),
            request: Some(RequestId(id)),
        }
    }

    fn is_offer(effects: &[Effect]) -> bool {
        matches!(effects, [Effect::Send])
    }

    fn taken(core: &mut Core) -> Option<usize> {
        core.take().0.map(|bytes| bytes.len())
    }

    #[test]
    fn no_more_is_given_than_the_window_and_the_rest_follows_what_has_gone() {
        let mut core = open(Framing::Bytes);
        let most = WINDOW as usize;
        assert!(is_offer(&core.send(request(1, most))));
        assert!(core.send(request(2, 9)).is_empty());
        assert!(core.send(request(3, 9)).is_empty());
        assert_eq!(taken(&mut core), Some(most + 1));
        assert_eq!(core.requests_taken(), [RequestId(1)]);
        assert_eq!(taken(&mut core), None);
        assert!(core.sent(1).is_empty());
        core.withdraw(RequestId(2));
        assert!(is_offer(&core.sent(1)));
        assert_eq!(taken(&mut core), Some(10));
        assert_eq!(core.requests_taken(), [RequestId(3)]);
        // Said too much: no more than was given counts.
        core.sent(u64::MAX);
        assert_eq!((core.given, core.gone), (core.given, core.given));
    }

    #[test]
    fn each_message_is_offered_once_and_what_was_withdrawn_is_not_there_to_be_taken() {
        let mut core = open(Framing::Messages);
        assert!(is_offer(&core.send(request(1, 10))));
        assert!(core.send(request(2, 20)).is_empty());
        let (first, again) = core.take();
        assert_eq!(first.map(|bytes| bytes.len()), Some(10));
        assert!(is_offer(&again));
        core.withdraw(RequestId(2));
        assert_eq!(taken(&mut core), None);
        assert_eq!(core.requests_taken(), [RequestId(1)]);
        assert!(is_offer(&core.send(request(3, 30))));
        assert!(matches!(core.close()[..], [Effect::Close]));
        assert_eq!(taken(&mut core), None);
    }

    #[test]
    fn what_had_not_gone_when_the_host_closed_was_never_sent() {
        let mut core = open(Framing::Messages);
        core.send(request(1, 10));
        core.send(request(2, 10));
        assert_eq!((taken(&mut core), taken(&mut core)), (Some(10), Some(10)));
        core.sent(19);
        let effects = core.closed(Error::new(ErrorKind::Transport, "reset"));
        let [Effect::Failed(RequestId(2), error), Effect::Ended(_)] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(error.outcome, Outcome::NotSent);
        assert!(core.received(b"{}").is_empty());
        assert!(core.send(request(3, 1)).is_empty());
        assert!(core.close().is_empty());
        assert!(core.closed(closed_by_us()).is_empty());
    }

    #[test]
    fn a_stream_is_cut_into_lines_and_a_last_one_needs_no_newline() {
        let mut core = open(Framing::Bytes);
        let effects = core.received(b"hello\n{\"a\":1}\n{\"b\"");
        assert!(
            matches!(&effects[..], [Effect::Noise { .. }, Effect::Message(m)] if m == "{\"a\":1}")
        );
        assert!(core.describe_noise().unwrap().contains("1 line"));
        assert!(core.received(b":2}").is_empty());
        let effects = core.closed(closed_by_us());
        assert!(matches!(&effects[..], [Effect::Message(m), Effect::Ended(_)] if m == "{\"b\":2}"));
    }

    #[test]
    fn an_answer_over_the_limit_fails_its_call_in_both_framings() {
        let long = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":\"{}\"}}\n",
            "x".repeat(2000)
        );
        for framing in [Framing::Bytes, Framing::Messages] {
            let effects = open(framing).received(long.as_bytes());
            assert!(
                matches!(&effects[..], [Effect::Failed(RequestId(5), _)]),
                "{effects:?}"
            );
        }
    }

    #[test]
    fn a_link_that_was_closed_before_it_was_started_never_opens() {
        let mut core = Core::new(Framing::Bytes, 10);
        assert!(core.close().is_empty());
        assert!(matches!(core.open()[..], [Effect::Ended(_)]));
        assert!(core.opened().is_empty());
    }
}
