//! Runs tests on a server over each back end.

use super::Server;
use crate::storage::etcd::EtcdProcess;

/// Makes two tests of each function, `embedded::NAME` and `etcd::NAME`, each with its own server. The closure returns
/// the arguments of the functions:
///
/// ```ignore
/// on_both!(|server| (server, &Kubectl::new(&server.kubeconfig())) => [a_case, another]);
/// async fn a_case(server: &Server, kubectl: &Kubectl) {}
/// ```
macro_rules! on_both {
    (|$server:ident| $given:tt => [$($case:ident),* $(,)?]) => {
        mod embedded {
            #[allow(unused_imports, reason = "what a case is given may need none")]
            use super::*;
            $(#[tokio::test] async fn $case() {
                let case = async |$server: &$crate::harness::Server| super::$case $given.await;
                $crate::harness::on_embedded(case).await;
            })*
        }
        mod etcd {
            #[allow(unused_imports, reason = "what a case is given may need none")]
            use super::*;
            $(#[tokio::test] async fn $case() {
                let case = async |$server: &$crate::harness::Server| super::$case $given.await;
                $crate::harness::on_etcd(case).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// Runs a test on a server over the embedded store.
pub(crate) async fn on_embedded(case: impl AsyncFnOnce(&Server)) {
    let server = Server::start(&[]).await;
    case(&server).await;
    server.stop().await;
}

/// Runs a test on a server over its own etcd.
pub(crate) async fn on_etcd(case: impl AsyncFnOnce(&Server)) {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    case(&server).await;
    server.stop().await;
}
