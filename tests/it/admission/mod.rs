//! Admission on real sockets: the real binary on both back ends, and webhooks that are HTTPS servers
//! inside the test.

mod client;
mod cluster;
mod matching;
mod mutating;
mod policies;
mod shutdown;
mod validating;

/// Runs cases on both back ends, each on a server of its own.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test] async fn $name() {
                let server = crate::harness::Server::start(&[]).await;
                super::$name(&super::super::cluster::Cluster(&server)).await;
                server.stop().await;
            })*
        }
        mod etcd {
            $(#[tokio::test] async fn $name() {
                let etcd = crate::storage::etcd::EtcdProcess::start(&[]).await;
                let servers = format!("--etcd-servers={}", etcd.url());
                let server = crate::harness::Server::start(&["--storage=etcd", &servers]).await;
                super::$name(&super::super::cluster::Cluster(&server)).await;
                server.stop().await;
            })*
        }
    };
}
use on_both;
