//! Bodies: the one that goes out and tells when it was taken, and those that come in, read within bounds.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
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
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the answer is larger than {limit} bytes"),
            Self::Broken(error) => {
                write!(f, "the connection broke while the answer came: {error}")
            }
        }
    }
}

/// The whole body, of at most `limit` bytes. A body that came in one piece is that piece; one of known length is
/// read into one allocation of that length.
pub(super) async fn whole(mut body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let announced = usize::try_from(announced).unwrap_or(limit);
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else {
            continue;
        };
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
pub(super) async fn beginning(mut body: Incoming, limit: usize, time: Duration) -> Bytes {
    let mut read = BytesMut::new();
    let _ = tokio::time::timeout(time, async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else {
                continue;
            };
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
