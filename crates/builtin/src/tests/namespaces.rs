//! Tests of namespaces: the system namespaces, and creates in a namespace.

use std::time::Duration;

use super::*;
use watchet_storage::Storage;

fn forbidden(error: ApiError) -> (String, Vec<String>) {
    match error {
        ApiError::Forbidden { detail, causes, .. } => {
            (detail, causes.into_iter().map(|c| c.reason).collect())
        }
        other => panic!("not Forbidden: {other}"),
    }
}

#[tokio::test]
async fn system_namespaces_exist_after_a_start() {
    let memory = Memory::new(Duration::from_secs(300)).unwrap();
    let storage = Arc::new(ConcurrentWriter::new(memory));
    let tasks = Tasks::new();
    let config = CacherConfig::default();
    let server = || new_registry(storage.clone(), &tasks, config.clone(), Metrics::new());
    let (one, two) = (server(), server());
    let both = tokio::join!(one.bootstrap(), two.bootstrap());
    both.0.unwrap();
    both.1.unwrap();
    let writes = *storage.writes.lock();
    one.bootstrap().await.unwrap();
    assert_eq!(
        *storage.writes.lock(),
        writes,
        "a second start writes nothing"
    );
    let caches = one.cache_readiness();
    let caches: Vec<&str> = caches.iter().map(|(name, _)| &**name).collect();
    let followed = [
        "customresourcedefinitions.apiextensions.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "namespaces",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    ];
    assert_eq!(caches, followed, "a start fills no other cache");
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let key = StorageKey::new(&format!("/namespaces/{name}")).unwrap();
        let stored = storage.get(&key).await.unwrap().0.unwrap();
        let namespace: Value = serde_json::from_slice(&stored.value).unwrap();
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
        assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(
            namespace["metadata"]["labels"],
            json!({"kubernetes.io/metadata.name": name})
        );
    }
    tasks.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn create_in_an_absent_namespace_is_not_found() {
    let fixture = fixture().await;
    let error = fixture
        .create_in("none", "pods", pod("a"))
        .await
        .unwrap_err();
    match error {
        ApiError::NotFound { resource, name } => {
            assert_eq!((&*resource, &*name), ("namespaces", "none"));
        }
        other => panic!("{other}"),
    }
    assert_eq!(fixture.stored("/pods/none/a").await, None);
    for name in ["default", "kube-system", "kube-public"] {
        let error = fixture
            .try_delete(&format!("namespaces/{name}"), json!({}))
            .await;
        assert_eq!(
            forbidden(error.unwrap_err()).0,
            "this namespace may not be deleted"
        );
    }
}

#[tokio::test]
async fn only_finalize_changes_the_finalizers_of_a_namespace() {
    let fixture = fixture().await;
    let created = fixture.create("namespaces", named("n")).await;
    let free = json!({"spec": {"finalizers": []}, "metadata": {"labels": {"a": "b"}}});
    let n = fixture.merge_patch("namespaces/n", free.clone()).await;
    assert_eq!(n["spec"], created["spec"]);
    assert_eq!(
        n["metadata"]["labels"],
        json!({"a": "b", "kubernetes.io/metadata.name": "n"})
    );
    let mut body = created;
    body["spec"]["finalizers"] = json!([]);
    body["metadata"]["resourceVersion"] = json!("");
    body["metadata"]["labels"] = json!({"c": "d"});
    body["status"]["phase"] = json!("Terminating");
    let n = fixture.update("namespaces/n/finalize", body).await;
    assert_eq!(n["spec"], json!({"finalizers": []}));
    // As upstream, this writes the metadata, but not the status.
    assert_eq!(
        n["metadata"]["labels"],
        json!({"c": "d", "kubernetes.io/metadata.name": "n"})
    );
    assert_eq!(n["status"]["phase"], "Active");
    // Without a finalizer a delete removes the namespace immediately.
    assert!(matches!(
        fixture.delete("namespaces/n").await,
        Deleted::Immediately(_)
    ));
}

/// A delete may be acknowledged before the cache receives its event. Until then the server must not accept a create
/// because the namespace is still active in the cache.
#[tokio::test]
async fn stale_cache_does_not_allow_creates_in_a_deleted_namespace() {
    let fixture = fixture().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    // A list waits for the cache.
    let (namespaces, all) = (fixture.resource("namespaces"), ListOptions::default());
    let list = fixture.registry.list(&namespaces, None, &all).await;
    assert_eq!(list.unwrap().items.len(), 5);
    fixture.storage.freeze(true);
    fixture.delete("namespaces/left").await;
    let refused = fixture.create_in("left", "pods", pod("q")).await;
    assert_eq!(forbidden(refused.unwrap_err()).1, ["NamespaceTerminating"]);
    let mut body = fixture.stored("/namespaces/left").await.unwrap();
    body["spec"]["finalizers"] = json!([]);
    fixture.update("namespaces/left/finalize", body).await;
    assert_eq!(fixture.stored("/namespaces/left").await, None);
    let cached = fixture
        .registry
        .cache(fixture.registry.namespaces())
        .unwrap();
    assert!(cached.peek(&ObjectKey::from("left")).is_some());
    let refused = fixture.create_in("left", "pods", pod("p")).await;
    assert!(refused.unwrap_err().is_not_found());
    fixture.storage.freeze(false);
}
