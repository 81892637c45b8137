//! The versions that storage gave to the writes of a script, and their names.

use super::item::ObjectVersion;
use super::object::ObjectName;
use super::version_ref::VersionRef;

/// One revision of a write.
#[derive(Debug)]
struct Named {
    version: u64,
    name: u32,
    /// The number in a burst of `count`, from 1 on.
    index: usize,
    count: usize,
    /// The name of the object in the script.
    pattern: String,
}

/// The versions of a run, in order.
#[derive(Debug, Default)]
pub(super) struct Versions {
    start: u64,
    writes: Vec<Named>,
}

impl Versions {
    /// Begins at the version of storage before the first write.
    pub(super) fn starting_at(start: u64) -> Self {
        Self {
            start,
            writes: Vec::new(),
        }
    }

    /// Adds the version of the write number `index` of `count`.
    pub(super) fn add(
        &mut self,
        version: u64,
        name: u32,
        (index, count): (usize, usize),
        object: &ObjectName,
    ) {
        let pattern = object.short();
        self.writes.push(Named {
            version,
            name,
            index,
            count,
            pattern,
        });
    }

    /// Returns the version with this name. The name of a burst refers to its last write.
    pub(super) fn resolve(&self, version: VersionRef) -> u64 {
        let last = self
            .writes
            .iter()
            .rev()
            .find(|write| write.name == version.name);
        let named = last.map_or(self.start, |write| write.version);
        named.saturating_add_signed(version.offset)
    }

    /// Returns the name of the version of an object: the name of a write, or the distance from the write before it.
    pub(super) fn of_object(&self, version: u64) -> ObjectVersion {
        let exact = self
            .writes
            .iter()
            .rev()
            .find(|write| write.version == version);
        let Some(write) = exact else {
            let before = self
                .writes
                .iter()
                .rev()
                .find(|write| write.version < version);
            let (name, base) = before.map_or((0, self.start), |write| (write.name, write.version));
            let offset = version.wrapping_sub(base).cast_signed();
            return ObjectVersion {
                version: VersionRef { name, offset },
                index: None,
            };
        };
        let index = (write.count > 1).then_some(write.index);
        ObjectVersion {
            version: VersionRef::named(write.name),
            index,
        }
    }

    /// Returns the last write at or before this version. Revisions of other clients after that write do not change the
    /// result.
    pub(super) fn of_state(&self, version: u64) -> VersionRef {
        let last = self
            .writes
            .iter()
            .rev()
            .find(|write| write.version <= version);
        match last {
            Some(write) => VersionRef::named(write.name),
            None => VersionRef {
                name: 0,
                offset: version
                    .cast_signed()
                    .saturating_sub(self.start.cast_signed())
                    .min(0),
            },
        }
    }

    /// Returns the name that the script has for the object of a write of a burst.
    pub(super) fn pattern(&self, version: ObjectVersion) -> Option<&str> {
        let write = self.writes.iter().find(|write| {
            write.count > 1
                && write.name == version.version.name
                && Some(write.index) == version.index
        });
        write.map(|write| write.pattern.as_str())
    }

    /// Returns the number of writes of a name.
    pub(super) fn count(&self, name: u32) -> usize {
        self.writes
            .iter()
            .find(|write| write.name == name)
            .map_or(1, |write| write.count)
    }

    /// Returns `@start=1 @1=2 @2=3`, for the report of a failure.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("@start={}", self.start);
        for write in self
            .writes
            .iter()
            .filter(|write| write.index == write.count)
        {
            text += &format!(" @{}={}", write.name, write.version);
        }
        text
    }
}
