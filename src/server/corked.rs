//! `Corked`: a byte stream that gathers small writes until it is uncorked. HTTP/2 hands over each
//! frame by itself and asks for a flush after it; whoever drives the connection knows when there is
//! no more for now, and sends all of it in one go. What the bytes are is not known here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Writes of at least this size are not gathered, so that a long answer is not copied once more. A
/// TLS record holds twice as much.
const GATHERED_BYTES_MAX: usize = 8 << 10;

/// What may lie here before it is sent without being uncorked: four TLS records.
const CORKED_BYTES_MAX: usize = 64 << 10;

/// Clones are the same stream: one for who writes, one for who uncorks. They belong to one task, so
/// that nobody ever waits for the lock. Both must poll with the same waker: the stream knows one.
#[derive(Debug)]
pub(super) struct Corked<S>(Arc<Mutex<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    /// Not yet written; no memory while there is nothing.
    gathered: Vec<u8>,
    /// How much of it is written already.
    written: usize,
}

impl<S> Clone for Corked<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            stream,
            gathered: Vec::new(),
            written: 0,
        })))
    }

    /// Writes and flushes what was gathered.
    pub(super) fn poll_uncork(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_uncork(cx)
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    fn poll_uncork(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Lets go of what is written when it is most of what is there, so that a client that is always a
    /// little behind does not have all of its answers kept.
    fn forget_written(&mut self) {
        if self.written > self.gathered.len() / 2 {
            self.gathered.drain(..self.written);
            self.written = 0;
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let rest = &self.gathered[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        (self.gathered, self.written) = (Vec::new(), 0);
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
        if size >= GATHERED_BYTES_MAX {
            ready!(inner.poll_drain(cx))?;
            return Pin::new(&mut inner.stream).poll_write_vectored(cx, pieces);
        }
        if inner.gathered.len() - inner.written + size > CORKED_BYTES_MAX {
            ready!(inner.poll_drain(cx))?;
        }
        inner.forget_written();
        inner.gathered.reserve(size);
        for piece in pieces {
            inner.gathered.extend_from_slice(piece);
        }
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing: that is what the cork is for.
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

    /// What has arrived by now.
    async fn arrived(client: &mut tokio::io::DuplexStream) -> usize {
        let mut bytes = vec![0; 1 << 20];
        match poll!(std::pin::pin!(client.read(&mut bytes))) {
            Poll::Ready(count) => count.unwrap(),
            Poll::Pending => 0,
        }
    }

    #[tokio::test]
    async fn small_writes_wait_for_the_uncorking() {
        let (ours, mut client) = tokio::io::duplex(1 << 20);
        let corked = Corked::new(ours);
        let mut writer = corked.clone();
        for _ in 0..3 {
            writer.write_all(&[7; 1000]).await.unwrap();
            writer.flush().await.unwrap();
        }
        assert_eq!(arrived(&mut client).await, 0);
        poll_fn(|cx| corked.poll_uncork(cx)).await.unwrap();
        assert_eq!(arrived(&mut client).await, 3000);
        assert_eq!(
            corked.0.lock().gathered.capacity(),
            0,
            "it rests without memory"
        );
    }

    #[tokio::test]
    async fn a_large_write_follows_what_was_gathered() {
        let (ours, mut client) = tokio::io::duplex(1 << 20);
        let mut writer = Corked::new(ours);
        writer.write_all(b"small").await.unwrap();
        writer.write_all(&[b'x'; GATHERED_BYTES_MAX]).await.unwrap();
        let mut bytes = vec![0; 5 + GATHERED_BYTES_MAX];
        client.read_exact(&mut bytes).await.unwrap();
        assert!(bytes.starts_with(b"smallxxx"));
    }

    /// A client that does not read holds no more than the bound, and loses nothing.
    #[tokio::test]
    async fn what_is_gathered_is_bounded() {
        let (ours, mut client) = tokio::io::duplex(1);
        let corked = Corked::new(ours);
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

    /// A backlog that never ends is no reason to keep all that went through it.
    #[tokio::test]
    async fn what_is_written_is_let_go_of() {
        let (ours, mut client) = tokio::io::duplex(1000);
        let corked = Corked::new(ours);
        let mut writer = corked.clone();
        let mut bytes = [0; 1000];
        writer.write_all(&[7; 5000]).await.unwrap();
        for _ in 0..1000 {
            writer.write_all(&[7; 1000]).await.unwrap();
            assert!(poll!(poll_fn(|cx| corked.poll_uncork(cx))).is_pending());
            client.read_exact(&mut bytes).await.unwrap();
            // What was written was written in this turn: the runtime grants only so much in one.
            tokio::task::yield_now().await;
        }
        let kept = corked.0.lock().gathered.capacity();
        assert!(kept < CORKED_BYTES_MAX, "{kept}");
    }
}
