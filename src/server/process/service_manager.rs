//! The protocols of systemd: state notifications (`sd_notify`) and sockets that the service manager has opened
//! (`LISTEN_FDS`).

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;

use listenfd::ListenFd;

/// Why the sockets of the service manager cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum SocketActivationError {
    /// There are several.
    #[error(
        "LISTEN_FDS={count}: the service manager passes {count} sockets, and the server serves HTTPS on \
         one: leave one ListenStream= in the socket unit"
    )]
    Count {
        /// Their number.
        count: usize,
    },
    /// It is a socket of another kind.
    #[error(
        "LISTEN_FDS=1: {0}: the socket unit needs ListenStream= with a port, and Accept=no, the default"
    )]
    Kind(io::Error),
}

/// The service manager that started the process, if one did.
#[derive(Debug, Default)]
pub(in crate::server) struct ServiceManager {
    /// The address of its socket for notifications.
    notify_socket: Option<OsString>,
    /// The socket on which it listens for the server.
    pub listener: Option<TcpListener>,
}

impl ServiceManager {
    /// Reads the environment, and removes `LISTEN_FDS` from it. Must be called before the process has other threads.
    ///
    /// # Errors
    /// [`SocketActivationError`]
    pub(in crate::server) fn from_environment() -> Result<Self, SocketActivationError> {
        Ok(Self {
            notify_socket: std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()),
            listener: activated_listener(ListenFd::from_env())?,
        })
    }

    /// Reports that the server serves requests.
    pub(in crate::server) fn notify_ready(&self, address: std::net::SocketAddr) {
        self.notify(&format!("READY=1\nSTATUS=Serving https://{address}\n"));
    }

    /// Reports that the server drains.
    pub(in crate::server) fn notify_stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=Draining\n");
    }

    /// Sends the variables in `state`. A failure does not stop the server; the service manager may.
    fn notify(&self, state: &str) {
        let Some(address) = &self.notify_socket else {
            return;
        };
        if let Err(error) = send(address, state) {
            tracing::warn!(%error, socket = %address.display(), "cannot notify the service manager");
        }
    }
}

fn activated_listener(mut sockets: ListenFd) -> Result<Option<TcpListener>, SocketActivationError> {
    match sockets.len() {
        0 => return Ok(None),
        1 => {}
        count => return Err(SocketActivationError::Count { count }),
    }
    let listener = sockets.take_tcp_listener(0);
    let listener = listener.map_err(SocketActivationError::Kind)?;
    if let Some(listener) = &listener {
        let is_listening = socket2::SockRef::from(listener).is_listener();
        if !is_listening.map_err(SocketActivationError::Kind)? {
            let problem = "the socket does not listen";
            return Err(SocketActivationError::Kind(io::Error::other(problem)));
        }
    }
    Ok(listener)
}

fn send(address: &OsString, state: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    if let Some(name) = address.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return socket.send_to_addr(state.as_bytes(), &address).map(drop);
    }
    socket.send_to(state.as_bytes(), address).map(drop)
}
