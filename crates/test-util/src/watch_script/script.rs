//! A parsed script: its steps in order. Every step prints as the line that it was parsed from.

use std::collections::BTreeSet;
use std::fmt;

use super::item::Item;
use super::need::Need;
use super::object::{Content, ObjectName};
use super::version_ref::VersionRef;

/// The `resourceVersion` of a list or watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartVersion {
    /// None.
    #[default]
    Unset,
    /// `"0"`: any.
    Zero,
    /// A version.
    At(VersionRef),
}

/// The `resourceVersionMatch` of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// `Exact`
    Exact,
    /// `NotOlderThan`
    NotOlderThan,
}

impl Match {
    /// Returns the value of the query parameter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "Exact",
            Self::NotOlderThan => "NotOlderThan",
        }
    }
}

/// The parameters of a list or watch of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// `from`: `resourceVersion`.
    pub from: StartVersion,
    /// `match`: `resourceVersionMatch` of a list.
    pub version_match: Option<Match>,
    /// `namespace`; all if absent.
    pub namespace: Option<String>,
    /// `labels`: `labelSelector`.
    pub labels: String,
    /// `fields`: `fieldSelector`.
    pub fields: String,
    /// `limit` of a list.
    pub limit: Option<usize>,
    /// `continue`: the list of which this is the next page.
    pub continued: Option<String>,
    /// `initial-events`: `sendInitialEvents` of a watch.
    pub initial_events: Option<bool>,
    /// `bookmarks`: `allowWatchBookmarks` of a watch.
    pub bookmarks: bool,
    /// `timeout`: `timeoutSeconds` of a watch.
    pub timeout_seconds: Option<u64>,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pods")?;
        let quoted = |value: &str| match value.contains([' ', '#']) {
            true => format!("\"{value}\""),
            false => value.to_owned(),
        };
        match self.from {
            StartVersion::Unset => {}
            StartVersion::Zero => write!(f, " from=0")?,
            StartVersion::At(version) => write!(f, " from={version}")?,
        }
        if let Some(version_match) = self.version_match {
            write!(f, " match={}", version_match.name())?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " namespace={namespace}")?;
        }
        if !self.labels.is_empty() {
            write!(f, " labels={}", quoted(&self.labels))?;
        }
        if !self.fields.is_empty() {
            write!(f, " fields={}", quoted(&self.fields))?;
        }
        if let Some(limit) = self.limit {
            write!(f, " limit={limit}")?;
        }
        if let Some(list) = &self.continued {
            write!(f, " continue={list}")?;
        }
        match self.initial_events {
            None => {}
            Some(true) => write!(f, " initial-events")?,
            Some(false) => write!(f, " initial-events=false")?,
        }
        if self.bookmarks {
            write!(f, " bookmarks")?;
        }
        self.timeout_seconds
            .map_or(Ok(()), |seconds| write!(f, " timeout={seconds}s"))
    }
}

/// The parameters of an informer that are not those of its lists and watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InformerOptions {
    /// `watch-list=false`: the informer requests no streaming lists.
    pub watch_list: bool,
    /// `resync`: the period; 0 for none.
    pub resync_seconds: u64,
}

impl Default for InformerOptions {
    fn default() -> Self {
        Self {
            watch_list: true,
            resync_seconds: 0,
        }
    }
}

/// What loses its connection, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// The cache's connection to storage.
    Storage,
    /// The connection of the informer with this name to the server.
    Informer(String),
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage => Ok(()),
            Self::Informer(name) => write!(f, " {name}"),
        }
    }
}

/// One change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Creates or replaces the object.
    Put(ObjectName, Content),
    /// Deletes the object.
    Delete(ObjectName),
    /// Stores a value that is not JSON, directly in storage.
    Corrupt(ObjectName),
}

impl Write {
    /// Returns the object.
    pub fn object(&self) -> &ObjectName {
        let (Self::Put(object, _) | Self::Delete(object) | Self::Corrupt(object)) = self;
        object
    }

    fn parts(&self) -> (&'static str, &ObjectName, String) {
        match self {
            Self::Put(object, content) if *content == Content::default() => {
                ("put", object, String::new())
            }
            Self::Put(object, content) => ("put", object, format!(" {content}")),
            Self::Delete(object) => ("delete", object, String::new()),
            Self::Corrupt(object) => ("corrupt", object, String::new()),
        }
    }
}

/// A statement of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `put`, `delete`, `corrupt`, and `transaction` if there are several writes.
    Write {
        /// The changes of one revision.
        writes: Vec<Write>,
        /// The name of the version of the last revision.
        version: u32,
        /// `x200`: the number of revisions.
        count: usize,
    },
    /// Opens a watch.
    Watch(String, Read),
    /// Lists; a later expectation refers to the result.
    List(String, Read),
    /// Starts an informer.
    Informer(String, Read, InformerOptions),
    /// Adds a handler (the first name) to an informer (the second).
    Handler(String, String),
    /// The client of a watch stops reading; a call of a handler does not return.
    Pause(String),
    /// The client reads again.
    Resume(String),
    /// The client closes its watch; a handler is removed.
    Close(String),
    /// Storage compacts its history up to a version.
    Compact(VersionRef),
    /// A watch ends, and can be opened again: the cache's of storage, or an informer's of the server.
    Cut(Link),
    /// A connection is lost.
    Disconnect(Link),
    /// The connection is possible again.
    Reconnect(Link),
    /// A new server over the same storage serves the following steps. The open watches end.
    Restart,
    /// Waits this many seconds.
    Sleep(u64),
    /// A watch or list has received exactly these items since the last expectation.
    Expect(String, Vec<Item>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write {
                writes,
                version,
                count,
            } => match writes.as_slice() {
                [write] => {
                    let (verb, object, content) = write.parts();
                    write!(f, "{verb} {object} @{version}{content}")?;
                    if *count > 1 {
                        write!(f, " x{count}")
                    } else {
                        Ok(())
                    }
                }
                writes => {
                    let writes = writes.iter().map(|write| {
                        let (verb, object, content) = write.parts();
                        format!("{verb} {object}{content}")
                    });
                    write!(
                        f,
                        "transaction @{version}: {}",
                        writes.collect::<Vec<_>>().join(", ")
                    )
                }
            },
            Self::Watch(client, read) => write!(f, "watch {client} {read}"),
            Self::List(client, read) => write!(f, "list {client} {read}"),
            Self::Pause(client) => write!(f, "pause {client}"),
            Self::Resume(client) => write!(f, "resume {client}"),
            Self::Close(client) => write!(f, "close {client}"),
            Self::Compact(version) => write!(f, "compact {version}"),
            Self::Informer(name, read, options) => {
                write!(f, "informer {name} {read}")?;
                if !options.watch_list {
                    write!(f, " watch-list=false")?;
                }
                match options.resync_seconds {
                    0 => Ok(()),
                    seconds => write!(f, " resync={seconds}s"),
                }
            }
            Self::Handler(name, informer) => write!(f, "handler {name} {informer}"),
            Self::Cut(link) => write!(f, "cut{link}"),
            Self::Disconnect(link) => write!(f, "disconnect{link}"),
            Self::Reconnect(link) => write!(f, "reconnect{link}"),
            Self::Restart => write!(f, "restart"),
            Self::Sleep(seconds) => write!(f, "sleep {seconds}s"),
            Self::Expect(client, items) => {
                write!(f, "expect {client}: {}", Item::join(items))
            }
        }
    }
}

/// A step and its position in the file.
#[derive(Debug, Clone)]
pub struct Step {
    /// The number of its first line, from 1 on.
    pub line: usize,
    /// The number of its last line.
    pub last_line: usize,
    /// What it does.
    pub action: Action,
}

/// A parsed script.
#[derive(Debug, Clone)]
pub struct Script {
    /// The name of the file.
    pub name: String,
    /// Its lines.
    pub lines: Vec<String>,
    /// What it requires of a driver.
    pub needs: BTreeSet<Need>,
    /// Its steps.
    pub steps: Vec<Step>,
}

impl Script {
    /// Returns the namespaces of the objects.
    pub fn namespaces(&self) -> BTreeSet<String> {
        let writes = self.steps.iter().filter_map(|step| match &step.action {
            Action::Write { writes, .. } => Some(writes),
            _ => None,
        });
        writes
            .flatten()
            .map(|write| write.object().namespace.clone())
            .collect()
    }
}
