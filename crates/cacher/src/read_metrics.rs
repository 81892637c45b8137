//! Metrics of a Cacher: gauges read at scrape time, and results of reads.

use super::page::Page;
use super::{Cacher, ReadError};
use watchet_metrics::{CacheState, CacheStats};

impl CacheState for Cacher {
    fn stats(&self) -> Option<CacheStats> {
        let snapshot = self.published.snapshot.load_full()?;
        Some(CacheStats {
            resource_version: snapshot.at.get(),
            objects: snapshot.objects().len(),
            objects_bytes: snapshot.objects_bytes(),
            history_events: snapshot.history_len(),
            live_watchers: self.dispatcher.members(),
            consistency_checks: self.consistency_checks(),
        })
    }
}

impl Cacher {
    /// Counts the result of a consistent read that fell back to storage.
    pub(super) fn count_fallback<T>(&self, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        if self.storage.progress_supported() {
            let metrics = &self.resource.metrics;
            metrics.read_consistently(answer.is_ok(), true);
        }
        answer
    }

    /// Returns true if the cache can answer a consistent read, and counts it then.
    pub(super) async fn can_answer_latest(&self) -> Result<bool, ReadError> {
        let fresh = self.consistent().await?;
        if fresh {
            self.resource.metrics.read_consistently(true, false);
        }
        Ok(fresh)
    }

    /// Counts a list answered by the cache, with the index that it used.
    pub(super) fn count_list(&self, page: &Page, index: Option<usize>) {
        let metrics = &self.resource.metrics;
        metrics.count_cache_list(page.cost(), index);
    }
}
