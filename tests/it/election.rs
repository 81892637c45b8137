//! Leader election on a real server that is killed: the leader remains the leader if the server is back in time, and
//! releases its lease when it ends.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use watchet::client::{ApiResource, Kubeconfig, LeaderElectionConfig, LeaderElector};
use watchet::client::{LeaderEnded, RestClient, RestConfig};
use watchet::tasks::Tasks;

use crate::harness::{PATIENCE, Server, free_port};

async fn start(directory: &Path, port: u16) -> Server {
    let port = format!("--secure-port={port}");
    Server::start_exactly(directory, &[port.as_str()]).await
}

fn client(server: &Server) -> RestClient {
    let kubeconfig = Kubeconfig::load(&[server.kubeconfig()]).unwrap();
    RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None).unwrap()).unwrap()
}

/// Intervals that a busy machine can meet; only the retries are frequent.
fn config(identity: &str) -> LeaderElectionConfig {
    LeaderElectionConfig {
        lease_duration: PATIENCE * 2,
        renew_deadline: PATIENCE,
        retry_period: Duration::from_millis(50),
        ..LeaderElectionConfig::new("default", "it", identity)
    }
}

#[tokio::test]
async fn leader_survives_a_crash_of_the_server_and_releases_its_lease() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = start(directory.path(), port).await;
    let client = client(&server);
    let tasks = Tasks::new();
    let elected = |identity: &str| LeaderElector::new(&client, config(identity)).unwrap();
    let until_stopped = async |stop: CancellationToken| stop.cancelled().await;

    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let a = elected("a");
    let mut seen_by_a = a.leader();
    let a = tasks.spawn("a", a.run(stop_a.clone(), until_stopped));
    leads(&mut seen_by_a, "a").await;
    let b = elected("b");
    let mut seen_by_b = b.leader();
    let b = tasks.spawn("b", b.run(stop_b.clone(), until_stopped));
    leads(&mut seen_by_b, "a").await;

    let leases = client
        .resource::<Lease>(ApiResource::of::<Lease>())
        .namespace("default");
    let renewed = async || {
        let lease = leases.get("it").await.ok()?.spec?;
        assert_eq!(lease.holder_identity.as_deref(), Some("a"));
        lease.renew_time
    };
    server.kill().await;
    let server = start(directory.path(), port).await;
    let before = timeout(PATIENCE, async {
        loop {
            if let Some(renewed) = renewed().await {
                return renewed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let before = before.await.expect("the server is back");
    let again = timeout(PATIENCE, async {
        while renewed().await.as_ref() == Some(&before) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    again.await.expect("it is renewed on");

    stop_a.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    // Long before the lease expires.
    leads(&mut seen_by_b, "b").await;
    let lease = leases.get("it").await.unwrap().spec.unwrap();
    assert_eq!(lease.lease_transitions, Some(1));
    stop_b.cancel();
    assert_eq!(b.await.unwrap(), LeaderEnded::Done(()));
    server.stop().await;
}

async fn leads(seen: &mut tokio::sync::watch::Receiver<Option<String>>, who: &str) {
    let known = seen.wait_for(|leader| leader.as_deref() == Some(who));
    let known = timeout(PATIENCE, known).await;
    drop(known.expect("in time").expect("it is there"));
}
