//! The writer's use of the disk: what it rejects when the disk is nearly full, and when it makes the data
//! file smaller.

use std::sync::atomic::Ordering;

use super::super::error::{Fault, catch_damage};
use super::super::space::{AllowedWrites, Space};
use super::WriterThread;

/// As [`SHRINK_LIVE_MAX`], when the store is opened or closed.
pub(in super::super) const SHRINK_LIVE_MAX_AT_END: u64 = 256 << 20;
/// The maximum size of the content of a data file that is made smaller while reads wait.
pub(in super::super) const SHRINK_LIVE_MAX: u64 = 32 << 20;
/// The maximum size of a data file that is made smaller while reads wait, on a full disk.
const RECLAIM_BYTES_MAX: u64 = 1 << 30;
impl WriterThread {
    /// Publishes whether the disk is almost full, and whether nothing is written to the tables.
    pub(super) fn report_space(&self) {
        let is_no_space = self.space.as_ref().is_some_and(Space::is_no_space);
        self.status
            .is_no_space
            .store(is_no_space, Ordering::Relaxed);
        self.can_checkpoint();
    }

    /// Returns true if the disk has the space for a checkpoint of all changes, and publishes it.
    pub(super) fn can_checkpoint(&self) -> bool {
        let pending = self.data.pending_bytes();
        let space = self.space.as_ref();
        let can = space.is_none_or(|space| space.can_checkpoint(pending));
        self.status.is_blocked.store(!can, Ordering::Relaxed);
        can
    }

    /// Returns what may be written, with `bytes` of new values. Before it raises the no-space alarm it writes all
    /// changes to the data file, since those that only the log has need space there.
    pub(super) fn check_space(&mut self, bytes: usize) -> Result<AllowedWrites, Fault> {
        let Some(space) = &self.space else {
            return Ok(AllowedWrites::All);
        };
        let pending = self.data.pending_bytes();
        if !space.is_no_space() && space.is_scarce(pending + bytes) {
            if pending > 0 {
                self.checkpoint_all(self.ceiling())?;
            }
            if let Some(space) = &mut self.space
                && space.is_scarce(bytes)
            {
                space.raise_no_space();
                self.report_space();
            }
        }
        Ok(self
            .space
            .as_ref()
            .map_or(AllowedWrites::All, Space::allowed_writes))
    }

    /// While the no-space alarm is raised: makes the data file smaller if compacted history
    /// was deleted since the last time, and accepts all writes again if there is enough space.
    pub(super) fn reclaim(&mut self) -> Result<(), Fault> {
        if !self.space.as_ref().is_some_and(Space::is_no_space) {
            return Ok(());
        }
        self.report_space();
        let collected = self.data.collected();
        let is_due = self.can_checkpoint()
            && !self.data.is_collecting()
            && self.reclaimed_at != Some(collected);
        if is_due && self.data.file_len()? <= RECLAIM_BYTES_MAX {
            self.reclaimed_at = Some(collected);
            self.checkpoint_all(self.ceiling())?;
            self.data.compact_file()?;
        }
        if self.space.as_mut().is_some_and(Space::clear_no_space) {
            self.reclaimed_at = None;
            self.report_space();
        }
        Ok(())
    }

    /// Makes the data file smaller if most of it is unused and its content is small.
    pub(super) fn shrink(&mut self) -> Result<(), Fault> {
        if !self.data.is_sparse(SHRINK_LIVE_MAX)? || !self.can_checkpoint() {
            return Ok(());
        }
        self.checkpoint_all(self.ceiling())?;
        self.data.shrink()
    }

    /// Makes the data file smaller before it is closed, if that takes at most some seconds.
    pub(super) fn shrink_at_end(&mut self) {
        let is_ready = self.status.failed().is_none() && !self.data.has_changes();
        if !is_ready || !self.can_checkpoint() {
            return;
        }
        let shrunk = catch_damage(|| match self.data.is_sparse(SHRINK_LIVE_MAX_AT_END)? {
            true => self.data.shrink(),
            false => Ok(()),
        });
        if let Err(fault) = shrunk {
            let error = fault.name_file(self.data.name());
            tracing::warn!(%error, "cannot make the data file of the store smaller");
        }
    }
}
