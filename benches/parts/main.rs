//! Benchmarks of the parts of the server: `cargo bench --bench parts [FILTER]`. They show which part became slower;
//! `scripts/bench` measures the whole server with sockets and disks.
//!
//! The benches call public functions only, so that they measure each part as it is used.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use watchet::api::{EventType, Object, ObjectKey, ResolvedFieldSelector, SelectionPredicate};
use watchet::registry::Resource;
use watchet_bench_fixture::Server;
use watchet_bench_fixture::pods::{self, Changes, FIRST_LIST};

fn main() {
    divan::main();
}

fn decode(resource: &Resource, pod: usize, stored: &[u8]) -> Object {
    Object::decode(
        ObjectKey::new(Some("default"), &pods::name(pod)),
        FIRST_LIST,
        EventType::Modified,
        stored,
        &resource.columns,
    )
    .expect("it is a pod")
}

/// Decodes stored bytes to an object.
mod splice {
    use super::*;

    /// Inserts the resourceVersion into the bytes and extracts the columns.
    #[divan::bench]
    fn decode_object(bencher: Bencher) {
        let (server, stored) = (Server::with(1), pods::json(7, 1));
        bencher
            .counter(BytesCount::new(stored.len()))
            .bench_local(|| decode(server.pods(), 7, &stored));
    }
}

/// Evaluates a selector on 1,000 pods.
mod selector {
    use super::*;

    const PODS: usize = 1_000;

    /// Evaluates a selector, and checks that it selects `selected` pods.
    fn verdicts(bencher: Bencher, labels: &str, fields: &str, selected: usize) {
        let server = Server::with(1);
        let resource = server.pods();
        let fields = fields.parse().expect("a field selector");
        let fields = ResolvedFieldSelector::resolve(&fields, &resource.columns).expect("a field");
        let labels = labels.parse().expect("a label selector");
        let predicate = SelectionPredicate::new(None, labels, fields);
        let decoded = (0..PODS).map(|pod| decode(resource, pod, &pods::json(pod, 0)));
        let objects: Vec<_> = decoded.collect();
        let count = || objects.iter().filter(|o| predicate.matches(o)).count();
        assert_eq!(count(), selected);
        bencher.counter(ItemsCount::new(PODS)).bench_local(count);
    }

    #[divan::bench]
    fn all(bencher: Bencher) {
        verdicts(bencher, "", "", PODS);
    }

    #[divan::bench]
    fn label(bencher: Bencher) {
        verdicts(bencher, "tier=front", "", PODS / 2);
    }

    /// A label that no pod has.
    #[divan::bench]
    fn absent_label(bencher: Bencher) {
        verdicts(bencher, "zone=north", "", 0);
    }

    #[divan::bench]
    fn label_sets(bencher: Bencher) {
        let labels = "app in (api, web),tier notin (back),!canary";
        verdicts(bencher, labels, "", PODS / 2);
    }

    #[divan::bench]
    fn field(bencher: Bencher) {
        verdicts(bencher, "", "spec.nodeName=node-7", PODS / pods::NODES);
    }
}

/// Applies events to a cache of this many pods without watchers: decodes, applies and publishes them.
mod apply {
    use super::*;

    fn batches(bencher: Bencher, pods: usize, events: usize) {
        let (server, mut changes) = (Server::with(pods), Changes::of(pods));
        bencher
            .counter(ItemsCount::new(events))
            .with_inputs(|| changes.batch(events))
            .bench_local_values(|batch| server.apply(batch));
    }

    #[divan::bench(args = [1_000, 50_000], sample_size = 1)]
    fn one_event(bencher: Bencher, pods: usize) {
        batches(bencher, pods, 1);
    }

    #[divan::bench(args = [1_000, 50_000], sample_size = 1)]
    fn batch_of_256(bencher: Bencher, pods: usize) {
        batches(bencher, pods, 256);
    }
}

/// The time from an event of storage until all of its watchers have received the frame.
mod dispatch {
    use super::*;

    /// Measures `watchers` watchers; watcher `n` has the selector `selector(n)`, and `writes` of them receive each event.
    fn events(
        bencher: Bencher,
        watchers: usize,
        selector: impl Fn(usize) -> String,
        writes: usize,
    ) {
        let mut changes = Changes::of(pods::NODES);
        let server = Server::with(pods::NODES);
        let watch = format!("/api/v1/pods?watch=1&resourceVersion={FIRST_LIST}");
        let crowd = server.crowd(watchers, |client| format!("{watch}{}", selector(client)));
        // One event for each node, so that all watches have started.
        for _ in 0..pods::NODES {
            crowd.take(changes.batch(1), writes);
        }
        bencher
            .counter(ItemsCount::new(writes))
            .with_inputs(|| changes.batch(1))
            .bench_local_values(|batch| crowd.take(batch, writes));
    }

    #[divan::bench(args = [1, 100, 1_000, 10_000], sample_size = 1)]
    fn all_see_it(bencher: Bencher, watchers: usize) {
        events(bencher, watchers, |_| String::new(), watchers);
    }

    /// Each watcher selects the pods of one node, as a kubelet does.
    #[divan::bench(args = [100, 1_000, 10_000], sample_size = 1)]
    fn of_a_node(bencher: Bencher, watchers: usize) {
        let node = |client| client % pods::NODES;
        let selector = |client| format!("&fieldSelector=spec.nodeName%3Dnode-{}", node(client));
        events(bencher, watchers, selector, watchers / pods::NODES);
    }
}

/// Reads the body of a list of this many pods.
mod list {
    use super::*;

    fn body(bencher: Bencher, pods: usize, query: &str) {
        let server = Server::with(pods);
        let uri = format!("/api/v1/pods?{query}");
        let length = server.get(&uri);
        bencher
            .counter(BytesCount::new(length))
            .bench_local(|| server.get(&uri));
    }

    #[divan::bench(args = [100, 1_000, 10_000])]
    fn all(bencher: Bencher, pods: usize) {
        body(bencher, pods, "resourceVersion=0");
    }

    /// A consistent list, because the cache ignores the limit at resourceVersion 0.
    #[divan::bench(args = [10_000])]
    fn page_of_500(bencher: Bencher, pods: usize) {
        body(bencher, pods, "limit=500");
    }

    #[divan::bench(args = [10_000])]
    fn of_a_node(bencher: Bencher, pods: usize) {
        body(
            bencher,
            pods,
            "resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-7",
        );
    }

    #[divan::bench(args = [10_000])]
    fn label_that_none_has(bencher: Bencher, pods: usize) {
        body(
            bencher,
            pods,
            "resourceVersion=0&labelSelector=zone%3Dnorth",
        );
    }
}

/// Reads from the history of a cache of 10,000 pods, starting this many events ago.
mod history {
    use super::*;

    const PODS: usize = 10_000;

    /// Returns a cache after this many events, and the size of their frames in bytes.
    fn after(events: usize) -> (Server, usize) {
        let (server, batch) = (Server::with(PODS), Changes::of(PODS).batch(events));
        let values = batch.events.iter().filter_map(|event| event.value.as_ref());
        let objects = values.map(|value| decode(server.pods(), 0, value));
        let frames = objects.map(|object| object.json_frame(EventType::Modified).len());
        let length = frames.sum();
        server.apply(batch);
        (server, length)
    }

    /// Gets one pod as it was before the events: from the nearest retained state, with events undone.
    #[divan::bench(args = [100, 1_000, 10_000])]
    fn exact_version(bencher: Bencher, events: usize) {
        let (server, _) = after(events);
        let name = pods::name(7);
        let uri = format!(
            "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3D{name}\
             &resourceVersion={FIRST_LIST}&resourceVersionMatch=Exact"
        );
        bencher.bench_local(|| server.get(&uri));
    }

    /// Opens a watch from before the events and reads until it has caught up.
    #[divan::bench(args = [100, 1_000, 10_000])]
    fn catch_up(bencher: Bencher, events: usize) {
        let (server, length) = after(events);
        let uri = format!("/api/v1/pods?watch=1&resourceVersion={FIRST_LIST}");
        bencher
            .counter(ItemsCount::new(events))
            .bench_local(|| server.catch_up(&uri, length));
    }
}

/// The cost of managed fields in a write of a pod.
mod managed_fields {
    use serde_json::Value;
    use watchet::schema::Types;
    use watchet::schema::managed::{Scope, WriteContext, apply, update};

    use super::*;

    fn pod(changes: usize) -> Value {
        serde_json::from_slice(&pods::json(7, changes)).expect("it is JSON")
    }

    fn by(name: &str) -> WriteContext<'_> {
        WriteContext {
            name,
            api_version: "v1",
            subresource: None,
            scope: Scope::NoStatus,
            now: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    /// Computes the entry of a new pod.
    #[divan::bench]
    fn of_a_create(bencher: Bencher) {
        let types = Types::builtins();
        let types = |version: &str| types.root(version, "Pod");
        bencher
            .with_inputs(|| pod(1))
            .bench_local_values(|mut pod| {
                update(None, &mut pod, &by("a"), &types);
                pod
            });
    }

    /// Computes the entries after another manager changed one annotation.
    #[divan::bench]
    fn of_an_update(bencher: Bencher) {
        let types = Types::builtins();
        let types = |version: &str| types.root(version, "Pod");
        let mut live = pod(1);
        update(None, &mut live, &by("a"), &types);
        let mut next = pod(2);
        next["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
        bencher
            .with_inputs(|| next.clone())
            .bench_local_values(|mut next| {
                update(Some(&live), &mut next, &by("b"), &types);
                next
            });
    }

    /// Applies a configuration that changes nothing.
    #[divan::bench]
    fn of_an_apply(bencher: Bencher) {
        let types = Types::builtins();
        let types = |version: &str| types.root(version, "Pod");
        let mut config = pod(1);
        config.as_object_mut().expect("an object").remove("status");
        let live = apply(None, &config, false, &by("a"), &types).expect("it is applied");
        bencher.bench_local(|| apply(Some(&live), &config, false, &by("a"), &types));
    }
}

/// The start of a `testing::Server` until it is ready. The stop is not measured.
#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod testing {
    use tokio::runtime::Runtime;
    use watchet::testing;

    use super::*;

    /// Starts servers with `builder`. A first start, which creates the certificates and objects, is not measured.
    fn starts(bencher: Bencher, builder: &testing::Builder) {
        let runtime = Runtime::new().expect("there are threads");
        let start = || {
            runtime
                .block_on(builder.clone().start())
                .expect("it starts")
        };
        let stop = |server: testing::Server| runtime.block_on(server.stop()).expect("it stops");
        stop(start());
        // Divan drops the returned value after the measurement, which ends the server's thread.
        bencher.bench_local(start);
    }

    /// In memory: each start makes certificates.
    #[divan::bench]
    fn start_in_memory(bencher: Bencher) {
        starts(bencher, &testing::Server::builder());
    }

    /// In a directory that has the certificates and the objects of every server; writes are synced to disk.
    #[divan::bench]
    fn start_again_in_a_directory(bencher: Bencher) {
        let directory = tempfile::tempdir().expect("a directory");
        let builder = testing::Server::builder().data_dir(directory.path());
        starts(bencher, &builder);
    }
}
