//! The seam between a session and what carries its messages.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    error::Error,
    jsonrpc::{Answer, RequestId},
    revision::Revision,
    text::Length,
};

/// A future that is boxed because [`Transport`] is used as an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message on its way to the server.
///
/// `Debug` shows of it only how long it is.
#[derive(Clone)]
pub struct Outgoing {
    /// One JSON-RPC message, without a trailing newline and without raw newlines in it.
    pub bytes: Bytes,
    /// The id, if the message is a request of ours.
    pub request: Option<RequestId>,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("bytes", &Length(&self.bytes))
            .field("request", &self.request)
            .finish()
    }
}

/// What a transport tells its session.
///
/// For each request that was sent: any number of `Message`s, then it is settled by its answer (a `Message`
/// or an `Answer`), by `Failed`, or by `Ended`. `Ended` is the last thing a transport ever says.
///
/// `Debug` shows of a message only how long it is.
pub enum Incoming {
    /// One JSON-RPC message, the bytes that came.
    Message(Bytes),
    /// One that answers a request, where the transport had to read it to know which: so nobody reads it again.
    Answer(Answer),
    /// The last byte of this request was written: from here on the server may run it.
    Written(RequestId),
    /// This request failed alone; the connection goes on.
    Failed(RequestId, Error),
    /// The connection is gone, with the reason.
    Ended(Error),
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => f.debug_tuple("Message").field(&Length(message)).finish(),
            Self::Answer(answer) => f.debug_tuple("Answer").field(answer).finish(),
            Self::Written(id) => f.debug_tuple("Written").field(id).finish(),
            Self::Failed(id, error) => f.debug_tuple("Failed").field(id).field(error).finish(),
            Self::Ended(error) => f.debug_tuple("Ended").field(error).finish(),
        }
    }
}

/// Where a transport delivers. It is called from the transport's reader and must not block.
///
/// `Written` and `Failed` may also come from inside [`Transport::send`] and [`Transport::abandon`], and with a lock
/// of the transport's held: on these a receiver must not call the transport.
pub trait Receiver: Send + Sync + 'static {
    /// Takes what came.
    fn receive(&self, incoming: Incoming);

    /// Whether anything more is to be read for now. A transport that finds it is not leaves what comes with its
    /// peer, and looks again when [`Transport::resume`] is called.
    fn wants_more(&self) -> bool {
        true
    }
}

/// What carries the messages of one session.
///
/// A transport value carries one session and is never reused for another.
pub trait Transport: std::fmt::Debug + Send + Sync + 'static {
    /// Connects and starts to read. Called once, before anything is sent; on an error nothing stays open.
    /// Dropping the future gives up and leaves nothing behind.
    fn start(&self, receiver: Arc<dyn Receiver>) -> BoxFuture<'_, Result<(), Error>>;

    /// Takes a message for sending; never waits. Whatever becomes of it is told to the receiver.
    fn send(&self, message: Outgoing);

    /// The handshake succeeded with this revision: HTTP sends it as a header from now on.
    fn negotiated(&self, revision: Revision);

    /// Nobody waits for this request any more: what is done for it alone stops.
    ///
    /// A request of which no `Written` was reported by the time this returns never reaches the server whole.
    /// Where that can no longer be helped, because a part of it is out already, `Written` is reported from
    /// inside this call. The session takes the outcome of the request from that.
    fn abandon(&self, request: RequestId);

    /// Ends the connection in good order within the limit; whatever stays after it is cut.
    /// May be called more than once and together with anything else. The closing begins with the call, whether or
    /// not the future is polled, and goes on when that is dropped.
    ///
    /// As with [`abandon`](Self::abandon), a request of which no `Written` was reported by the time the call itself
    /// returns, also one that is sent later, never reaches the server whole. The session takes the outcomes from that.
    fn close(&self, limit: Duration) -> BoxFuture<'_, ()>;

    /// The receiver [wants more](Receiver::wants_more) again. Never waits; may be called from any thread.
    fn resume(&self) {}

    /// Whether the server is heard at any time, and not only while it answers: else its silence is no sign.
    fn listens(&self) -> bool {
        true
    }

    /// When the last bytes came that may have been no message, if the transport knows.
    fn heard(&self) -> Option<Instant> {
        None
    }

    /// What is known of the server beside its messages, in one line for an error's text: what it printed
    /// that was no message, what it said on stderr. `None` where there is nothing to tell.
    fn diagnosis(&self) -> Option<String> {
        None
    }

    /// What the server said, for an error's text: without the secrets that the transport was configured with.
    fn redacted(&self, text: &str) -> String {
        text.to_owned()
    }

    /// The process id of the server, where it is a child of ours that has not been reaped.
    fn pid(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        jsonrpc::{self, Envelope},
        line::Line,
        sse,
    };

    #[test]
    fn debug_shows_of_what_goes_over_the_wire_only_how_long_it_is() {
        const RESULT: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"key":"hidden"}}"#;
        const ERROR: &[u8] = br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"hidden"}}"#;
        const REQUEST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"hidden"}}"#;
        const NOTIFICATION: &[u8] = br#"{"jsonrpc":"2.0","method":"m","params":{"a":"hidden"}}"#;
        let mut shown = Vec::new();
        for bytes in [RESULT, ERROR, REQUEST, NOTIFICATION] {
            let envelope = jsonrpc::parse(bytes).unwrap();
            shown.push(format!("{envelope:?}"));
            let bytes = Bytes::from_static(bytes);
            if let Envelope::Response { outcome, .. } = envelope {
                let answer = Answer::cut(&bytes, RequestId(1), outcome);
                shown.push(format!("{answer:?} {:?}", Incoming::Answer(answer.clone())));
            }
            shown.push(format!("{:?}", Incoming::Message(bytes.clone())));
            shown.push(format!(
                "{:?} {:?}",
                Line::Frame(bytes.clone()),
                Line::Noise(bytes.clone())
            ));
            let outgoing = Outgoing {
                bytes: bytes.clone(),
                request: None,
            };
            shown.push(format!("{outgoing:?}"));
            let event = sse::Event {
                kind: Bytes::new(),
                data: bytes.clone(),
                id: None,
            };
            shown.push(format!("{event:?}"));
            let mut decoder = sse::Decoder::new(1 << 20);
            decoder.feed(Bytes::from_static(b"data: hidden\ndata: hid"));
            while let Ok(Some(_)) = decoder.next_event() {}
            shown.push(format!("{decoder:?}"));
        }
        for text in shown {
            // Also not as a list of numbers.
            assert!(
                !text.contains("hid") && !text.contains("104, 105, 100"),
                "{text}"
            );
        }
    }
}
