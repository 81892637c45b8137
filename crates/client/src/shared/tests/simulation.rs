//! A seeded simulation: a source with interruptions, failures and compaction, bursts, and handlers
//! of varying speed that are added and removed. Each handler checks its notifications, and in the
//! end all states are equal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::collection::{Collection, name_of, version_of};
use crate::shared::pending::EXACT_MAX;
use crate::{Deleted, HandlerRegistration, ResourceEventHandler, SharedInformer};
use watchet_reflector::Backoff;
use watchet_tasks::Tasks;

const STEPS: usize = 400;
const KEYS: usize = 30;
/// The maximum duration of a call.
const PAUSE_MS_MAX: u64 = 2000;

/// The state of a handler.
struct View {
    started: Instant,
    objects: BTreeMap<String, u64>,
    /// The newest version received, by name.
    newest: BTreeMap<String, u64>,
    /// The received notifications with their time.
    log: String,
}

impl View {
    fn receive(&mut self, what: &str, map: &ConfigMap) -> (String, u64) {
        let (name, version) = (name_of(map).to_owned(), version_of(map));
        let newest = self.newest.entry(name.clone()).or_default();
        assert!(*newest <= version, "{what} {name}@{version} after {newest}");
        *newest = version;
        let elapsed = self.started.elapsed();
        writeln!(self.log, "{elapsed:?} {what} {name}@{version}").unwrap();
        (name, version)
    }
}

/// A handler with random delays.
struct Strict {
    view: Arc<Mutex<View>>,
    random: Rng,
    pause_ms_max: u64,
}

impl Strict {
    async fn pause(&mut self) {
        if self.pause_ms_max > 0 {
            sleep(Duration::from_millis(self.random.u64(..=self.pause_ms_max))).await;
        }
    }
}

impl ResourceEventHandler<ConfigMap> for Strict {
    async fn on_add(&mut self, map: Arc<ConfigMap>, _: bool) {
        {
            let mut view = self.view.lock();
            let (name, version) = view.receive("add", &map);
            assert_eq!(view.objects.insert(name, version), None);
        }
        self.pause().await;
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        {
            let mut view = self.view.lock();
            let (name, version) = view.receive("update", &new);
            assert_eq!(view.objects.insert(name, version), Some(version_of(&old)));
        }
        self.pause().await;
    }

    async fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        {
            let mut view = self.view.lock();
            let (name, _) = view.receive("delete", deleted.object());
            assert!(view.objects.remove(&name).is_some());
        }
        self.pause().await;
    }
}

struct Simulation {
    started: Instant,
    random: Rng,
    collection: Collection,
    informer: SharedInformer<ConfigMap>,
    handlers: Vec<(Arc<Mutex<View>>, HandlerRegistration)>,
    log: String,
    bursts: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let collection = Collection::new(&[]);
        let backoff = Backoff::default().seeded(seed);
        let (source, never) = (collection.clone(), Duration::ZERO);
        Self {
            started: Instant::now(),
            random: Rng::with_seed(seed),
            informer: SharedInformer::with_backoff("configmaps", source, never, backoff),
            collection,
            handlers: Vec::new(),
            log: String::new(),
            bursts: 0,
        }
    }

    fn change(random: &mut Rng, collection: &Collection) {
        let name = format!("k{}", random.usize(..KEYS));
        match random.u8(..3) {
            0 => collection.delete(&name),
            _ => collection.put(&name),
        }
    }

    fn changes(&mut self, count: usize) {
        for _ in 0..count {
            Self::change(&mut self.random, &self.collection);
        }
    }

    fn add_handler(&mut self) {
        let view = Arc::new(Mutex::new(View {
            started: self.started,
            objects: BTreeMap::new(),
            newest: BTreeMap::new(),
            log: String::new(),
        }));
        let pause_ms_max = *self.random.choice(&[0, 0, 1, 100, PAUSE_MS_MAX]).unwrap();
        let handler = Strict {
            view: view.clone(),
            random: self.random.fork(),
            pause_ms_max,
        };
        let resync = Duration::from_secs(*self.random.choice(&[0, 0, 30, 300]).unwrap());
        let added = self
            .informer
            .add_event_handler_with_resync_period(handler, resync);
        self.handlers.push((view, added.unwrap()));
    }

    async fn step(&mut self) {
        match self.random.u8(..20) {
            0 => self.collection.cut(),
            1 => {
                let (random, count) = (&mut self.random, 10);
                self.collection.lose(|meanwhile| {
                    (0..count).for_each(|_| Self::change(random, meanwhile));
                });
            }
            2 => self.collection.fail(self.random.usize(..4)),
            3 => self.collection.batch_max(self.random.usize(..5)),
            4 => {
                self.bursts += 1;
                self.changes(EXACT_MAX * 2);
            }
            5 if self.handlers.len() < 8 => self.add_handler(),
            6 if self.handlers.len() > 2 => {
                let removed = self.random.usize(..self.handlers.len());
                let (view, registration) = self.handlers.swap_remove(removed);
                assert!(self.informer.remove_event_handler(&registration));
                self.log += &view.lock().log;
            }
            7..=9 => sleep(Duration::from_millis(self.random.u64(..30_000))).await,
            10..=14 => sleep(Duration::from_millis(1)).await,
            _ => {
                let count = self.random.usize(..5);
                self.changes(count);
            }
        }
        for (_, registration) in &self.handlers {
            let pending = registration.metrics().pending.get();
            assert!(pending <= (EXACT_MAX + KEYS) as i64, "{pending}");
        }
    }

    /// Runs until everything is idle; returns the log of all handlers.
    async fn run(mut self) -> String {
        let tasks = Tasks::new();
        self.add_handler();
        self.informer.start(&tasks).unwrap();
        for _ in 0..STEPS {
            self.step().await;
        }
        assert!(self.bursts > 0);
        self.collection.fail(0);
        // As long as the slowest handler may need for everything pending.
        sleep(Duration::from_millis(
            PAUSE_MS_MAX * (EXACT_MAX + KEYS) as u64,
        ))
        .await;
        let expected = self.collection.versions();
        let copy = self.informer.indexer().list();
        let copy = copy
            .iter()
            .map(|map| (name_of(map).to_owned(), version_of(map)));
        assert_eq!(copy.collect::<BTreeMap<_, _>>(), expected);
        for (view, registration) in &self.handlers {
            assert_eq!(view.lock().objects, expected);
            assert!(registration.has_synced());
            self.log += &view.lock().log;
        }
        tokio::select! {
            biased;
            failed = tasks.failed() => panic!("{failed}"),
            drained = tasks.drain(Duration::from_secs(30)) => drained.unwrap(),
        }
        self.log
    }
}

fn simulate(seed: u64) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime
        .unwrap()
        .block_on(async { Simulation::new(seed).run().await })
}

#[test]
fn every_handler_reaches_the_current_state() {
    for seed in watchet_test_util::seeds::seeds(12) {
        simulate(seed);
    }
}

#[test]
fn runs_are_deterministic() {
    let [first, second] = [simulate(99), simulate(99)];
    assert!(first.lines().count() > 1000);
    assert_eq!(first, second);
}
