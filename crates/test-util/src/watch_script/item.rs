//! The items of an expectation: events, bookmarks and errors of a watch; objects and errors of a list; notifications of a
//! handler.

use std::fmt;

use super::object::Content;
use super::version_ref::VersionRef;

/// The word after the object of an `on_add` in the initial list.
pub(super) const IN_INITIAL_LIST: &str = "initial-list";

/// The word after the object of an `on_delete` with a `DeletedFinalStateUnknown`.
pub(super) const FINAL_STATE_UNKNOWN: &str = "final-state-unknown";

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`
    Deleted,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Added, Self::Modified, Self::Deleted];

    /// Returns the name in a watch.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A call of a handler of an informer. `V` is the type of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<V> {
    /// `on_add`
    Added {
        /// True if the object is in the handler's initial list.
        is_in_initial_list: bool,
    },
    /// `on_update`
    Updated {
        /// The version of the old object.
        old: V,
    },
    /// `on_delete`
    Deleted {
        /// True for a `DeletedFinalStateUnknown`: the object is the last state that the informer knows.
        is_final_state_unknown: bool,
    },
}

/// The meaning of an object in an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// An object of a list, or of the indexer of an informer.
    Listed,
    /// An event of a watch.
    Event(EventKind),
    /// A call of a handler.
    Notification(Notification<ObjectVersion>),
}

impl ItemKind {
    /// Returns the kind of the item that is `count` items later in a burst of updates.
    fn advanced(self, count: usize) -> Self {
        match self {
            Self::Notification(Notification::Updated { old }) => {
                let index = old.index.map(|index| index + count);
                Self::Notification(Notification::Updated {
                    old: ObjectVersion { index, ..old },
                })
            }
            other => other,
        }
    }
}

/// The version of an object: `@2`; `@2.17` for the 17th write of a burst; a version without a name prints as `@2+3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The name, and the distance from it.
    pub version: VersionRef,
    /// The number in the burst, from 1 on.
    pub index: Option<usize>,
}

impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}.{index}", self.version),
            None => write!(f, "{}", self.version),
        }
    }
}

/// An object in an expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectItem {
    /// The meaning of the object.
    pub kind: ItemKind,
    /// `a` or `other/a`. A name with a `*` is that of the objects of a burst.
    pub name: String,
    /// The version.
    pub version: ObjectVersion,
    /// Labels and fields; absent if they are not compared.
    pub content: Option<Content>,
    /// `x200`: the number of items, from consecutive writes of a burst.
    pub count: usize,
}

/// An item of an expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An event, or an object of a list.
    Object(ObjectItem),
    /// `BOOKMARK @2`: the client has received everything up to that write.
    Bookmark {
        /// The version.
        version: VersionRef,
        /// True if it ends the initial events.
        is_initial_events_end: bool,
    },
    /// `ERROR 410 Expired`
    Error(u16, String),
    /// `closed`: the watch has ended.
    Closed,
    /// `version @3`: the version of a list, or the last version that an informer knows.
    ListVersion(VersionRef),
    /// `remaining 2`: the `remainingItemCount` of a list.
    Remaining(u64),
    /// `continue`: the list has a next page, or the error has a new token.
    Continue,
}

impl Item {
    /// Formats items as in an expectation.
    pub fn join(items: &[Self]) -> String {
        if items.is_empty() {
            return "nothing".to_owned();
        }
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        items.join(", ")
    }

    /// Splits `x200` into single items; `name` returns the name of a write of a burst.
    pub fn expand(items: &[Self], name: impl Fn(&ObjectItem, usize) -> String) -> Vec<Self> {
        let mut all = Vec::new();
        for item in items {
            match item {
                Self::Object(object) => {
                    let first = object.version.index.unwrap_or(1);
                    all.extend((first..first + object.count).map(|index| {
                        let in_burst = object.version.index.map(|_| index);
                        let mut one = object.clone();
                        one.kind = object.kind.advanced(index - first);
                        one.version.index = in_burst;
                        one.name = name(object, index);
                        one.count = 1;
                        Self::Object(one)
                    }));
                }
                other => all.push(other.clone()),
            }
        }
        all
    }

    /// Joins single items of consecutive writes of a burst; `pattern` returns the name that the script has for the
    /// object of an item.
    pub fn fold(items: &[Self], pattern: impl Fn(&ObjectItem) -> String) -> Vec<Self> {
        let mut folded: Vec<Self> = Vec::new();
        for item in items {
            let Self::Object(object) = item else {
                folded.push(item.clone());
                continue;
            };
            let mut object = object.clone();
            object.name = pattern(&object);
            if let Some(Self::Object(last)) = folded.last_mut()
                && let (Some(begin), Some(index)) = (last.version.index, object.version.index)
                && last.version.version == object.version.version
                && begin + last.count == index
                && (last.kind.advanced(last.count), &last.name, &last.content)
                    == (object.kind, &object.name, &object.content)
            {
                last.count += 1;
            } else {
                folded.push(Self::Object(object));
            }
        }
        folded
    }
}

impl fmt::Display for ObjectItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut after = "";
        match self.kind {
            ItemKind::Listed => {}
            ItemKind::Event(kind) => write!(f, "{} ", kind.name())?,
            ItemKind::Notification(Notification::Added { is_in_initial_list }) => {
                write!(f, "on_add ")?;
                after = if is_in_initial_list {
                    IN_INITIAL_LIST
                } else {
                    ""
                };
            }
            ItemKind::Notification(Notification::Updated { old }) => {
                write!(f, "on_update {}{old} ", self.name)?;
            }
            ItemKind::Notification(Notification::Deleted {
                is_final_state_unknown: is_unknown,
            }) => {
                write!(f, "on_delete ")?;
                after = if is_unknown { FINAL_STATE_UNKNOWN } else { "" };
            }
        }
        write!(f, "{}{}", self.name, self.version)?;
        if !after.is_empty() {
            write!(f, " {after}")?;
        }
        if let Some(content) = &self.content
            && *content != Content::default()
        {
            write!(f, " {content}")?;
        }
        match self.count {
            1 => Ok(()),
            count => write!(f, " x{count}"),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(f, "{object}"),
            Self::Bookmark {
                version,
                is_initial_events_end,
            } => {
                let end = if *is_initial_events_end {
                    " initial-events-end"
                } else {
                    ""
                };
                write!(f, "BOOKMARK {version}{end}")
            }
            Self::Error(code, reason) => write!(f, "ERROR {code} {reason}"),
            Self::Closed => write!(f, "closed"),
            Self::ListVersion(version) => write!(f, "version {version}"),
            Self::Remaining(count) => write!(f, "remaining {count}"),
            Self::Continue => write!(f, "continue"),
        }
    }
}
