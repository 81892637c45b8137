//! The files of inputs: the corpora of the repository, and those that earlier runs found and saved.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the directory of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the directory with the corpus of a target in the repository.
pub fn directory(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// Returns the directory in which runs save what they find for a target: inputs that execute new code in `corpus`, inputs
/// that fail in `failures`.
pub fn found(target: &str, what: &str) -> PathBuf {
    root().join("target/fuzz").join(target).join(what)
}

/// Returns the inputs of a directory, in the order of their names; none if it does not exist.
///
/// # Errors
/// A file cannot be read.
pub fn read(directory: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let read = |path: PathBuf| fs::read(&path).map(|input| (path, input));
    paths.into_iter().map(read).collect()
}

/// Saves an input under a name made from `prefix` and its checksum. Returns its path.
///
/// # Errors
/// The file cannot be written.
pub fn save(directory: &Path, prefix: &str, input: &[u8]) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{prefix}{:016x}", checksum(input)));
    fs::write(&path, input)?;
    Ok(path)
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}
