//! Connections for watches. A watch has a gRPC stream of its own, because an answer to a progress
//! request speaks for a whole stream: on a shared one, a watch that is catching up would keep the
//! answers from all the others. Streams share connections, a bounded number on each. It opens no
//! watch itself.

use std::sync::Arc;

use etcd_client::{Channel, Client, ConnectOptions, WatchClient};
use parking_lot::Mutex;
use tonic::transport::Endpoint;

use super::cluster::ANSWER_BYTES_MAX;
use super::config::STREAMS_PER_CONNECTION;
use super::failure::Failure;

/// A place on a connection; dropping it frees it.
#[derive(Debug, Clone)]
pub(super) struct Seat(#[allow(dead_code, reason = "it is counted, not read")] Arc<()>);

struct Connection {
    client: WatchClient,
    seats: Arc<()>,
}

impl Connection {
    fn taken(&self) -> usize {
        Arc::strong_count(&self.seats) - 1
    }
}

/// One member's connections for watches, made as they are needed.
pub(super) struct WatchPool {
    endpoint: Endpoint,
    connections: Mutex<Vec<Connection>>,
}

impl WatchPool {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connections: Mutex::default(),
        }
    }

    /// A client for one watch, on a connection that has room.
    pub(super) async fn client(&self) -> Result<(WatchClient, Seat), Failure> {
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let channel = Channel::Tonic(self.endpoint.connect_lazy());
        // A member that is cut off from the others would be silent for ever instead of failing.
        let options = ConnectOptions::new().with_require_leader(true);
        let client = Client::from_channel(channel, Some(options)).await?;
        let connection = Connection {
            client: client
                .watch_client()
                .max_decoding_message_size(ANSWER_BYTES_MAX),
            seats: Arc::default(),
        };
        let taken = (connection.client.clone(), Seat(connection.seats.clone()));
        self.connections.lock().push(connection);
        Ok(taken)
    }

    fn with_room(&self) -> Option<(WatchClient, Seat)> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| connection.taken() > 0);
        connections
            .iter()
            .find(|connection| connection.taken() < STREAMS_PER_CONNECTION as usize)
            .map(|connection| (connection.client.clone(), Seat(connection.seats.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_connection_gets_a_neighbour_and_an_empty_one_is_closed() {
        let pool = WatchPool::new(Endpoint::from_static("http://127.0.0.1:1"));
        let mut seats = Vec::new();
        for _ in 0..=STREAMS_PER_CONNECTION {
            seats.push(pool.client().await.unwrap().1);
        }
        assert_eq!(pool.connections.lock().len(), 2);
        seats.truncate(1);
        seats.push(pool.client().await.unwrap().1);
        assert_eq!(pool.connections.lock().len(), 1);
    }
}
