//! Clients of a simulated cluster over streams in memory.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use fastrand::Rng;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tonic::transport::Endpoint;
use tower_service::Service;
use watchet_simulation::etcd::{Cluster, Config};
use watchet_storage::etcd3::{Dialer, Etcd3, Etcd3Config};
use watchet_tasks::Tasks;

/// The bytes in flight of a connection.
const STREAM_BYTES: usize = 64 << 10;

/// Connects to the member that the host names: `http://member-1`.
#[derive(Clone)]
pub(crate) struct Connector(pub(crate) Cluster);

impl Service<Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<DuplexStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let cluster = self.0.clone();
        Box::pin(async move {
            let host = uri.host().expect("a host");
            let member = host.strip_prefix("member-").expect("a member");
            let member = member.parse().expect("a number");
            if !cluster.accepts_connections(member) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (client, server) = tokio::io::duplex(STREAM_BYTES);
            cluster.serve(member, server);
            Ok(TokioIo::new(client))
        })
    }
}

/// A cluster and the tasks it runs on, which end with this value.
pub(crate) struct Simulated {
    pub(crate) cluster: Cluster,
    tasks: Tasks,
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Simulated {
    pub(crate) fn start(config: Config, seed: u64) -> Self {
        let tasks = Tasks::new();
        let cluster = Cluster::start(config, Rng::with_seed(seed), &tasks);
        Self { cluster, tasks }
    }

    /// Returns a client of one member, on its own connection.
    pub(crate) async fn client(&self, member: usize) -> Client {
        self.client_with(member, ConnectOptions::new()).await
    }

    pub(crate) async fn client_with(&self, member: usize, options: ConnectOptions) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://member-{member}")).unwrap();
        let channel = endpoint.connect_with_connector_lazy(Connector(self.cluster.clone()));
        Client::from_channel(Channel::Tonic(channel), Some(options))
            .await
            .unwrap()
    }

    /// Returns the configuration of the back end over all members.
    pub(crate) fn storage_config(&self) -> Etcd3Config {
        let connector = Connector(self.cluster.clone());
        Etcd3Config {
            endpoints: (0..self.cluster.members())
                .map(|member| format!("http://member-{member}"))
                .collect(),
            compaction_interval: Duration::ZERO,
            dialer: Dialer::new(
                move |endpoint| endpoint.connect_with_connector_lazy(connector.clone()),
                1,
            ),
            ..Etcd3Config::default()
        }
    }

    /// Connects the back end.
    pub(crate) async fn storage(&self) -> Arc<Etcd3> {
        Etcd3::connect(self.storage_config()).await.unwrap()
    }

    /// Returns a member that does not lead.
    pub(crate) fn follower(&self) -> usize {
        let leader = self.cluster.leader().expect("a leader");
        (leader + 1) % self.cluster.members()
    }
}

/// Waits in virtual time.
pub(crate) async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}
