//! The storage of a simulation: the embedded store on a simulated disk, or a simulated etcd cluster.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::Uri;
use hyper_util::rt::TokioIo;
use tower_service::Service;
use watchet_storage::Storage;
use watchet_storage::embedded::{EmbeddedConfig, SimulatedDisk, SimulatedFault};
use watchet_storage::etcd3::{Dialer, Etcd3, Etcd3Config};
use watchet_tasks::Tasks;

use crate::bugs::planted_into_etcd;
use crate::etcd::{Cluster, Config, PlantedBug};
use crate::network::{Listener, Network, Node, Stream};

/// The time between attempts to open the storage when a server starts.
const START_RETRY: Duration = Duration::from_millis(500);

/// The versions of etcd.
const ETCD_VERSIONS: [&str; 3] = ["3.6.4", "3.5.21", WITHOUT_PROGRESS];

/// A version whose progress responses are not correct, so that servers do not use them.
const WITHOUT_PROGRESS: &str = "3.5.12";

/// Opens the storage of a server that starts.
pub(super) type Opening = Pin<Box<dyn Future<Output = Arc<dyn Storage>> + Send>>;

/// The storage of all servers.
pub(super) enum Backend {
    /// One server uses the disk.
    Embedded(SimulatedDisk),
    /// Any number of servers use the cluster.
    Etcd(EtcdNodes),
}

/// An etcd cluster on the network.
pub(super) struct EtcdNodes {
    pub(super) cluster: Cluster,
    pub(super) nodes: Vec<Node>,
    /// True if the servers do not use its progress responses.
    pub(super) is_without_progress: bool,
    network: Network,
    tasks: Tasks,
}

impl EtcdNodes {
    /// Starts the members.
    pub(super) fn start(network: &Network, random: &mut fastrand::Rng, tasks: &Tasks) -> Self {
        let planted = planted_into_etcd();
        let config = Config {
            bugs: planted.into_iter().collect(),
            version: ETCD_VERSIONS[random.usize(..ETCD_VERSIONS.len())].to_owned(),
            // Members that were away receive a snapshot.
            snapshot_entries: match random.bool() {
                true => random.usize(1..4),
                false => random.usize(4..60),
            },
            // Watches of slow streams catch up later.
            stream_responses_max: match random.bool() {
                true => random.usize(1..4),
                false => 128,
            },
            ..Config::default()
        };
        // A version whose progress the servers trust.
        let config = match planted {
            Some(PlantedBug::ProgressAheadOfEvents | PlantedBug::ProgressBeforeStart) => Config {
                version: ETCD_VERSIONS[0].to_owned(),
                ..config
            },
            _ => config,
        };
        let nodes = (0..config.members).map(|member| Node::new(&format!("etcd-{member}")));
        let started = Self {
            nodes: nodes.collect(),
            is_without_progress: config.version == WITHOUT_PROGRESS,
            cluster: Cluster::start(config, random.fork(), tasks),
            network: network.clone(),
            tasks: tasks.clone(),
        };
        (0..started.nodes.len()).for_each(|member| started.listen(member));
        started
    }

    fn listen(&self, member: usize) {
        let listener = self.network.listen(&self.nodes[member]);
        let accept = accept(self.cluster.clone(), member, listener);
        let token = self.tasks.token();
        drop(
            self.tasks
                .spawn("etcd-accept", token.run_until_cancelled_owned(accept)),
        );
    }

    /// Returns a client of each member, for the process at `from`.
    pub(super) fn connect(&self, from: &Node) -> Vec<etcd_client::Client> {
        let connector = Connector {
            network: self.network.clone(),
            from: from.clone(),
        };
        let connect = |node: &Node| {
            let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{node}"));
            let endpoint = endpoint.expect("the name of a node is a host");
            let channel = endpoint.connect_with_connector_lazy(connector.clone());
            let channel = etcd_client::Channel::Tonic(channel);
            let client = etcd_client::Client::from_channel(channel, None).now_or_never();
            let client = client.expect("a client without a user sends nothing");
            client.expect("a client without a user needs nothing")
        };
        self.nodes.iter().map(connect).collect()
    }

    /// Stops the process of a member.
    pub(super) fn stop(&self, member: usize) {
        self.cluster.stop(member);
        self.network.kill(&self.nodes[member]);
    }

    /// Starts the process of a member again.
    pub(super) fn restart(&self, member: usize) {
        self.cluster.restart(member);
        self.listen(member);
    }
}

async fn accept(cluster: Cluster, member: usize, mut listener: Listener) {
    while let Some(stream) = listener.accept().await {
        cluster.serve(member, stream);
    }
}

/// Connects a server to the member that the host of a URL names.
#[derive(Clone)]
struct Connector {
    network: Network,
    from: Node,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (network, from) = (self.network.clone(), self.from.clone());
        let to = Node::new(uri.host().unwrap_or_default());
        Box::pin(async move { Ok(TokioIo::new(network.connect(&from, &to).await?)) })
    }
}

impl Backend {
    /// Returns the storage of the server at `node`, which starts.
    pub(super) fn open(&self, node: &Node, random: &mut fastrand::Rng) -> Opening {
        let compaction_interval = Duration::from_secs(random.u64(5..120));
        let seed = random.u64(..);
        match self {
            Self::Embedded(disk) => {
                let config = EmbeddedConfig {
                    compaction_interval,
                    ..EmbeddedConfig::default()
                };
                Box::pin(open(disk.clone(), config, seed))
            }
            Self::Etcd(etcd) => {
                let connector = Connector {
                    network: etcd.network.clone(),
                    from: node.clone(),
                };
                let dial = move |endpoint: &tonic::transport::Endpoint| {
                    endpoint.connect_with_connector_lazy(connector.clone())
                };
                let endpoints = etcd.nodes.iter().map(|node| format!("http://{node}"));
                let config = Etcd3Config {
                    endpoints: endpoints.collect(),
                    compaction_interval,
                    dialer: Dialer::new(dial, seed),
                    ..Etcd3Config::default()
                };
                Box::pin(connect(config))
            }
        }
    }
}

/// Opens the embedded store, and tries again while the disk fails, as a supervisor does that starts the server again.
///
/// # Panics
/// Panics if the store does not open although the disk works.
async fn open(disk: SimulatedDisk, config: EmbeddedConfig, seed: u64) -> Arc<dyn Storage> {
    loop {
        match disk.open(config, seed) {
            Ok(storage) => return storage,
            Err(error) if disk.fault() == SimulatedFault::None => {
                panic!("the store does not open after a crash: {error}")
            }
            Err(error) => tracing::info!(%error, "cannot open the store"),
        }
        tokio::time::sleep(START_RETRY).await;
    }
}

/// Connects to etcd, and tries again until that succeeds, as a supervisor does that starts the server again.
async fn connect(config: Etcd3Config) -> Arc<dyn Storage> {
    loop {
        match Etcd3::connect(config.clone()).await {
            Ok(storage) => return storage,
            Err(error) => tracing::info!(%error, "cannot connect to etcd"),
        }
        tokio::time::sleep(START_RETRY).await;
    }
}
