//! Keys: where an object lives. `ObjectKey` names it inside its resource (`ns/name` or `name`);
//! `StorageKey` names it in the whole store (`/pods/ns/name`). Neither knows which resource it is.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// `<namespace>/<name>`, or `<name>` for a cluster-scoped object. Cheap to clone.
///
/// Keys order as their text does, which is also the order of the storage keys they came from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// The key of `name` in `namespace` (`None` for a cluster-scoped object).
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name: what follows the last `/`.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The namespace, empty for a cluster-scoped object.
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

/// A key, or a prefix ending in `/`, in the store: begins with `/`, has no empty, `.` or `..`
/// segment. The store's own root (`/registry`) is not part of it: each back end adds its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageKey(Arc<str>);

/// Why a text is not a [`StorageKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// `""` or `"/"`.
    #[error("empty key")]
    Empty,
    /// A missing leading `/`, or an empty, `.` or `..` segment.
    #[error("invalid key: {0:?}")]
    Segment(String),
}

impl StorageKey {
    /// Checks `text`, which may end in `/` when it is meant as a prefix.
    ///
    /// # Errors
    /// [`InvalidKey`] by the rules of the type.
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

    /// The key as text, with its leading `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this names a range (`/pods/`) and not one object.
    pub fn is_prefix(&self) -> bool {
        self.0.ends_with('/')
    }

    /// Whether `key` lies under this prefix (or is this key, when it is no prefix).
    pub fn covers(&self, key: &str) -> bool {
        if self.is_prefix() {
            key.starts_with(&*self.0)
        } else {
            key == &*self.0
        }
    }

    /// The rest of `key` below this prefix: `/pods/` and `/pods/ns/a` give `ns/a`.
    pub fn strip<'a>(&self, key: &'a str) -> Option<&'a str> {
        if self.is_prefix() {
            key.strip_prefix(&*self.0)
        } else {
            None
        }
    }

    /// The key of `rest` below this prefix.
    ///
    /// # Errors
    /// [`InvalidKey`] when `rest` has a bad segment.
    pub fn join(&self, rest: &str) -> Result<Self, InvalidKey> {
        Self::new(&format!("{}/{rest}", self.0.trim_end_matches('/')))
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
    fn storage_keys_refuse_bad_segments() {
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
    fn a_prefix_never_covers_a_longer_name() {
        let foo = StorageKey::new("/pods/foo/").unwrap();
        assert!(foo.covers("/pods/foo/a"));
        assert!(!foo.covers("/pods/foobar/a"));
        assert_eq!(foo.strip("/pods/foo/a"), Some("a"));
    }

    #[test]
    fn object_keys_split() {
        let key = ObjectKey::new(Some("ns"), "a");
        assert_eq!((key.namespace(), key.name()), ("ns", "a"));
        let key = ObjectKey::new(None, "node-1");
        assert_eq!((key.namespace(), key.name()), ("", "node-1"));
    }
}
