//! Tests that every request is authorized before it is served, with upstream's attributes.

use async_trait::async_trait;
use parking_lot::Mutex;

use super::*;
use crate::auth::{AllowAuthenticated, Attributes, Authorizer, Decision};
use crate::builtin::{RegistryConfig, new_registry_with_config};

/// Records the attributes of requests. Denies everything while `denies` is set.
#[derive(Debug, Default)]
struct Recorder {
    denies: Mutex<bool>,
    seen: Mutex<Vec<Attributes>>,
}

#[async_trait]
impl Authorizer for Recorder {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.seen.lock().push(attributes.clone());
        match *self.denies.lock() {
            true => Decision::NoOpinion("".into()),
            false => Decision::Allow("".into()),
        }
    }
}

impl Recorder {
    /// Returns the recorded attributes as text, and clears them.
    fn take(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock());
        seen.iter().map(described).collect()
    }
}

/// Formats attributes as `user verb path`, or as `user verb group/version resource/subresource namespace name`
/// and the selectors, with `-` for absent parts.
fn described(attributes: &Attributes) -> String {
    let a = attributes;
    let user = &a.user.name;
    if !a.is_resource_request {
        return format!("{user} {} {}", a.verb, a.path);
    }
    let dash = |text: &str| match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    let subresource = match &*a.subresource {
        "" => String::new(),
        name => format!("/{name}"),
    };
    let selectors = [a.field_selector.to_string(), a.label_selector.to_string()];
    let selectors: Vec<_> = selectors.iter().filter(|text| !text.is_empty()).collect();
    let selectors: String = selectors.iter().map(|text| format!(" [{text}]")).collect();
    format!(
        "{user} {} {}/{} {}{subresource} {} {}{selectors}",
        dash(&a.verb),
        a.api_group,
        a.api_version,
        a.resource,
        dash(&a.namespace),
        dash(&a.name)
    )
}

async fn server(authorizer: Arc<dyn Authorizer>) -> Server {
    let tasks = Tasks::new();
    let storage = Memory::new(Duration::from_secs(300)).unwrap();
    let config = HttpConfig::default();
    let registry = new_registry_with_config(
        storage.clone(),
        None,
        &tasks,
        config.metrics.clone(),
        RegistryConfig::default(),
        authorizer,
    );
    registry.bootstrap().await.unwrap();
    Server {
        router: router(registry, config.clone()),
        storage,
        tasks,
        config,
    }
}

fn user(name: &str) -> Arc<UserInfo> {
    let groups = Vec::new();
    Arc::new(UserInfo::authenticated(
        name.to_owned(),
        String::new(),
        groups,
    ))
}

/// Sends a request of `jane` and returns the code and the body.
async fn send(server: &Server, line: &str, headers: &[&str], body: &str) -> (u16, Value) {
    let mut request = request(line, headers, body.to_owned());
    request.extensions_mut().insert(user("jane"));
    let response = server.send(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

const POD: &str = "/api/v1/namespaces/d/pods/p";
const PODS: &str = "/api/v1/namespaces/d/pods";
const WEBSOCKET: [&str; 4] = [
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
];

/// Requests, and the attributes that the authorizer receives. The first word is the user.
const REQUESTS: &[(&str, &str)] = &[
    ("GET /api/v1/namespaces/d/pods/p", "jane get /v1 pods d p"),
    ("HEAD /api/v1/namespaces/d/pods/p", "jane get /v1 pods d p"),
    (
        "GET /api/v1/namespaces/d/pods/p?watch=1",
        "jane get /v1 pods d p",
    ),
    ("GET /api/v1/namespaces/d/pods", "jane list /v1 pods d -"),
    ("HEAD /api/v1/namespaces/d/pods", "jane list /v1 pods d -"),
    ("GET /api/v1/pods?watch=0", "jane list /v1 pods - -"),
    (
        "GET /api/v1/namespaces/d/pods?fieldSelector=metadata.name%3Dp",
        "jane list /v1 pods d p [metadata.name=p]",
    ),
    (
        "GET /api/v1/namespaces/d/pods?fieldSelector=metadata.name%3D..",
        "jane list /v1 pods d - [metadata.name=..]",
    ),
    (
        "GET /api/v1/pods?watch=true&fieldSelector=metadata.name%3Dp,spec.nodeName%3Dn&labelSelector=a",
        "jane watch /v1 pods - p [metadata.name=p,spec.nodeName=n] [a]",
    ),
    (
        "GET /api/v1/pods?fieldSelector=%3D%3D%3D,&labelSelector=a+b",
        "jane list /v1 pods - -",
    ),
    (
        "GET /api/v1/watch/pods?labelSelector=a",
        "jane watch /v1 pods - -",
    ),
    (
        "GET /api/v1/watch/namespaces/d/pods/p",
        "jane watch /v1 pods d p",
    ),
    ("POST /api/v1/namespaces/d/pods", "jane create /v1 pods d -"),
    (
        "PUT /api/v1/namespaces/d/pods/p",
        "jane update /v1 pods d p",
    ),
    (
        "PATCH /api/v1/namespaces/d/pods/p",
        "jane patch /v1 pods d p",
    ),
    (
        "DELETE /api/v1/namespaces/d/pods/p",
        "jane delete /v1 pods d p",
    ),
    (
        "DELETE /api/v1/namespaces/d/pods?labelSelector=a%3Db&fieldSelector=metadata.name%3Dp",
        "jane deletecollection /v1 pods d - [metadata.name=p] [a=b]",
    ),
    ("OPTIONS /api/v1/namespaces/d/pods/p", "jane - /v1 pods d p"),
    (
        "PATCH /api/v1/namespaces/d/pods/p/status",
        "jane patch /v1 pods/status d p",
    ),
    (
        "POST /api/v1/namespaces/d/pods/p/eviction",
        "jane create /v1 pods/eviction d p",
    ),
    (
        "POST /api/v1/namespaces/d/pods/p/binding",
        "jane create /v1 pods/binding d p",
    ),
    (
        "GET /api/v1/namespaces/d/pods/p/log",
        "jane get /v1 pods/log d p",
    ),
    (
        "POST /api/v1/namespaces/d/services/s/proxy/x/y",
        "jane create /v1 services/proxy d s",
    ),
    (
        "PUT /apis/apps/v1/namespaces/d/deployments/x/scale",
        "jane update apps/v1 deployments/scale d x",
    ),
    ("GET /api/v1/namespaces", "jane list /v1 namespaces - -"),
    ("POST /api/v1/namespaces", "jane create /v1 namespaces - -"),
    ("GET /api/v1/namespaces/d", "jane get /v1 namespaces d d"),
    (
        "PUT /api/v1/namespaces/d/finalize",
        "jane update /v1 namespaces/finalize d d",
    ),
    ("GET /api/v1/nodes/n", "jane get /v1 nodes - n"),
    (
        "GET /apis/example.com/v1/things",
        "jane list example.com/v1 things - -",
    ),
    (
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "jane create authorization.k8s.io/v1 selfsubjectaccessreviews - -",
    ),
    ("GET /", "jane get /"),
    ("HEAD /healthz", "jane head /healthz"),
    ("GET /livez/ping", "jane get /livez/ping"),
    ("GET /metrics", "jane get /metrics"),
    ("GET /version/", "jane get /version/"),
    ("GET /openapi/v2", "jane get /openapi/v2"),
    ("GET /openapi/v3/api%2Fv1", "jane get /openapi/v3/api/v1"),
    ("GET /api", "jane get /api"),
    ("GET /apis/apps/v1", "jane get /apis/apps/v1"),
    ("POST /apis/apps/v1", "jane post /apis/apps/v1"),
    (
        "GET /.well-known/openid-configuration",
        "jane get /.well-known/openid-configuration",
    ),
    ("GET /openid/v1/jwks", "jane get /openid/v1/jwks"),
    ("DELETE /unknown/path", "jane delete /unknown/path"),
    // Invalid paths are never served.
    ("GET /api/v1//pods", "jane get /api/v1//pods"),
    ("GET /api/v1/pods/%zz", "jane get /api/v1/pods/%zz"),
];

#[tokio::test]
async fn every_request_reaches_the_authorizer() {
    let authorizer = Arc::new(Recorder::default());
    let server = server(authorizer.clone()).await;
    *authorizer.denies.lock() = true;
    for (line, expected) in REQUESTS {
        let (code, status) = send(&server, line, &[], "").await;
        assert_eq!(code, 403, "{line}: {status}");
        assert_eq!(authorizer.take(), [*expected], "{line}");
        if !line.starts_with("HEAD") {
            assert_eq!(status["reason"], "Forbidden", "{line}: {status}");
        }
    }
    // A watch by WebSocket, which would be upgraded.
    let (code, _) = send(&server, &format!("GET {PODS}?watch=1"), &WEBSOCKET, "").await;
    assert_eq!(code, 403);
    assert_eq!(authorizer.take(), ["jane watch /v1 pods d -"]);
    server.stop().await;
}

#[tokio::test]
async fn denial_has_the_message_of_upstream() {
    let authorizer = Arc::new(Recorder::default());
    let server = server(authorizer.clone()).await;
    *authorizer.denies.lock() = true;
    for (line, message) in [
        (
            "GET /api/v1/namespaces/d/pods",
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "d""#,
        ),
        (
            "GET /apis/apps/v1/deployments",
            r#"deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API group "apps" at the cluster scope"#,
        ),
        (
            "DELETE /api/v1/namespaces/d/pods/p",
            r#"pods "p" is forbidden: User "jane" cannot delete resource "pods" in API group "" in the namespace "d""#,
        ),
        (
            "GET /metrics",
            r#"forbidden: User "jane" cannot get path "/metrics""#,
        ),
    ] {
        let (code, status) = send(&server, line, &[], "").await;
        assert_eq!((code, &status["message"]), (403, &json!(message)));
    }
    server.stop().await;
}

#[tokio::test]
async fn denied_write_changes_nothing() {
    let authorizer = Arc::new(Recorder::default());
    let server = server(authorizer.clone()).await;
    let map = server.put_config_map("a", "before").await;
    let json_body = ["content-type: application/json"];
    let merge = ["content-type: application/merge-patch+json"];
    let apply = ["content-type: application/apply-patch+yaml"];
    let changed = config_map("a", "after").to_string();
    let another = config_map("b", "new").to_string();
    let a = format!("{CONFIG_MAPS}/a");
    let created = format!("{CONFIG_MAPS}/c?fieldManager=m");
    let finalize = "/api/v1/namespaces/default/finalize";
    *authorizer.denies.lock() = true;
    for (line, headers, body) in [
        (format!("POST {CONFIG_MAPS}"), &json_body, &another),
        (format!("PUT {a}"), &json_body, &changed),
        (format!("PATCH {a}"), &merge, &changed),
        (format!("PATCH {created}"), &apply, &changed),
        (format!("DELETE {a}"), &json_body, &String::new()),
        (format!("DELETE {CONFIG_MAPS}"), &json_body, &String::new()),
        (format!("PUT {finalize}"), &json_body, &changed),
    ] {
        let (code, status) = send(&server, &line, headers, body).await;
        assert_eq!(code, 403, "{line}: {status}");
    }
    *authorizer.denies.lock() = false;
    let list = server.get(CONFIG_MAPS).await.json();
    let items: Vec<_> = list["items"].as_array().unwrap().iter().collect();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["metadata"], map["metadata"]);
    assert_eq!(items[0]["data"], map["data"]);
    server.stop().await;
}

#[tokio::test]
async fn impersonated_user_is_authorized() {
    let authorizer = Arc::new(Recorder::default());
    let server = server(authorizer.clone()).await;
    authorizer.take();
    let headers = ["impersonate-user: joe", "impersonate-group: dev"];
    let (code, _) = send(&server, &format!("GET {POD}"), &headers, "").await;
    assert_eq!(code, 404);
    let expected = [
        "jane impersonate / users - joe",
        "jane impersonate / groups - dev",
        "joe get /v1 pods d p",
    ];
    assert_eq!(authorizer.take(), expected);
    *authorizer.denies.lock() = true;
    let (code, status) = send(&server, &format!("GET {POD}"), &headers, "").await;
    assert_eq!(code, 403);
    assert_eq!(authorizer.take(), expected[..1]);
    let message = r#"users "joe" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the cluster scope"#;
    assert_eq!(status["message"], message);
    let (code, _) = send(&server, &format!("GET {POD}"), &headers[1..], "").await;
    assert_eq!(code, 400);
    assert!(authorizer.take().is_empty());
    server.stop().await;
}

/// A review returns the decision of the authorizer that also authorizes requests.
#[tokio::test]
async fn reviews_call_the_same_authorizer() {
    let authorizer = Arc::new(Recorder::default());
    let server = server(authorizer.clone()).await;
    authorizer.take();
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let spec = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let json_body = ["content-type: application/json"];
    let line = format!("POST {reviews}");
    let (code, review) = send(&server, &line, &json_body, &spec.to_string()).await;
    assert_eq!((code, &review["status"]["allowed"]), (201, &json!(true)));
    let expected = [
        "jane create authorization.k8s.io/v1 selfsubjectaccessreviews - -",
        "jane get /* pods - -",
    ];
    assert_eq!(authorizer.take(), expected);
    server.stop().await;
}

/// A PUT or an apply that creates an object needs the permission to create it.
#[tokio::test]
async fn creation_by_update_needs_permission_to_create() {
    #[derive(Debug)]
    struct NoCreate;

    #[async_trait]
    impl Authorizer for NoCreate {
        async fn authorize(&self, attributes: &Attributes) -> Decision {
            match attributes.verb == "create" && attributes.user.name == "jane" {
                true => Decision::NoOpinion("not that".into()),
                false => AllowAuthenticated.authorize(attributes).await,
            }
        }
    }

    let server = server(Arc::new(NoCreate)).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l", "namespace": "default"}, "spec": {}})
    .to_string();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let json_body = ["content-type: application/json"];
    let apply = ["content-type: application/apply-patch+yaml"];
    for (line, headers) in [
        (format!("PUT {leases}"), json_body),
        (format!("PATCH {leases}?fieldManager=m"), apply),
    ] {
        let (code, status) = send(&server, &line, &headers, &lease).await;
        let message = r#"leases.coordination.k8s.io "l" is forbidden: User "jane" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default": not that"#;
        assert_eq!((code, &status["message"]), (403, &json!(message)), "{line}");
        assert_eq!(server.get(leases).await.code, 404);
    }
    server.stop().await;
}
