//! A storage that does not respond to some calls, without failing; all others go to the scripted
//! storage inside.

use async_trait::async_trait;

use super::*;
use watchet_storage::*;

#[derive(Debug)]
pub(crate) struct Silent {
    /// Watches from an earlier version than this do not respond.
    pub(crate) watches_before: ResourceVersion,
    /// If true, requests for the current revision do not respond.
    pub(crate) probes: bool,
    pub(crate) storage: Arc<dyn Storage>,
}

impl Silent {
    /// Returns a storage that responds to all calls.
    pub(crate) fn over(storage: Arc<FakeStorage>) -> Self {
        Self {
            watches_before: ResourceVersion::ZERO,
            probes: false,
            storage,
        }
    }
}

#[async_trait]
impl StorageLayer for Silent {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        if after >= self.watches_before {
            return self.storage.watch(prefix, after).await;
        }
        Ok(StorageWatch {
            batches: Box::pin(futures_util::stream::pending()),
            progress: ProgressRequester::default(),
        })
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        match self.probes {
            true => std::future::pending().await,
            false => self.storage.current_revision().await,
        }
    }
}
