//! Serves one connection: handshake, protocol selection, HTTP/1.1 or HTTP/2 until it ends or the
//! server drains.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::UnixTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::PeerCertificate;
use crate::server::transport::connections::{Connection, ConnectionSlot};
use crate::server::transport::corked::CORKED_BYTES_MAX;
use crate::server::transport::handler::Handler;
use crate::server::transport::handshakes::HandshakePermit;
use crate::server::transport::service::{Authentication, Service};
use crate::server::transport::socket::Socket;
use crate::server::transport::tls::TlsSettings;
use crate::server::transport::unread::DelayedClose;
use crate::server::transport::{http2, overdue};
use crate::tasks::{PollOnWake, Tasks};
use crate::x509;

/// The time limit of a TLS handshake, or of the first bytes on the plain port.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for a complete HTTP/1.1 request head. It also limits idle connections, so it is
/// no shorter than the usual idle timeout of clients.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(90);

/// The time that an HTTP/1.1 connection without a request in progress may take to end at shutdown, from its last
/// response on.
const SHUTDOWN_IDLE_MAX: Duration = Duration::from_secs(1);

/// How often it is checked whether the request in progress has ended.
const SHUTDOWN_IDLE_CHECK: Duration = Duration::from_millis(100);

/// The start of the HTTP/2 preface; no HTTP/1.1 method begins like this.
const H2_PREFACE_START: &[u8] = b"PRI ";

/// The pause before looking for the rest of an incomplete preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
}

/// The future of a connection, boxed so that the connection's task need not be as large as every
/// protocol at every stage: most of thousands of connections are idle.
type Serving = BoxFuture<'static, hyper::Result<()>>;

/// Serves one connection until it ends. When the group of `tasks` is cancelled, or the connection has been idle for long,
/// it completes the requests in progress and ends.
pub(in crate::server) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsSettings>,
    service: Arc<Service>,
    slot: ConnectionSlot,
    handshake_permit: Option<HandshakePermit>,
    tasks: Tasks,
) {
    let connection = Arc::clone(slot.connection());
    let begun = begin(stream, peer, tls, service, slot, tasks);
    let begun = Box::pin(in_time(begun, handshake_permit));
    // Stopping comes first: a client that has sent no request loses nothing.
    let mut serving = tokio::select! {
        biased;
        () = connection.ends().cancelled() => return,
        () = connection.evicted().cancelled() => return log_eviction(peer),
        begun = begun => match begun {
            Some(Ok(serving)) => serving,
            Some(Err(error)) => return tracing::debug!(%peer, %error, "handshake failed"),
            None => return tracing::debug!(%peer, "handshake timed out"),
        },
    };
    let mut evicted = PollOnWake::new(connection.evicted().clone().cancelled_owned());
    let ended = poll_fn(|cx| match serving.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => evicted.poll(cx).map(|()| None),
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%peer, %error, "connection failed"),
        None => log_eviction(peer),
    }
}

fn log_eviction(peer: SocketAddr) {
    tracing::debug!(%peer, "idle connection closed for a new one");
}

/// Waits for a handshake. Returns nothing if it takes too long, or if it is slow and another connection needs its
/// permit.
async fn in_time<F: Future>(handshake: F, permit: Option<HandshakePermit>) -> Option<F::Output> {
    let needed = async {
        match &permit {
            Some(permit) => permit.is_needed().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // A handshake that has ended is not aborted.
        biased;
        output = handshake => Some(output),
        () = needed => None,
        () = tokio::time::sleep(HANDSHAKE_TIMEOUT) => None,
    }
}

/// Performs the handshake and returns the future that serves the connection.
async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsSettings>,
    service: Arc<Service>,
    slot: ConnectionSlot,
    tasks: Tasks,
) -> io::Result<Serving> {
    let connection = Arc::clone(slot.connection());
    Ok(match tls {
        Some(tls) => {
            let acceptor = TlsAcceptor::from(tls.load_full());
            let mut stream = acceptor.accept(Socket::new(stream, slot)).await?;
            // Space for a full buffer of `Corked`, which is then encrypted and written in one call.
            stream.get_mut().1.set_buffer_limit(Some(CORKED_BYTES_MAX));
            let (protocol, handler) = secured(&stream, peer, &service, connection);
            http(stream, peer, protocol, handler, tasks)
        }
        None => {
            let protocol = plain_protocol(&stream).await?;
            let handler = Handler::new(&service, PeerCertificate::Absent, peer, connection);
            http(Socket::new(stream, slot), peer, protocol, handler, tasks)
        }
    })
}

/// Returns the negotiated protocol and the handler for the client's certificate.
fn secured(
    stream: &TlsStream<Socket>,
    peer: SocketAddr,
    service: &Service,
    connection: Arc<Connection>,
) -> (Protocol, Handler) {
    let (_, session) = stream.get_ref();
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let (certificate, proxy) = match &service.authentication {
        Authentication::Required { authenticator, .. } => {
            let (chain, now) = (session.peer_certificates(), UnixTime::now());
            let certificate = authenticator
                .client_certificates()
                .peer_certificate(chain, now);
            let proxy = authenticator.front_proxy().map(|proxy| {
                let certificates = proxy.certificates();
                certificates.peer_certificate(chain, now)
            });
            (certificate, proxy.unwrap_or(PeerCertificate::Absent))
        }
        Authentication::Unsecured(_) => (PeerCertificate::Absent, PeerCertificate::Absent),
    };
    if let (PeerCertificate::Invalid(reason), Some([leaf, ..])) =
        (&certificate, session.peer_certificates())
        && !matches!(proxy, PeerCertificate::Valid(_))
    {
        let (subject, issuer) = x509::describe(leaf);
        tracing::info!(%peer, subject, issuer, %reason, "client certificate rejected");
    }
    (
        protocol,
        Handler::new(service, certificate, peer, connection).with_proxy(proxy),
    )
}

/// Detects HTTP/2 with prior knowledge, or HTTP/1.1, by the first bytes.
async fn plain_protocol(stream: &TcpStream) -> io::Result<Protocol> {
    let mut start = [0; H2_PREFACE_START.len()];
    loop {
        let count = stream.peek(&mut start).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if start[..count] != H2_PREFACE_START[..count] {
            return Ok(Protocol::Http1);
        }
        if count == start.len() {
            return Ok(Protocol::Http2);
        }
        // Peeking returns immediately while there is data, so this must not spin.
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

fn http<S>(
    stream: S,
    peer: SocketAddr,
    protocol: Protocol,
    handler: Handler,
    tasks: Tasks,
) -> Serving
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Http1 => http1(stream, peer, handler),
        Protocol::Http2 => http2::serve(stream, handler, tasks),
    }
}

/// Returns when the connection has had no request in progress for a while: it has received a part of a request at most,
/// to which nothing was promised, or its client does not read the end of a response.
async fn idle_at_shutdown(state: &Connection) {
    loop {
        let pause = match state.idle_for() {
            None => SHUTDOWN_IDLE_CHECK,
            Some(idle) if idle >= SHUTDOWN_IDLE_MAX => return,
            Some(idle) => SHUTDOWN_IDLE_MAX - idle,
        };
        tokio::time::sleep(pause).await;
    }
}

fn http1<S>(stream: S, peer: SocketAddr, handler: Handler) -> Serving
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let state = Arc::clone(handler.connection());
    let stream = DelayedClose::new(stream, handler.delays_close());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler)
        .with_upgrades();
    let mut connection = Box::pin(connection);
    let ends = state.ends().clone();
    let mut stop = PollOnWake::new(ends.clone().cancelled_owned());
    let exchanges = overdue::run_within_deadline(Some(Arc::clone(&state)), ends, async move {
        let stopped = poll_fn(|cx| {
            // The connection comes first, so that it completes if it can.
            match connection.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending => stop.poll(cx).map(|()| None),
            }
        });
        match stopped.await {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                // The connection comes first, so that it completes if it can.
                tokio::select! {
                    biased;
                    ended = connection => ended,
                    () = idle_at_shutdown(&state) => Ok(()),
                }
            }
        }
    });
    let serving = async move {
        exchanges.await.unwrap_or_else(|| {
            tracing::debug!(%peer, "connection dropped: the client does not read the response");
            Ok(())
        })
    };
    serving.boxed()
}

#[cfg(test)]
mod tests;
