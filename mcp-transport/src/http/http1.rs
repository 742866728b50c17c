//! A connection of HTTP/1.1 that has no task of its own: whoever waits for its answer drives it, so that an answer costs
//! no switch between tasks.

use std::{
    fmt,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use hyper::{
    body::{Body, Incoming, SizeHint},
    client::conn::{TrySendError, http1},
};

use super::{body::Outbound, connect::Link, last_words::LastWords};
use crate::stdio::SigpipeOff;

/// One connection, idle or with one request on it. Dropping it closes it.
pub(super) struct Http1 {
    /// `None` only while it is dropped.
    sender: Option<http1::SendRequest<Outbound>>,
    /// `None` once it is over.
    driver: Option<http1::Connection<LastWords<Link>, Outbound>>,
    /// What the server is called in each request.
    pub(super) host: HeaderValue,
    /// What is at its other end is a proxy that is told whole URLs.
    pub(super) is_forwarded: bool,
    /// It carried a request before.
    pub(super) is_used: bool,
}

impl Http1 {
    /// A connection over `link`, which reads at most `read` bytes at once.
    pub(super) async fn over(link: Link, host: HeaderValue, read: usize) -> hyper::Result<Self> {
        let is_forwarded = link.is_forwarded();
        let mut builder = http1::Builder::new();
        let link = LastWords::of(link);
        let (sender, driver) = builder.max_buf_size(read).handshake(link).await?;
        Ok(Self {
            sender: Some(sender),
            driver: Some(driver),
            host,
            is_forwarded,
            is_used: false,
        })
    }

    /// Whether it can take a request: the last one and its answer are through, and the server keeps it.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.is_some() && self.sender.as_ref().is_some_and(|sender| sender.is_ready())
    }

    /// Sends a request and gives the head of its answer. What the server did to the connection since the last one is
    /// seen first: a request that met its end unwritten is handed back in the error.
    pub(super) async fn send(
        &mut self,
        request: Request<Outbound>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outbound>>> {
        let sender = self.sender.as_mut().expect("it is not being dropped");
        let mut answer = pin!(sender.try_send_request(request));
        self.is_used = true;
        std::future::poll_fn(|cx| {
            // Nothing but the driver brings the answer, so that it has nobody else to wake.
            let mut waker = Waker::noop();
            if !self.drive(cx) {
                waker = cx.waker();
            }
            answer.as_mut().poll(&mut Context::from_waker(waker))
        })
        .await
    }

    /// Moves what can be moved, and sees to it that the task is woken when there is more. False once it is over.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(driver) = &mut self.driver {
            // What went wrong is told by the answer or its body.
            if Pin::new(driver).poll(cx).is_ready() {
                self.driver = None;
            }
        }
        self.driver.is_some()
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        // Without who could send, hyper says good-bye (TLS has words for it), as far as that can be done at once. It is
        // said on whichever thread drops the last that knows of the connection, one of the host's too.
        let _off = SigpipeOff::before_a_write();
        self.sender = None;
        self.drive(&mut Context::from_waker(Waker::noop()));
    }
}

/// Takes back a connection whose answer was read to its end.
pub(super) type GiveBack = Box<dyn FnOnce(Box<Http1>) + Send>;

/// The body of an answer, which drives its connection as long as it needs it.
pub(super) struct Arriving {
    body: Incoming,
    /// `None` where the rest of the body is here, and where the connection has a task of its own.
    connection: Option<(Box<Http1>, GiveBack)>,
}

impl Arriving {
    /// The answer, whose body comes by itself.
    pub(super) fn alone_in(answer: Response<Incoming>) -> Response<Self> {
        answer.map(|body| Self {
            body,
            connection: None,
        })
    }

    /// A body that comes over this connection, which is given back after it.
    pub(super) fn over(body: Incoming, connection: Box<Http1>, give_back: GiveBack) -> Self {
        Self {
            body,
            connection: Some((connection, give_back)),
        }
    }

    /// The next piece, which may be empty; `None` at the end. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<hyper::Result<Bytes>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        let Some((connection, _)) = &mut self.connection else {
            return poll_data(&mut self.body, cx);
        };
        // As for the head, only the driver brings more. What it brought already comes first.
        let nobody = &mut Context::from_waker(Waker::noop());
        let mut came = poll_data(&mut self.body, nobody);
        if came.is_pending() {
            came = match connection.drive(cx) {
                true => poll_data(&mut self.body, nobody),
                false => poll_data(&mut self.body, cx),
            };
        }
        match came {
            Poll::Ready(None) => {
                if let Some((mut connection, give_back)) = self.connection.take() {
                    if connection.is_ready() || (connection.drive(cx) && connection.is_ready()) {
                        give_back(connection);
                    }
                }
            }
            Poll::Ready(Some(Err(_))) => self.connection = None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        came
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").finish_non_exhaustive()
    }
}

/// The next piece of a body; one of trailers is empty.
fn poll_data(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
    let frame = Pin::new(body).poll_frame(cx);
    frame.map(|frame| Some(frame?.map(|frame| frame.into_data().unwrap_or_default())))
}
