//! Tests of floods with the default FlowSchemas and priority levels: nodes, leader elections and controllers are served while the
//! users of other levels have all the seats of theirs.

use super::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Sends a request as a user of a group.
async fn send_as(
    server: &Server,
    (user, group): (&str, &str),
    method: Method,
    path: &str,
    body: &Value,
) -> Response {
    let mut wire = server.plain(Protocol::Http1).await;
    let mut headers = vec![
        ("impersonate-user", user),
        ("content-type", "application/json"),
    ];
    if !group.is_empty() {
        headers.push(("impersonate-group", group));
    }
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    wire.send(method, path, &headers, &body).await
}

fn lease(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}})
}

/// More requests than the level of all other users has seats and places in the queues of one user.
const FLOOD: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn system_traffic_passes_while_users_are_rejected() {
    let slow = Slow::start(&[]).await;
    let server = &slow.server;
    let flood = join_all((0..FLOOD).map(|number| {
        let map = map(&format!("slow-ann-{number}"));
        async move { send(server, "ann", Method::POST, MAPS, &map).await }
    }));
    let others = async {
        // The rest of the flood is rejected: the queues of a user have an end.
        let rejected = "apiserver_flowcontrol_rejected_requests_total";
        until_metric(server, rejected, "global-default", 1.0).await;
        let manager = ("system:kube-controller-manager", "");
        let node = ("system:node:n1", "system:nodes");
        let created = send_as(server, manager, Method::POST, LEASES, &lease("manager")).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        let nodes_lease = LEASES.replace("kube-system", "kube-node-lease");
        let cases = [
            (
                manager,
                Method::GET,
                format!("{LEASES}/manager"),
                "system-leader-election",
            ),
            (
                manager,
                Method::GET,
                MAPS.to_owned(),
                "kube-controller-manager",
            ),
            (node, Method::POST, nodes_lease, "system-node-high"),
            (node, Method::GET, "/api/v1/pods".to_owned(), "system-nodes"),
        ];
        for (user, method, path, schema) in cases {
            let body = match method {
                Method::POST => lease("n1"),
                _ => Value::Null,
            };
            let passed = timeout(
                PATIENCE * 2 / 3,
                send_as(server, user, method, &path, &body),
            )
            .await;
            let passed = passed.unwrap_or_else(|_| panic!("{schema} waits for the flood"));
            assert!(passed.status.is_success(), "{schema}: {}", passed.text());
            let schemas = Cluster(server).get(&format!("{SCHEMAS}/{schema}")).await;
            let uid = &schemas.ok(200)["metadata"]["uid"];
            assert_eq!(header(&passed, SCHEMA_UID), *uid, "{path}");
        }
        slow.passes.add_permits(FLOOD);
    };
    let (responses, ()) = tokio::join!(flood, others);
    let mut refused = 0;
    for response in &responses {
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            refused += 1;
            let seconds: u32 = header(response, "retry-after").parse().expect("seconds");
            assert!(seconds >= 1, "{seconds}");
            let status = response.json();
            let message = status["message"].as_str().unwrap_or_default();
            // Or that too many bodies of this user wait.
            let is_known = message == TOO_MANY || message.starts_with("too many request bodies");
            assert!(is_known, "{message}");
        } else {
            assert_eq!(response.status, StatusCode::CREATED, "{}", response.text());
        }
    }
    assert!((1..FLOOD).contains(&refused), "{refused} of {FLOOD}");
    slow.server.stop().await;
}
