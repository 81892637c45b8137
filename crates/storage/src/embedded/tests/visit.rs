//! Tests of visits: they pass what a list returns, each value once.

use super::*;
use crate::{ListVisitor, VisitedValue};

/// A visited value: its key, its value and its revision.
type Visited = (String, Vec<u8>, ResourceVersion);

/// Collects the values of a visit by the index of their part.
#[derive(Default)]
struct Collector(Mutex<Vec<(usize, Vec<Visited>)>>);

impl ListVisitor for Collector {
    fn visit(&self, index: usize, values: &[VisitedValue<'_>]) {
        let visited = values.iter().map(|value| {
            let key = value.key.as_str().to_owned();
            (key, value.value.to_vec(), value.mod_revision)
        });
        self.0.lock().push((index, visited.collect()));
    }
}

impl Collector {
    fn values(&self) -> Vec<Visited> {
        let mut parts = std::mem::take(&mut *self.0.lock());
        parts.sort();
        let indexes: Vec<_> = parts.iter().map(|(index, _)| *index).collect();
        assert_eq!(indexes, (0..parts.len()).collect::<Vec<_>>());
        parts.into_iter().flat_map(|(_, values)| values).collect()
    }
}

async fn assert_visit_equals_list(store: &Embedded, prefix: &str) -> usize {
    let prefix = StorageKey::new(prefix).unwrap();
    let collector = Arc::new(Collector::default());
    let visited = store.visit(&prefix, collector.clone()).await;
    let request = ListRequest {
        prefix,
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    let listed = store.list(request).await.unwrap();
    assert_eq!(visited.unwrap().unwrap(), listed.revision);
    let listed = listed.items.into_iter();
    let listed = listed.map(|item| {
        (
            item.key.as_str().to_owned(),
            item.value.to_vec(),
            item.mod_revision,
        )
    });
    let listed: Vec<_> = listed.collect();
    assert_eq!(collector.values(), listed);
    listed.len()
}

async fn write(store: &Embedded, number: usize, round: usize) {
    for resource in ["pods", "podsecrets", "nodes"] {
        let key = StorageKey::new(&format!("/{resource}/ns/{number:04}")).unwrap();
        let (found, _) = store.get(&key).await.unwrap();
        let at = found.map(|found| found.mod_revision);
        let put = Put {
            value: format!("{resource} {number} {round}").into(),
            expect: at.map_or(Expect::Absent, Expect::At),
            ttl: None,
            key: key.clone(),
        };
        match (number + round) % 7 {
            0 if at.is_some() => drop(store.delete(&key, at.unwrap()).await.unwrap()),
            _ => drop(store.put(put).await.unwrap()),
        }
    }
}

/// The keys are in the tables, in the frozen layer and in the active one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_equals_a_list() {
    let directory = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig {
        durability: Durability::Fsync,
        compaction_interval: Duration::ZERO,
        retention: None,
    };
    let store = Embedded::open(directory.path(), config).unwrap();
    assert_eq!(assert_visit_equals_list(&store, "/pods/").await, 0);
    for (round, step) in [1, 3, 5].into_iter().enumerate() {
        for number in (0..300).step_by(step) {
            write(&store, number, round).await;
        }
        if round == 0 {
            store.execute(Op::Flush).await.unwrap();
        }
        let visited = assert_visit_equals_list(&store, "/pods/").await;
        assert!(visited > 200, "{visited}");
        assert_visit_equals_list(&store, "/pods/ns/").await;
        assert_visit_equals_list(&store, "/none/").await;
    }
    drop(store);
    let store = Embedded::open(directory.path(), config).unwrap();
    assert_visit_equals_list(&store, "/podsecrets/").await;
}

/// A number of keys that fills the last part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_parts_are_visited() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    for number in 1..=130 {
        let put = Put {
            key: StorageKey::new(&format!("/pods/ns/{number:04}")).unwrap(),
            value: "{}".into(),
            expect: Expect::Absent,
            ttl: None,
        };
        store.put(put).await.unwrap();
        assert_eq!(assert_visit_equals_list(&store, "/pods/").await, number);
    }
}

/// Makes a store with the keys of many parts.
async fn filled() -> Arc<Embedded> {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    for number in 0..1000 {
        write(&store, number, 1).await;
    }
    Arc::new(store)
}

/// Calls a function for each part.
struct Each<F>(F);

impl<F: Fn(usize) + Send + Sync> ListVisitor for Each<F> {
    fn visit(&self, index: usize, _: &[VisitedValue<'_>]) {
        (self.0)(index);
    }
}

async fn visit_each(
    store: &Embedded,
    visit: impl Fn(usize) + Send + Sync + 'static,
) -> Result<ResourceVersion, StorageError> {
    let visited = store.visit(&key("/pods/"), Arc::new(Each(visit))).await;
    visited.unwrap()
}

/// A file that is closed does not wait for the end of a visit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_ends_when_the_file_is_closed() {
    let store = filled().await;
    let visited = Arc::new(AtomicU64::new(0));
    let (count, data) = (visited.clone(), store.data.clone());
    let closed = Mutex::new(None);
    let result = visit_each(&store, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let data = data.clone();
        closed
            .lock()
            .get_or_insert_with(|| std::thread::spawn(move || data.close()));
        // The thread that closes the file may wait for a processor: 25 parts give it several seconds.
        std::thread::sleep(Duration::from_millis(500));
    });
    let error = result.await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
    assert!(visited.load(Ordering::SeqCst) < 25, "{visited:?}");
}

/// A panic of the visitor is no damage of the file, and ends the visit on all threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_visitor_is_no_damage() {
    let store = filled().await;
    for bad in [0, 1, 20] {
        let result = visit_each(&store, move |index| assert_ne!(index, bad, "no such kind"));
        let error = result.await.unwrap_err();
        assert!(
            matches!(&error, StorageError::Failed(text) if text.contains("no such kind")),
            "{error:?}"
        );
    }
    assert!(assert_visit_equals_list(&store, "/pods/").await > 800);
}

/// Concurrent visits have one helper thread fewer than processors, together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_visits_share_the_processors() {
    let store = filled().await;
    let (running, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let visits = (0..4).map(|_| {
        let (running, most) = (running.clone(), most.clone());
        visit_each(&store, move |_| {
            most.fetch_max(1 + running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            running.fetch_sub(1, Ordering::SeqCst);
        })
    });
    for visited in futures_util::future::join_all(visits).await {
        visited.unwrap();
    }
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    let most = most.load(Ordering::SeqCst);
    assert!(most < 4 + processors, "{most}");
    assert!(most >= 4.min(processors), "{most}");
    assert!(assert_visit_equals_list(&store, "/pods/").await > 800);
}
