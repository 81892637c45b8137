//! Maps `StorageKey`s to etcd keys and back: Kubernetes' layout under one root. Values are opaque.

use bytes::Bytes;
use etcd_client::ResponseHeader;
use etcd_client::proto::PbKeyValue;

use crate::{KeyValue, StorageError};
use watchet_api::{InvalidKey, ResourceVersion, StorageKey};

/// The prefix of every key of this API server: `/registry`, or empty.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: String,
}

impl Layout {
    /// Returns the layout for `--etcd-prefix`, with or without slashes at its ends.
    pub(super) fn new(prefix: &str) -> Result<Self, InvalidKey> {
        let path = prefix.trim_matches('/');
        let root = if path.is_empty() {
            String::new()
        } else {
            StorageKey::new(&format!("/{path}"))?.as_str().to_owned()
        };
        Ok(Self { root })
    }

    /// Returns a key that no object has; a read of it returns only the store's revision.
    pub(super) fn probe(&self) -> Vec<u8> {
        if self.root.is_empty() {
            b"/".to_vec()
        } else {
            self.root.as_bytes().to_vec()
        }
    }

    /// Returns the etcd key of `key`.
    pub(super) fn key(&self, key: &StorageKey) -> Vec<u8> {
        format!("{}{key}", self.root).into_bytes()
    }

    /// Returns the etcd range of the keys under `prefix` from `start` (relative to it) on: the
    /// first key and the exclusive end.
    pub(super) fn range(&self, prefix: &StorageKey, start: &str) -> (Vec<u8>, Vec<u8>) {
        let whole = self.key(prefix);
        let end = prefix_end(&whole);
        let mut begin = whole;
        begin.extend_from_slice(start.as_bytes());
        (begin, end)
    }

    /// Returns the etcd range of all keys: the first key and the exclusive end.
    pub(super) fn everything(&self) -> (Vec<u8>, Vec<u8>) {
        let begin = format!("{}/", self.root).into_bytes();
        let end = prefix_end(&begin);
        (begin, end)
    }

    /// Returns the storage key of the etcd key `raw`.
    pub(super) fn storage_key(&self, raw: &[u8]) -> Result<StorageKey, StorageError> {
        std::str::from_utf8(raw)
            .ok()
            .and_then(|text| text.strip_prefix(&self.root))
            .and_then(|text| StorageKey::new(text).ok())
            .ok_or_else(|| {
                let shown = String::from_utf8_lossy(raw);
                StorageError::Corrupt(format!(
                    "etcd holds the key {shown:?}, which is not a storage key"
                ))
            })
    }

    /// Converts an etcd key-value.
    pub(super) fn key_value(&self, kv: PbKeyValue) -> Result<KeyValue, StorageError> {
        Ok(KeyValue {
            key: self.storage_key(&kv.key)?,
            create_revision: revision(kv.create_revision),
            mod_revision: revision(kv.mod_revision),
            value: Bytes::from(kv.value),
            is_stale: false,
        })
    }
}

/// Converts an etcd revision, which is signed but never negative.
pub(super) fn revision(raw: i64) -> ResourceVersion {
    ResourceVersion::new(u64::try_from(raw).unwrap_or(0))
}

/// Returns the revision in the header of a response; zero without one.
pub(super) fn header_revision(header: Option<&ResponseHeader>) -> ResourceVersion {
    revision(header.map_or(0, ResponseHeader::revision))
}

/// Converts a revision for a request. Larger values become etcd's maximum.
pub(super) fn raw_revision(revision: ResourceVersion) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

/// Returns the first key after all keys with the prefix `prefix`.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only 0xff bytes: an empty end means all following keys.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> StorageKey {
        StorageKey::new(text).unwrap()
    }

    #[test]
    fn prefix_is_normalized() {
        for prefix in [
            "/registry",
            "registry",
            "/registry/",
            "registry/",
            "//registry//",
        ] {
            let layout = Layout::new(prefix).unwrap();
            assert_eq!(
                layout.key(&key("/pods/ns/a")),
                b"/registry/pods/ns/a",
                "{prefix}"
            );
            assert_eq!(layout.probe(), b"/registry");
        }
        for none in ["", "/"] {
            let layout = Layout::new(none).unwrap();
            assert_eq!(layout.key(&key("/pods/ns/a")), b"/pods/ns/a");
            assert_eq!(layout.probe(), b"/");
        }
        assert!(Layout::new("/a/../b").is_err());
        assert!(Layout::new("/a//b").is_err());
    }

    #[test]
    fn range_ends_before_a_longer_name() {
        let layout = Layout::new("/registry").unwrap();
        let (begin, end) = layout.range(&key("/pods/foo/"), "b");
        assert_eq!(begin, b"/registry/pods/foo/b");
        assert_eq!(end, b"/registry/pods/foo0");
        assert_eq!(prefix_end(&[1, 255, 255]), [2]);
        assert_eq!(prefix_end(&[255, 255]), [0]);
    }

    #[test]
    fn invalid_etcd_keys_are_reported() {
        let layout = Layout::new("/registry").unwrap();
        assert_eq!(
            layout.storage_key(b"/registry/pods/a").unwrap(),
            key("/pods/a")
        );
        for bad in [
            &b"/registry/pods//a"[..],
            b"/other/pods/a",
            b"/registry/\xff",
        ] {
            let error = layout.storage_key(bad).unwrap_err();
            assert!(matches!(&error, StorageError::Corrupt(_)), "{error}");
        }
    }
}
