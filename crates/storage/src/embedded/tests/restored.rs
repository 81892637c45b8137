//! Tests of stores that are older than the data directory around them: replaced by an older copy, emptied, or damaged.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::tables::LAST_REVISION_AHEAD;
use super::*;

/// A data directory with a store in it.
struct DataDirectory(tempfile::TempDir);

impl DataDirectory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn try_open(&self, was_used: bool, durability: Durability) -> Result<Arc<Embedded>, OpenError> {
        let last_revision = LastRevision {
            file: &self.0.path().join(LAST_REVISION_FILE),
            was_used,
        };
        let config = EmbeddedConfig {
            durability,
            compaction_interval: Duration::ZERO,
            retention: None,
        };
        Embedded::open_with_last_revision(&self.store(), last_revision, config)
    }

    fn open(&self) -> Arc<Embedded> {
        self.try_open(true, Durability::Fsync).unwrap()
    }

    /// Replaces the store by `copy`.
    fn restore(&self, copy: &Path) {
        fs::remove_dir_all(self.store()).unwrap();
        copy_directory(copy, &self.store());
    }
}

pub(super) fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Asserts that a watch from any revision up to `last` is refused as compacted, and that the store goes on.
async fn assert_history_is_gone(store: &Embedded, last: ResourceVersion) {
    let now = store.current_revision().await.unwrap();
    assert!(
        now.get() >= last.get() + LAST_REVISION_AHEAD,
        "{now} after {last}"
    );
    for seen in 1..=last.get() {
        let watch = store
            .watch(&key("/pods/"), ResourceVersion::new(seen))
            .await;
        assert!(
            matches!(watch, Err(StorageError::Compacted { .. })),
            "{seen}: {watch:?}"
        );
    }
    let mut watch = store.watch(&key("/pods/"), now).await.unwrap();
    let made = done(store, "/pods/ns/after", Expect::Absent).await;
    assert_eq!(made, now.next());
    let batch = watch.batches.next().await.unwrap().unwrap();
    assert_eq!(batch.events[0].revision, made);
}

/// Revisions went from 22 back to 17, and a watch that resumed from 22 missed five events.
#[tokio::test]
async fn a_restored_store_continues_beyond_every_given_revision() {
    let directory = DataDirectory::new();
    let backup = tempfile::tempdir().unwrap();
    let store = directory.open();
    for number in 0..16 {
        done(&store, &format!("/pods/ns/{number:02}"), Expect::Absent).await;
    }
    drop(store);
    copy_directory(&directory.store(), backup.path());
    let store = directory.open();
    for number in 16..21 {
        done(&store, &format!("/pods/ns/{number:02}"), Expect::Absent).await;
    }
    let last = store.current_revision().await.unwrap();
    let listed = keys(&store).await.len();
    assert_eq!(listed, 21);
    drop(store);

    directory.restore(backup.path());
    let store = directory.open();
    assert_eq!(keys(&store).await.len(), 16, "the objects of the backup");
    assert_history_is_gone(&store, last).await;
    let before = store.current_revision().await.unwrap();
    drop(store);
    // Once only.
    let store = directory.open();
    assert_eq!(store.current_revision().await.unwrap(), before);
    assert!(store.watch(&key("/pods/"), before).await.is_ok());
}

#[tokio::test]
async fn a_killed_and_restored_store_continues_beyond_every_given_revision() {
    for durability in [Durability::Fsync, Durability::None] {
        let directory = DataDirectory::new();
        let backup = tempfile::tempdir().unwrap();
        let store = directory.try_open(false, durability).unwrap();
        done(&store, "/pods/ns/a", Expect::Absent).await;
        store.execute(Op::Flush).await.unwrap();
        copy_directory(&directory.store(), backup.path());
        let last = done(&store, "/pods/ns/b", Expect::Absent).await;
        // A copy of the data directory, as a kill leaves it.
        let killed = DataDirectory::new();
        copy_directory(backup.path(), &killed.store());
        let last_revision = directory.0.path().join(LAST_REVISION_FILE);
        fs::copy(last_revision, killed.0.path().join(LAST_REVISION_FILE)).unwrap();
        let after = killed.try_open(true, durability).unwrap();
        assert_eq!(keys(&after).await, ["/pods/ns/a"], "{durability:?}");
        let now = after.current_revision().await.unwrap();
        assert!(now > last, "{durability:?}: {now} after {last}");
        let watch = after.watch(&key("/pods/"), last).await;
        assert!(
            matches!(watch, Err(StorageError::Compacted { .. })),
            "{watch:?}"
        );
    }
}

#[tokio::test]
async fn an_emptied_store_continues_beyond_every_given_revision() {
    let directory = DataDirectory::new();
    let store = directory.open();
    let last = done(&store, "/pods/ns/a", Expect::Absent).await;
    drop(store);
    for emptied in [true, false] {
        fs::remove_dir_all(directory.store()).unwrap();
        if emptied {
            fs::create_dir(directory.store()).unwrap();
        }
        let store = directory.open();
        assert_eq!(keys(&store).await, [""; 0]);
        assert_history_is_gone(&store, last).await;
    }
}

/// A data directory of a version that recorded no revision there.
#[tokio::test]
async fn a_missing_store_of_a_used_directory_does_not_begin_at_the_first_revision() {
    let directory = DataDirectory::new();
    let store = directory.try_open(true, Durability::Fsync).unwrap();
    let revision = store.current_revision().await.unwrap();
    assert!(revision.get() >= LAST_REVISION_AHEAD, "{revision}");
    let unused = DataDirectory::new();
    let store = unused.try_open(false, Durability::Fsync).unwrap();
    assert_eq!(store.current_revision().await.unwrap().get(), 1);
}

/// A kill after the creation of the new store, and before its revision was raised, left a store at revision 1, which the
/// next start did not recognize as a new one.
#[tokio::test]
async fn a_store_that_is_killed_at_its_creation_does_not_begin_at_the_first_revision() {
    let directory = DataDirectory::new();
    let file = directory.0.path().join(LAST_REVISION_FILE);
    fs::write(&file, b"unreadable").unwrap();
    let last_revision = LastRevision {
        file: &file,
        was_used: true,
    };
    // As the first step of the open that follows, which has not written the file.
    drop(Data::open(&directory.store(), Some(last_revision)).unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"unreadable");
    let store = directory.try_open(true, Durability::Fsync).unwrap();
    let revision = store.current_revision().await.unwrap();
    assert!(revision.get() >= LAST_REVISION_AHEAD, "{revision}");
    drop(store);
    super::super::check(&directory.store(), &mut |_, _| {}).unwrap();
}

/// A store whose files are of different times is damaged, not restored.
#[tokio::test]
async fn a_data_file_that_is_older_than_the_files_beside_it_is_refused() {
    let directory = DataDirectory::new();
    let store = directory.open();
    done(&store, "/pods/ns/a", Expect::Absent).await;
    drop(store);
    let older = fs::read(directory.store().join(DATA_FILE)).unwrap();
    let store = directory.open();
    let last = done(&store, "/pods/ns/b", Expect::Absent).await;
    drop(store);
    fs::write(directory.store().join(DATA_FILE), older).unwrap();
    let refused = directory.try_open(true, Durability::Fsync).unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
    // As the message says.
    assert!(refused.to_string().contains(REVISION_FILE), "{refused}");
    fs::remove_file(directory.store().join(REVISION_FILE)).unwrap();
    assert_history_is_gone(&directory.open(), last).await;
}

/// A damaged record of the revision does not prevent a start, and is written again.
#[tokio::test]
async fn a_damaged_recorded_revision_is_replaced() {
    let directory = DataDirectory::new();
    let store = directory.open();
    let last = done(&store, "/pods/ns/a", Expect::Absent).await;
    drop(store);
    let file = directory.0.path().join(LAST_REVISION_FILE);
    fs::write(&file, b"damaged").unwrap();
    let store = directory.open();
    assert_eq!(store.current_revision().await.unwrap(), last);
    drop(store);
    fs::remove_dir_all(directory.store()).unwrap();
    let store = directory.try_open(false, Durability::Fsync).unwrap();
    assert!(store.current_revision().await.unwrap() > last);
}
