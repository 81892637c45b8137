//! `ThrottledDialer`: opens connections that read at full speed or a few bytes per second.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Sleep, sleep};
use watchet_client::{ByteStream, Dialer};

/// The receive buffer of the socket: with a default-sized one the kernel accepts megabytes that the client has not read.
const RECEIVE_BUFFER_BYTES: u32 = 32 << 10;

/// The bytes that a slow connection reads after each pause. They are so few that the receive buffer remains full and the
/// server cannot send.
const SLOW_READ_BYTES: usize = 64;

/// The pause between reads of a slow connection.
const SLOW_READ_PAUSE: Duration = Duration::from_secs(1);

/// How fast connections read. Clones share the speed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadSpeed {
    is_slow: Arc<AtomicBool>,
}

impl ReadSpeed {
    /// Changes the speed. A connection in a pause changes its speed after the pause.
    pub(crate) fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }

    fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }
}

/// Opens TCP connections that read at a [`ReadSpeed`].
#[derive(Debug)]
pub(crate) struct ThrottledDialer(pub ReadSpeed);

#[async_trait::async_trait]
impl Dialer for ThrottledDialer {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn ByteStream>> {
        let address = lookup_host((host, port)).await?.next();
        let address = address.ok_or(io::ErrorKind::NotFound)?;
        let socket = match address.is_ipv4() {
            true => TcpSocket::new_v4()?,
            false => TcpSocket::new_v6()?,
        };
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(ThrottledStream::new(stream, self.0.clone())))
    }
}

/// A connection that reads at a [`ReadSpeed`]. It writes at full speed.
struct ThrottledStream<S = TcpStream> {
    stream: S,
    speed: ReadSpeed,
    /// The current pause.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> ThrottledStream<S> {
    fn new(stream: S, speed: ReadSpeed) -> Self {
        Self {
            stream,
            speed,
            pause: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ThrottledStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        if !this.speed.is_slow() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let mut bytes = [0; SLOW_READ_BYTES];
        let limit = buffer.remaining().min(SLOW_READ_BYTES);
        let mut few = ReadBuf::new(&mut bytes[..limit]);
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut few))?;
        buffer.put_slice(few.filled());
        this.pause = Some(Box::pin(sleep(SLOW_READ_PAUSE)));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ThrottledStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_connection_reads_a_few_bytes_per_second() {
        let bytes = vec![7; 10 * SLOW_READ_BYTES];
        let speed = ReadSpeed::default();
        speed.set_slow(true);
        let mut stream = ThrottledStream::new(&bytes[..], speed.clone());
        let begin = Instant::now();
        let mut read = vec![0; 4 * SLOW_READ_BYTES];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 3);
        speed.set_slow(false);
        stream.read_to_end(&mut read).await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 4, "the last pause is completed");
        assert_eq!(read, bytes);
    }
}
