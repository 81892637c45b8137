//! Binds the ports and accepts connections; `connection` serves them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::server::transport::connection;
use crate::server::transport::connections::Connections;
use crate::server::transport::handshakes::Handshakes;
use crate::server::transport::service::Service;
use crate::server::transport::tls::TlsSettings;
use crate::tasks::Tasks;
use watchet_metrics::LogInterval;

/// The backlog of accepted connections: thousands of clients reconnect at the same time after a
/// restart. The system's limit may be lower.
const BACKLOG: u32 = 4096;

/// The maximum number of concurrent handshakes, which cost memory before authentication. Further
/// connections wait in the backlog.
const HANDSHAKES_MAX: usize = 2048;

/// The pause after a failed accept, probably for lack of file descriptors, so that some can be
/// closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a port cannot be bound.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum BindError {
    /// Another process uses it.
    #[error(
        "{flag} {port}: {address} is in use by another process: stop that, or choose another port"
    )]
    InUse {
        /// The flag that sets the port.
        flag: &'static str,
        /// The port.
        port: u16,
        /// The address with the port.
        address: SocketAddr,
    },
    /// Another reason, e.g. the address is not local, or the port is privileged.
    #[error("--bind-address {ip} with {flag} {port}: cannot listen: {source}", ip = address.ip(),
        port = address.port())]
    Failed {
        /// The flag that sets the port.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// Binds `address`; `flag` is the flag that sets the port.
///
/// # Errors
/// [`BindError`]
pub(in crate::server) fn bind(
    flag: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // So that a restart need not wait for the TIME_WAIT of old connections.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse {
            flag,
            port: address.port(),
            address,
        },
        _ => BindError::Failed {
            flag,
            address,
            source,
        },
    })
}

/// Accepts the connections of a socket that another process has opened.
///
/// # Errors
/// The runtime cannot wait for its connections.
pub(in crate::server) fn adopt(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts connections until the group of `tasks` is cancelled; each is a task of the group, and one of `connections`.
/// `tls` is `None` on the plain port.
pub(in crate::server) async fn accept(
    listener: TcpListener,
    tls: Option<TlsSettings>,
    service: Arc<Service>,
    connections: Arc<Connections>,
    tasks: Tasks,
) {
    let stop = tasks.token();
    let handshakes = Handshakes::new(HANDSHAKES_MAX);
    let failures = LogInterval::growing();
    loop {
        let next = async {
            let (stream, peer) = listener.accept().await?;
            let Some(slot) = connections.slot(&stop).await else {
                return Ok(None);
            };
            // Without TLS there is no handshake to limit.
            let permit = match &tls {
                Some(_) => Some(handshakes.permit().await),
                None => None,
            };
            Ok::<_, io::Error>(Some((stream, peer, slot, permit)))
        };
        // Stopping comes first: a flood of connections must not prevent it.
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok(None) => {}
            Ok(Some((stream, peer, slot, permit))) => {
                prepare(&stream);
                let connection = connection::serve(
                    stream,
                    peer,
                    tls.clone(),
                    Arc::clone(&service),
                    slot,
                    permit,
                    tasks.clone(),
                );
                tasks.spawn("connection", connection);
            }
            // The client has disconnected already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if let Some(suppressed) = failures.next() {
                    tracing::warn!(%error, suppressed, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The data that the kernel accepts before the client has space for it. Without a limit it takes megabytes for each client that
/// does not read, and they count against the memory of a container.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Disables Nagle's algorithm: events are small and must not be delayed. Limits the unsent data in the kernel.
fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        tracing::debug!(%error, "cannot set TCP_NOTSENT_LOWAT");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn error_of_a_port_in_use_has_flag_and_address() {
        let first = bind("--secure-port", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let error = bind("--secure-port", address).unwrap_err().to_string();
        let expected = format!("--secure-port {}: {address} is in use", address.port());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[tokio::test]
    async fn error_of_an_address_of_another_host_has_the_address() {
        let error = bind("--secure-port", "192.0.2.1:0".parse().unwrap()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("--bind-address 192.0.2.1"), "{error}");
    }
}
