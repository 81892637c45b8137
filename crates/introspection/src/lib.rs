//! The open watches and the watch caches of a server as resources of the group `watchet.dev`: `watchers` and
//! `watchcaches`. Like any resource they can be read, selected, watched and shown as Tables. Clients cannot write them,
//! except that deleting a watcher ends its watch.
//!
//! Their objects are in a storage in memory, `LiveStorage`. It compares them with the server
//! before each consistent read, and once per second while a client watches them, and writes what has changed. Without
//! readers it costs nothing.

mod caches;
mod clock;
mod resource;
mod storage;
mod watchers;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use resource::{GROUP, VERSION};
use storage::LiveStorage;
use watchet_registry::{Registry, Resource};

/// The interval at which watched objects are compared with the server.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a comparison as a multiple of its duration, so that it uses at most a tenth of a core.
const PAUSE_FACTOR: u32 = 9;

/// The resources of the group and their storages.
#[derive(Debug)]
pub struct Introspection {
    resources: Vec<(Arc<Resource>, Arc<LiveStorage>)>,
}

impl Introspection {
    /// Creates the resources. They have no objects before [`Self::start`].
    #[expect(
        clippy::new_without_default,
        reason = "it is not a value with a neutral content"
    )]
    pub fn new() -> Self {
        let all = [watchers::resource(), caches::resource()];
        Self {
            resources: all.into(),
        }
    }

    /// Returns the resources, for the table of the registry.
    pub fn resources(&self) -> impl Iterator<Item = Arc<Resource>> + '_ {
        self.resources
            .iter()
            .map(|(resource, _)| Arc::clone(resource))
    }

    /// Starts to show the watches and caches of `registry`. Spawns tasks of the registry that refresh watched objects.
    pub fn start(self, registry: &Arc<Registry>) {
        for (resource, storage) in self.resources {
            storage.show(registry);
            let tasks = registry.tasks();
            let stop = tasks.token();
            let refreshed = refresh_while_watched(Arc::downgrade(registry), resource, storage);
            tasks.spawn("introspection", async move {
                stop.run_until_cancelled(refreshed).await;
            });
        }
    }
}

/// Writes what has changed, once per second while `resource` is watched, until the registry is dropped.
async fn refresh_while_watched(
    registry: std::sync::Weak<Registry>,
    resource: Arc<Resource>,
    storage: Arc<LiveStorage>,
) {
    let mut pause = REFRESH_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        pause = REFRESH_INTERVAL;
        let Some(registry) = registry.upgrade() else {
            return;
        };
        let size = registry.cache_size(&resource);
        if size.is_none_or(|size| size.watchers == 0) {
            continue;
        }
        drop(registry);
        let started = Instant::now();
        if let Err(error) = storage.refresh().await {
            tracing::warn!(resource = resource.qualified(), %error, "cannot refresh objects");
        }
        pause = pause.max(started.elapsed() * PAUSE_FACTOR);
    }
}
