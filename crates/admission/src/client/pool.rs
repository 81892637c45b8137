//! The idle connections of one destination. A changed configuration is another destination, so a changed CA applies
//! immediately.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use rustls::ClientConfig as TlsConfig;
use rustls_pki_types::ServerName;
use tokio::time::Instant;

use super::Address;
use super::credentials::Credential;

/// The maximum number of idle connections. The pool closes further ones.
const IDLE_MAX: usize = 16;

/// The maximum age of an idle connection. Servers close idle connections after some minutes; the client closes earlier.
const IDLE_AGE_MAX: Duration = Duration::from_secs(60);

/// The target of the calls of one configuration.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) address: Address,
    pub(super) server_name: ServerName<'static>,
    pub(super) tls: Arc<TlsConfig>,
    pub(super) credential: Arc<Credential>,
    /// The most recently used connection is at the end. At most [`IDLE_MAX`].
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

impl Destination {
    pub(super) fn new(
        address: Address,
        server_name: ServerName<'static>,
        tls: Arc<TlsConfig>,
        credential: Arc<Credential>,
    ) -> Self {
        Self {
            address,
            server_name,
            tls,
            credential,
            idle: Mutex::default(),
        }
    }

    /// Returns an idle connection that seems to be open.
    pub(super) fn idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.retain(|one| one.sender.is_ready() && now - one.since < IDLE_AGE_MAX);
        idle.pop().map(|one| one.sender)
    }

    /// Adds a connection to the idle ones. The caller has read the last response completely.
    pub(super) fn keep(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if !sender.is_closed() && idle.len() < IDLE_MAX {
            idle.push(Idle {
                sender,
                since: Instant::now(),
            });
        }
    }
}
