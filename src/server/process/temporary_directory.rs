//! `TemporaryDirectory`: the data directory of a temporary server, removed when the server ends.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The number of random hexadecimal digits in the name.
const NAME_LENGTH: usize = 12;

/// A new directory that only this user can read. It is removed with its content when it is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory {
    /// Empty after [`Self::remove`].
    path: PathBuf,
}

impl TemporaryDirectory {
    /// Creates a directory whose name begins with `prefix` in the directory for temporary files.
    ///
    /// # Errors
    /// It cannot be created, or already exists.
    pub(crate) fn create(prefix: &str) -> io::Result<Self> {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{prefix}-{}", &random[..NAME_LENGTH]);
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory and returns its path.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(mut self) -> Result<PathBuf, (PathBuf, io::Error)> {
        let path = std::mem::take(&mut self.path);
        match std::fs::remove_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err((path, error)),
        }
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // Only after a failure; otherwise it was removed.
        if !self.path.as_os_str().is_empty()
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::error!(path = %self.path.display(), %error, "cannot remove a directory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_removed_explicitly_or_when_dropped() {
        for is_explicit in [true, false] {
            let directory = TemporaryDirectory::create("watchet-test").unwrap();
            let path = directory.path().to_owned();
            std::fs::write(path.join("file"), "").unwrap();
            match is_explicit {
                true => assert_eq!(directory.remove().unwrap(), path),
                false => drop(directory),
            }
            assert!(!path.exists());
        }
    }
}
