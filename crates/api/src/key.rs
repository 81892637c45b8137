//! Object keys and storage keys. `ObjectKey` (`ns/name` or `name`) identifies an object within its
//! resource; `StorageKey` (`/pods/ns/name`) identifies it in storage.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// `<namespace>/<name>`, or `<name>` for a cluster-scoped object. Cheap to clone.
///
/// Keys are ordered by their text, as storage keys are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Returns the key of `name` in `namespace` (`None` for a cluster-scoped object).
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name: the text after the last `/`.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// Returns the namespace, or an empty string for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0
            .rsplit_once('/')
            .map_or("", |(namespace, _)| namespace)
    }
}

impl From<&str> for ObjectKey {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key, or a prefix that ends in `/`. It begins with `/` and has no empty, `.` or `..` segment.
/// The root of the store (`/registry`) is not part of it: the back end adds it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageKey(Arc<str>);

/// The text is not a [`StorageKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// `""` or `"/"`.
    #[error("empty key")]
    Empty,
    /// A missing leading `/`, or an empty, `.` or `..` segment.
    #[error("invalid key: {0:?}")]
    Segment(String),
}

impl StorageKey {
    /// Validates `text`, which ends in `/` if it is a prefix.
    ///
    /// # Errors
    /// Returns [`InvalidKey`] for the reasons that its variants list.
    pub fn new(text: &str) -> Result<Self, InvalidKey> {
        if text.is_empty() || text == "/" {
            return Err(InvalidKey::Empty);
        }
        let bad = || InvalidKey::Segment(text.to_owned());
        let path = text.strip_prefix('/').ok_or_else(bad)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path
            .split('/')
            .any(|segment| matches!(segment, "" | "." | ".."))
        {
            return Err(bad());
        }
        Ok(Self(text.into()))
    }

    /// Returns the key as text, with its leading `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if this is a prefix (`/pods/`), not the key of one object.
    pub fn is_prefix(&self) -> bool {
        self.0.ends_with('/')
    }

    /// Returns true if `key` has this prefix, or equals this key if this is not a prefix.
    pub fn covers(&self, key: &str) -> bool {
        if self.is_prefix() {
            key.starts_with(&*self.0)
        } else {
            key == &*self.0
        }
    }

    /// Returns the part of `key` after this prefix: `/pods/` and `/pods/ns/a` give `ns/a`.
    pub fn strip<'a>(&self, key: &'a str) -> Option<&'a str> {
        if self.is_prefix() {
            key.strip_prefix(&*self.0)
        } else {
            None
        }
    }

    /// Appends `rest` to this prefix.
    ///
    /// # Errors
    /// Returns [`InvalidKey`] if `rest` has an invalid segment.
    pub fn join(&self, rest: &str) -> Result<Self, InvalidKey> {
        Self::new(&format!("{}/{rest}", self.0.trim_end_matches('/')))
    }
}

impl Borrow<str> for StorageKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_keys_reject_invalid_segments() {
        for good in [
            "/pods/",
            "/pods/default/a",
            "/pods/default/a.b",
            "/x/..a/b..",
        ] {
            assert!(StorageKey::new(good).is_ok(), "{good}");
        }
        assert_eq!(StorageKey::new(""), Err(InvalidKey::Empty));
        assert_eq!(StorageKey::new("/"), Err(InvalidKey::Empty));
        for bad in [
            "pods/a",
            "/pods/../a",
            "/./a",
            "/pods//a",
            "//",
            "/pods/a/..",
        ] {
            assert!(
                matches!(StorageKey::new(bad), Err(InvalidKey::Segment(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn prefix_does_not_cover_longer_name() {
        let foo = StorageKey::new("/pods/foo/").unwrap();
        assert!(foo.covers("/pods/foo/a"));
        assert!(!foo.covers("/pods/foobar/a"));
        assert_eq!(foo.strip("/pods/foo/a"), Some("a"));
    }

    #[test]
    fn object_keys_split_into_namespace_and_name() {
        let key = ObjectKey::new(Some("ns"), "a");
        assert_eq!((key.namespace(), key.name()), ("ns", "a"));
        let key = ObjectKey::new(None, "node-1");
        assert_eq!((key.namespace(), key.name()), ("", "node-1"));
    }
}
