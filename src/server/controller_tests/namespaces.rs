//! Tests of the namespace controller: deletion of the content, and conditions while it waits.

use std::time::Duration;

use futures_util::StreamExt as _;

use super::*;
use crate::api::{ResourceVersion, StorageKey};
use crate::storage::Storage as _;
use watchet_test_registry::value;

#[tokio::test]
async fn a_deleted_namespace_is_deleted_with_its_content() {
    let fixture = started().await;
    fixture.create("namespaces", named("doomed")).await;
    fixture.create("namespaces", named("doomed-not")).await;
    for i in 0..40 {
        fixture
            .create_in("doomed", "configmaps", named(&format!("c{i}")))
            .await
            .unwrap();
    }
    fixture
        .create_in("doomed", "deployments", deployment("d"))
        .await
        .unwrap();
    fixture
        .create_in(
            "doomed",
            "events",
            json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "doomed"}}),
        )
        .await
        .unwrap();
    fixture.create_in("doomed", "pods", pod("p")).await.unwrap();
    fixture
        .create_in("doomed-not", "pods", pod("p"))
        .await
        .unwrap();
    match fixture.delete("namespaces/doomed").await {
        Deleted::Pending(object) => {
            let namespace = value(&object);
            assert_eq!(namespace["status"]["phase"], "Terminating");
            assert!(namespace["metadata"]["deletionTimestamp"].is_string());
        }
        other => panic!("{other:?}"),
    }
    fixture.wait_until_deleted("/namespaces/doomed").await;
    for key in [
        "configmaps/doomed/c0",
        "deployments/doomed/d",
        "events/doomed/e",
        "pods/doomed/p",
    ] {
        assert_eq!(fixture.stored(&format!("/{key}")).await, None, "{key}");
    }
    assert!(fixture.stored("/pods/doomed-not/p").await.is_some());
    fixture.create("namespaces", named("doomed")).await;
    fixture.create_in("doomed", "pods", pod("p")).await.unwrap();
}

/// An empty namespace used to get conditions just before it was deleted: a client that finalized it
/// itself, as controller-runtime's tests do, got a 409.
#[tokio::test]
async fn an_empty_namespace_gets_no_conditions() {
    let fixture = started().await;
    fixture.create("namespaces", named("empty")).await;
    fixture.delete("namespaces/empty").await;
    fixture.wait_until_deleted("/namespaces/empty").await;
    let storage = &fixture.storage;
    let last = storage.current_revision().await.unwrap();
    let prefix = StorageKey::new("/namespaces/").unwrap();
    let mut watch = storage
        .watch(&prefix, ResourceVersion::new(1))
        .await
        .unwrap();
    watch.progress.request();
    let mut phases = Vec::new();
    let mut seen = ResourceVersion::ZERO;
    while seen < last {
        let batch = watch.batches.next().await.unwrap().unwrap();
        seen = batch.revision;
        let events = batch.events.into_iter();
        phases.extend(
            events
                .filter(|event| event.key.as_str() == "/namespaces/empty")
                .map(|event| {
                    let value = event
                        .value
                        .map(|value| serde_json::from_slice(&value).unwrap());
                    value.map_or(Value::Null, |value: Value| value["status"].clone())
                }),
        );
    }
    let phase = |phase: &str| json!({ "phase": phase });
    assert_eq!(phases, [phase("Active"), phase("Terminating"), Value::Null]);
}

#[tokio::test]
async fn a_terminating_namespace_rejects_creates_and_waits() {
    let fixture = started().await;
    fixture.create("namespaces", named("slow")).await;
    let mut body = named("finalized");
    body["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create_in("slow", "configmaps", body).await.unwrap();
    fixture.delete("namespaces/slow").await;
    let refused = fixture.create_in("slow", "pods", pod("a")).await;
    assert!(
        matches!(refused, Err(ApiError::Forbidden { .. })),
        "{refused:?}"
    );
    let again = fixture.delete("namespaces/slow").await;
    assert!(matches!(again, Deleted::Pending(_)), "{again:?}");

    let remaining = "Some resources are remaining: configmaps. has 1 resource instances";
    let namespace = fixture.wait_until("/namespaces/slow", |n| {
        let conditions = n["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["message"] == remaining))
    });
    let conditions = namespace.await["status"]["conditions"].clone();
    let message = |kind: &str| {
        let mut all = conditions.as_array().unwrap().iter();
        let one = all.find(|condition| condition["type"] == kind).unwrap();
        one["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: x.y/z in 1 resource instances"
    );
    assert_eq!(
        message("NamespaceDeletionContentFailure"),
        "All content successfully deleted, may be waiting on finalization"
    );
    fixture
        .remove_finalizers("slow", "configmaps/finalized")
        .await;
    fixture.wait_until_deleted("/namespaces/slow").await;
}

#[tokio::test]
async fn a_restart_resumes_deletions() {
    let fixture = started().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    // The state left by a server that stops right after the deletion request.
    fixture.stop().await;
    fixture.delete("namespaces/left").await;
    assert!(fixture.stored("/pods/left/p").await.is_some());

    let _next = fixture.another();
    fixture.wait_until_deleted("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// The namespace used to remain if the client disconnected, or timed out, while the deletion
/// timestamp was being written.
#[tokio::test]
async fn a_namespace_is_deleted_although_its_client_disconnected() {
    let fixture = started().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    *fixture.storage.unanswered.lock() = Some(StorageKey::new("/namespaces/left").unwrap());
    let marked = async {
        while fixture.storage.unanswered.lock().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        deleted = fixture.delete("namespaces/left") => panic!("response: {deleted:?}"),
        () = marked => {}
    }
    fixture.wait_until_deleted("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// Of two servers on one storage, the one that accepted the deletion stops; the other, which has
/// been running all along, continues it.
#[tokio::test]
async fn a_namespace_is_deleted_although_its_server_died() {
    let fixture = started().await;
    let _other = fixture.another();
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    fixture.stop().await;
    fixture.delete("namespaces/left").await;
    fixture.wait_until_deleted("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// Other objects must outlive the pods that use them.
#[tokio::test]
async fn pods_are_deleted_first() {
    let fixture = started().await;
    fixture.create("namespaces", named("slow")).await;
    let mut finalized = pod("p");
    finalized["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create_in("slow", "pods", finalized).await.unwrap();
    let map = named("needed");
    fixture.create_in("slow", "configmaps", map).await.unwrap();
    fixture.delete("namespaces/slow").await;
    let marked = |p: &Value| p["metadata"]["deletionTimestamp"].is_string();
    fixture.wait_until("/pods/slow/p", marked).await;
    // It tries again, and finds the pod.
    let retries = fixture.queues.retries("namespace-controller");
    fixture
        .queues
        .wait_until_retried("namespace-controller", retries)
        .await;
    assert!(fixture.stored("/configmaps/slow/needed").await.is_some());
    fixture.remove_finalizers("slow", "pods/p").await;
    fixture.wait_until_deleted("/namespaces/slow").await;
    assert_eq!(fixture.stored("/configmaps/slow/needed").await, None);
}

/// A test environment without kube-controller-manager behaves like this.
#[tokio::test]
async fn without_the_controller_a_namespace_stays_terminating() {
    let fixture = without_controllers().await;
    fixture.create("namespaces", named("left")).await;
    let deleted = fixture.delete("namespaces/left").await;
    assert!(matches!(deleted, Deleted::Pending(_)), "{deleted:?}");
    let left = fixture.stored("/namespaces/left").await.unwrap();
    assert_eq!(left["status"]["phase"], "Terminating");
}
