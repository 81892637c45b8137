//! Applies changes of configured files while the server runs: tokens, CAs, serving certificates, keys of service
//! account tokens, the kubeconfigs of the token and authorization webhooks, and the configurations of authentication,
//! authorization and encryption. An invalid change is logged and ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::server::config::setting_value::ConfigError;
use crate::server::process::files::FileError;
use crate::server::transport::tls::TlsError;
use crate::tasks::Tasks;

/// How often the files are read. Upstream promises a minute.
const INTERVAL: Duration = Duration::from_secs(10);

/// Why changed files cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum ApplyError {
    /// Their content is invalid: it is ignored until it changes.
    #[error("{0}")]
    Invalid(Box<dyn std::error::Error + Send + Sync>),
    /// Something that they need does not respond: they are applied again later.
    #[error("{0}")]
    Temporary(Box<dyn std::error::Error + Send + Sync>),
}

impl ApplyError {
    pub(in crate::server) fn invalid(
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Invalid(error.into())
    }
}

impl From<ConfigError> for ApplyError {
    fn from(error: ConfigError) -> Self {
        Self::invalid(error)
    }
}

impl From<TlsError> for ApplyError {
    fn from(error: TlsError) -> Self {
        Self::invalid(error)
    }
}

impl From<FileError> for ApplyError {
    fn from(error: FileError) -> Self {
        Self::invalid(error)
    }
}

/// Files that are applied together when one of them changes.
pub(in crate::server) struct Reload {
    find_files: Box<dyn Fn() -> Vec<PathBuf> + Send>,
    /// The contents that were applied last, or that were rejected.
    seen: Contents,
    apply: Box<dyn Fn() -> Result<(), ApplyError> + Send>,
    /// Returns true if they are to be applied although none has changed.
    is_due: Box<dyn FnMut() -> bool + Send>,
}

/// The content of each file; `None` if it cannot be read.
type Contents = BTreeMap<PathBuf, Option<Vec<u8>>>;

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reload").field(&self.seen.keys()).finish()
    }
}

impl Reload {
    /// Calls `apply`, which reads the files, when one of `files` has changed since this call.
    pub(in crate::server) fn new(
        files: Vec<PathBuf>,
        apply: impl Fn() -> Result<(), ApplyError> + Send + 'static,
    ) -> Self {
        Self::of_found(move || files.clone(), apply)
    }

    /// Calls `apply`, which reads the files that `find_files` returns, when one of them has changed since this call, or when
    /// they are other files. Both functions may block.
    pub(in crate::server) fn of_found(
        find_files: impl Fn() -> Vec<PathBuf> + Send + 'static,
        apply: impl Fn() -> Result<(), ApplyError> + Send + 'static,
    ) -> Self {
        Self {
            seen: read(find_files()),
            find_files: Box::new(find_files),
            apply: Box::new(apply),
            is_due: Box::new(|| false),
        }
    }

    /// Calls `apply` also when `is_due` returns true; it is called with each check of the files.
    pub(in crate::server) fn also_when(
        mut self,
        is_due: impl FnMut() -> bool + Send + 'static,
    ) -> Self {
        self.is_due = Box::new(is_due);
        self
    }

    /// Applies the files if one has changed.
    fn run(&mut self) {
        let now = read((self.find_files)());
        let is_due = (self.is_due)();
        if now == self.seen && !is_due {
            return;
        }
        match (self.apply)() {
            Ok(()) => tracing::info!(files = ?now.keys(), "changed files applied"),
            Err(error @ ApplyError::Temporary(_)) => {
                tracing::error!(%error, "changed file not applied yet: the previous content remains in effect");
                return;
            }
            Err(error @ ApplyError::Invalid(_)) => {
                tracing::error!(%error, "changed file ignored: the previous content remains in effect");
            }
        }
        // Also of files that are invalid: each change is reported once.
        self.seen = now;
    }
}

fn read(files: Vec<PathBuf>) -> Contents {
    let with_content = |file: PathBuf| {
        let content = std::fs::read(&file).ok();
        (file, content)
    };
    files.into_iter().map(with_content).collect()
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
    fn files_that_cannot_be_applied_yet_are_applied_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "first").unwrap();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&attempts);
        let mut reload = Reload::new(vec![path.clone()], move || {
            match counter.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err(ApplyError::Temporary("the plugin does not respond".into())),
                _ => Ok(()),
            }
        });
        std::fs::write(&path, "second").unwrap();
        for expected in [1, 2, 3, 3] {
            reload.run();
            assert_eq!(attempts.load(Ordering::SeqCst), expected);
        }
    }

    #[test]
    fn files_that_another_file_names_are_applied_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (main, one, other) = (path("main"), path("one"), path("other"));
        let write = |file: &PathBuf, text: &str| std::fs::write(file, text).unwrap();
        write(&main, one.to_str().unwrap());
        write(&one, "1");
        let applied = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&applied);
        let main_path = main.clone();
        let named = move || {
            let named = std::fs::read_to_string(&main_path).unwrap();
            vec![main_path.clone(), PathBuf::from(named)]
        };
        let mut reload = Reload::of_found(named, move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let mut count = || {
            reload.run();
            applied.load(Ordering::SeqCst)
        };
        assert_eq!(count(), 0);
        write(&one, "2");
        assert_eq!((count(), count()), (1, 1));
        write(&main, other.to_str().unwrap());
        assert_eq!((count(), count()), (2, 2));
        write(&one, "3");
        assert_eq!(count(), 2, "it is no longer named");
        write(&other, "1");
        assert_eq!((count(), count()), (3, 3));
    }

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
