//! Bodies: the one that goes out and tells when it was taken, and those that come in, read within bounds.

use std::{
    convert::Infallible,
    fmt,
    io::{self, Write},
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Knows whether a request was handed to the wire: once a connection has taken the body, the server may have it.
/// Before that it certainly has not, whatever became of the connection.
#[derive(Clone)]
pub(super) struct Taken(Arc<Mark>);

struct Mark {
    taken: AtomicBool,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Taken {
    /// `tell` is called once, when the body is taken, by whoever drives the connection.
    pub(super) fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mark {
            taken: AtomicBool::new(false),
            tell: Box::new(tell),
        }))
    }

    pub(super) fn is_taken(&self) -> bool {
        self.0.taken.load(Ordering::Acquire)
    }

    fn take(&self) {
        if !self.0.taken.swap(true, Ordering::AcqRel) {
            (self.0.tell)();
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Taken").field(&self.is_taken()).finish()
    }
}

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
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.data.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(taken) = &self.taken {
            taken.take();
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
    body: Incoming,
    gunzip: Option<Box<Gunzip>>,
}

impl Payload {
    /// The body that came under `headers`.
    pub(super) fn new(headers: &HeaderMap, body: Incoming) -> Self {
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
            let data = match self.body.frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
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

/// The whole body, of at most `limit` bytes. A body that came in one piece is that piece; one of known length is
/// read into one allocation of that length.
pub(super) async fn whole(mut body: Payload, limit: usize) -> Result<Bytes, BodyError> {
    let announced = body.announced();
    if announced > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let announced = usize::try_from(announced).unwrap_or(limit);
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(data) = body.next().await {
        let data = data?;
        if first.len() + joined.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if joined.is_empty() && first.is_empty() {
            first = data;
            continue;
        }
        if joined.is_empty() {
            joined.reserve(announced.max(first.len() + data.len()));
            joined.extend_from_slice(&first);
            first = Bytes::new();
        }
        joined.extend_from_slice(&data);
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
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
