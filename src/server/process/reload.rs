//! Applies changes of configured files while the server runs: the token file, the accepted CAs, the serving
//! certificate. An invalid change is logged and ignored.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::tasks::Tasks;

/// How often the files are read. Upstream promises a minute.
const INTERVAL: Duration = Duration::from_secs(10);

/// Why changed files cannot be applied.
pub(in crate::server) type ApplyError = Box<dyn std::error::Error + Send + Sync>;

/// Files that are applied together when one of them changes.
pub(in crate::server) struct Reload {
    files: Vec<PathBuf>,
    /// The contents that were applied last, or that were rejected.
    seen: Contents,
    apply: Box<dyn Fn() -> Result<(), ApplyError> + Send>,
}

/// The content of each file; `None` if it cannot be read.
type Contents = Vec<Option<Vec<u8>>>;

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reload").field(&self.files).finish()
    }
}

impl Reload {
    /// Calls `apply`, which reads the files, when one of `files` has changed since this call.
    pub(in crate::server) fn new(
        files: Vec<PathBuf>,
        apply: impl Fn() -> Result<(), ApplyError> + Send + 'static,
    ) -> Self {
        Self {
            seen: read(&files),
            files,
            apply: Box::new(apply),
        }
    }

    /// Applies the files if one has changed.
    fn run(&mut self) {
        let now = read(&self.files);
        if now == self.seen {
            return;
        }
        // Also of files that are rejected: each change is reported once.
        self.seen = now;
        match (self.apply)() {
            Ok(()) => tracing::info!(files = ?self.files, "changed files applied"),
            Err(error) => {
                tracing::error!(%error, "changed file ignored: the previous content remains in effect");
            }
        }
    }
}

fn read(files: &[PathBuf]) -> Contents {
    let contents = files.iter().map(|file| std::fs::read(file).ok());
    contents.collect()
}

/// Starts a task in `tasks` that applies changes of the files.
pub(in crate::server) fn start(mut reloads: Vec<Reload>, tasks: &Tasks) {
    if reloads.is_empty() {
        return;
    }
    let (group, stop) = (tasks.clone(), tasks.token());
    tasks.spawn("file-reload", async move {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            // Reading may block, for example on a network file system.
            let reading = group.spawn_blocking("file-reload-read", move || {
                reloads.iter_mut().for_each(Reload::run);
                reloads
            });
            match reading.await {
                Ok(read) => reloads = read,
                // A panic, which the task group reports.
                Err(_) => return,
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn files_are_applied_once_per_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "first").unwrap();
        let applied = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&applied);
        let mut reload = Reload::new(vec![path.clone()], move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let mut count = || {
            reload.run();
            applied.load(Ordering::SeqCst)
        };
        assert_eq!(count(), 0);
        std::fs::write(&path, "second").unwrap();
        assert_eq!((count(), count()), (1, 1));
        // As an editor or a mounted Secret replaces it.
        std::fs::write(directory.path().join("new"), "third").unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        assert_eq!((count(), count()), (2, 2));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(count(), 3, "the error of the missing file is reported");
    }
}
