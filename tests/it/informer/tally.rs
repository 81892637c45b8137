//! `Tally`: a handler that applies its notifications to a map and checks that each is possible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use watchet::client::{Deleted, KubeObject, ResourceEventHandler, key_of};

/// The notifications of a handler so far.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Versions by name.
    pub(super) view: BTreeMap<String, String>,
    pub(super) initial: usize,
    pub(super) adds: usize,
    pub(super) updates: usize,
    /// The number of updates that changed nothing.
    pub(super) resyncs: usize,
    /// The names of deleted objects, in order.
    pub(super) deleted: Vec<String>,
    /// The names of objects whose final state is unknown, in order.
    pub(super) deleted_unseen: Vec<String>,
    /// The impossible notifications.
    pub(super) wrong: Vec<String>,
}

/// A handler. Its clones share the results.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    received: Arc<Mutex<Received>>,
    /// The duration of each call.
    pub(super) pause: Duration,
}

impl Tally {
    pub(super) fn slow(pause: Duration) -> Self {
        Self {
            pause,
            ..Self::default()
        }
    }

    /// Reads the notifications.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Received) -> R) -> R {
        look(&self.received.lock())
    }

    /// Returns the objects that follow from the notifications.
    pub(super) fn view(&self) -> BTreeMap<String, String> {
        let received = self.received.lock();
        assert!(received.wrong.is_empty(), "{:?}", received.wrong);
        received.view.clone()
    }

    async fn write(&self, write: impl FnOnce(&mut Received)) {
        write(&mut self.received.lock());
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
    }
}

fn name_and_version<T: KubeObject>(object: &T) -> (String, String) {
    let version = object.metadata().resource_version.clone();
    (
        key_of(object).name().to_owned(),
        version.unwrap_or_default(),
    )
}

impl<T: KubeObject> ResourceEventHandler<T> for Tally {
    async fn on_add(&mut self, object: Arc<T>, is_in_initial_list: bool) {
        self.write(|received| {
            let (name, version) = name_and_version(&*object);
            received.adds += 1;
            received.initial += usize::from(is_in_initial_list);
            if let Some(known) = received.view.insert(name.clone(), version.clone()) {
                received
                    .wrong
                    .push(format!("add {name}@{version}, known at {known}"));
            }
        })
        .await;
    }

    async fn on_update(&mut self, old: Arc<T>, new: Arc<T>) {
        self.write(|received| {
            let (_, before) = name_and_version(&*old);
            let (name, version) = name_and_version(&*new);
            received.updates += 1;
            received.resyncs += usize::from(before == version);
            let number = |version: &str| version.parse::<u64>().unwrap_or_default();
            let known = received.view.insert(name.clone(), version.clone());
            if known.as_ref() != Some(&before) || number(&version) < number(&before) {
                let line = format!("update {name}@{before} to {version}, known at {known:?}");
                received.wrong.push(line);
            }
        })
        .await;
    }

    async fn on_delete(&mut self, deleted: Deleted<T>) {
        self.write(|received| {
            let (name, version) = name_and_version(&**deleted.object());
            if received.view.remove(&name).is_none() {
                received
                    .wrong
                    .push(format!("delete {name}@{version}, not known"));
            }
            match deleted {
                Deleted::Observed(_) => received.deleted.push(name),
                Deleted::Unknown(_) => received.deleted_unseen.push(name),
            }
        })
        .await;
    }
}
