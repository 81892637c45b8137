//! Connections for watches. Each watch has its own gRPC stream, because a progress response covers
//! a whole stream: on a shared one, a watch that catches up would block the responses of the
//! others. Streams share connections, up to a limit per connection.

use std::sync::Arc;

use etcd_client::{Client, ConnectOptions, WatchClient};
use parking_lot::Mutex;
use tonic::transport::Endpoint;

use super::config::STREAMS_PER_CONNECTION;
use super::dialer::Dialer;
use super::failure::Failure;

/// Maximum size of a response. List pages are far smaller (see `list`); the limit bounds the memory
/// that one message can allocate.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// A stream on a connection; dropping it releases the slot.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "counted, not read")]
pub(super) struct StreamPermit {
    connection: Arc<()>,
    pool: Arc<()>,
}

struct Connection {
    client: WatchClient,
    permits: Arc<()>,
}

impl Connection {
    fn in_use(&self) -> usize {
        Arc::strong_count(&self.permits) - 1
    }
}

/// The connections of one member for watches, opened on demand.
pub(super) struct WatchPool {
    endpoint: Endpoint,
    dialer: Dialer,
    connections: Mutex<Vec<Connection>>,
    /// Cloned for each open watch, also on connections that were cleared.
    open: Arc<()>,
}

impl WatchPool {
    pub(super) fn new(endpoint: Endpoint, dialer: Dialer) -> Self {
        Self {
            endpoint,
            dialer,
            connections: Mutex::default(),
            open: Arc::default(),
        }
    }

    /// Returns a client for one watch, on a connection with a free stream.
    pub(super) async fn client(&self) -> Result<(WatchClient, StreamPermit), Failure> {
        if let Some(found) = self.find_free() {
            return Ok(found);
        }
        let channel = self.dialer.channel(&self.endpoint);
        // Without this option a partitioned member stays silent instead of failing.
        let options = ConnectOptions::new().with_require_leader(true);
        let client = Client::from_channel(channel, Some(options)).await?;
        let connection = Connection {
            client: client
                .watch_client()
                .max_decoding_message_size(RESPONSE_BYTES_MAX),
            permits: Arc::default(),
        };
        let stream = self.stream(&connection);
        self.connections.lock().push(connection);
        Ok(stream)
    }

    fn stream(&self, connection: &Connection) -> (WatchClient, StreamPermit) {
        let permit = StreamPermit {
            connection: connection.permits.clone(),
            pool: self.open.clone(),
        };
        (connection.client.clone(), permit)
    }

    /// Forgets the connections, so that further watches open others. Those of open watches end with them.
    pub(super) fn clear(&self) {
        self.connections.lock().clear();
    }

    /// Returns the number of open watches.
    pub(super) fn in_use(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    fn find_free(&self) -> Option<(WatchClient, StreamPermit)> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| connection.in_use() > 0);
        connections
            .iter()
            .find(|connection| connection.in_use() < STREAMS_PER_CONNECTION as usize)
            .map(|connection| self.stream(connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn full_connection_opens_another_and_empty_one_closes() {
        let pool = WatchPool::new(
            Endpoint::from_static("http://127.0.0.1:1"),
            Dialer::default(),
        );
        let mut permits = Vec::new();
        for _ in 0..=STREAMS_PER_CONNECTION {
            permits.push(pool.client().await.unwrap().1);
        }
        assert_eq!(pool.connections.lock().len(), 2);
        permits.truncate(1);
        permits.push(pool.client().await.unwrap().1);
        assert_eq!(pool.connections.lock().len(), 1);
        // A member with open watches is checked often, also after one of its calls has failed.
        pool.clear();
        assert_eq!(pool.in_use(), 2);
        permits.clear();
        assert_eq!(pool.in_use(), 0);
    }
}
