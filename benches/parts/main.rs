//! The parts of the two paths, timed one by one: `cargo bench --bench parts [FILTER]`. It shows which
//! part got slower; how fast the whole is over sockets and disks, `scripts/bench` measures.
//!
//! Each part is reached by public modules, so that it is measured as it is used.

#[path = "../fixture/mod.rs"]
mod fixture;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use watchet::api::{EventType, Object, ObjectKey, ResolvedFieldSelector, SelectionPredicate};
use watchet::registry::Resource;

use fixture::Server;
use fixture::pods::{self, Changes, FIRST_LIST};

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

/// From stored bytes to an object.
mod splice {
    use super::*;

    /// The resource version into the bytes, and the columns out of them.
    #[divan::bench]
    fn decode_object(bencher: Bencher) {
        let (server, stored) = (Server::with(1), pods::json(7, 1));
        bencher
            .counter(BytesCount::new(stored.len()))
            .bench_local(|| decode(server.pods(), 7, &stored));
    }
}

/// The verdicts of a selector on 1,000 pods.
mod selector {
    use super::*;

    const PODS: usize = 1_000;

    /// How many of the pods are selected is checked: a selector that is not understood selects none.
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

    /// One that no pod has.
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

/// Events into a cache of so many pods without watchers: decoded, applied, published.
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

/// An event from storage until so many watchers have taken its frame.
mod dispatch {
    use super::*;

    /// Watchers, each with the selector of `selector`; `writes` of them see each event.
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
        // A round over the nodes, so that all have begun.
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

    /// Each watches one of the nodes, as kubelets do.
    #[divan::bench(args = [100, 1_000, 10_000], sample_size = 1)]
    fn of_a_node(bencher: Bencher, watchers: usize) {
        let node = |client| client % pods::NODES;
        let selector = |client| format!("&fieldSelector=spec.nodeName%3Dnode-{}", node(client));
        events(bencher, watchers, selector, watchers / pods::NODES);
    }
}

/// The body of a list of so many pods, as the client takes it.
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

    /// A consistent one: at version 0 the limit is not for the cache.
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

/// What the history of a cache of 10,000 pods is asked, from before so many events.
mod ring {
    use super::*;

    const PODS: usize = 10_000;

    /// The cache after so many events, which are that many bytes of frames.
    fn after(events: usize) -> (Server, usize) {
        let (server, batch) = (Server::with(PODS), Changes::of(PODS).batch(events));
        let values = batch.events.iter().filter_map(|event| event.value.as_ref());
        let objects = values.map(|value| decode(server.pods(), 0, value));
        let frames = objects.map(|object| object.json_frame(EventType::Modified).len());
        let length = frames.sum();
        server.apply(batch);
        (server, length)
    }

    /// One pod as it was before them: from the nearest kept state, with events undone.
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

    /// A watch from before them until it has caught up.
    #[divan::bench(args = [100, 1_000, 10_000])]
    fn catch_up(bencher: Bencher, events: usize) {
        let (server, length) = after(events);
        let uri = format!("/api/v1/pods?watch=1&resourceVersion={FIRST_LIST}");
        bencher
            .counter(ItemsCount::new(events))
            .bench_local(|| server.catch_up(&uri, length));
    }
}

/// What it costs a write of a pod to say who manages its fields.
mod managers {
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

    /// The entry of a new pod.
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

    /// The entries after another manager changed one annotation.
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

    /// An apply of all that is there already.
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

/// The server that a test starts in its own process, until it is ready; stopping it is not timed.
#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod testing {
    use tokio::runtime::Runtime;
    use watchet::testing;

    use super::*;

    /// Starts servers as `builder` says, and one before that, which makes what stays.
    fn starts(bencher: Bencher, builder: &testing::Builder) {
        let runtime = Runtime::new().expect("there are threads");
        let start = || {
            runtime
                .block_on(builder.clone().start())
                .expect("it starts")
        };
        let stop = |server: testing::Server| runtime.block_on(server.stop()).expect("it stops");
        stop(start());
        // Divan drops what a sample returns after its time: the server's thread ends then.
        bencher.bench_local(start);
    }

    /// Nothing is kept: certificates are made each time.
    #[divan::bench]
    fn start_in_memory(bencher: Bencher) {
        starts(bencher, &testing::Server::builder());
    }

    /// In a directory that has certificates and the objects that every server makes, each synced to disk.
    #[divan::bench]
    fn start_again_in_a_directory(bencher: Bencher) {
        let directory = tempfile::tempdir().expect("a directory");
        let builder = testing::Server::builder().data_dir(directory.path());
        starts(bencher, &builder);
    }
}
