//! The file with the latest revision of etcd that clients may have received, so that the next process detects that etcd was
//! restored from a backup while no server ran.
//!
//! It has one line: the revision, the cluster ID in hexadecimal digits, and the endpoints. It is replaced at an interval,
//! without a sync. So it lacks the last interval of a killed process, for which `restored::MARGIN_AFTER_RESTART`
//! compensates, and the last half minute or so after a power failure.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::identity::LastSeen;
use crate::private_file::open_private;
use watchet_api::ResourceVersion;

/// The file.
#[derive(Debug)]
pub(super) struct LastSeenFile {
    path: PathBuf,
    /// The endpoints of this process, sorted.
    endpoints: String,
    /// What the file contains, with the endpoints.
    stored: Option<(LastSeen, String)>,
}

impl LastSeenFile {
    /// Reads the file at `path`, which need not exist.
    pub(super) fn open(path: &Path, endpoints: &[String]) -> io::Result<Self> {
        let mut endpoints = endpoints.to_vec();
        endpoints.sort_unstable();
        let bytes = match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let stored = bytes.as_deref().and_then(parse);
        if bytes.is_some() && stored.is_none() {
            tracing::warn!(path = %path.display(), "file with the last revision of etcd is damaged and will be replaced");
        }
        Ok(Self {
            path: path.to_owned(),
            endpoints: endpoints.join(","),
            stored,
        })
    }

    /// Returns what an earlier process has seen of the etcd with this cluster ID or these endpoints.
    pub(super) fn of_cluster(&self, cluster: u64) -> Option<LastSeen> {
        let (last_seen, endpoints) = self.stored.as_ref()?;
        if last_seen.cluster == cluster || *endpoints == self.endpoints {
            return Some(*last_seen);
        }
        let (path, now) = (self.path.display(), &self.endpoints);
        tracing::warn!(
            %path, before = endpoints, now,
            "another etcd than at the last start: a resourceVersion of the former has no meaning here"
        );
        None
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Stores `last_seen` if it has changed and is known.
    pub(super) fn store(&mut self, last_seen: LastSeen) -> io::Result<()> {
        let stored = self.stored.as_ref();
        let is_stored = stored.is_some_and(|(stored, _)| *stored == last_seen);
        if last_seen.revision.is_zero() || is_stored {
            return Ok(());
        }
        let LastSeen { revision, cluster } = last_seen;
        let line = format!("{revision} {cluster:x} {}\n", self.endpoints);
        // Renamed, so that a reader finds the previous line or this one.
        let new = self.path.with_extension("new");
        let mut file = open_private(&new)?;
        file.set_len(0)?;
        file.write_all(line.as_bytes())?;
        std::fs::rename(&new, &self.path)?;
        self.stored = Some((last_seen, self.endpoints.clone()));
        Ok(())
    }
}

/// Parses the line.
fn parse(line: &[u8]) -> Option<(LastSeen, String)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let mut parts = line.splitn(3, ' ');
    let revision = parts.next()?.parse().ok().map(ResourceVersion::new)?;
    let cluster = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some((LastSeen { cluster, revision }, parts.next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_seen(cluster: u64, revision: u64) -> LastSeen {
        let revision = ResourceVersion::new(revision);
        LastSeen { cluster, revision }
    }

    #[test]
    fn what_was_stored_is_read_for_the_same_cluster_or_endpoints() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd-revision");
        let open = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            LastSeenFile::open(&path, &names).unwrap()
        };
        let mut file = open(&["a:1", "b:2"]);
        assert_eq!(file.of_cluster(0xabcd), None);
        file.store(last_seen(0, 0)).unwrap();
        assert!(!path.exists(), "nothing is known yet");
        file.store(last_seen(0xabcd, 123_456)).unwrap();
        file.store(last_seen(0xabcd, 99)).unwrap();
        let stored = Some(last_seen(0xabcd, 99));
        assert_eq!(file.of_cluster(0xabcd), stored);
        assert_eq!(open(&["b:2", "a:1"]).of_cluster(0xef), stored, "restored");
        assert_eq!(open(&["c:3"]).of_cluster(0xabcd), stored, "moved");
        assert_eq!(open(&["c:3"]).of_cluster(0xef), None, "another etcd");
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd-revision");
        for damaged in [&b"\xff\xfe"[..], b"", b"12", b"x y z\n", b"12 7 a:1"] {
            std::fs::write(&path, damaged).unwrap();
            let mut file = LastSeenFile::open(&path, &["a:1".to_owned()]).unwrap();
            assert_eq!(file.of_cluster(7), None, "{damaged:?}");
            file.store(last_seen(7, 12)).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"12 7 a:1\n");
        }
    }
}
