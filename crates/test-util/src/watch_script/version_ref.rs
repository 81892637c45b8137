//! The name of a version in a script.

use std::fmt;

/// A version: `@start` (before the first write), `@2` (of the write with that name), `@2+1000`, `@2-1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRef {
    /// The name of a write; 0 is `@start`.
    pub name: u32,
    /// The offset that is added to the version of that write.
    pub offset: i64,
}

impl VersionRef {
    /// Returns the version with this name.
    pub fn named(name: u32) -> Self {
        Self { name, offset: 0 }
    }
}

impl fmt::Display for VersionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            0 => write!(f, "@start")?,
            name => write!(f, "@{name}")?,
        }
        match self.offset {
            0 => Ok(()),
            offset => write!(f, "{offset:+}"),
        }
    }
}
