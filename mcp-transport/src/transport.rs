//! The seam between a session and what carries its messages.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    error::Error,
    jsonrpc::{Answer, RequestId},
    revision::Revision,
};

/// A future that is boxed because [`Transport`] is used as an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message on its way to the server.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// One JSON-RPC message, without a trailing newline and without raw newlines in it.
    pub bytes: Bytes,
    /// The id, if the message is a request of ours.
    pub request: Option<RequestId>,
}

/// What a transport tells its session.
///
/// For each request that was sent: any number of `Message`s, then it is settled by its answer (a `Message`
/// or an `Answer`), by `Failed`, or by `Ended`. `Ended` is the last thing a transport ever says.
#[derive(Debug)]
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
