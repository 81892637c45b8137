//! Reviews: who asks, what he may do, and what others may.

use serde_json::json;

use super::Cluster;

pub(super) async fn kubectl_asks_who_and_what(cluster: &Cluster) {
    let kubectl = &cluster.kubectl;
    let told = kubectl.run(&["auth", "whoami", "-o", "json"]).await;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["status"]["userInfo"]["username"], "kubernetes-admin");
    let groups = &told["status"]["userInfo"]["groups"];
    assert_eq!(groups, &json!(["system:masters", "system:authenticated"]));
    let told = kubectl.run(&["auth", "whoami"]).await;
    assert!(told.contains("kubernetes-admin"), "{told}");

    for args in [
        &["auth", "can-i", "create", "deployments.apps"][..],
        &["auth", "can-i", "get", "pods", "--subresource=log"],
        &["auth", "can-i", "*", "*", "--all-namespaces"],
        &["auth", "can-i", "get", "/metrics"],
    ] {
        assert_eq!(kubectl.run(args).await.trim(), "yes", "{args:?}");
    }
    let args = [
        "auth",
        "whoami",
        "-o",
        "json",
        "--as=jane",
        "--as-group=dev",
    ];
    let told: serde_json::Value = serde_json::from_str(&kubectl.run(&args).await).expect("JSON");
    let jane = json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
    assert_eq!(told["status"]["userInfo"], jane);
    let args = ["get", "pods", "--as=system:anonymous"];
    let told = kubectl.run_failing(&args).await;
    assert!(
        told.contains("forbidden: User \"system:anonymous\" cannot"),
        "{told}"
    );
    let told = kubectl.run(&["auth", "can-i", "--list"]).await;
    assert!(told.contains("*.*") && told.contains("[*]"), "{told}");
}

pub(super) async fn others_are_asked_about(cluster: &Cluster) {
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = |groups: &str| {
        json!({"spec": {
            "user": "somebody", "groups": [groups],
            "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"},
        }})
    };
    let told = cluster.post(path, &review("system:authenticated")).await;
    assert_eq!(told["kind"], "SubjectAccessReview");
    assert_eq!(told["status"]["allowed"], true, "{told}");
    assert_eq!(told["spec"]["user"], "somebody");
    let told = cluster.post(path, &review("system:unauthenticated")).await;
    assert_eq!(told["status"]["allowed"], false, "{told}");
    assert_eq!(told["status"]["reason"], "a credential is needed");

    let local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let told = cluster.post(local, &review("system:authenticated")).await;
    assert_eq!(told["status"]["allowed"], true, "{told}");
    let told = cluster
        .refused(path, &json!({"spec": {"user": "somebody"}}))
        .await;
    assert!(
        told.contains("exactly one of nonResourceAttributes or resourceAttributes"),
        "{told}"
    );

    let told = cluster
        .kubectl
        .run(&["get", "--raw", "/apis/authorization.k8s.io/v1"])
        .await;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let resource = &told["resources"][0];
    assert_eq!(resource["name"], "localsubjectaccessreviews");
    assert_eq!(resource["verbs"], json!(["create"]));
    assert!(
        resource["storageVersionHash"].is_null(),
        "nothing is stored: {resource}"
    );
}
