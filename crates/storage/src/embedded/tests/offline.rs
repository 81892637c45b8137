//! Tests of backups, of the check, and of the compaction of the data file.

use std::path::Path;

use redb::ReadableTable as _;

use super::super::backup::create_from;
use super::super::{ExistingStore, bump_revision, check, compact_file, restore, verify_backup};
use super::restored::copy_directory;
use super::*;
use crate::embedded::BackupError;

pub(super) fn open(directory: &Path) -> Arc<Embedded> {
    let config = EmbeddedConfig {
        durability: Durability::Fsync,
        compaction_interval: Duration::ZERO,
        retention: None,
    };
    Embedded::open(directory, config).unwrap()
}

pub(super) async fn put_value(store: &Embedded, at: &str, value: Vec<u8>, ttl: Option<Duration>) {
    let (found, _) = store.get(&key(at)).await.unwrap();
    let expect = found.map_or(Expect::Absent, |found| Expect::At(found.mod_revision));
    let put = Put {
        key: key(at),
        value: value.into(),
        expect,
        ttl,
    };
    assert!(matches!(store.put(put).await, Ok(Outcome::Done(_))));
}

/// Writes a backup of `store` to `path`.
pub(super) async fn back_up(store: &Arc<Embedded>, path: &Path) {
    let mut bytes = Vec::new();
    let mut parts = store.clone().backup().unwrap();
    while let Some(part) = parts.next().await {
        bytes.extend(part.unwrap());
    }
    std::fs::write(path, bytes).unwrap();
}

pub(super) async fn all(store: &Embedded) -> ListPage {
    let request = ListRequest {
        prefix: key("/pods/"),
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    store.list(request).await.unwrap()
}

/// A store with values, deleted keys, a deadline, history in the tables and changes in the log.
async fn busy_store(directory: &Path) -> Arc<Embedded> {
    let store = open(directory);
    for round in 0..3 {
        for number in 0..200 {
            let value = format!("{round}-{number}-{}", "x".repeat(number * 20));
            put_value(
                &store,
                &format!("/pods/ns/{number:03}"),
                value.into_bytes(),
                None,
            )
            .await;
        }
        let (found, _) = store.get(&key("/pods/ns/007")).await.unwrap();
        let at = found.unwrap().mod_revision;
        store.delete(&key("/pods/ns/007"), at).await.unwrap();
        if round == 1 {
            store.execute(Op::Flush).await.unwrap();
            let now = store.current_revision().await.unwrap();
            store
                .compact(ResourceVersion::new(now.get() - 50))
                .await
                .unwrap();
        }
    }
    put_value(
        &store,
        "/pods/ns/brief",
        b"x".to_vec(),
        Some(Duration::from_secs(3600)),
    )
    .await;
    store
}

#[tokio::test]
async fn a_backup_of_a_running_store_is_the_state_of_one_revision() {
    let directory = tempfile::tempdir().unwrap();
    let store = busy_store(&directory.path().join("store")).await;
    let listed = all(&store).await;
    let mut parts = store.clone().backup().unwrap();
    let mut bytes = parts.next().await.unwrap().unwrap().to_vec();
    // Writes between the parts are not in the backup.
    for number in 0..200 {
        put_value(
            &store,
            &format!("/pods/ns/{number:03}"),
            b"later".to_vec(),
            None,
        )
        .await;
    }
    put_value(&store, "/pods/ns/zzz", b"later".to_vec(), None).await;
    let mut count = 1;
    while let Some(part) = parts.next().await {
        bytes.extend(part.unwrap());
        count += 1;
    }
    drop(parts);
    drop(store);
    assert!(count >= 1, "{count} parts");
    let file = directory.path().join("backup");
    std::fs::write(&file, &bytes).unwrap();
    let summary = verify_backup(&file).unwrap();
    assert_eq!(summary.revision, listed.revision.get());
    assert_eq!(summary.keys, listed.items.len() as u64);
    assert_eq!(summary.bytes, bytes.len() as u64);

    let target = directory.path().join("restored");
    restore(&file, &target, 0, ExistingStore::Refuse).unwrap();
    let report = check(&target, &mut |_, _| {}).unwrap();
    assert_eq!(
        (report.keys, report.with_ttl),
        (listed.items.len() as u64, 1)
    );
    let restored = open(&target);
    assert_eq!(all(&restored).await, listed, "keys, values and revisions");
    let watch = restored.watch(&key("/pods/"), listed.revision).await;
    assert!(watch.is_ok(), "clients at the revision of the backup go on");
    let at = ResourceVersion::new(listed.revision.get() - 1);
    let watch = restored.watch(&key("/pods/"), at).await;
    assert!(
        matches!(watch, Err(StorageError::Compacted { .. })),
        "{watch:?}"
    );
    let after = done(&restored, "/pods/ns/after", Expect::Absent).await;
    assert_eq!(after, listed.revision.next());
}

/// Returns a store of 40 objects of 100 KB, more than a part of a backup.
async fn large_store(directory: &std::path::Path) -> Arc<Embedded> {
    let store = open(directory);
    for number in 0..40 {
        put_value(
            &store,
            &format!("/pods/ns/{number:02}"),
            vec![number; 100_000],
            None,
        )
        .await;
    }
    store
}

/// Backups have parts, of which each is read on its own.
#[tokio::test]
async fn a_large_backup_has_several_parts() {
    let directory = tempfile::tempdir().unwrap();
    let store = large_store(&directory.path().join("store")).await;
    let parts: Vec<_> = store.clone().backup().unwrap().collect().await;
    assert!(parts.len() > 3, "{}", parts.len());
    let file = directory.path().join("backup");
    back_up(&store, &file).await;
    assert_eq!(verify_backup(&file).unwrap().keys, 40);
}

#[tokio::test]
async fn a_backup_fails_if_its_revision_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let store = large_store(&directory.path().join("store")).await;
    let mut parts = store.clone().backup().unwrap();
    parts.next().await.unwrap().unwrap();
    put_value(&store, "/pods/ns/00", b"later".to_vec(), None).await;
    let now = store.current_revision().await.unwrap();
    store.compact(now).await.unwrap();
    let error = parts.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("longer than history"), "{error}");
    assert!(parts.next().await.is_none());
}

#[tokio::test]
async fn damaged_backups_are_refused_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = busy_store(&directory.path().join("store")).await;
    let file = directory.path().join("backup");
    back_up(&store, &file).await;
    let bytes = std::fs::read(&file).unwrap();
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed());
    let target = directory.path().join("restored");
    let check_refused = |bytes: &[u8], story: &str| {
        std::fs::write(&file, bytes).unwrap();
        let verified = verify_backup(&file).unwrap_err();
        let restored = restore(&file, &target, 0, ExistingStore::Refuse).unwrap_err();
        for error in [verified, restored] {
            assert!(
                matches!(error, BackupError::Damaged { .. }),
                "{story}: {error}"
            );
            assert!(error.to_string().contains("backup"), "{story}: {error}");
        }
        assert!(!target.exists(), "{story}");
    };
    for _ in 0..20 {
        let at = random.usize(..bytes.len());
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << random.u8(..8);
        check_refused(&flipped, &format!("flipped at {at}"));
        let len = random.usize(..bytes.len());
        check_refused(&bytes[..len], &format!("cut at {len}"));
    }
    check_refused(&[&bytes[..], b"x"].concat(), "longer");
    check_refused(b"", "empty");
    std::fs::write(&file, &bytes).unwrap();
    std::fs::create_dir(&target).unwrap();
    restore(&file, &target, 0, ExistingStore::Refuse).unwrap();
    let again = restore(&file, &target, 0, ExistingStore::Refuse).unwrap_err();
    assert!(matches!(again, BackupError::NotEmpty { .. }), "{again}");
    assert_eq!(all(&open(&target)).await, all(&store).await);
}

#[tokio::test]
async fn a_bumped_store_has_no_history() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = busy_store(&path).await;
    let listed = all(&store).await;
    drop(store);
    let (before, after) = bump_revision(&path, 1000).unwrap();
    assert_eq!((before, after), (listed.revision.get(), before + 1000));
    check(&path, &mut |_, _| {}).unwrap();
    let store = open(&path);
    let now = all(&store).await;
    assert_eq!((now.items, now.revision.get()), (listed.items, after));
    let watch = store.watch(&key("/pods/"), listed.revision).await;
    assert!(
        matches!(watch, Err(StorageError::Compacted { .. })),
        "{watch:?}"
    );
}

/// 51,000 pairs of creations and deletions left a file of 140 MB.
#[tokio::test]
async fn compaction_of_the_file_shrinks_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path);
    put_value(&store, "/pods/ns/first", b"x".to_vec(), None).await;
    let mut names = Vec::new();
    for number in 0..300 {
        let at = format!("/pods/ns/{number:03}");
        put_value(&store, &at, vec![1; 50_000], None).await;
        names.push(at);
    }
    for at in &names {
        let (found, _) = store.get(&key(at)).await.unwrap();
        store
            .delete(&key(at), found.unwrap().mod_revision)
            .await
            .unwrap();
    }
    put_value(&store, "/pods/ns/last", b"x".to_vec(), None).await;
    let now = store.current_revision().await.unwrap();
    store.compact(now).await.unwrap();
    let listed = all(&store).await;
    drop(store);
    let resized = compact_file(&path).unwrap();
    assert!(resized.after < 1 << 20, "{resized:?}");
    assert!(resized.after <= resized.before, "{resized:?}");
    let len = std::fs::metadata(path.join(DATA_FILE)).unwrap().len();
    assert_eq!(len, resized.after);
    check(&path, &mut |_, _| {}).unwrap();
    assert_eq!(all(&open(&path)).await, listed);
}

#[tokio::test]
async fn a_check_counts_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = busy_store(&path).await;
    let revision = store.current_revision().await.unwrap().get();
    // As a kill leaves it: with changes that only the log has.
    let killed = directory.path().join("killed");
    copy_directory(&path, &killed);
    drop(store);
    let killed = check(&killed, &mut |_, _| {}).unwrap();
    assert!(killed.records_in_log > 0, "{killed:?}");
    let stopped = check(&path, &mut |_, _| {}).unwrap();
    assert_eq!(stopped.records_in_log, 0);
    for report in [killed, stopped] {
        assert_eq!(
            (report.revision, report.keys),
            (revision, 200),
            "{report:?}"
        );
        assert_eq!((report.deleted_keys, report.with_ttl), (1, 1), "{report:?}");
        assert!(report.compacted > 1, "{report:?}");
        assert!(
            report.to_string().contains("objects            200"),
            "{report}"
        );
    }
    let none = check(&directory.path().join("none"), &mut |_, _| {}).unwrap_err();
    assert!(none.to_string().contains("there is no store"), "{none}");
    assert!(!directory.path().join("none").exists());
}

/// Each inconsistency of the tables that checksums do not show is found.
#[tokio::test]
async fn a_check_finds_missing_and_surplus_entries() {
    use super::super::tables::{CURRENT, EXPIRY, LOG};
    type Damage = fn(&redb::WriteTransaction, u64);
    let damages: [(&str, Damage); 5] = [
        ("record of revision", |txn, revision| {
            txn.open_table(LOG).unwrap().remove(revision - 10).unwrap();
        }),
        ("records, but", |txn, _| {
            txn.open_table(CURRENT)
                .unwrap()
                .remove("/pods/ns/100")
                .unwrap();
        }),
        ("expiry time", |txn, _| {
            let mut expiry = txn.open_table(EXPIRY).unwrap();
            expiry.pop_first().unwrap().unwrap();
        }),
        ("expiry time", |txn, _| {
            txn.open_table(EXPIRY).unwrap().insert((5, 7), ()).unwrap();
        }),
        ("is damaged", |txn, revision| {
            let mut log = txn.open_table(LOG).unwrap();
            let bytes = log.get(revision - 10).unwrap().unwrap().value().to_vec();
            log.insert(revision - 11, &*bytes).unwrap();
        }),
    ];
    for (message, damage) in damages {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = busy_store(&path).await;
        let revision = store.current_revision().await.unwrap().get();
        drop(store);
        let db = redb::Database::create(path.join(DATA_FILE)).unwrap();
        let txn = db.begin_write().unwrap();
        damage(&txn, revision);
        txn.commit().unwrap();
        drop(db);
        let error = check(&path, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
        assert!(error.contains(DATA_FILE), "{message}: {error}");
    }
}

#[tokio::test]
async fn a_store_is_created_from_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let value = |name: &str, revision: u64, expires_ms| StoredValue {
        key: format!("/pods/ns/{name}"),
        value: name.to_owned().into(),
        create_revision: ResourceVersion::new(revision),
        mod_revision: ResourceVersion::new(revision),
        expires_ms,
    };
    create_from(
        &[value("b", 5, 0), value("a", 9, u64::MAX - 1)],
        12,
        &path,
        ExistingStore::Refuse,
    )
    .unwrap();
    assert_eq!(check(&path, &mut |_, _| {}).unwrap().with_ttl, 1);
    let store = open(&path);
    let listed = all(&store).await;
    assert_eq!(listed.revision.get(), 12);
    let found = listed
        .items
        .iter()
        .map(|item| (&*item.value, item.mod_revision.get()));
    assert_eq!(found.collect::<Vec<_>>(), [(&b"a"[..], 9), (b"b", 5)]);
    let values: Vec<_> = store.values_in_order().await.unwrap().collect().await;
    let values: Vec<_> = values.into_iter().map(Result::unwrap).collect();
    assert_eq!(values, [value("b", 5, 0), value("a", 9, u64::MAX - 1)]);
}

/// A value that was larger than the reader of backups accepts was imported, and then every backup failed.
#[tokio::test]
async fn a_store_is_created_only_from_values_that_a_backup_can_contain() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let value = |key: String, bytes: usize| StoredValue {
        key,
        value: vec![b'x'; bytes].into(),
        create_revision: ResourceVersion::new(5),
        mod_revision: ResourceVersion::new(5),
        expires_ms: 0,
    };
    let name = || "/pods/ns/large".to_owned();
    for refused in [
        value(name(), VALUE_BYTES_MAX + 1),
        value(format!("/pods/ns/{}", "x".repeat(1 << 16)), VALUE_BYTES_MAX),
    ] {
        let key = refused.key[..14].to_owned();
        let error = create_from(&[refused], 5, &path, ExistingStore::Refuse).unwrap_err();
        assert!(matches!(error, BackupError::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains(&key), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
    let largest = value(name(), VALUE_BYTES_MAX);
    create_from(&[largest], 5, &path, ExistingStore::Refuse).unwrap();
    let file = directory.path().join("backup");
    back_up(&open(&path), &file).await;
    assert_eq!(verify_backup(&file).unwrap().keys, 1);
}
