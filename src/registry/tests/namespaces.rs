//! Namespaces: those of the system, what is created in one, how one is emptied.

use std::time::Duration;

use super::*;
use crate::storage::Storage;

fn forbidden(error: ApiError) -> (String, Vec<String>) {
    match error {
        ApiError::Forbidden { detail, causes, .. } => {
            (detail, causes.into_iter().map(|c| c.reason).collect())
        }
        other => panic!("not Forbidden: {other}"),
    }
}

impl Fixture {
    async fn create_in(
        &self,
        namespace: &str,
        plural: &str,
        body: Value,
    ) -> Result<Value, ApiError> {
        let resource = self.resource(plural);
        let options = WriteOptions::default();
        let created = self
            .registry
            .create(&resource, Some(namespace), body, &options);
        Ok(value(&*created.await?))
    }

    async fn eventually_gone(&self, key: &str) {
        for _ in 0..500 {
            if self.stored(key).await.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{key} is still there");
    }
}

#[tokio::test]
async fn the_system_namespaces_exist_whoever_starts() {
    let memory = Memory::new(Duration::from_secs(300)).unwrap();
    let storage = Arc::new(Meddler::new(memory));
    let tasks = Tasks::new();
    let config = CacherConfig::default();
    let server = || Registry::new(storage.clone(), &tasks, config.clone(), Metrics::new());
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
        "namespaces",
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
async fn content_needs_a_namespace() {
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
async fn a_deleted_namespace_goes_with_all_that_is_in_it() {
    let fixture = fixture().await;
    fixture.create("namespaces", named("doomed")).await;
    fixture.create("namespaces", named("doomed-not")).await;
    for i in 0..40 {
        fixture
            .create_in("doomed", "configmaps", named(&format!("c{i}")))
            .await
            .unwrap();
    }
    fixture
        .create_in("doomed", "deployments", named("d"))
        .await
        .unwrap();
    fixture
        .create_in("doomed", "events", named("e"))
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

#[tokio::test]
async fn a_terminating_namespace_takes_nothing_new_and_waits() {
    let fixture = fixture().await;
    fixture.create("namespaces", named("slow")).await;
    let mut body = named("held");
    body["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.create_in("slow", "configmaps", body).await.unwrap();
    fixture.delete("namespaces/slow").await;
    let error = fixture
        .create_in("slow", "pods", pod("a"))
        .await
        .unwrap_err();
    let (detail, causes) = forbidden(error);
    assert!(
        detail.contains("namespace slow because it is being terminated"),
        "{detail}"
    );
    assert_eq!(causes, ["NamespaceTerminating"]);
    let again = fixture.delete("namespaces/slow").await;
    assert!(matches!(again, Deleted::Pending(_)), "{again:?}");

    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(fixture.stored("/namespaces/slow").await.is_some());
    let target = Target {
        namespace: Some("slow".to_owned()),
        ..fixture.target("configmaps/held")
    };
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let options = WriteOptions::default();
    fixture
        .registry
        .patch(&target, &release, &options)
        .await
        .unwrap();
    fixture.eventually_gone("/namespaces/slow").await;
}

#[tokio::test]
async fn a_restart_goes_on_with_what_was_being_deleted() {
    let fixture = fixture().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    // As a server leaves it that stops right after it has marked the namespace.
    fixture.tasks.cancel();
    fixture.delete("namespaces/left").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(fixture.stored("/pods/left/p").await.is_some());

    let tasks = Tasks::new();
    let next = Registry::new(
        fixture.storage.clone(),
        &tasks,
        CacherConfig::default(),
        Metrics::new(),
    );
    next.bootstrap().await.unwrap();
    fixture.eventually_gone("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
    tasks.drain(Duration::from_secs(5)).await.unwrap();
}

/// A client hangs up, or its time is up, while the mark is being written: the mark stays, and once
/// nobody emptied the namespace then.
#[tokio::test]
async fn a_namespace_goes_although_its_client_hung_up() {
    let fixture = fixture().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    *fixture.storage.unanswered.lock() = 1;
    let deletion = fixture.delete("namespaces/left");
    let patience = Duration::from_millis(50);
    tokio::time::timeout(patience, deletion).await.unwrap_err();
    fixture.eventually_gone("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
}

/// Two servers on one store: the one that took the delete dies, and the other one goes on with it
/// although it has been up all the time.
#[tokio::test]
async fn a_namespace_goes_although_the_server_that_marked_it_died() {
    let fixture = fixture().await;
    let tasks = Tasks::new();
    let other = Registry::new(
        fixture.storage.clone(),
        &tasks,
        CacherConfig::default(),
        Metrics::new(),
    );
    other.bootstrap().await.unwrap();
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    fixture.tasks.cancel();
    fixture.delete("namespaces/left").await;
    fixture.eventually_gone("/namespaces/left").await;
    assert_eq!(fixture.stored("/pods/left/p").await, None);
    tasks.drain(Duration::from_secs(5)).await.unwrap();
}

/// The last delete may be acknowledged before the cache has heard of it. Until it has, nothing is
/// let in on the cache's old word that the namespace is active.
#[tokio::test]
async fn a_namespace_that_is_gone_lets_nothing_in_on_old_news() {
    let fixture = fixture().await;
    fixture.create("namespaces", named("left")).await;
    fixture.create_in("left", "pods", pod("p")).await.unwrap();
    // A list waits for the cache.
    let (namespaces, all) = (fixture.resource("namespaces"), ListOptions::default());
    let list = fixture.registry.list(&namespaces, None, &all).await;
    assert_eq!(list.unwrap().items.len(), 5);
    fixture.storage.freeze(true);
    fixture.delete("namespaces/left").await;
    fixture.eventually_gone("/namespaces/left").await;
    // Longer than a pass that finds the namespace gone takes to come round again.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let cached = fixture
        .registry
        .cache(&fixture.registry.namespaces)
        .unwrap();
    assert!(cached.peek(&ObjectKey::from("left")).is_some());
    let refused = fixture.create_in("left", "pods", pod("p")).await;
    assert!(refused.unwrap_err().is_not_found());
    fixture.storage.freeze(false);
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
    body["metadata"]["labels"] = json!({});
    let n = fixture.update("namespaces/n/finalize", body).await;
    assert_eq!(n["spec"], json!({"finalizers": []}));
    assert_eq!(n["metadata"]["labels"]["a"], "b");
    // Nothing holds it now: a delete is a delete.
    assert!(matches!(
        fixture.delete("namespaces/n").await,
        Deleted::Gone(_)
    ));
}
