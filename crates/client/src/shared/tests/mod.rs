//! Tests of the shared informer with a simulated source, in paused time.

pub(crate) mod collection;
mod handlers;
mod life;
mod resync;
mod simulation;
mod slow;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::{Deleted, HandlerRegistration, ResourceEventHandler, SharedInformer};
use collection::{Collection, name_of, version_of};
use watchet_tasks::Tasks;

/// Longer than any backoff of the Reflector.
const A_WHILE: Duration = Duration::from_secs(100);

/// An informer of a simulated collection.
struct Host {
    collection: Collection,
    informer: SharedInformer<ConfigMap>,
    tasks: Tasks,
}

impl Host {
    fn new(names: &[&str]) -> Self {
        let collection = Collection::new(names);
        let source = collection.clone();
        Self {
            informer: SharedInformer::new("configmaps", source, Duration::ZERO),
            collection,
            tasks: Tasks::new(),
        }
    }

    fn start(&self) {
        self.informer.start(&self.tasks).unwrap();
    }

    /// Adds a handler that logs its notifications.
    fn listen(&self) -> (Log, HandlerRegistration) {
        let heard = Log::default();
        let registration = self.informer.add_event_handler(heard.clone());
        (heard, registration.unwrap())
    }

    /// Returns true if the indexer equals the collection.
    fn is_equal(&self) -> bool {
        let copy = self.informer.indexer().list();
        let versions = copy
            .iter()
            .map(|map| (name_of(map).to_owned(), version_of(map)));
        versions.collect::<std::collections::BTreeMap<_, _>>() == self.collection.versions()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// Runs all tasks until they are idle; time does not pass.
async fn run_until_idle() {
    sleep(Duration::from_millis(1)).await;
}

/// A handler that logs its notifications. Clones share the log.
#[derive(Clone, Default)]
struct Log {
    book: Arc<Mutex<Vec<String>>>,
    /// How long each call takes.
    pause: Duration,
}

impl Log {
    /// Returns the log entries since the previous call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.book.lock())
    }

    async fn write(&self, line: String) {
        self.book.lock().push(line);
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
    }
}

fn name_and_version(map: &ConfigMap) -> String {
    format!("{}@{}", name_of(map), version_of(map))
}

impl ResourceEventHandler<ConfigMap> for Log {
    async fn on_add(&mut self, map: Arc<ConfigMap>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " initially" } else { "" };
        self.write(format!("add {}{initial}", name_and_version(&map)))
            .await;
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        let (old, new) = (name_and_version(&old), name_and_version(&new));
        self.write(format!("update {old} {new}")).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        let what = match &deleted {
            Deleted::Observed(_) => "delete",
            Deleted::Unknown(_) => "tombstone",
        };
        self.write(format!("{what} {}", name_and_version(deleted.object())))
            .await;
    }
}
