//! `Tally`: a handler that folds what it is told and is strict about what may come next. It knows no
//! server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use watchet::client::{Deleted, KubeObject, ResourceEventHandler, key_of};

/// What a handler was told so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Versions by name.
    pub(super) view: BTreeMap<String, String>,
    pub(super) initial: usize,
    pub(super) adds: usize,
    pub(super) updates: usize,
    /// Updates that changed nothing.
    pub(super) resyncs: usize,
    /// Names, as they came.
    pub(super) deleted: Vec<String>,
    /// The same of those whose end was not seen.
    pub(super) buried: Vec<String>,
    /// What should not have been told.
    pub(super) wrong: Vec<String>,
}

/// A handler. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    told: Arc<Mutex<Told>>,
    /// How long each call takes.
    pub(super) pause: Duration,
}

impl Tally {
    pub(super) fn slow(pause: Duration) -> Self {
        Self {
            pause,
            ..Self::default()
        }
    }

    /// Looks at what it was told.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Told) -> R) -> R {
        look(&self.told.lock())
    }

    /// What there is, as far as it was told.
    pub(super) fn view(&self) -> BTreeMap<String, String> {
        let told = self.told.lock();
        assert!(told.wrong.is_empty(), "{:?}", told.wrong);
        told.view.clone()
    }

    async fn write(&self, write: impl FnOnce(&mut Told)) {
        write(&mut self.told.lock());
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
        self.write(|told| {
            let (name, version) = name_and_version(&*object);
            told.adds += 1;
            told.initial += usize::from(is_in_initial_list);
            if let Some(known) = told.view.insert(name.clone(), version.clone()) {
                told.wrong
                    .push(format!("add {name}@{version}, known at {known}"));
            }
        })
        .await;
    }

    async fn on_update(&mut self, old: Arc<T>, new: Arc<T>) {
        self.write(|told| {
            let (_, before) = name_and_version(&*old);
            let (name, version) = name_and_version(&*new);
            told.updates += 1;
            told.resyncs += usize::from(before == version);
            let number = |version: &str| version.parse::<u64>().unwrap_or_default();
            let known = told.view.insert(name.clone(), version.clone());
            if known.as_ref() != Some(&before) || number(&version) < number(&before) {
                let line = format!("update {name}@{before} to {version}, known at {known:?}");
                told.wrong.push(line);
            }
        })
        .await;
    }

    async fn on_delete(&mut self, deleted: Deleted<T>) {
        self.write(|told| {
            let (name, version) = name_and_version(&**deleted.object());
            if told.view.remove(&name).is_none() {
                told.wrong
                    .push(format!("delete {name}@{version}, not known"));
            }
            match deleted {
                Deleted::Observed(_) => told.deleted.push(name),
                Deleted::Unknown(_) => told.buried.push(name),
            }
        })
        .await;
    }
}
