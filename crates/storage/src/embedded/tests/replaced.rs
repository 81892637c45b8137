//! Tests of a store that a restore replaces: one of the two is there, whatever fails or is killed.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::backup::{create_from, rename_all, renames, restoring_directory};
use super::super::{
    BackupError, ExistingStore, StoredValue, check, is_restore_interrupted, restore,
};
use super::offline::{all, back_up, open};
use super::*;

/// A data directory with the backup of a store that has `/pods/ns/new`, and a store that has `/pods/ns/old`.
struct DataDirectory {
    directory: tempfile::TempDir,
    backup: PathBuf,
}

impl DataDirectory {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let backup = directory.path().join("backup");
        let other = tempfile::tempdir().unwrap();
        let store = open(other.path());
        done(&store, "/pods/ns/new", Expect::Absent).await;
        back_up(&store, &backup).await;
        let this = Self { directory, backup };
        done(&open(&this.store()), "/pods/ns/old", Expect::Absent).await;
        this
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn names(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

async fn keys(directory: &Path) -> Vec<String> {
    let page = all(&open(directory)).await;
    let keys = page.items.iter().map(|item| item.key.as_str().to_owned());
    keys.collect()
}

#[tokio::test]
async fn a_replaced_store_is_renamed() {
    let data = DataDirectory::new().await;
    let refused = restore(&data.backup, &data.store(), 0, ExistingStore::Refuse).unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty { .. }), "{refused}");
    let in_use = open(&data.store());
    let refused = restore(&data.backup, &data.store(), 0, ExistingStore::Replace).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    drop(in_use);
    let restored = restore(&data.backup, &data.store(), 0, ExistingStore::Replace).unwrap();
    assert_eq!(keys(&restored.replaced.unwrap()).await, ["/pods/ns/old"]);
    assert_eq!(keys(&data.store()).await, ["/pods/ns/new"]);
    assert_eq!(data.names().len(), 3, "{:?}", data.names());
}

/// The store was renamed before the new one existed, and not renamed back: after a full disk, or an error of reading the
/// backup, the next start served an empty cluster.
#[tokio::test]
async fn a_failed_restore_leaves_the_store() {
    let data = DataDirectory::new().await;
    let names = data.names();
    let intact = fs::read(&data.backup).unwrap();
    // The backup is cut after it was verified.
    fs::write(&data.backup, &intact[..intact.len() - 1]).unwrap();
    let cut = restore(&data.backup, &data.store(), 0, ExistingStore::Replace).unwrap_err();
    assert!(matches!(cut, BackupError::Damaged { .. }), "{cut}");
    assert_eq!(data.names(), names);
    assert_eq!(keys(&data.store()).await, ["/pods/ns/old"]);
    // The new store cannot be written.
    fs::write(&data.backup, &intact).unwrap();
    fs::write(restoring_directory(&data.store()), "").unwrap();
    let value = StoredValue {
        key: "/pods/ns/new".to_owned(),
        value: "new".into(),
        create_revision: ResourceVersion::new(2),
        mod_revision: ResourceVersion::new(2),
        expires_ms: 0,
    };
    let failed = [
        restore(&data.backup, &data.store(), 0, ExistingStore::Replace).map(drop),
        create_from(&[value], 2, &data.store(), ExistingStore::Replace).map(drop),
    ];
    for failed in failed {
        assert!(matches!(failed, Err(BackupError::Store(_))), "{failed:?}");
        assert_eq!(keys(&data.store()).await, ["/pods/ns/old"]);
    }
}

/// A process that was killed between the renames left no store, and the next start created an empty one.
#[tokio::test]
async fn a_restore_that_is_killed_leaves_the_old_or_the_new_store() {
    for (count, expected) in ["old", "old", "new", "new"].into_iter().enumerate() {
        let data = DataDirectory::new().await;
        let store = data.store();
        let replaced = data.directory.path().join("store.replaced.1");
        let complete = restoring_directory(&store);
        restore(&data.backup, &complete, 0, ExistingStore::Refuse).unwrap();
        let renames = renames(&store, Some(&replaced));
        assert_eq!(renames.len(), 3);
        rename_all(&renames[..count]).unwrap();
        assert_eq!(is_restore_interrupted(&store), count == 2);
        if count == 2 {
            // As `watchet store check` of a stopped data directory.
            check(&store, &mut |_, _| {}).unwrap();
        }
        assert_eq!(keys(&store).await, [format!("/pods/ns/{expected}")]);
        assert_eq!(replaced.exists(), count >= 2);
        if count >= 2 {
            assert_eq!(keys(&replaced).await, ["/pods/ns/old"]);
        }
        // The new store of an earlier attempt does not come back if the store is moved away.
        rename_all(&[(store.clone(), data.directory.path().join("away"))]).unwrap();
        assert_eq!(keys(&store).await, [""; 0]);
        let again = restore(&data.backup, &store, 0, ExistingStore::Replace).unwrap();
        assert!(again.replaced.is_some());
        assert_eq!(keys(&store).await, ["/pods/ns/new"]);
        assert!(!complete.exists());
    }
}
