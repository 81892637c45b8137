//! Tests of the memory that lists reserve.

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::*;
use crate::api::ServerMemory;
use crate::flowcontrol::{FlowControl, FlowSchema, PriorityLevelConfiguration};
use crate::metrics::Metrics;

const LIMIT: usize = 16 << 20;

/// What a list of the config maps of these tests reserves at most.
const LIST_BYTES: usize = 600 << 10;

/// Returns the flow control of a server with one seat for the user `alice`, and others for all other users.
fn flow_control(metrics: &Metrics) -> Arc<FlowControl> {
    let control = FlowControl::new(6, Arc::clone(metrics.flow_control()));
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 50});
    let level = json!({
        "metadata": {"name": "alice"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "limitResponse": {"type": "Queue", "queuing": queuing},
        }},
    });
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
    let schema = json!({
        "metadata": {"name": "alice"},
        "spec": {
            "matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "alice"},
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "alice"}}], "resourceRules": [all]}],
        },
    });
    let level = PriorityLevelConfiguration::parse(level.to_string().as_bytes()).unwrap();
    let schema = FlowSchema::parse(schema.to_string().as_bytes()).unwrap();
    let report = control.configure(&[schema], &[level]);
    assert!(report.invalid.is_empty(), "{report:?}");
    control
}

/// Returns a server with config maps that are larger than the buffers of a list.
async fn server(memory: &Arc<ServerMemory>) -> Server {
    let config = HttpConfig::default();
    let server = Server::start(HttpConfig {
        flow_control: Some(flow_control(&config.metrics)),
        memory: Arc::clone(memory),
        ..config
    });
    let server = server.await;
    for name in ["a", "b"] {
        server.put_config_map(name, &"x".repeat(300 << 10)).await;
    }
    // The cache is ready and has its size.
    assert_eq!(server.get(CONFIG_MAPS).await.code, 200);
    server
}

async fn list(server: &Server, user: &str) -> Response {
    let mut request = request(&format!("GET {CONFIG_MAPS}"), &[], "");
    let user = UserInfo::authenticated(user.to_owned(), String::new(), Vec::new());
    request.extensions_mut().insert(Arc::new(user));
    server.send(request).await
}

/// Lists reserved memory before they waited for a seat: those of one user made the server refuse the lists of all others,
/// although they used none.
#[tokio::test]
async fn lists_that_wait_for_a_seat_reserve_no_memory() {
    let memory = ServerMemory::new(Some(LIMIT));
    let server = server(&memory).await;
    let first = list(&server, "alice").await;
    assert_eq!(first.status(), StatusCode::OK);
    let mut queued: FuturesUnordered<_> = (0..40).map(|_| list(&server, "alice")).collect();
    for _ in 0..100 {
        assert!(queued.next().now_or_never().is_none(), "all wait");
        tokio::task::yield_now().await;
    }
    let reserved = memory.stats().reserved;
    assert!(reserved > 0 && reserved <= LIST_BYTES, "{reserved}");
    assert_eq!(list(&server, "bob").await.status(), StatusCode::OK);
    drop(first);
    let mut served = 0;
    while let Some(response) = queued.next().await {
        assert_eq!(response.status(), StatusCode::OK);
        served += 1;
    }
    assert_eq!((served, memory.stats().reserved), (40, 0));
    drop(queued);
    server.stop().await;
}

/// A list that is refused because of its memory gives its seat back.
#[tokio::test]
async fn a_refused_list_has_no_seat() {
    let memory = ServerMemory::new(Some(LIMIT));
    let server = server(&memory).await;
    for _ in 0..3 {
        memory.record(LIMIT);
        let refused = list(&server, "alice").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()["retry-after"], "5");
        memory.record(0);
        assert_eq!(list(&server, "alice").await.status(), StatusCode::OK);
    }
    server.stop().await;
}
