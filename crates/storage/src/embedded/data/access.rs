//! Access to the database: readers share it, wait while the data file is made smaller, and fail while
//! it is closed.

use parking_lot::RwLockWriteGuard;

use super::super::error::{Fault, catch_damage};
use super::super::open::OpenDatabase;
use super::super::snapshot::Snapshot;
use super::Data;
use super::availability::ReadState;
use crate::StorageError;

impl Data {
    /// Runs `work` on the database. Blocks while the data file is made smaller, which waits for the
    /// current reads: on a thread of the async runtime, call [`Self::with_async`].
    ///
    /// # Errors
    /// Returns the error of `work`, or fails immediately while the database is closed.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&OpenDatabase) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut work = Some(work);
        loop {
            if let Some(result) = self.try_with(&mut work) {
                return result;
            }
            match self.availability.get() {
                ReadState::Open => std::thread::yield_now(),
                ReadState::Paused => drop(self.db.read()),
                ReadState::Closed => return Err(self.closed()),
            }
        }
    }

    /// As [`Self::with`], but waits without blocking the thread.
    pub(in super::super) async fn with_async<T>(
        &self,
        work: impl FnOnce(&OpenDatabase) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut work = Some(work);
        loop {
            if let Some(result) = self.try_with(&mut work) {
                return result;
            }
            match self.availability.get() {
                ReadState::Open => tokio::task::yield_now().await,
                ReadState::Paused => self.availability.resumed().await,
                ReadState::Closed => return Err(self.closed()),
            }
        }
    }

    /// Runs `work`, and takes it, unless the database is locked.
    fn try_with<T, W: FnOnce(&OpenDatabase) -> Result<T, Fault>>(
        &self,
        work: &mut Option<W>,
    ) -> Option<Result<T, Fault>> {
        let guard = self.db.try_read()?;
        let work = work.take()?;
        Some(match guard.as_ref() {
            Some(db) => work(db).map_err(|fault| db.with_root_cause(fault)),
            None => Err(self.closed()),
        })
    }

    /// Runs `read` on a snapshot of the current state. Blocks as [`Self::with`].
    ///
    /// # Errors
    /// Returns the error of `read`, or [`StorageError::Corrupt`] if the file is damaged.
    pub(in super::super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T, Fault>,
    ) -> Result<T, StorageError> {
        catch_damage(|| self.with_snapshot(|snapshot| read(&snapshot)))
            .map_err(|fault| fault.name_file(&self.name))
    }

    /// As [`Self::read`], but waits without blocking the thread. For reads of a few pages: `read` itself
    /// runs on this thread.
    pub(in super::super) async fn read_async<T>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T, Fault>,
    ) -> Result<T, StorageError> {
        let read =
            self.with_async(|_| catch_damage(|| self.on_snapshot(|snapshot| read(&snapshot))));
        read.await.map_err(|fault| fault.name_file(&self.name))
    }

    /// Runs `work` on a snapshot of the current state, which must not outlive the call. Blocks as
    /// [`Self::with`].
    pub(in super::super) fn with_snapshot<T>(
        &self,
        work: impl FnOnce(Snapshot) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.with(|_| self.on_snapshot(work))
    }

    /// Runs `work` on a snapshot. The caller has locked the database.
    fn on_snapshot<T>(&self, work: impl FnOnce(Snapshot) -> Result<T, Fault>) -> Result<T, Fault> {
        let snapshot = self.state.read().snapshot();
        work(snapshot.ok_or_else(|| self.closed())?)
    }

    /// Returns the last revision, which is the last that a client can have seen. Never waits.
    ///
    /// # Errors
    /// As [`Self::read`], if the store is closed.
    pub(in super::super) fn newest(&self) -> Result<u64, StorageError> {
        match self.availability.get() {
            ReadState::Closed => Err(self.closed().name_file(&self.name)),
            // Nothing is written while the data file is made smaller.
            ReadState::Open | ReadState::Paused => Ok(self.state.read().position.revision),
        }
    }

    /// Locks the database for closing it or for making its file smaller. Waits for current reads; visits,
    /// which may take seconds, end after the part that they read.
    pub(super) fn write_db(&self) -> RwLockWriteGuard<'_, Option<OpenDatabase>> {
        self.visit_limits.stop();
        let db = self.db.write();
        self.visit_limits.resume();
        db
    }

    pub(super) fn closed(&self) -> Fault {
        let detail = format!(
            "{}: the store is closed, or is being opened again after a failure",
            self.name
        );
        Fault::Storage(StorageError::Unavailable(detail))
    }

    /// Returns true while reads wait.
    #[cfg(test)]
    pub(in super::super) fn is_paused(&self) -> bool {
        self.availability.get() == ReadState::Paused
    }
}
