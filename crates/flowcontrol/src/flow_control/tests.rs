//! Tests of the configuration, the classification and the admission.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};

use super::*;
use crate::defaults::{default_levels, default_schemas};
use crate::matching::DigestTarget;

const WAIT: Duration = Duration::from_secs(15);

fn level(name: &str, spec: Value) -> PriorityLevelConfiguration {
    let object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": spec});
    PriorityLevelConfiguration::parse(object.to_string().as_bytes()).unwrap()
}

fn schema(name: &str, spec: Value) -> FlowSchema {
    let object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": spec});
    FlowSchema::parse(object.to_string().as_bytes()).unwrap()
}

fn defaults() -> (Vec<FlowSchema>, Vec<PriorityLevelConfiguration>) {
    let schemas = default_schemas().into_iter();
    let levels = default_levels().into_iter();
    (
        schemas
            .map(|object| schema(object.name, object.spec))
            .collect(),
        levels
            .map(|object| level(object.name, object.spec))
            .collect(),
    )
}

/// Returns the schema and the level of `verb path` or `verb group resource namespace`.
fn classified(control: &FlowControl, user: &str, groups: &[&str], request: &str) -> String {
    let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    let words: Vec<&str> = request.split(' ').collect();
    let target = match words[..] {
        [_, path] => DigestTarget::Path(path.into()),
        [_, api_group, resource, namespace] => DigestTarget::Resource {
            api_group: api_group.trim_matches('-'),
            resource: resource.split('/').next().unwrap(),
            subresource: resource.split_once('/').map_or("", |(_, second)| second),
            namespace: namespace.trim_matches('-'),
        },
        _ => panic!("{request}"),
    };
    let digest = RequestDigest {
        user,
        groups: &groups,
        verb: words[0].into(),
        target,
    };
    let flow = control.classify(&digest);
    format!("{} {}", flow.flow_schema(), flow.priority_level())
}

#[tokio::test(start_paused = true)]
async fn default_objects_classify_as_in_kube_apiserver() {
    let control = FlowControl::new(600, Arc::default());
    let (schemas, levels) = defaults();
    assert_eq!(
        control.configure(&schemas, &levels),
        ConfigurationReport::default()
    );
    let check = |user: &str, groups: &[&str], request: &str, expected: &str| {
        let actual = classified(&control, user, groups, request);
        assert_eq!(actual, expected, "{user} {request}");
    };
    let all = "system:authenticated";
    check(
        "ann",
        &["system:masters", all],
        "get - pods n",
        "exempt exempt",
    );
    check("ann", &[all], "get /readyz", "probes exempt");
    check(
        "ann",
        &[all],
        "get - pods n",
        "global-default global-default",
    );
    check("ann", &[], "get - pods n", "catch-all catch-all");
    let node = ["system:nodes", all];
    check(
        "system:node:a",
        &node,
        "patch - nodes/status -",
        "system-node-high node-high",
    );
    check(
        "system:node:a",
        &node,
        "get - pods n",
        "system-nodes system",
    );
    let manager = "system:kube-controller-manager";
    check(
        manager,
        &[all],
        "update coordination.k8s.io leases n",
        "system-leader-election leader-election",
    );
    check(
        manager,
        &[all],
        "update - endpoints n",
        "kube-controller-manager workload-high",
    );
    check(
        manager,
        &[all],
        "update - pods n",
        "kube-controller-manager workload-high",
    );
    let accounts = ["system:serviceaccounts", all];
    check(
        "system:serviceaccount:kube-system:a",
        &accounts,
        "get - pods n",
        "kube-system-service-accounts workload-high",
    );
    check(
        "system:serviceaccount:n:a",
        &accounts,
        "get - pods n",
        "service-accounts workload-low",
    );
}

#[tokio::test(start_paused = true)]
async fn precedence_then_name_and_dangling_schemas() {
    let control = FlowControl::new(600, Arc::default());
    let (_, mut levels) = defaults();
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "ann"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]});
    let of = |name: &str, precedence: i32, level: &str| {
        schema(
            name,
            json!({"matchingPrecedence": precedence, "rules": [rule],
            "priorityLevelConfiguration": {"name": level}}),
        )
    };
    let schemas = [
        of("c", 50, "system"),
        of("b", 50, "workload-low"),
        of("a", 60, "system"),
        of("z", 2, "absent"),
    ];
    levels.push(level("broken", json!({"type": "Limited"})));
    let configured = control.configure(&schemas, &levels);
    assert_eq!(configured.dangling, BTreeSet::from(["z".to_owned()]));
    assert_eq!(configured.invalid.len(), 1);
    assert!(configured.invalid[0].to_string().contains("\"broken\""));
    assert_eq!(classified(&control, "ann", &[], "get /x"), "b workload-low");
    // Without objects, the mandatory ones.
    control.configure(&[], &[]);
    assert_eq!(
        classified(&control, "ann", &[], "get /x"),
        "catch-all catch-all"
    );
    assert_eq!(
        classified(&control, "ann", &["system:masters"], "get /x"),
        "exempt exempt"
    );
}

/// A control with one level of `shares` of 100 shares for everyone except masters, and the flow of ann.
fn with_level(spec: Value) -> (Arc<FlowControl>, Arc<FlowControlMetrics>) {
    let metrics: Arc<FlowControlMetrics> = Arc::default();
    let control = FlowControl::new(4, Arc::clone(&metrics));
    configure(&control, spec);
    (control, metrics)
}

fn configure(control: &FlowControl, spec: Value) {
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "*"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]});
    let all = schema(
        "all",
        json!({"matchingPrecedence": 100, "rules": [rule],
        "distinguisherMethod": {"type": "ByUser"}, "priorityLevelConfiguration": {"name": "l"}}),
    );
    let catch_all = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}});
    control.configure(&[all], &[level("l", spec), level("catch-all", catch_all)]);
}

fn flow_of(control: &FlowControl, user: &str) -> Classification {
    control.classify(&RequestDigest {
        user,
        groups: &[],
        verb: "get".into(),
        target: DigestTarget::Path("/x".into()),
    })
}

fn queued(length: usize) -> Value {
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": length});
    json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 100,
        "limitResponse": {"type": "Queue", "queuing": queuing}}})
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_their_order_and_time_out() {
    let (control, metrics) = with_level(queued(2));
    let ann = flow_of(&control, "ann");
    assert_eq!(ann.priority_level_uid().unwrap(), "uid-of-l");
    assert_eq!(ann.flow_schema_uid().unwrap(), "uid-of-all");
    let mut seats = Vec::new();
    for _ in 0..4 {
        seats.push(ann.admit(Work::SINGLE, false, WAIT).await.unwrap());
    }
    let mut first = pin!(ann.admit(Work::SINGLE, false, WAIT));
    let mut second = pin!(ann.admit(Work::SINGLE, false, WAIT));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    let full = ann.admit(Work::SINGLE, false, WAIT).await;
    assert_eq!(full.unwrap_err().retry_after_seconds, 1);
    seats.pop();
    assert!(poll(second.as_mut()).is_pending());
    let Poll::Ready(Ok(seat)) = poll(first.as_mut()) else {
        panic!("the first request has a seat");
    };
    let started = tokio::time::Instant::now();
    assert!(second.await.is_err());
    assert_eq!(started.elapsed(), WAIT);
    drop(seat);
    // dispatched, rejected, of which timed out and cancelled
    assert_eq!(metrics.flow("l", "all").outcomes(), [5, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_its_queue_or_returns_its_seat() {
    let (control, metrics) = with_level(queued(10));
    let ann = flow_of(&control, "ann");
    let mut seats = Vec::new();
    for _ in 0..4 {
        seats.push(ann.admit(Work::SINGLE, false, WAIT).await.unwrap());
    }
    let mut waiting = Box::pin(ann.admit(Work::SINGLE, false, WAIT));
    assert!(poll(waiting.as_mut()).is_pending());
    let mut dispatched = Box::pin(ann.admit(Work::SINGLE, false, WAIT));
    assert!(poll(dispatched.as_mut()).is_pending());
    drop(waiting);
    seats.clear();
    // It has a seat that it has not taken yet.
    drop(dispatched);
    let sizes = ann.schema.level.sizes();
    assert_eq!(
        (
            sizes.requests_waiting,
            sizes.requests_executing,
            sizes.seats_in_use
        ),
        (0, 0, 0)
    );
    assert_eq!(metrics.flow("l", "all").outcomes(), [4, 1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn changes_apply_to_waiting_requests() {
    let (control, _) = with_level(queued(10));
    let ann = flow_of(&control, "ann");
    let mut seats = Vec::new();
    for _ in 0..4 {
        seats.push(ann.admit(Work::SINGLE, false, WAIT).await.unwrap());
    }
    let mut waiting = pin!(ann.admit(Work::SINGLE, false, WAIT));
    assert!(poll(waiting.as_mut()).is_pending());
    // The level is deleted. Its waiting request still gets a seat; new requests have another level.
    control.configure(&[], &[]);
    assert_eq!(flow_of(&control, "ann").priority_level(), "catch-all");
    assert!(poll(waiting.as_mut()).is_pending());
    seats.clear();
    assert!(matches!(poll(waiting.as_mut()), Poll::Ready(Ok(_))));
    control.adjust_limits();
    // Exempt requests never wait.
    let masters = ["system:masters".to_owned()];
    let exempt = control.classify(&RequestDigest {
        user: "root",
        groups: &masters,
        verb: "get".into(),
        target: DigestTarget::Path("/x".into()),
    });
    assert!(exempt.is_exempt());
    for _ in 0..100 {
        let mut admission = pin!(exempt.admit(Work::of_list(10_000), false, WAIT));
        let Poll::Ready(Ok(seat)) = poll(admission.as_mut()) else {
            panic!("an exempt request waits");
        };
        seats.push(seat);
    }
}

#[tokio::test(start_paused = true)]
async fn levels_lend_unused_seats_and_take_them_back() {
    let metrics: Arc<FlowControlMetrics> = Arc::default();
    let control = FlowControl::new(600, Arc::clone(&metrics));
    let (schemas, levels) = defaults();
    control.configure(&schemas, &levels);
    let groups = ["system:authenticated".to_owned()];
    let flow = |user: &str| {
        control.classify(&RequestDigest {
            user,
            groups: &groups,
            verb: "get".into(),
            target: DigestTarget::Path("/x".into()),
        })
    };
    let limit = || flow("ann").schema.level.sizes().limit;
    let nominal = 600 * 20 / 245 + 1;
    let initial = limit();
    assert!(initial < 2 * nominal, "{initial}");
    // Every user has up to six queues of 50 requests.
    let users: Vec<String> = (0..20).map(|number| format!("user-{number}")).collect();
    let flows: Vec<_> = users.iter().map(|user| flow(user)).collect();
    let mut requests: Vec<_> = flows
        .iter()
        .flat_map(|flow| (0..15).map(|_| Box::pin(flow.admit(Work::SINGLE, false, 10 * WAIT))))
        .collect();
    let mut running = Vec::new();
    for request in &mut requests {
        if let Poll::Ready(seat) = poll(request.as_mut()) {
            running.push(seat.unwrap());
        }
    }
    assert_eq!(running.len(), initial);
    tokio::time::advance(ADJUSTMENT_PERIOD).await;
    control.adjust_limits();
    let borrowed = limit();
    assert!(borrowed > nominal + 100, "{borrowed}");
    drop(running);
    drop(requests);
    for _ in 0..200 {
        tokio::time::advance(ADJUSTMENT_PERIOD).await;
        control.adjust_limits();
    }
    let returned = limit();
    assert!(returned < 2 * nominal, "{returned}");
}

#[tokio::test(start_paused = true)]
async fn each_level_of_a_small_server_has_a_seat() {
    let control = FlowControl::new(4, Arc::default());
    let (schemas, levels) = defaults();
    control.configure(&schemas, &levels);
    tokio::time::advance(ADJUSTMENT_PERIOD).await;
    control.adjust_limits();
    let levels = control.levels.lock();
    for (name, level) in &levels.by_name {
        let limit = level.level.sizes().limit;
        assert!(limit >= 1 || level.seats.nominal == 0, "{name} has none");
    }
}
