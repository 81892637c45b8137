//! Tests of reviews: the authenticated user, its permissions, and those of others.

use serde_json::json;

use super::Cluster;

pub(super) async fn kubectl_whoami_and_can_i(cluster: &Cluster) {
    let kubectl = &cluster.kubectl;
    let output = kubectl.run(&["auth", "whoami", "-o", "json"]).await;
    let response: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(
        response["status"]["userInfo"]["username"],
        "kubernetes-admin"
    );
    let groups = &response["status"]["userInfo"]["groups"];
    assert_eq!(groups, &json!(["system:masters", "system:authenticated"]));
    let output = kubectl.run(&["auth", "whoami"]).await;
    assert!(output.contains("kubernetes-admin"), "{output}");

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
    let output: serde_json::Value = serde_json::from_str(&kubectl.run(&args).await).expect("JSON");
    let jane = json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
    assert_eq!(output["status"]["userInfo"], jane);
    let args = ["get", "pods", "--as=system:anonymous"];
    let output = kubectl.run_failing(&args).await;
    assert!(
        output.contains("forbidden: User \"system:anonymous\" cannot"),
        "{output}"
    );
    let output = kubectl.run(&["auth", "can-i", "--list"]).await;
    assert!(output.contains("*.*") && output.contains("[*]"), "{output}");
}

pub(super) async fn access_reviews_of_other_users(cluster: &Cluster) {
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = |user: &str| {
        json!({"spec": {
            "user": user, "groups": ["system:authenticated"],
            "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"},
        }})
    };
    cluster.server.allow_everything("a-user").await;
    let response = cluster.post(path, &review("a-user")).await;
    assert_eq!(response["kind"], "SubjectAccessReview");
    assert_eq!(response["status"]["allowed"], true, "{response}");
    let reason = response["status"]["reason"].as_str().unwrap();
    assert!(
        reason.contains(r#"ClusterRole "cluster-admin" to User "a-user""#),
        "{reason}"
    );
    assert_eq!(response["spec"]["user"], "a-user");
    let response = cluster.post(path, &review("another")).await;
    assert_eq!(response["status"], json!({"allowed": false}));

    let local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let response = cluster.post(local, &review("a-user")).await;
    assert_eq!(response["status"]["allowed"], true, "{response}");
    let message = cluster
        .refused(path, &json!({"spec": {"user": "a-user"}}))
        .await;
    assert!(
        message.contains("exactly one of nonResourceAttributes or resourceAttributes"),
        "{message}"
    );

    let output = cluster
        .kubectl
        .run(&["get", "--raw", "/apis/authorization.k8s.io/v1"])
        .await;
    let response: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    let resource = &response["resources"][0];
    assert_eq!(resource["name"], "localsubjectaccessreviews");
    assert_eq!(resource["verbs"], json!(["create"]));
    assert!(
        resource["storageVersionHash"].is_null(),
        "nothing is stored: {resource}"
    );
}
