//! `Corked`: a byte stream that buffers writes until it is uncorked, or until the buffer is full. HTTP/2 writes each frame
//! separately and flushes after it; the driver of the connection knows when there is no more data for now, and then sends
//! everything in a single write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The maximum size of an HTTP/2 DATA frame with its header, unless the client allows larger ones. A system call for each
/// costs more than a copy of it.
const FRAME_BYTES: usize = (16 << 10) + 9;

/// Writes of at least this size are not buffered, so that their bytes are not copied again.
const UNBUFFERED_WRITE_BYTES_MIN: usize = 2 * FRAME_BYTES;

/// The maximum size of the buffer.
pub(in crate::server) const CORKED_BYTES_MAX: usize = 8 * FRAME_BYTES;

/// Clones share the stream: one writes, the other uncorks. They belong to one task, so the lock is
/// never contended. Both must poll with the same waker, since the stream stores only one.
#[derive(Debug)]
pub(in crate::server) struct Corked<S>(Arc<Mutex<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    /// Not yet written; deallocated when empty.
    buffered: Vec<u8>,
    /// How much of it has been written.
    written: usize,
}

impl<S> Clone for Corked<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    pub(in crate::server) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            stream,
            buffered: Vec::new(),
            written: 0,
        })))
    }

    /// Writes the buffer and flushes the stream.
    pub(in crate::server) fn poll_uncork(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_uncork(cx)
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    fn poll_uncork(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Releases the written part of the buffer when it is the larger part, so that the buffer of a
    /// client that is always slightly behind does not grow.
    fn release_written(&mut self) {
        if self.written > self.buffered.len() / 2 {
            self.buffered.drain(..self.written);
            self.written = 0;
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.buffered.len() {
            let rest = &self.buffered[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        (self.buffered, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        let size = pieces.iter().map(|piece| piece.len()).sum();
        if size >= UNBUFFERED_WRITE_BYTES_MIN {
            ready!(inner.poll_drain(cx))?;
            return Pin::new(&mut inner.stream).poll_write_vectored(cx, pieces);
        }
        if inner.buffered.len() - inner.written + size > CORKED_BYTES_MAX {
            ready!(inner.poll_drain(cx))?;
        }
        inner.release_written();
        inner.buffered.reserve(size);
        for piece in pieces {
            inner.buffered.extend_from_slice(piece);
        }
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: the purpose of the cork.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_uncork(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Returns the number of bytes that have arrived.
    async fn arrived(client: &mut tokio::io::DuplexStream) -> usize {
        let mut bytes = vec![0; 1 << 20];
        match poll!(std::pin::pin!(client.read(&mut bytes))) {
            Poll::Ready(count) => count.unwrap(),
            Poll::Pending => 0,
        }
    }

    #[tokio::test]
    async fn small_writes_are_buffered_until_uncorked() {
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let corked = Corked::new(server);
        let mut writer = corked.clone();
        for _ in 0..3 {
            writer.write_all(&[7; 1000]).await.unwrap();
            writer.flush().await.unwrap();
        }
        assert_eq!(arrived(&mut client).await, 0);
        poll_fn(|cx| corked.poll_uncork(cx)).await.unwrap();
        assert_eq!(arrived(&mut client).await, 3000);
        assert_eq!(
            corked.0.lock().buffered.capacity(),
            0,
            "no memory is held when idle"
        );
    }

    /// The frames of a response are written together until the buffer is full.
    #[tokio::test]
    async fn frames_of_a_long_response_are_sent_together() {
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let mut writer = Corked::new(server);
        for _ in 0..8 {
            writer.write_all(&[7; FRAME_BYTES]).await.unwrap();
        }
        assert_eq!(arrived(&mut client).await, 0);
        writer.write_all(&[7; FRAME_BYTES]).await.unwrap();
        assert_eq!(arrived(&mut client).await, 8 * FRAME_BYTES);
    }

    #[tokio::test]
    async fn a_large_write_follows_the_buffer() {
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let mut writer = Corked::new(server);
        writer.write_all(b"small").await.unwrap();
        writer
            .write_all(&[b'x'; UNBUFFERED_WRITE_BYTES_MIN])
            .await
            .unwrap();
        let mut bytes = vec![0; 5 + UNBUFFERED_WRITE_BYTES_MIN];
        client.read_exact(&mut bytes).await.unwrap();
        assert!(bytes.starts_with(b"smallxxx"));
    }

    /// The buffer of a client that does not read is bounded, and no data is lost.
    #[tokio::test]
    async fn the_buffer_is_bounded() {
        let (server, mut client) = tokio::io::duplex(1);
        let corked = Corked::new(server);
        let mut writer = corked.clone();
        let mut sent = 0;
        while let Poll::Ready(count) = poll!(std::pin::pin!(writer.write(&[7; 1000]))) {
            sent += count.unwrap();
            assert!(sent <= CORKED_BYTES_MAX + 1, "{sent}");
        }
        assert!(sent > CORKED_BYTES_MAX - 2000, "{sent}");
        let ended = async {
            poll_fn(|cx| corked.poll_uncork(cx)).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut bytes = Vec::new();
        tokio::join!(ended, async {
            client.read_to_end(&mut bytes).await.unwrap()
        });
        assert_eq!(bytes, vec![7; sent]);
    }

    /// A backlog that never empties must not retain everything that was written.
    #[tokio::test]
    async fn written_data_is_released() {
        let (server, mut client) = tokio::io::duplex(1000);
        let corked = Corked::new(server);
        let mut writer = corked.clone();
        let mut bytes = [0; 1000];
        writer.write_all(&[7; 5000]).await.unwrap();
        for _ in 0..1000 {
            writer.write_all(&[7; 1000]).await.unwrap();
            assert!(poll!(poll_fn(|cx| corked.poll_uncork(cx))).is_pending());
            client.read_exact(&mut bytes).await.unwrap();
            // At most what the cooperative budget of one turn allows was written.
            tokio::task::yield_now().await;
        }
        let capacity = corked.0.lock().buffered.capacity();
        assert!(capacity < CORKED_BYTES_MAX, "{capacity}");
    }
}
