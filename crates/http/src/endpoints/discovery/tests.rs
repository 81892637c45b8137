//! Tests of discovery documents of two invented sets of resources.

use super::*;

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> Resource {
    let verbs = ["create", "delete", "get", "list", "watch"];
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        subresources: vec![],
        verbs: verbs.map(str::to_owned).to_vec(),
        storage_prefix: plural.to_owned(),
        columns: Arc::default(),
        triggers: vec![],
        strategy: Arc::new(watchet_registry::Plain),
    }
}

fn resources() -> Vec<Arc<Resource>> {
    let pods = Resource {
        short_names: vec!["po".to_owned()],
        categories: vec!["all".to_owned()],
        subresources: vec![Subresource::STATUS],
        ..resource("", "v1", "Pod", "pods")
    };
    let nodes = Resource {
        namespaced: false,
        ..resource("", "v1", "Node", "nodes")
    };
    let deployments = Resource {
        subresources: vec![Subresource::SCALE],
        ..resource("apps", "v1", "Deployment", "deployments")
    };
    let old = resource("apps", "v1beta1", "Deployment", "deployments");
    [pods, nodes, deployments, old].map(Arc::new).to_vec()
}

#[test]
fn storage_version_hash_equals_upstreams() {
    // The value that every Kubernetes cluster has for pods.
    let pods = resource("", "v1", "Pod", "pods");
    assert_eq!(storage_version_hash(&pods), "xPOwRZ+Yhw8=");
}

#[test]
fn groups_and_versions() {
    let resources = resources();
    let versions = json!([
        {"groupVersion": "apps/v1", "version": "v1"},
        {"groupVersion": "apps/v1beta1", "version": "v1beta1"},
    ]);
    let apps = json!({"name": "apps", "versions": versions, "preferredVersion": versions[0]});
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [apps]});
    assert_eq!(group_list(&resources), list);
    let actual = group(&resources, "apps").unwrap();
    assert_eq!(
        (&actual["kind"], &actual["versions"]),
        (&json!("APIGroup"), &versions)
    );
    assert_eq!(group(&resources, "batch"), None);
    assert_eq!(group(&resources, ""), None);
    assert_eq!(api_versions("a:1")["versions"], json!(["v1"]));
}

#[test]
fn resources_of_a_version() {
    let resources = resources();
    let core = resource_list(&resources, "", "v1").unwrap();
    assert_eq!(core["groupVersion"], "v1");
    let verbs = json!(["create", "delete", "get", "list", "watch"]);
    assert_eq!(
        core["resources"][0],
        json!({
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
            "verbs": verbs, "shortNames": ["po"], "categories": ["all"],
            "storageVersionHash": "xPOwRZ+Yhw8=",
        })
    );
    assert_eq!(
        core["resources"][1],
        json!({
            "name": "pods/status", "singularName": "", "namespaced": true, "kind": "Pod",
            "verbs": ["get", "patch", "update"],
        })
    );
    assert_eq!(core["resources"][2]["namespaced"], false);
    let apps = resource_list(&resources, "apps", "v1").unwrap();
    assert_eq!(apps["groupVersion"], "apps/v1");
    assert_eq!(
        apps["resources"][1],
        json!({
            "name": "deployments/scale", "singularName": "", "namespaced": true,
            "group": "autoscaling", "version": "v1", "kind": "Scale",
            "verbs": ["get", "patch", "update"],
        })
    );
    assert_eq!(resource_list(&resources, "apps", "v2"), None);
}

#[test]
fn aggregated_document() {
    let resources = resources();
    let apps = aggregated(&resources, false);
    assert_eq!(apps["apiVersion"], "apidiscovery.k8s.io/v2");
    assert_eq!(apps["items"][0]["metadata"]["name"], "apps");
    let versions = &apps["items"][0]["versions"];
    assert_eq!(versions[1]["version"], "v1beta1");
    let scale = &versions[0]["resources"][0]["subresources"][0];
    let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    assert_eq!(scale["responseKind"], kind);
    let core = aggregated(&resources, true);
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    let pods = &core["items"][0]["versions"][0]["resources"][0];
    assert_eq!(pods["scope"], "Namespaced");
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert_eq!(
        core["items"][0]["versions"][0]["resources"][1]["scope"],
        "Cluster"
    );
}

#[test]
fn a_matching_etag_gets_304() {
    let document = aggregated(&resources(), false);
    let mut headers = HeaderMap::new();
    let first = aggregated_response(&document, &headers);
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(first.headers()["content-type"], AGGREGATED_TYPE);
    assert_eq!(first.headers()[VARY], "Accept");
    let etag = first.headers()[ETAG].clone();
    let text = etag.to_str().unwrap();
    assert_eq!(text.len(), 130, "128 hexadecimal digits in quotes");
    assert_eq!(text, text.to_uppercase());

    headers.insert(IF_NONE_MATCH, etag.clone());
    let again = aggregated_response(&document, &headers);
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(again.headers()[ETAG], etag);

    let changed = aggregated(&resources()[..3], false);
    assert_eq!(
        aggregated_response(&changed, &headers).status(),
        StatusCode::OK
    );
}

#[test]
fn forms_are_negotiated() {
    let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                   application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                   application/json";
    assert_eq!(negotiate(Some(kubectl)).unwrap(), DiscoveryForm::Aggregated);
    assert_eq!(negotiate(None).unwrap(), DiscoveryForm::Legacy);
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    assert_eq!(negotiate(Some(old)).unwrap_err().status().code, 406);
}
