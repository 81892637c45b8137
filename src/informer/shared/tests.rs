//! The rules of the shared informer, against a source that fails when it is told to, under paused time.

pub(in crate::informer) mod collection;
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

use crate::informer::{Deleted, HandlerRegistration, ResourceEventHandler, SharedInformer};
use crate::tasks::Tasks;
use collection::{Collection, name_of, version_of};

/// Longer than the Reflector ever waits before it tries again.
const A_WHILE: Duration = Duration::from_secs(100);

/// An informer of a collection.
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

    /// Adds a handler that writes down what it hears.
    fn listen(&self) -> (Heard, HandlerRegistration) {
        let heard = Heard::default();
        let registration = self.informer.add_event_handler(heard.clone());
        (heard, registration.unwrap())
    }

    /// Whether the copy is what there is.
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

/// Until nothing more happens, unless time passes.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// A handler that writes down what it hears. Clones write into the same book.
#[derive(Clone, Default)]
struct Heard {
    book: Arc<Mutex<Vec<String>>>,
    /// How long each call takes.
    pause: Duration,
}

impl Heard {
    /// What was written since this was asked last.
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

fn told(map: &ConfigMap) -> String {
    format!("{}@{}", name_of(map), version_of(map))
}

impl ResourceEventHandler<ConfigMap> for Heard {
    async fn on_add(&mut self, map: Arc<ConfigMap>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " initially" } else { "" };
        self.write(format!("add {}{initial}", told(&map))).await;
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        let (old, new) = (told(&old), told(&new));
        self.write(format!("update {old} {new}")).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        let what = match &deleted {
            Deleted::Observed(_) => "delete",
            Deleted::Unknown(_) => "bury",
        };
        self.write(format!("{what} {}", told(deleted.object())))
            .await;
    }
}
