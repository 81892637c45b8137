//! The cost of transcoding: lists of 10,000 pods of 4.5 KB from memory, in JSON without and through a `TranscodingStorage`,
//! and in protobuf through it; and the encoding of one pod. `cargo bench -p watchet-protobuf`.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use serde_json::json;
use tokio::runtime::Runtime;
use watchet_api::StorageKey;
use watchet_protobuf::{Messages, StorageMediaType, TranscodingStorage};
use watchet_schema::Types;
use watchet_storage::memory::Memory;
use watchet_storage::{Expect, ListRequest, Put, Storage};

const PODS: usize = 10_000;

fn main() {
    divan::main();
}

fn pod(number: usize) -> String {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/image:v1.2.3", "imagePullPolicy": "IfNotPresent",
            "env": (0..8).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some value of a variable"})).collect::<Vec<_>>(),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": true}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let conditions = ["Initialized", "Ready", "PodScheduled"].map(condition);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number}"), "namespace": "default", "uid": format!("{number:036}"),
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"app": "web", "pod-template-hash": "6b7f8d9c"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
        },
        "spec": {
            "nodeName": "node-1", "containers": [container("a"), container("b")], "restartPolicy": "Always",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {"phase": "Running", "podIP": "10.1.2.3", "conditions": conditions},
    });
    let rest = 4_500_usize.saturating_sub(pod.to_string().len() + 50);
    pod["metadata"]["annotations"] = json!({"example.com/filler": "x".repeat(rest)});
    pod.to_string()
}

fn messages() -> Arc<Messages> {
    Arc::new(Messages::new(Types::builtins()))
}

/// Returns a storage with the pods in `media_type`, and a transcoding storage over it.
fn storages(runtime: &Runtime, media_type: StorageMediaType) -> [Arc<dyn Storage>; 2] {
    let raw: Arc<dyn Storage> = Memory::new(Duration::from_secs(3_600)).unwrap();
    let transcoding = TranscodingStorage::new(messages(), media_type, None, Arc::clone(&raw));
    runtime.block_on(async {
        for number in 0..PODS {
            let put = Put {
                key: StorageKey::new(&format!("/pods/default/pod-{number}")).unwrap(),
                value: pod(number).into(),
                expect: Expect::Absent,
                ttl: None,
            };
            transcoding.put(put).await.unwrap();
        }
    });
    [raw, transcoding]
}

fn list(bencher: Bencher<'_, '_>, media_type: StorageMediaType, through: usize) {
    let runtime = Runtime::new().unwrap();
    let storage = &storages(&runtime, media_type)[through];
    bencher.bench_local(|| {
        let request = ListRequest {
            prefix: StorageKey::new("/pods/").unwrap(),
            start: String::new(),
            at: None,
            limit: 0,
            count: false,
        };
        let page = runtime.block_on(storage.list(request)).unwrap();
        assert_eq!(page.items.len(), PODS);
        page
    });
}

#[divan::bench(sample_count = 20)]
fn list_json_without(bencher: Bencher<'_, '_>) {
    list(bencher, StorageMediaType::Json, 0);
}

#[divan::bench(sample_count = 20)]
fn list_json(bencher: Bencher<'_, '_>) {
    list(bencher, StorageMediaType::Json, 1);
}

#[divan::bench(sample_count = 20)]
fn list_protobuf(bencher: Bencher<'_, '_>) {
    list(bencher, StorageMediaType::Protobuf, 1);
}

#[divan::bench]
fn decode_pod(bencher: Bencher<'_, '_>) {
    let messages = messages();
    let encoded = messages.to_protobuf(("v1", "Pod"), pod(1).as_bytes());
    let encoded = encoded.unwrap().unwrap();
    bencher.bench_local(|| messages.to_json(&encoded, usize::MAX).unwrap());
}

#[divan::bench]
fn encode_pod(bencher: Bencher<'_, '_>) {
    let (messages, pod) = (messages(), pod(1));
    bencher.bench_local(|| messages.to_protobuf(("v1", "Pod"), pod.as_bytes()).unwrap());
}
