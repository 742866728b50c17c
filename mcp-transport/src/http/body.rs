//! Bodies: the one that goes out and tells when it was taken, and those that come in, read within bounds.

use std::{
    fmt,
    io::{self, Write},
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::{HeaderMap, header};
use hyper::body::{Body, Frame, SizeHint};

use super::http1::Arriving;

/// Knows whether a request was handed to the wire: once a connection has taken the body, the server may have it.
/// Before that it certainly has not, whatever became of the connection, and never will have it if it is withdrawn.
#[derive(Clone)]
pub(super) struct Taken(Arc<Mark>);

struct Mark {
    state: AtomicU8,
    tell: Box<dyn Fn() + Send + Sync>,
}

/// A connection may still take the body.
const WAITING: u8 = 0;
/// A connection has taken it, and may not have come to telling so.
const TAKEN: u8 = 1;
/// It was taken, and that was told.
const TOLD: u8 = 2;
/// Nobody gets it any more.
const WITHDRAWN: u8 = 3;

impl Taken {
    /// `tell` is called when the body is taken, by whoever drives the connection. It is called once, but for a
    /// withdrawal that comes in that very moment and makes sure of it.
    pub(super) fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mark {
            state: AtomicU8::new(WAITING),
            tell: Box::new(tell),
        }))
    }

    pub(super) fn is_taken(&self) -> bool {
        matches!(self.0.state.load(Ordering::Acquire), TAKEN | TOLD)
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == WITHDRAWN
    }

    /// Goes from waiting to `state`, or says what it is.
    fn leave_waiting_for(&self, state: u8) -> Result<u8, u8> {
        let order = Ordering::AcqRel;
        self.0
            .state
            .compare_exchange(WAITING, state, order, Ordering::Acquire)
    }

    /// Takes the body for a connection, again after a redirect. Says whether it may have it.
    fn take(&self) -> bool {
        match self.leave_waiting_for(TAKEN) {
            Ok(_) => {
                (self.0.tell)();
                self.0.state.store(TOLD, Ordering::Release);
                true
            }
            Err(state) => state != WITHDRAWN,
        }
    }

    /// Takes the request back: no connection gets its body any more. Says whether that was in time; if not, it has
    /// been told by now that the body was taken.
    pub(super) fn withdraw(&self) -> bool {
        match self.leave_waiting_for(WITHDRAWN) {
            Ok(_) | Err(WITHDRAWN) => true,
            Err(state) => {
                if state == TAKEN {
                    (self.0.tell)();
                }
                false
            }
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.0.state.load(Ordering::Acquire) {
            WAITING => "waiting",
            WITHDRAWN => "withdrawn",
            _ => "taken",
        };
        f.debug_tuple("Taken").field(&state).finish()
    }
}

/// The request was taken back before its body was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Withdrawn;

impl fmt::Display for Withdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was taken back")
    }
}

impl std::error::Error for Withdrawn {}

/// The body of a request: one piece, or nothing.
#[derive(Debug)]
pub(super) struct Outbound {
    data: Bytes,
    taken: Option<Taken>,
}

impl Outbound {
    pub(super) fn new(data: Bytes, taken: Option<Taken>) -> Self {
        Self { data, taken }
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        if self.data.is_empty() {
            return Poll::Ready(None);
        }
        if self.taken.as_ref().is_some_and(|taken| !taken.take()) {
            // The head may be out; without its body the request is none.
            return Poll::Ready(Some(Err(Withdrawn)));
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.len() as u64)
    }
}

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(super) enum BodyError {
    TooLarge { limit: usize },
    Broken(hyper::Error),
    Undecodable(io::Error),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the answer is larger than {limit} bytes"),
            Self::Broken(error) => {
                write!(f, "the connection broke while the answer came: {error}")
            }
            Self::Undecodable(error) => write!(f, "the answer is no sound gzip: {error}"),
        }
    }
}

/// A body as it comes in, taken out of its encoding piece by piece.
#[derive(Debug)]
pub(super) struct Payload {
    body: Arriving,
    gunzip: Option<Box<Gunzip>>,
}

impl Payload {
    /// The body that came under `headers`.
    pub(super) fn new(headers: &HeaderMap, body: Arriving) -> Self {
        let is_gzip = encoding(headers) == Encoding::Gzip;
        Self {
            body,
            gunzip: is_gzip.then(|| Box::new(Gunzip::new())),
        }
    }

    /// The next piece, never empty; `None` at the end. A piece is bounded also where it was compressed, so that
    /// whoever adds them up under a limit holds at most that and one piece. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            if let Some(gunzip) = &mut self.gunzip {
                match gunzip.step() {
                    Ok(Some(data)) if !data.is_empty() => return Some(Ok(data)),
                    Ok(Some(_)) => continue,
                    Ok(None) => {}
                    Err(error) => return Some(Err(BodyError::Undecodable(error))),
                }
            }
            let data = match self.body.next().await {
                Some(Ok(data)) => data,
                Some(Err(error)) => return Some(Err(BodyError::Broken(error))),
                None => {
                    return match self.gunzip.as_mut().map(|gunzip| gunzip.finish()) {
                        Some(Err(error)) => Some(Err(BodyError::Undecodable(error))),
                        _ => None,
                    };
                }
            };
            match &mut self.gunzip {
                Some(gunzip) => gunzip.input = data,
                None if data.is_empty() => {}
                None => return Some(Ok(data)),
            }
        }
    }

    /// How many bytes there will be at least, where that is known.
    fn announced(&self) -> u64 {
        match self.gunzip {
            Some(_) => 0,
            None => self.body.size_hint().lower(),
        }
    }
}

/// How a body was encoded for its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    /// One that was not asked for.
    Other,
}

/// The encoding that the headers name.
pub(super) fn encoding(headers: &HeaderMap) -> Encoding {
    match headers.get(header::CONTENT_ENCODING).map(|e| e.as_bytes()) {
        None => Encoding::Identity,
        Some(name) if name.trim_ascii().eq_ignore_ascii_case(b"identity") => Encoding::Identity,
        Some(name)
            if name.trim_ascii().eq_ignore_ascii_case(b"gzip")
                || name.trim_ascii().eq_ignore_ascii_case(b"x-gzip") =>
        {
            Encoding::Gzip
        }
        Some(_) => Encoding::Other,
    }
}

/// Unpacks in small steps: a bomb shows itself at the limit, and not when all of it is in memory.
#[derive(Debug)]
struct Gunzip {
    decoder: GzDecoder<Vec<u8>>,
    input: Bytes,
    is_over: bool,
}

impl Gunzip {
    /// How much is unpacked at a time. gzip makes it 1,032 times as much at most.
    const STEP: usize = 1024;

    fn new() -> Self {
        Self {
            decoder: GzDecoder::new(Vec::new()),
            input: Bytes::new(),
            is_over: false,
        }
    }

    /// What the next step gave, perhaps nothing yet; `None` where more must come first.
    fn step(&mut self) -> io::Result<Option<Bytes>> {
        if self.input.is_empty() || self.is_over {
            return Ok(None);
        }
        let step = self.input.len().min(Self::STEP);
        let taken = self.decoder.write(&self.input[..step])?;
        self.decoder.flush()?;
        if taken == 0 {
            // The end of the gzip; what follows is nothing of ours.
            self.is_over = true;
            self.input = Bytes::new();
        } else {
            let _ = self.input.split_to(taken);
        }
        Ok(Some(mem::take(self.decoder.get_mut()).into()))
    }

    /// Whether it was whole. An empty body is no gzip, but servers send it so.
    fn finish(&mut self) -> io::Result<()> {
        if self.decoder.header().is_none() && !self.is_over {
            return Ok(());
        }
        self.decoder.try_finish()
    }
}

/// The whole body, of at most `limit` bytes, in memory of its own: what came is a slice of the connection's buffer, which
/// a small result would keep as long as it is kept itself, and which the connection then cannot use again.
pub(super) async fn whole(mut body: Payload, limit: usize) -> Result<Bytes, BodyError> {
    let announced = body.announced();
    if announced > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let announced = usize::try_from(announced).unwrap_or(limit);
    let mut read = BytesMut::new();
    while let Some(data) = body.next().await {
        let data = data?;
        if read.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if read.is_empty() {
            read.reserve(announced.max(data.len()));
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

/// The first bytes of a body that is only read for the words of a refusal: what came of at most `limit` bytes in at
/// most `time`. A body that breaks or never ends is no reason to keep the refusal back.
pub(super) async fn beginning(mut body: Payload, limit: usize, time: Duration) -> Bytes {
    let mut read = BytesMut::new();
    let _ = tokio::time::timeout(time, async {
        while let Some(Ok(data)) = body.next().await {
            let room = limit - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if read.len() == limit {
                break;
            }
        }
    })
    .await;
    read.freeze()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn counted() -> (Taken, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let tell = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        (Taken::new(tell), told)
    }

    fn frame(body: &mut Outbound) -> Result<Bytes, Withdrawn> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match Pin::new(body).poll_frame(&mut cx) {
            Poll::Ready(Some(frame)) => frame.map(|frame| frame.into_data().expect("data")),
            _ => panic!("a body of one piece is ready"),
        }
    }

    #[test]
    fn a_body_that_was_withdrawn_is_an_error_and_never_taken() {
        let (taken, told) = counted();
        let mut body = Outbound::new("x".into(), Some(taken.clone()));
        assert!(taken.withdraw());
        assert!(taken.withdraw(), "again");
        assert_eq!(frame(&mut body), Err(Withdrawn));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        assert!(!taken.is_taken() && taken.is_withdrawn());
    }

    #[test]
    fn a_body_that_was_taken_is_not_withdrawn_and_may_go_again_after_a_redirect() {
        let (taken, told) = counted();
        for _ in 0..2 {
            let mut body = Outbound::new("x".into(), Some(taken.clone()));
            assert_eq!(frame(&mut body), Ok("x".into()));
        }
        assert!(!taken.withdraw());
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert!(taken.is_taken() && !taken.is_withdrawn());
    }

    #[test]
    fn a_withdrawal_between_the_taking_and_the_telling_tells_itself() {
        let (taken, told) = counted();
        taken.leave_waiting_for(TAKEN).expect("it waits");
        assert!(!taken.withdraw());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
