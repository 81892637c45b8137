//! A client of etcd that writes several objects in one revision, as a transaction of another program in a shared etcd does.

use std::time::Duration;

use etcd_client::{Client as EtcdClient, Txn, TxnOp};
use tokio::time::{sleep, timeout};

use super::Client;
use super::object::{TRANSACTION_NAMES, content, key};
use crate::check::{Change, Content, Outcome, Request};

/// How long a transaction may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The number of the server in the history: etcd is none of them.
const ETCD: u32 = 1_000;

/// Makes `count` transactions over connections that `connect` opens.
pub(crate) async fn transact(
    client: Client,
    connections: Vec<EtcdClient>,
    mut random: fastrand::Rng,
    count: usize,
    pause_ms: u64,
) {
    for _ in 0..count {
        sleep(Duration::from_micros(random.u64(..pause_ms * 4_000))).await;
        let mut etcd = connections[random.usize(..connections.len())].clone();
        let changes = choose(&client, &mut random);
        let operations: Vec<TxnOp> = changes.iter().map(operation).collect();
        let deletes = changes.iter().any(|change| change.content.is_none());
        let request = Request::Transaction { changes };
        let id = client.recorder.call(&client, ETCD, request);
        let response = timeout(TIMEOUT, etcd.txn(Txn::new().and_then(operations))).await;
        let header = response
            .ok()
            .and_then(|response| response.ok()?.header().cloned());
        let revision = header.and_then(|header| u64::try_from(header.revision()).ok());
        if let Some(revision) = revision.filter(|_| deletes) {
            client.recorder.saw_deletion(revision);
        }
        let outcome = revision.map_or(Outcome::Unknown, |revision| Outcome::Written { revision });
        client.recorder.returned(id, outcome);
    }
}

/// Returns changes of two or three objects, at least one of which is written.
fn choose(client: &Client, random: &mut fastrand::Rng) -> Vec<Change> {
    let mut names = TRANSACTION_NAMES;
    random.shuffle(&mut names);
    let count = random.usize(2..=names.len());
    let changes = names.into_iter().take(count).enumerate();
    let changes = changes.map(|(index, name)| {
        let is_deleted = index > 0 && random.u8(..3) == 0;
        Change {
            key: key(name),
            content: (!is_deleted).then(|| content(client.recorder.value(), random)),
        }
    });
    changes.collect()
}

fn operation(change: &Change) -> TxnOp {
    let stored = format!("/registry/{}", change.key);
    match &change.content {
        Some(content) => TxnOp::put(stored, stored_object(&change.key, content), None),
        None => TxnOp::delete(stored, None),
    }
}

/// Returns a config map as a server stores it.
fn stored_object(key: &str, content: &Content) -> String {
    let name = key.rsplit('/').next().unwrap_or_default();
    let number = name.bytes().map(u64::from).sum::<u64>();
    serde_json::json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": content.labels,
        },
        "data": {"value": content.value.to_string()},
    })
    .to_string()
}
