//! Benchmarks of the informer's store and queue with 100,000 pods: `cargo bench --bench informer [FILTER]`. The module
//! compares them, on the same pods, with the reflector's store of kube-rs and with hash maps under a lock, which is
//! client-go's design. It does not measure the network or decoding.
//!
//! Each bench also reports its allocations. `max alloc` of the module `fill`, divided by the number of objects, is the
//! memory of a store per object, without the object itself.

mod plain;

use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::{self, Writer};
use kube::runtime::watcher::Event;
use serde_json::json;
use watchet::client::{Delta, DeltaFifo, Indexers, ThreadSafeStore, key_of};

use plain::PlainStore;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const PODS: usize = 100_000;
const NODES: usize = 1_000;
const NAMESPACES: usize = 100;

fn main() {
    divan::main();
}

fn pod(number: usize, version: usize) -> Arc<Pod> {
    let pod = json!({
        "metadata": {
            "name": format!("web-7d9c6b5f4-{number:06}"),
            "namespace": format!("team-{}", number % NAMESPACES),
            "uid": format!("6f1d2c3b-4a59-4687-9abc-{number:012}"),
            "resourceVersion": (1_000_000 + number + version * PODS).to_string(),
            "labels": {"app": "web", "pod-template-hash": "7d9c6b5f4"},
        },
        "spec": {
            "nodeName": format!("node-{}", number % NODES),
            "containers": [{"name": "web", "image": "registry.example/team/web:1.27.3"}],
        },
        "status": {"phase": "Running"},
    });
    Arc::new(serde_json::from_value(pod).expect("it is a pod"))
}

/// The pods, and the same pods after a change of each.
static PODS_BEFORE: LazyLock<Vec<Arc<Pod>>> =
    LazyLock::new(|| (0..PODS).map(|number| pod(number, 0)).collect());
static PODS_AFTER: LazyLock<Vec<Arc<Pod>>> =
    LazyLock::new(|| (0..PODS).map(|number| pod(number, 1)).collect());

/// Returns the index of the n-th accessed pod. Consecutive accesses are far from each other in memory.
fn scattered(n: usize) -> usize {
    n * 7_919 % PODS
}

fn node(pod: &Pod) -> Vec<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.into_iter().collect()
}

/// Returns `count` indexes: none, by namespace, or by namespace and by node.
fn indexers(count: usize) -> Indexers<Pod> {
    match count {
        0 => Indexers::new(),
        1 => Indexers::namespaced(),
        _ => Indexers::namespaced().with("node", node),
    }
}

fn ours(indexes: usize) -> ThreadSafeStore<Pod> {
    let store = ThreadSafeStore::new(indexers(indexes));
    for n in 0..PODS {
        store.add(PODS_BEFORE[scattered(n)].clone());
    }
    store
}

fn plain(indexes: usize) -> PlainStore {
    let store = PlainStore::new(indexes);
    for n in 0..PODS {
        store.add(PODS_BEFORE[scattered(n)].clone());
    }
    store
}

/// Returns the store of kube-rs, whose events own their object; the store clones it again.
fn kubes() -> (store::Store<Pod>, Writer<Pod>) {
    let mut writer = Writer::default();
    writer.apply_watcher_event(&Event::Init);
    for n in 0..PODS {
        writer.apply_watcher_event(&Event::InitApply((*PODS_BEFORE[scattered(n)]).clone()));
    }
    writer.apply_watcher_event(&Event::InitDone);
    (writer.as_reader(), writer)
}

/// Adds all pods to an empty store, one by one.
#[divan::bench_group(sample_count = 5, sample_size = 1, counters = [ItemsCount::new(PODS)])]
mod fill {
    use super::*;

    #[divan::bench(args = [0, 1, 2])]
    fn ours_with_indexes(bencher: Bencher, indexes: usize) {
        LazyLock::force(&PODS_BEFORE);
        bencher.bench_local(|| ours(indexes));
    }

    #[divan::bench(args = [0, 1, 2])]
    fn plain_with_indexes(bencher: Bencher, indexes: usize) {
        LazyLock::force(&PODS_BEFORE);
        bencher.bench_local(|| plain(indexes));
    }

    /// Includes a clone of each object, which `kube_rs_events_alone` measures.
    #[divan::bench]
    fn kube_rs(bencher: Bencher) {
        LazyLock::force(&PODS_BEFORE);
        bencher.bench_local(kubes);
    }

    /// The part of `kube_rs` that is not the store's: creating the events and cloning the objects.
    #[divan::bench]
    fn kube_rs_events_alone(bencher: Bencher) {
        LazyLock::force(&PODS_BEFORE);
        bencher.bench_local(|| {
            let objects = PODS_BEFORE.iter().map(|pod| {
                let event = black_box(Event::InitApply((**pod).clone()));
                let Event::InitApply(pod) = &event else {
                    unreachable!("it was made so")
                };
                Arc::new(pod.clone())
            });
            objects.collect::<Vec<_>>()
        });
    }
}

/// Updates one object, whose node and namespace do not change.
#[divan::bench_group(sample_count = 100, sample_size = 1_000)]
mod update {
    use super::*;

    #[divan::bench(args = [0, 1, 2])]
    fn ours_with_indexes(bencher: Bencher, indexes: usize) {
        let (store, mut n) = (ours(indexes), 0);
        bencher
            .counter(ItemsCount::new(1_usize))
            .with_inputs(|| {
                n += 1;
                PODS_AFTER[scattered(n)].clone()
            })
            .bench_local_values(|pod| store.update(pod));
    }

    /// Updates while a caller holds a list, which it takes again every thousand updates.
    #[divan::bench(args = [0, 2])]
    fn ours_beside_a_list(bencher: Bencher, indexes: usize) {
        let (store, mut n) = (ours(indexes), 0);
        let mut held = store.list();
        bencher
            .counter(ItemsCount::new(1_usize))
            .with_inputs(|| {
                n += 1;
                (PODS_AFTER[scattered(n)].clone(), n % 1_000 == 0)
            })
            .bench_local_values(|(pod, again)| {
                if again {
                    held = store.list();
                }
                store.update(pod)
            });
    }

    #[divan::bench(args = [0, 1, 2])]
    fn plain_with_indexes(bencher: Bencher, indexes: usize) {
        let (store, mut n) = (plain(indexes), 0);
        bencher
            .counter(ItemsCount::new(1_usize))
            .with_inputs(|| {
                n += 1;
                PODS_AFTER[scattered(n)].clone()
            })
            .bench_local_values(|pod| store.add(pod));
    }

    /// Includes a clone of the object, which `kube_rs_clone_alone` measures.
    #[divan::bench]
    fn kube_rs(bencher: Bencher) {
        let ((_, mut writer), mut n) = (kubes(), 0);
        bencher
            .counter(ItemsCount::new(1_usize))
            .with_inputs(|| {
                n += 1;
                Event::Apply((*PODS_AFTER[scattered(n)]).clone())
            })
            .bench_local_refs(|event| writer.apply_watcher_event(event));
    }

    /// The clone in `kube_rs`.
    #[divan::bench]
    fn kube_rs_clone_alone(bencher: Bencher) {
        let mut n = 0;
        bencher
            .counter(ItemsCount::new(1_usize))
            .with_inputs(|| {
                n += 1;
                (*PODS_AFTER[scattered(n)]).clone()
            })
            .bench_local_refs(|pod| Arc::new(pod.clone()));
    }
}

/// Gets one object by its key.
#[divan::bench_group(sample_count = 100, sample_size = 1_000)]
mod get {
    use super::*;

    #[divan::bench]
    fn ours_by_key(bencher: Bencher) {
        let (store, mut n) = (ours(0), 0);
        bencher
            .with_inputs(|| {
                n += 1;
                key_of(&*PODS_BEFORE[scattered(n)])
            })
            .bench_local_refs(|key| store.get_by_key(key.as_str()).expect("it is there"));
    }

    #[divan::bench]
    fn plain_by_key(bencher: Bencher) {
        let (store, mut n) = (plain(0), 0);
        bencher
            .with_inputs(|| {
                n += 1;
                key_of(&*PODS_BEFORE[scattered(n)])
            })
            .bench_local_refs(|key| store.get(key.as_str()).expect("it is there"));
    }

    #[divan::bench]
    fn kube_rs_by_reference(bencher: Bencher) {
        let ((store, _writer), mut n) = (kubes(), 0);
        bencher
            .with_inputs(|| {
                n += 1;
                ObjectRef::from_obj(&*PODS_BEFORE[scattered(n)])
            })
            .bench_local_refs(|key| store.get(key).expect("it is there"));
    }
}

/// Lists all objects and reads each.
#[divan::bench_group(sample_count = 20, sample_size = 1, counters = [ItemsCount::new(PODS)])]
mod list {
    use super::*;

    fn count<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> usize {
        pods.filter(|pod| pod.metadata.name.is_some()).count()
    }

    #[divan::bench]
    fn ours_all(bencher: Bencher) {
        let store = ours(0);
        bencher.bench_local(|| count(store.list().iter()));
    }

    #[divan::bench]
    fn plain_all(bencher: Bencher) {
        let store = plain(0);
        bencher.bench_local(|| count(store.list().iter()));
    }

    #[divan::bench]
    fn kube_rs_all(bencher: Bencher) {
        let (store, _writer) = kubes();
        bencher.bench_local(|| count(store.state().iter()));
    }
}

/// Lists the hundred pods of a node and reads each.
#[divan::bench_group(sample_count = 100, counters = [ItemsCount::new(PODS / NODES)])]
mod of_a_node {
    use super::*;

    fn count<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) {
        let pods = pods.filter(|pod| pod.metadata.name.is_some());
        assert_eq!(pods.count(), PODS / NODES);
    }

    #[divan::bench]
    fn ours_by_index(bencher: Bencher) {
        let store = ours(2);
        let found = || store.by_index("node", "node-7").expect("it is an index");
        bencher.bench_local(|| count(found().iter()));
    }

    #[divan::bench]
    fn plain_by_index(bencher: Bencher) {
        let store = plain(2);
        bencher.bench_local(|| count(store.by_index(1, "node-7").iter()));
    }

    #[divan::bench(sample_size = 1)]
    fn kube_rs_by_filter(bencher: Bencher) {
        let (store, _writer) = kubes();
        let of_node = |pod: &Pod| node(pod).first().is_some_and(|node| node == "node-7");
        bencher.bench_local(|| count(store.state_filter(of_node).iter()));
    }
}

/// The queue, alone and with the store that the consumer updates.
#[divan::bench_group(sample_count = 5, sample_size = 1, counters = [ItemsCount::new(PODS)])]
mod fifo {
    use super::*;

    fn pop_into(fifo: &DeltaFifo<Pod>, store: &ThreadSafeStore<Pod>) {
        while !fifo.is_empty() {
            let popped = fifo.pop(|deltas, _| {
                match deltas.newest() {
                    Delta::Deleted(_) => store.delete_by_key(deltas.key().as_str()),
                    delta => store.put(deltas.key(), delta.object().clone()),
                };
                Ok(())
            });
            popped
                .now_or_never()
                .expect("it is there")
                .expect("it is open");
        }
    }

    /// Queues a change of each object.
    #[divan::bench]
    fn push(bencher: Bencher) {
        LazyLock::force(&PODS_AFTER);
        bencher
            .with_inputs(DeltaFifo::<Pod>::new)
            .bench_local_refs(|fifo| {
                (0..PODS).for_each(|n| fifo.update(PODS_AFTER[scattered(n)].clone()));
            });
    }

    /// Queues a second change of each object.
    #[divan::bench]
    fn push_again(bencher: Bencher) {
        LazyLock::force(&PODS_AFTER);
        bencher
            .with_inputs(|| {
                let fifo = DeltaFifo::<Pod>::new();
                PODS_BEFORE.iter().for_each(|pod| fifo.update(pod.clone()));
                fifo
            })
            .bench_local_refs(|fifo| {
                (0..PODS).for_each(|n| fifo.update(PODS_AFTER[scattered(n)].clone()));
            });
    }

    /// Pops all objects without processing them.
    #[divan::bench]
    fn pop(bencher: Bencher) {
        LazyLock::force(&PODS_BEFORE);
        bencher
            .with_inputs(|| {
                let fifo = DeltaFifo::<Pod>::new();
                fifo.replace(PODS_BEFORE.clone());
                fifo
            })
            .bench_local_refs(|fifo| {
                while !fifo.is_empty() {
                    let popped = fifo.pop(|deltas, _| Ok(deltas.len()));
                    popped
                        .now_or_never()
                        .expect("it is there")
                        .expect("it is open");
                }
            });
    }

    /// Queues each change, pops it and applies it to the store.
    #[divan::bench(args = [0, 2])]
    fn through(bencher: Bencher, indexes: usize) {
        LazyLock::force(&PODS_AFTER);
        let store = Arc::new(ours(indexes));
        let fifo = DeltaFifo::new().with_known_objects(store.clone());
        bencher.bench_local(|| {
            for n in 0..PODS {
                fifo.update(PODS_AFTER[scattered(n)].clone());
                pop_into(&fifo, &store);
            }
        });
    }

    /// Queues a list of all objects, all of which are in the store: the time for which a relist blocks the reflector.
    #[divan::bench]
    fn relist(bencher: Bencher) {
        let store = Arc::new(ours(0));
        LazyLock::force(&PODS_AFTER);
        bencher
            .with_inputs(|| {
                let fifo = DeltaFifo::new().with_known_objects(store.clone());
                (fifo, PODS_AFTER.clone())
            })
            .bench_local_values(|(fifo, pods)| {
                fifo.replace(pods);
                fifo
            });
    }
}
