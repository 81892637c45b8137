//! The stores, all with the same two tables: `current`, from key to head, and `log`, from revision to record.

mod fjall;
mod lmdb;
mod pending;
mod redb;
mod sqlite;
mod watchet;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;

use crate::group::Group;
pub(crate) use watchet::Watchet;

/// Receives a key, its head and its last record.
pub(crate) type Visit<'a> = dyn FnMut(&str, &[u8], &[u8]) -> Result<()> + 'a;

/// A database that makes atomic, durable commits.
pub(crate) trait Engine: Send {
    /// Makes the changes of `change` in one commit, and returns once it is on disk.
    fn commit(&mut self, change: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<()>;

    /// Calls `visit` with each key, head and last record.
    fn each(&self, visit: &mut Visit<'_>) -> Result<()>;
}

/// The state in a commit, with the changes so far.
pub(crate) trait Transaction {
    /// Returns the head of a key.
    fn head(&mut self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Returns the record of a revision.
    fn record(&mut self, revision: u64) -> Result<Option<Vec<u8>>>;
    /// Writes the head of a key and the record of a revision.
    fn put(&mut self, key: &str, head: &[u8], revision: u64, record: &[u8]) -> Result<()>;
    /// Deletes the record of a revision.
    fn delete_record(&mut self, revision: u64) -> Result<()>;
}

/// Opens or creates a database in an existing directory.
pub(crate) type Open = fn(&Path) -> Result<Box<dyn Engine>>;

/// A store of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No store: what the load itself costs.
    Nothing,
    /// The embedded store of watchet.
    Watchet,
    Redb,
    Fjall,
    Lmdb,
    Sqlite,
}

impl Kind {
    pub(crate) const ALL: &[Self] = &[
        Self::Nothing,
        Self::Watchet,
        Self::Redb,
        Self::Fjall,
        Self::Lmdb,
        Self::Sqlite,
    ];

    /// Returns the name in arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Watchet => "watchet",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::Lmdb => "lmdb",
            Self::Sqlite => "sqlite",
        }
    }

    /// Returns the name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nothing => "no store",
            Self::Watchet => "watchet: log and redb 4.5",
            Self::Redb => "redb 4.5",
            Self::Fjall => "fjall 3.1",
            Self::Lmdb => "LMDB 0.9",
            Self::Sqlite => "SQLite 3, WAL",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|kind| kind.name() == name);
        found
            .copied()
            .with_context(|| format!("no store is called {name}"))
    }

    /// Returns the function that opens its database; `None` if it is not one with group commit by `group`.
    pub(crate) fn engine(self) -> Option<Open> {
        match self {
            Self::Nothing | Self::Watchet => None,
            Self::Redb => Some(redb::open),
            Self::Fjall => Some(fjall::open),
            Self::Lmdb => Some(lmdb::open),
            Self::Sqlite => Some(sqlite::open),
        }
    }
}

/// An open store under load.
pub(crate) enum Store {
    Nothing,
    Watchet(Watchet),
    Group(Group),
}

impl Store {
    /// Creates a store in an empty directory.
    pub(crate) fn create(kind: Kind, directory: &Path) -> Result<Self> {
        match (kind, kind.engine()) {
            (_, Some(open)) => Ok(Self::Group(Group::start(open, directory)?)),
            (Kind::Watchet, None) => Ok(Self::Watchet(Watchet::open(directory)?)),
            (Kind::Nothing, None) => Ok(Self::Nothing),
            (kind, None) => bail!("{} has no engine", kind.name()),
        }
    }

    /// Writes an object and returns its revision once it is on disk. `expected` is the revision of its last write.
    pub(crate) async fn put(
        &self,
        key: String,
        value: Bytes,
        expected: Option<u64>,
    ) -> Result<u64> {
        match self {
            Self::Nothing => {
                tokio::task::yield_now().await;
                Ok(1)
            }
            Self::Watchet(store) => store.put(&key, value, expected).await,
            Self::Group(store) => store.put(key, value, expected).await,
        }
    }

    /// Deletes all records that are not the last of their key.
    pub(crate) async fn compact(&self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Watchet(store) => store.compact().await,
            Self::Group(store) => store.compact().await,
        }
    }
}
