//! The namespace controller: how a namespace is emptied, and what is told while it waits.

use std::time::Duration;

use futures_util::StreamExt as _;

use super::*;
use crate::api::{ResourceVersion, StorageKey};
use crate::registry::tests::value;
use crate::storage::Storage as _;

#[tokio::test]
async fn a_deleted_namespace_goes_with_all_that_is_in_it() {
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
    fixture.eventually_gone("/namespaces/doomed").await;
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

/// A namespace without content got conditions just before it was deleted: a client that finalized it itself,
/// as controller-runtime's tests do, met a 409.
#[tokio::test]
async fn an_empty_namespace_is_written_twice() {
    let fixture = started().await;
    fixture.create("namespaces", named("empty")).await;
    fixture.delete("namespaces/empty").await;
    fixture.eventually_gone("/namespaces/empty").await;
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
async fn a_terminating_namespace_takes_nothing_new_and_waits() {
    let fixture = started().await;
    fixture.create("namespaces", named("slow")).await;
    let mut body = named("held");
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
    let told = fixture.until("/namespaces/slow", |n| {
        let conditions = n["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["message"] == remaining))
    });
    let conditions = told.await["status"]["conditions"].clone();
    let told = |kind: &str| {
        let mut all = conditions.as_array().unwrap().iter();
        let one = all.find(|condition| condition["type"] == kind).unwrap();
        one["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        told("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: x.y/z in 1 resource instances"
    );
    assert_eq!(
        told("NamespaceDeletionContentFailure"),
        "All content successfully deleted, may be waiting on finalization"
    );
    fixture.release("slow", "configmaps/held").await;
    fixture.eventually_gone("/namespaces/slow").await;
}

#[tokio::test]
async fn a_restart_goes_on_with_what_was_being_deleted() {
    let fixture = started().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    // As a server leaves it that stops right after it has marked the namespace.
    fixture.stop().await;
    fixture.delete("namespaces/left").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(fixture.stored("/pods/left/p").await.is_some());

    let _next = fixture.another();
    fixture.eventually_gone("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// A client hangs up, or its time is up, while the mark is being written: the mark stays, and once
/// nobody emptied the namespace then.
#[tokio::test]
async fn a_namespace_goes_although_its_client_hung_up() {
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
        deleted = fixture.delete("namespaces/left") => panic!("answered: {deleted:?}"),
        () = marked => {}
    }
    fixture.eventually_gone("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// Two servers on one store: the one that took the delete dies, and the other one goes on with it
/// although it has been up all the time.
#[tokio::test]
async fn a_namespace_goes_although_the_server_that_marked_it_died() {
    let fixture = started().await;
    let _other = fixture.another();
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    fixture.stop().await;
    fixture.delete("namespaces/left").await;
    fixture.eventually_gone("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// What a pod needs must outlive it.
#[tokio::test]
async fn pods_go_before_everything_else() {
    let fixture = started().await;
    fixture.create("namespaces", named("slow")).await;
    let mut held = pod("p");
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create_in("slow", "pods", held).await.unwrap();
    let map = named("needed");
    fixture.create_in("slow", "configmaps", map).await.unwrap();
    fixture.delete("namespaces/slow").await;
    let marked = |p: &Value| p["metadata"]["deletionTimestamp"].is_string();
    fixture.until("/pods/slow/p", marked).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(fixture.stored("/configmaps/slow/needed").await.is_some());
    fixture.release("slow", "pods/p").await;
    fixture.eventually_gone("/namespaces/slow").await;
    assert_eq!(fixture.stored("/configmaps/slow/needed").await, None);
}

/// Nobody is there to empty it, as in a test environment that has an API server alone.
#[tokio::test]
async fn without_the_controller_a_namespace_stays_terminating() {
    let fixture = crate::registry::tests::fixture().await;
    fixture.create("namespaces", named("left")).await;
    let deleted = fixture.delete("namespaces/left").await;
    assert!(matches!(deleted, Deleted::Pending(_)), "{deleted:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = fixture.stored("/namespaces/left").await.unwrap();
    assert_eq!(left["status"]["phase"], "Terminating");
}
