//! Tests of the small controllers: objects per namespace, and finished jobs.

use super::*;

#[tokio::test]
async fn each_namespace_gets_its_service_account_and_root_certificate() {
    let fixture = started().await;
    let _other = fixture.another();
    fixture.create("namespaces", named("team")).await;
    for namespace in ["default", "kube-system", "team"] {
        let account = format!("/serviceaccounts/{namespace}/default");
        fixture.wait_until(&account, |_| true).await;
        let published = format!("/configmaps/{namespace}/kube-root-ca.crt");
        let map = fixture.wait_until(&published, |_| true).await;
        let certificate = map["data"]["ca.crt"].as_str().unwrap();
        assert_eq!(certificate.matches("\nroot\n").count(), 1, "{certificate}");
    }
    fixture.delete("serviceaccounts/default").await;
    fixture
        .wait_until("/serviceaccounts/default/default", |_| true)
        .await;
    // A certificate of another server is retained.
    let other = "-----BEGIN CERTIFICATE-----\nother\n-----END CERTIFICATE-----\n";
    let patch = json!({"data": {"ca.crt": other}});
    fixture
        .merge_patch("configmaps/kube-root-ca.crt", patch)
        .await;
    let both = |map: &Value| {
        let text = map["data"]["ca.crt"].as_str().unwrap();
        text.starts_with(other) && text.contains("\nroot\n")
    };
    fixture
        .wait_until("/configmaps/default/kube-root-ca.crt", both)
        .await;
}

#[tokio::test]
async fn a_finished_job_is_deleted_after_its_ttl() {
    let fixture = started().await;
    let job = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"ttlSecondsAfterFinished": 1, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }}},
        })
    };
    fixture.create("jobs", job("unfinished")).await;
    let job = fixture.create("jobs", job("j")).await;
    let owner = garbage::reference(&job, true);
    let pod = json!({
        "metadata": {"name": "p", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    fixture.create("pods", pod).await;
    let now = jiff::Timestamp::now();
    let conditions = json!([
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now.to_string()},
        {"type": "Complete", "status": "True", "lastTransitionTime": now.to_string()},
    ]);
    let status = json!({"status": {
        "conditions": conditions, "startTime": now.to_string(), "completionTime": now.to_string(),
    }});
    fixture.merge_patch("jobs/j/status", status).await;
    fixture.wait_until_deleted("/jobs/default/j").await;
    fixture.wait_until_deleted("/pods/default/p").await;
    let took = now.duration_until(jiff::Timestamp::now());
    assert!(took.as_millis() >= 900, "{took:?}");
    // This job is older than the deleted one, so the controller has processed it.
    assert!(fixture.stored("/jobs/default/unfinished").await.is_some());
}

#[tokio::test]
async fn an_attributes_class_is_deleted_after_the_volumes_and_claims_that_name_it() {
    let fixture = started().await;
    let class =
        json!({"metadata": {"name": "gold"}, "driverName": "d", "parameters": {"iops": "1"}});
    let class = fixture.create("volumeattributesclasses", class).await;
    let finalizers = json!(["kubernetes.io/vac-protection"]);
    assert_eq!(class["metadata"]["finalizers"], finalizers);
    let silver = json!({"metadata": {"name": "silver"}, "driverName": "d"});
    fixture.create("volumeattributesclasses", silver).await;
    for (name, class) in [("c", "gold"), ("d", "gold"), ("e", "silver")] {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "volumeAttributesClassName": class,
            },
        });
        fixture.create("persistentvolumeclaims", claim).await;
    }
    let [gold, silver] = ["gold", "silver"].map(|name| format!("/volumeattributesclasses/{name}"));
    for class in [&gold, &silver] {
        fixture.delete(&class[1..]).await;
    }
    for claim in ["c", "e"] {
        fixture
            .delete(&format!("persistentvolumeclaims/{claim}"))
            .await;
    }
    // The controller processes events in order, so it has also processed the earlier deletion of the claim `c`.
    fixture.wait_until_deleted(&silver).await;
    assert!(
        fixture.stored(&gold).await.is_some(),
        "another claim names it"
    );
    fixture.delete("persistentvolumeclaims/d").await;
    fixture.wait_until_deleted(&gold).await;
    // An object without the finalizer gets it.
    let class = json!({"metadata": {"name": "bare"}, "driverName": "d"});
    fixture.create("volumeattributesclasses", class).await;
    let bare = json!({"metadata": {"finalizers": null}});
    fixture
        .merge_patch("volumeattributesclasses/bare", bare)
        .await;
    let held = |class: &Value| class["metadata"]["finalizers"] == finalizers;
    fixture
        .wait_until("/volumeattributesclasses/bare", held)
        .await;
}
