//! `Socket`: a TCP stream that joins small slices of a vectored write into one plain write: for
//! small events a vectored call costs the kernel more than the copy. It buffers nothing, so after a flush the kernel has
//! accepted all watch events of the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::server::transport::connections::ConnectionSlot;

/// Slices with at most this total size are joined; beyond that the copy is slower.
const JOINED_BYTES_MAX: usize = 4 << 10;

#[derive(Debug)]
pub(in crate::server) struct Socket {
    stream: TcpStream,
    /// A WebSocket outlives its HTTP connection, so the slot belongs to the socket.
    slot: ConnectionSlot,
}

impl Socket {
    pub(in crate::server) fn new(stream: TcpStream, slot: ConnectionSlot) -> Self {
        Self { stream, slot }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = Pin::new(&mut self.stream);
        if let [piece] = pieces {
            return socket.poll_write(cx, piece);
        }
        let size: usize = pieces.iter().map(|piece| piece.len()).sum();
        if size > JOINED_BYTES_MAX {
            return socket.poll_write_vectored(cx, pieces);
        }
        let mut joined = [0; JOINED_BYTES_MAX];
        let mut end = 0;
        for piece in pieces {
            joined[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        socket.poll_write(cx, &joined[..end])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.slot.connection().unsent_events().written();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::server::transport::connections::Connections;

    /// Slices of any number and size, including empty ones, arrive unchanged.
    #[tokio::test]
    async fn slices_arrive_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, socket) = (client.unwrap(), server.unwrap().0);
        let connections = Connections::new(1, &std::sync::Arc::default());
        let slot = connections.slot(&CancellationToken::new()).await;
        let mut socket = Socket::new(socket, slot.expect("a free slot"));
        let large = vec![b'x'; JOINED_BYTES_MAX];
        let writes: [&[&[u8]]; 5] = [
            &[b"one"],
            &[b"4\r\n", b"body", b"\r\n"],
            &[b"", b"a", b""],
            &[&large],
            &[b"head", &large, b"tail"],
        ];
        let mut expected = Vec::new();
        for pieces in writes {
            expected.extend(pieces.concat());
            let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let written = socket.write_vectored(&pieces).await.unwrap();
            assert_eq!(
                written,
                pieces.iter().map(|piece| piece.len()).sum::<usize>()
            );
        }
        drop(socket);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, expected);
    }
}
