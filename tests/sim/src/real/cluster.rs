//! Three etcd members and two servers, with a proxy from each server to each member.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::Programs;
use super::process::{Process, free_addresses};
use super::proxy::Proxy;
use crate::client::Transport;
use crate::network::Node;

const MEMBERS: usize = 3;
const SERVERS: usize = 2;

/// How long etcd and the servers may take to be ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// The time limit of a request to etcd.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The processes.
pub(super) struct RealCluster {
    pub(super) members: Vec<Process>,
    member_addresses: Vec<SocketAddr>,
    pub(super) servers: Vec<Process>,
    pub(super) nodes: Vec<Node>,
    server_addresses: Vec<SocketAddr>,
    /// By server and member.
    pub(super) proxies: Vec<Vec<Proxy>>,
    /// In front of the servers.
    balancer: Proxy,
}

impl RealCluster {
    /// Starts everything, and waits until the servers are ready.
    pub(super) async fn start(programs: &Programs) -> io::Result<Self> {
        let member_addresses = free_addresses(MEMBERS);
        let peers = free_addresses(MEMBERS);
        let members = (0..MEMBERS).map(|index| member(programs, index, &member_addresses, &peers));
        let server_addresses = free_addresses(SERVERS);
        let (mut servers, mut proxies) = (Vec::new(), Vec::new());
        for (index, address) in server_addresses.iter().enumerate() {
            let mut own = Vec::new();
            for member in &member_addresses {
                own.push(Proxy::start(&[*member]).await?);
            }
            servers.push(server(programs, index, *address, &own));
            proxies.push(own);
        }
        let mut cluster = Self {
            members: members.collect(),
            member_addresses,
            servers,
            nodes: (0..SERVERS)
                .map(|index| Node::new(&format!("server-{index}")))
                .collect(),
            balancer: Proxy::start(&server_addresses).await?,
            server_addresses,
            proxies,
        };
        cluster.start_all()?;
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// Starts all processes that do not run.
    pub(super) fn start_all(&mut self) -> io::Result<()> {
        let mut processes = self.members.iter_mut().chain(&mut self.servers);
        processes.try_for_each(Process::start)
    }

    /// Waits until each server is ready.
    pub(super) async fn wait_until_ready(&mut self) -> io::Result<()> {
        let servers = self.servers.iter_mut().zip(&self.nodes);
        for ((server, node), address) in servers.zip(&self.server_addresses) {
            let until = Instant::now() + READY_MAX;
            while !is_ready(*address).await {
                server.check_running()?;
                if Instant::now() > until {
                    return Err(io::Error::other(format!(
                        "{node} is not ready after {READY_MAX:?}"
                    )));
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Ends all faults: processes run, and proxies forward.
    pub(super) fn heal(&mut self) -> io::Result<()> {
        for proxy in self.proxies.iter().flatten() {
            proxy.cut(false, false);
        }
        for process in self.members.iter().chain(&self.servers) {
            process.signal(Signal::CONT)?;
        }
        self.start_all()
    }

    /// Returns how clients reach the servers.
    pub(super) fn transport(&self) -> Transport {
        let addresses = self
            .nodes
            .iter()
            .cloned()
            .zip(self.server_addresses.iter().copied());
        let addresses: BTreeMap<Node, SocketAddr> = addresses.collect();
        Transport::Tcp(Arc::new(addresses))
    }

    /// Returns the address of a proxy that balances connections between the servers.
    pub(super) fn balancer(&self) -> SocketAddr {
        self.balancer.address
    }

    /// Returns the index of the leader of etcd.
    pub(super) async fn leader(&self) -> io::Result<usize> {
        for _ in 0..50 {
            for index in 0..MEMBERS {
                let Ok(mut client) = self.client(index).await else {
                    continue;
                };
                let status = timeout(REQUEST_MAX, client.status()).await;
                if let Ok(Ok(status)) = status
                    && status
                        .header()
                        .is_some_and(|header| header.member_id() == status.leader())
                {
                    return Ok(index);
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(io::Error::other("etcd has no leader"))
    }

    /// Returns a client of a member, without a proxy.
    pub(super) async fn client(&self, member: usize) -> io::Result<Client> {
        let endpoint = format!("http://{}", self.member_addresses[member]);
        let connected = timeout(REQUEST_MAX, Client::connect([endpoint], None)).await?;
        connected.map_err(io::Error::other)
    }
}

/// Returns true if the server says that it is ready.
async fn is_ready(address: SocketAddr) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let requested = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok::<_, io::Error>(response.starts_with(b"HTTP/1.1 200"))
    };
    matches!(timeout(REQUEST_MAX, requested).await, Ok(Ok(true)))
}

fn member(
    programs: &Programs,
    index: usize,
    addresses: &[SocketAddr],
    peers: &[SocketAddr],
) -> Process {
    let cluster = peers.iter().enumerate();
    let cluster: Vec<String> = cluster
        .map(|(index, peer)| format!("m{index}=http://{peer}"))
        .collect();
    let data = programs.directory.join(format!("etcd-{index}"));
    let (client, peer) = (addresses[index], peers[index]);
    let arguments = vec![
        format!("--name=m{index}"),
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls=http://{client}"),
        format!("--advertise-client-urls=http://{client}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster={}", cluster.join(",")),
        "--initial-cluster-state=new".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Process::new(&programs.etcd, arguments, data.with_extension("log"))
}

fn server(programs: &Programs, index: usize, address: SocketAddr, proxies: &[Proxy]) -> Process {
    let data = programs.directory.join(format!("server-{index}"));
    let endpoints: Vec<String> = proxies
        .iter()
        .map(|proxy| format!("http://{}", proxy.address))
        .collect();
    let arguments = vec![
        "serve".to_owned(),
        format!("--data-dir={}", data.display()),
        "--secure-port=0".to_owned(),
        format!("--insecure-port={}", address.port()),
        "--storage=etcd".to_owned(),
        format!("--etcd-servers={}", endpoints.join(",")),
        // None, because they write config maps.
        "--controllers=-namespace-controller".to_owned(),
        "--watch-cache-consistency-check-interval=5s".to_owned(),
    ];
    Process::new(&programs.watchet, arguments, data.with_extension("log"))
}
