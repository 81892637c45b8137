//! The times of the store's revisions, and the compaction of history by its age and size.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Embedded;
use super::config::HistoryRetention;
use crate::clock::saturating_ms;
use crate::revision_times::SAMPLE_PERIOD;
use crate::{RevisionSample, Storage as _};
use watchet_api::ResourceVersion;

/// The longest interval of compactions by age and size.
const RETENTION_PERIOD_MAX: Duration = Duration::from_secs(10);

/// The interval of compactions is the retention divided by this, within limits.
const RETENTION_PARTS: u32 = 20;

/// Returns the interval at which history is compacted.
pub(super) fn retention_period(retention: &HistoryRetention) -> Duration {
    (retention.time / RETENTION_PARTS).clamp(SAMPLE_PERIOD, RETENTION_PERIOD_MAX)
}

impl Embedded {
    /// Records the present revision with the time.
    pub(super) async fn sample_revision(&self) {
        let Ok(revision) = self.data.newest() else {
            return;
        };
        let written = self.status.written_bytes.load(Ordering::Relaxed);
        let sample = RevisionSample {
            time_ms: self.clock.now_ms(),
            revision: ResourceVersion::new(revision),
            written_bytes: self.written_before + written,
        };
        if self.times.is_recorded(sample.revision) {
            return;
        }
        if !self.times.has_file() {
            return self.times.record(sample);
        }
        // The disk may not respond.
        let times = self.times.clone();
        let record = move || times.record(sample);
        if let Err(error) = self.tasks.spawn_blocking("times", record).await {
            tracing::error!(%error, "cannot record the time of a revision");
        }
    }

    /// Compacts history that is older or larger than retained.
    pub(super) async fn compact_retained(&self, retention: &HistoryRetention) {
        let since = self
            .clock
            .now_ms()
            .saturating_sub(saturating_ms(retention.time));
        let by_age = self.times.at(since);
        let by_size = self.times.within_bytes(retention.bytes_max);
        let samples = by_age.into_iter().chain(by_size);
        if let Some(sample) = samples.max_by_key(|sample| sample.revision) {
            let before = self.compacted_revision().await;
            if before.is_ok_and(|before| before < sample.revision) {
                self.compact_and_log(sample.revision).await;
            }
        }
    }
}
