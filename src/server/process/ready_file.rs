//! `--ready-file`: a file that exists while the server is ready, for programs that start it.

use std::io;
use std::path::PathBuf;

use serde_json::json;

use crate::server::process::build::Done;
use crate::server::process::files::{self, FileError, PUBLIC};

/// The path of the file, which this value deletes when it is dropped.
#[derive(Debug)]
pub(in crate::server) struct ReadyFile {
    path: PathBuf,
}

impl ReadyFile {
    /// Deletes the file of an earlier server, which may have been killed.
    ///
    /// # Errors
    /// It exists and cannot be deleted.
    pub(in crate::server) fn prepare(path: PathBuf) -> Result<Self, FileError> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileError::of("cannot delete", &path)(error))
            }
            _ => Ok(Self { path }),
        }
    }

    /// Writes the file: the URL, the path of the kubeconfig and the process ID, in JSON.
    ///
    /// # Errors
    /// It cannot be written.
    pub(in crate::server) fn write(&self, done: &Done) -> Result<(), FileError> {
        let content = json!({
            "kubeconfig": done.kubeconfig,
            "pid": std::process::id(),
            "url": format!("https://{}", done.secure),
        });
        files::write(&self.path, format!("{content}\n").as_bytes(), PUBLIC)
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.path.display(), "cannot delete the ready file");
            }
            _ => {}
        }
    }
}
