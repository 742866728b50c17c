//! What a server said before it closed is heard, although writing to it failed meanwhile: its refusal of a request that
//! it did not read to the end.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::rt::{Read, ReadBufCursor, Write};

/// A stream that can be read to its end when nothing can be written to it any more. For a reader that does not wait for
/// what it writes, as that of HTTP/1.1; whoever writes waits from then on.
pub(super) struct LastWords<T> {
    stream: T,
    /// The server takes nothing any more.
    is_cut: bool,
}

impl<T: Write + Unpin> LastWords<T> {
    pub(super) fn of(stream: T) -> Self {
        Self {
            stream,
            is_cut: false,
        }
    }

    /// Writes, up to the failure that says that the server has closed: what is read tells the same, after what came
    /// before it, and wakes for it.
    fn write<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if self.is_cut {
            return Poll::Pending;
        }
        let written = ready!(write(Pin::new(&mut self.stream), cx));
        self.is_cut = written.as_ref().is_err_and(is_closing);
        if self.is_cut {
            // It may have been read before that came.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(written)
    }
}

fn is_closing(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

impl<T: Read + Unpin> Read for LastWords<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for LastWords<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write_vectored(cx, bytes))
    }
}
