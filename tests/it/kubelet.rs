//! Tests of the kubelet's source of pods with the real program on both back ends: the updates for the pods of its node,
//! and that a consumer that applies them has the listed pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use watchet::client::kubelet::{
    PodConfig, PodOperation, PodUpdate, api_server_source, pods_of_node,
};
use watchet::client::{
    ApiResource, EventRecorder, HttpListerWatcher, Kubeconfig, ListParams, ListWatchOptions, Patch,
    ResourceClient, RestClient, RestConfig,
};
use watchet::tasks::Tasks;

use crate::harness::{Kubectl, PATIENCE, Server, on_both};

on_both!(|server| (server) => [
    kubelet_receives_the_updates_of_a_pod,
    a_kubelet_has_the_listed_pods_after_random_changes,
    duplicate_pods_are_dropped_with_an_event,
]);

const NODE: &str = "n1";

fn client(server: &Server) -> RestClient {
    let kubeconfig = Kubeconfig::load(&[server.kubeconfig()]).unwrap();
    RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None).unwrap()).unwrap()
}

/// A kubelet that applies the updates to its pods.
struct Kubelet {
    updates: mpsc::Receiver<PodUpdate>,
    /// The pods by uid.
    pods: BTreeMap<String, Arc<Pod>>,
    tasks: Tasks,
}

impl Kubelet {
    /// Starts a kubelet whose only source is the API server.
    fn start(client: &RestClient) -> Self {
        let (mux, updates) = PodConfig::new(|rejected| panic!("{rejected:?}"));
        let options = ListWatchOptions {
            fields: Some(pods_of_node(NODE)),
            ..ListWatchOptions::default()
        };
        let source = HttpListerWatcher::new(client.resource(ApiResource::of::<Pod>()), options);
        let tasks = Tasks::new();
        let api = api_server_source(source, mux.source("api"), tasks.token());
        drop(tasks.spawn("api-server-source", api));
        drop(tasks.spawn("pod-config", mux.run(tasks.token())));
        Self {
            updates,
            pods: BTreeMap::new(),
            tasks,
        }
    }

    /// Applies the next update and describes it.
    async fn next(&mut self) -> String {
        let update = timeout(PATIENCE, self.updates.recv()).await;
        let update = update.expect("an update in time").expect("it goes on");
        assert_eq!(&*update.source, "api");
        let mut names = Vec::new();
        for pod in update.pods {
            let uid = pod.metadata.uid.clone().unwrap();
            names.push(format!(" {}", pod.metadata.name.as_deref().unwrap()));
            let known = match update.operation {
                PodOperation::Remove => self.pods.remove(&uid),
                _ => self.pods.insert(uid, pod),
            };
            let new = update.operation == PodOperation::Add;
            assert_eq!(known.is_none(), new, "{:?} of {names:?}", update.operation);
        }
        format!("{:?}{}", update.operation, names.concat())
    }

    async fn stop(self) {
        self.tasks.drain(PATIENCE).await.unwrap();
    }
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "image"}]},
    })
}

async fn kubelet_receives_the_updates_of_a_pod(server: &Server) {
    let kubectl = Kubectl::new(&server.kubeconfig());
    let mut kubelet = Kubelet::start(&client(server));
    assert_eq!(kubelet.next().await, "Add", "the source is ready");

    // A pod without a node and a pod of another node cause no update.
    for (name, node) in [("web", None), ("else", Some("n2"))] {
        let pod = pod(name, node).to_string();
        kubectl.run_with(&["create", "-f", "-"], &pod).await;
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    });
    let path = "/api/v1/namespaces/default/pods/web/binding";
    let (post, binding) = (["create", "--raw", path, "-f", "-"], binding.to_string());
    kubectl.run_with(&post, &binding).await;
    assert_eq!(kubelet.next().await, "Add web");

    kubectl.run(&["label", "pod", "web", "tier=front"]).await;
    assert_eq!(kubelet.next().await, "Update web");
    kubectl.run(&["annotate", "pod", "web", "note=x"]).await;
    assert_eq!(kubelet.next().await, "Update web");
    let image = r#"{"spec": {"containers": [{"name": "c", "image": "other"}]}}"#;
    kubectl.run(&["patch", "pod", "web", "-p", image]).await;
    assert_eq!(kubelet.next().await, "Update web");
    let running = r#"{"status": {"phase": "Running"}}"#;
    let status = ["patch", "pod", "web", "--subresource=status", "-p", running];
    kubectl.run(&status).await;
    assert_eq!(kubelet.next().await, "Reconcile web");

    kubectl.run(&["delete", "pod", "web", "--wait=false"]).await;
    assert_eq!(kubelet.next().await, "Delete web");
    let ending = kubelet.pods.values().next().unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(30));
    let failed = r#"{"status": {"phase": "Failed"}}"#;
    let status = ["patch", "pod", "web", "--subresource=status", "-p", failed];
    kubectl.run(&status).await;
    assert_eq!(kubelet.next().await, "Reconcile web");
    let sooner = ["delete", "pod", "web", "--now", "--wait=false"];
    kubectl.run(&sooner).await;
    assert_eq!(kubelet.next().await, "Delete web", "sooner");
    kubectl.run(&["delete", "pod", "web", "--force"]).await;
    assert_eq!(kubelet.next().await, "Remove web");
    assert!(kubelet.pods.is_empty());
    kubelet.stop().await;
}

/// Makes one random change of the pod with this number.
async fn step(pods: &ResourceClient<Pod>, random: &mut fastrand::Rng, number: usize) {
    let name = format!("p{}", random.usize(0..12));
    let done = match random.u8(0..8) {
        0..3 => {
            let node = random.bool().then_some(NODE);
            let pod: Pod = serde_json::from_value(pod(&name, node)).unwrap();
            pods.create(&pod).await.map(drop)
        }
        3 => {
            let label = json!({"metadata": {"labels": {"step": number.to_string()}}});
            pods.patch(&name, &Patch::Merge(label)).await.map(drop)
        }
        4..6 => {
            let status = json!({"status": {"message": number.to_string()}});
            pods.patch_status(&name, &Patch::Merge(status))
                .await
                .map(drop)
        }
        6 => pods.delete(&name, &Default::default()).await,
        _ => {
            let now = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            pods.delete(&name, &now).await
        }
    };
    match done {
        Ok(()) => {}
        Err(error) if error.is_not_found() || error.is_already_exists() => {}
        Err(error) => panic!("{error}"),
    }
}

async fn a_kubelet_has_the_listed_pods_after_random_changes(server: &Server) {
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let client = client(server);
    let pods = client
        .resource::<Pod>(ApiResource::of::<Pod>())
        .namespace("default");
    for number in 0..30 {
        step(&pods, &mut random, number).await;
    }
    let mut kubelet = Kubelet::start(&client);
    let changing = async {
        for number in 30..300 {
            step(&pods, &mut random, number).await;
        }
        // The update of this pod shows that all earlier updates have arrived.
        let last: Pod = serde_json::from_value(pod("last", Some(NODE))).unwrap();
        pods.create(&last).await.unwrap();
    };
    let hearing = async {
        let mut received = BTreeMap::<_, usize>::new();
        loop {
            let update = kubelet.next().await;
            if update.contains(" last") {
                return received;
            }
            let operation = update.split(' ').next().unwrap().to_owned();
            *received.entry(operation).or_default() += 1;
        }
    };
    let ((), received) = tokio::join!(changing, hearing);
    println!("updates: {received:?}");
    let of_node = ListParams {
        fields: Some(pods_of_node(NODE)),
        ..ListParams::default()
    };
    let listed = pods.list(&of_node).await.unwrap().items;
    let listed: BTreeMap<_, _> = listed
        .into_iter()
        .map(|pod| (pod.metadata.uid.clone().unwrap(), Arc::new(pod)))
        .collect();
    // A change of the resourceVersion alone causes no update.
    let shown = |pods: BTreeMap<String, Arc<Pod>>| -> BTreeMap<String, Value> {
        let pods = pods.into_iter().map(|(uid, pod)| {
            let mut pod = (*pod).clone();
            pod.metadata.resource_version = None;
            pod.metadata.managed_fields = None;
            (uid, serde_json::to_value(&pod).unwrap())
        });
        pods.collect()
    };
    assert_eq!(shown(kubelet.pods.clone()), shown(listed), "seed {seed}");
    kubelet.stop().await;
}

/// Two pods of a file source with the same name, which do not exist on the server.
async fn duplicate_pods_are_dropped_with_an_event(server: &Server) {
    let (client, tasks) = (client(server), Tasks::new());
    let recorder = EventRecorder::new(&client, "kubelet", &tasks);
    let (mux, mut updates) = PodConfig::new(move |rejected| rejected.record(&recorder));
    let file = mux.source("file");
    drop(tasks.spawn("pod-config", mux.run(tasks.token())));
    let pods = ["uid-1", "uid-2"].map(|uid| {
        let mut pod = pod("static", Some(NODE));
        pod["metadata"]["uid"] = uid.into();
        pod["metadata"]["namespace"] = "default".into();
        Arc::new(serde_json::from_value(pod).unwrap())
    });
    file.send(pods.to_vec()).await.unwrap();
    let received = timeout(PATIENCE, updates.recv()).await;
    let received = received.expect("an update in time").expect("it goes on");
    assert_eq!(
        (received.operation, received.pods.len()),
        (PodOperation::Add, 1)
    );
    assert_eq!(received.pods[0].metadata.uid.as_deref(), Some("uid-1"));
    // The end of the tasks writes the pending events.
    tasks.drain(PATIENCE).await.unwrap();
    let kubectl = Kubectl::new(&server.kubeconfig());
    let columns =
        "-o=jsonpath={range .items[*]}{.type} {.reason} {.involvedObject.uid} {.message}{end}";
    let events = kubectl.run(&["get", "events", columns]).await;
    let expected = "Warning FailedValidation uid-2 Error validating pod static_default(uid-2) from \
                    file due to duplicate pod name \"static\", ignoring";
    assert_eq!(events, expected);
}
