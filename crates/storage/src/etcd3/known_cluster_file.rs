//! The file with the latest revision of etcd that the server has seen, so that a later process notices that etcd was restored
//! from a backup while no server ran.
//!
//! It has one line: the revision, the cluster ID in hexadecimal digits, the endpoints and the prefix of the keys. It is
//! written at an interval, without a sync: what it lacks is the last interval of a killed process, for which
//! `restored::MARGIN` compensates.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::identity::KnownCluster;
use crate::private_file::open_private;
use watchet_api::ResourceVersion;

/// The open file.
#[derive(Debug)]
pub(super) struct KnownClusterFile {
    path: PathBuf,
    file: File,
    /// The endpoints and the prefix of this process.
    place: String,
    /// What the file has; `None` if that is of another etcd, or unknown.
    known: Option<KnownCluster>,
}

impl KnownClusterFile {
    /// Opens or creates the file at `path`. Its contents are ignored if they are of other endpoints or of another prefix.
    pub(super) fn open(path: &Path, endpoints: &[String], prefix: &str) -> io::Result<Self> {
        let mut endpoints = endpoints.to_vec();
        endpoints.sort_unstable();
        let place = format!("{} {prefix}", endpoints.join(","));
        let mut file = open_private(path)?;
        let mut text = String::new();
        let known = match file.read_to_string(&mut text) {
            Ok(_) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(error) => return Err(error),
        };
        if known.is_none() && !text.is_empty() {
            tracing::warn!(path = %path.display(), "file with the last revision of etcd is damaged and will be rewritten");
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            known: known.filter(|known| known.1 == place).map(|known| known.0),
            place,
        })
    }

    /// Returns what the file had when it was opened, or what was stored since.
    pub(super) fn known(&self) -> Option<KnownCluster> {
        self.known
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Stores `known` if it has changed. It may be the first of this etcd.
    pub(super) fn store(&mut self, known: KnownCluster) -> io::Result<()> {
        if known.reached.is_zero() || self.known == Some(known) {
            return Ok(());
        }
        let line = format!("{} {:x} {}\n", known.reached, known.cluster, self.place);
        self.file.rewind()?;
        self.file.write_all(line.as_bytes())?;
        self.file.set_len(line.len() as u64)?;
        self.known = Some(known);
        Ok(())
    }
}

/// Parses the line into what is known, and the endpoints with the prefix.
fn parse(text: &str) -> Option<(KnownCluster, &str)> {
    let mut parts = text.strip_suffix('\n')?.splitn(3, ' ');
    let reached = parts.next()?.parse().ok().map(ResourceVersion::new)?;
    let cluster = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some((KnownCluster { cluster, reached }, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_was_stored_is_read_for_the_same_etcd_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd-revision");
        let open = |names: &[&str], prefix: &str| {
            KnownClusterFile::open(&path, &endpoints(names), prefix).unwrap()
        };
        let known = |cluster, reached| KnownCluster {
            cluster,
            reached: ResourceVersion::new(reached),
        };
        let mut file = open(&["a:1", "b:2"], "/registry");
        assert_eq!(file.known(), None);
        file.store(known(0, 0)).unwrap();
        assert_eq!(file.known(), None, "nothing is known yet");
        file.store(known(0xabcd, 123_456)).unwrap();
        // A shorter line replaces the longer one.
        file.store(known(0xabcd, 99)).unwrap();
        let stored = Some(known(0xabcd, 99));
        assert_eq!(open(&["b:2", "a:1"], "/registry").known(), stored);
        assert_eq!(open(&["a:1"], "/registry").known(), None);
        assert_eq!(open(&["a:1", "b:2"], "/other").known(), None);
    }

    #[test]
    fn a_damaged_file_is_as_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd-revision");
        for damaged in [
            &b"\xff\xfe"[..],
            b"12",
            b"x y z /registry\n",
            b"12 7 a:1 /reg",
        ] {
            std::fs::write(&path, damaged).unwrap();
            let file = KnownClusterFile::open(&path, &endpoints(&["a:1"]), "/registry").unwrap();
            assert_eq!(file.known(), None, "{damaged:?}");
        }
    }
}
