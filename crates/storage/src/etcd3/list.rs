//! Lists of several pages at one revision. The page size adapts to the size of values, so that no
//! response exceeds the limit.

use std::time::Duration;

use etcd_client::proto::PbKeyValue;
use etcd_client::{GetOptions, GetResponse};

use super::Etcd3;
use super::cluster::RetryPolicy;
use super::failure::Failure;
use super::keys::{raw_revision, revision};
use super::member::Member;
use super::watch_pool::RESPONSE_BYTES_MAX;
use crate::{ListPage, ListRequest, StorageError};
use watchet_api::ResourceVersion;

/// Maximum number of keys per page.
const PAGE_KEYS_MAX: usize = 10_000;

/// The number of keys of the first page, when the size of values is unknown.
const PAGE_KEYS_FIRST: usize = 500;

/// Target size of a page: large enough that round trips do not dominate, and far below the limit
/// because values differ in size.
const PAGE_BYTES: usize = 8 << 20;

/// Timeout of one page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

const _: () = assert!(PAGE_BYTES * 4 <= RESPONSE_BYTES_MAX);

/// The number of keys of the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageSize(usize);

impl PageSize {
    /// Returns the size after a page of `keys` keys with `bytes` bytes.
    fn after(keys: usize, bytes: usize) -> Self {
        let each = (bytes / keys.max(1)).max(1);
        Self((PAGE_BYTES / each).clamp(1, PAGE_KEYS_MAX))
    }

    /// Returns the size after a response of `bytes` bytes (if known) for `keys` keys exceeded the
    /// limit; `None` if a single key does.
    fn shrunk(keys: usize, bytes: Option<usize>) -> Option<Self> {
        if keys <= 1 {
            return None;
        }
        let by_size = bytes.map_or(keys / 2, |bytes| Self::after(keys, bytes).0);
        Some(Self(by_size.min(keys / 2).max(1)))
    }
}

impl Etcd3 {
    pub(super) async fn list_pages(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let identity = self.cluster.identity();
        let is_linearizable = request.at.is_none_or(ResourceVersion::is_zero);
        loop {
            self.wait_until_advanced().await?;
            let start = identity.read_start();
            let page = self.list_range(&request).await?;
            if !is_linearizable || !identity.record_read(start, page.revision) {
                return Ok(page);
            }
        }
    }

    async fn list_range(&self, request: &ListRequest) -> Result<ListPage, StorageError> {
        let range = self.layout.range(&request.prefix, &request.start);
        let mut items = Vec::new();
        let (revision, remaining) = self
            .read_range(range, request.at, request.limit, |kv| {
                items.push(self.layout.key_value(kv)?);
                Ok(())
            })
            .await?;
        Ok(ListPage {
            items,
            revision,
            more: remaining > 0,
            remaining: request.count.then_some(remaining),
        })
    }

    /// Passes at most `limit` keys of the range (its first key and its exclusive end) to `each`; 0 is no
    /// limit. Returns their revision, which is `at` if that is set, and the number of keys after them.
    pub(super) async fn read_range(
        &self,
        (mut begin, end): (Vec<u8>, Vec<u8>),
        at: Option<ResourceVersion>,
        limit: usize,
        mut each: impl FnMut(PbKeyValue) -> Result<(), StorageError>,
    ) -> Result<(ResourceVersion, u64), StorageError> {
        let mut pinned = at.filter(|at| !at.is_zero());
        let mut size = PageSize(PAGE_KEYS_FIRST);
        let mut found = 0;
        let mut total = None;
        loop {
            let count = match limit {
                0 => size.0,
                limit => size.0.min(limit - found),
            };
            let page = self.page(begin.clone(), end.clone(), pinned, count).await;
            let mut page = match page {
                Ok(page) => page,
                Err(failure) => {
                    if let Failure::AnswerTooLarge { bytes } = failure
                        && let Some(smaller) = PageSize::shrunk(count, bytes)
                    {
                        size = smaller;
                        continue;
                    }
                    return Err(self
                        .revision_error(failure, pinned.unwrap_or_default())
                        .await);
                }
            };
            // The first page determines the revision of all others.
            let header = page
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision);
            let at = *pinned.get_or_insert(revision(header));
            let total = *total.get_or_insert(u64::try_from(page.count()).unwrap_or(0));
            let more = page.more();
            let kvs = std::mem::take(&mut page.0.kvs);
            if let Some(last) = kvs.last() {
                begin.clone_from(&last.key);
                begin.push(0);
                let bytes = kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
                size = PageSize::after(kvs.len(), bytes);
            }
            let empty = kvs.is_empty();
            found += kvs.len();
            kvs.into_iter().try_for_each(&mut each)?;
            if !more || empty || found == limit {
                return Ok((at, total.saturating_sub(found as u64)));
            }
        }
    }

    async fn page(
        &self,
        begin: Vec<u8>,
        end: Vec<u8>,
        at: Option<ResourceVersion>,
        limit: usize,
    ) -> Result<GetResponse, Failure> {
        let options = GetOptions::new()
            .with_range(end)
            .with_limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .with_revision(at.map_or(0, raw_revision));
        self.cluster
            .call(RetryPolicy::Repeatable, PAGE_TIMEOUT, |member: &Member| {
                let mut kv = member.calls().kv;
                let (begin, options) = (begin.clone(), options.clone());
                async move { Ok(kv.get(begin, Some(options)).await?) }
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_size_follows_value_size() {
        assert_eq!(PageSize::after(500, 500 * 100), PageSize(PAGE_KEYS_MAX));
        assert_eq!(PageSize::after(500, 500 << 13), PageSize(1024));
        assert_eq!(PageSize::after(3, 3 << 30), PageSize(1));
    }

    #[test]
    fn oversized_page_shrinks_to_one_key() {
        let bytes = Some(80 << 20);
        assert_eq!(PageSize::shrunk(1000, bytes), Some(PageSize(100)));
        assert_eq!(PageSize::shrunk(10, None), Some(PageSize(5)));
        assert_eq!(PageSize::shrunk(2, Some(1)), Some(PageSize(1)));
        assert_eq!(PageSize::shrunk(1, None), None);
    }
}
