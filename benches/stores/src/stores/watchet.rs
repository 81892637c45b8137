//! The embedded store of watchet, with its default configuration, as the server uses it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_storage::embedded::{Embedded, EmbeddedConfig};
use watchet_storage::{Expect, ListRequest, Outcome, Put, Storage as _};

use crate::record::PREFIX;

pub(crate) struct Watchet(Arc<Embedded>);

impl Watchet {
    /// Opens the store in a directory; creates it if it does not exist.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        Ok(Self(Embedded::open(directory, EmbeddedConfig::default())?))
    }

    /// Makes checkpoints in the background, forever.
    pub(crate) async fn maintain(self) {
        self.0.maintain(CancellationToken::new()).await;
    }

    /// Returns another handle of the same store.
    pub(crate) fn handle(&self) -> Self {
        Self(self.0.clone())
    }

    pub(crate) async fn put(&self, key: &str, value: Bytes, expected: Option<u64>) -> Result<u64> {
        let put = Put {
            key: StorageKey::new(key)?,
            value,
            expect: expected.map_or(Expect::Absent, |revision| {
                Expect::At(ResourceVersion::new(revision))
            }),
            ttl: None,
        };
        match self.0.put(put).await? {
            Outcome::Done(revision) => Ok(revision.get()),
            Outcome::Refused(found) => bail!("{key} is {found:?}, not at {expected:?}"),
        }
    }

    pub(crate) async fn compact(&self) -> Result<()> {
        let revision = self.0.current_revision().await?;
        Ok(self.0.compact(revision).await?)
    }

    /// Calls `visit` with each key and value.
    pub(crate) async fn each(
        &self,
        visit: &mut dyn FnMut(&str, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let request = ListRequest {
            prefix: StorageKey::new(PREFIX)?,
            start: String::new(),
            at: None,
            limit: 0,
            count: false,
        };
        for item in self.0.list(request).await?.items {
            visit(item.key.as_str(), &item.value)?;
        }
        Ok(())
    }
}
