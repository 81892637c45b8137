//! `watchet store backup`: of a stopped data directory, or of a running server.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::ArgMatches;
use futures_util::{Stream, StreamExt as _};

use super::directory::{lock_existing, print, store_directory};
use super::error::StoreError;
use super::progress::Progress;
use crate::client::{Kubeconfig, RestClient, RestConfig};
use crate::server::process::files::{DataDirError, PRIVATE};
use crate::storage::Storage as _;
use crate::storage::embedded::{self, Embedded, EmbeddedConfig};

/// The path of the backup of a running server.
const PATH: &str = "/debug/storage/backup";

/// Writes a backup to the file in the arguments.
pub(super) async fn run(matches: &ArgMatches, data_dir: &Path) -> Result<(), StoreError> {
    let file = matches.get_one::<PathBuf>("file").cloned();
    let file = file.unwrap_or_default();
    if let Some(kubeconfig) = matches.get_one::<PathBuf>("kubeconfig") {
        let kubeconfig = Kubeconfig::load(&[kubeconfig])?;
        let config = RestConfig::from_kubeconfig(&kubeconfig, None);
        return of_server(&config.map_err(StoreError::GivenKubeconfig)?, &file).await;
    }
    match lock_existing(data_dir) {
        Ok(_locked) => of_directory(data_dir, &file).await,
        Err(StoreError::DataDir(DataDirError::InUse { .. })) => {
            let unusable = |source| StoreError::Kubeconfig {
                data_dir: data_dir.to_owned(),
                source,
            };
            let kubeconfig = Kubeconfig::load(&[data_dir.join("kubeconfig")]);
            let config = kubeconfig
                .map_err(Into::into)
                .and_then(|kubeconfig| RestConfig::from_kubeconfig(&kubeconfig, None));
            of_server(&config.map_err(unusable)?, &file).await
        }
        Err(error) => Err(error),
    }
}

async fn of_directory(data_dir: &Path, file: &Path) -> Result<(), StoreError> {
    let store = Embedded::open(&store_directory(data_dir), EmbeddedConfig::default())?;
    let parts = Arc::clone(&store).backup();
    let parts = futures_util::stream::iter(parts).flatten();
    write(parts.map(|part| part.map_err(StoreError::from)), file).await
}

async fn of_server(config: &RestConfig, file: &Path) -> Result<(), StoreError> {
    let client = RestClient::new(config)?;
    let parts = client.get_stream(PATH, &[]).await?;
    write(parts.map(|part| part.map_err(StoreError::from)), file).await
}

/// Writes the parts of a backup to a temporary file beside `file`, verifies it, and renames it.
async fn write(
    parts: impl Stream<Item = Result<Bytes, StoreError>>,
    file: &Path,
) -> Result<(), StoreError> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = file.with_file_name(name);
    let written = write_partial(parts, &partial).await;
    let verified = written.and_then(|()| Ok(embedded::verify_backup(&partial)?));
    let summary = verified.inspect_err(|_| {
        // The error is the one to report; a leftover is overwritten by the next attempt.
        let _removed = fs::remove_file(&partial);
    })?;
    let directory = match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    fs::rename(&partial, file)
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(|source| failed(file, source))?;
    let (revision, keys, bytes) = (summary.revision, summary.keys, summary.bytes);
    print(&format!(
        "Wrote {keys} objects of revision {revision} to {}: {bytes} bytes",
        file.display()
    ))
}

async fn write_partial(
    parts: impl Stream<Item = Result<Bytes, StoreError>>,
    partial: &Path,
) -> Result<(), StoreError> {
    let mut out = create_partial(partial).map_err(|source| failed(partial, source))?;
    let (mut progress, mut bytes) = (Progress::new("written"), 0);
    let mut parts = std::pin::pin!(parts);
    while let Some(part) = parts.next().await {
        let part = part?;
        out.write_all(&part)
            .map_err(|source| failed(partial, source))?;
        bytes += part.len() as u64;
        progress.report("bytes", bytes);
    }
    out.sync_all().map_err(|source| failed(partial, source))
}

/// Creates the file, for its owner only. One that exists is removed: it would keep its mode, and may be a link.
fn create_partial(partial: &Path) -> io::Result<File> {
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(partial)
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The mode of a file that existed was kept, so that all users could read the Secrets in the backup, and a link was
    /// followed to any file.
    #[test]
    fn an_existing_partial_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (partial, other) = ["backup.partial", "other"]
            .map(|name| directory.path().join(name))
            .into();
        let set_up: [fn(&Path, &Path); 3] = [
            |partial, other| fs::copy(other, partial).map(drop).unwrap(),
            |partial, other| std::os::unix::fs::symlink(other, partial).unwrap(),
            |_, _| {},
        ];
        for set_up in set_up {
            fs::write(&other, "other").unwrap();
            fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
            set_up(&partial, &other);
            create_partial(&partial)
                .unwrap()
                .write_all(b"backup")
                .unwrap();
            let metadata = fs::symlink_metadata(&partial).unwrap();
            assert!(metadata.is_file());
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read(&other).unwrap(), b"other");
            fs::remove_file(&partial).unwrap();
        }
    }
}
