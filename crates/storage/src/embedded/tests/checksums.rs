//! Tests of a start with the stored checksums of the data file: damage is found when it is read, or
//! by the verification in the background, and checksums of another state are not used.

use std::path::Path;

use super::*;
use crate::Expect;

const KEYS: usize = 200;

fn open(directory: &Path) -> Result<Arc<Embedded>, OpenError> {
    let config = EmbeddedConfig {
        durability: Durability::Fsync,
        compaction_interval: Duration::ZERO,
        retention: None,
    };
    Embedded::open(directory, config)
}

fn key(number: usize) -> StorageKey {
    StorageKey::new(&format!("/pods/ns/{number}")).unwrap()
}

fn value(number: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; 3000]
}

/// Makes a store of more than its page cache, and ends it.
async fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    for number in 0..KEYS {
        let put = Put {
            key: key(number),
            value: value(number).into(),
            expect: Expect::Absent,
            ttl: None,
        };
        store.put(put).await.unwrap();
    }
    drop(store);
    directory
}

/// Reads each value and a list; true if all are correct, false if the store reports the damage.
async fn reads_all(store: &Embedded, data: &Path) -> bool {
    let check = |error: StorageError| match error {
        StorageError::Corrupt(text) => {
            assert!(text.contains(&*data.to_string_lossy()), "{text}");
            assert!(text.contains("restore"), "{text}");
            false
        }
        error => panic!("{error:?}"),
    };
    for number in 0..KEYS {
        match store.get(&key(number)).await {
            Ok((found, _)) => assert_eq!(found.unwrap().value, value(number)),
            Err(error) => return check(error),
        }
    }
    let request = ListRequest {
        prefix: StorageKey::new("/pods/").unwrap(),
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    match store.list(request).await {
        Ok(page) => assert_eq!(page.items.len(), KEYS),
        Err(error) => return check(error),
    }
    true
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T, StorageError>) -> bool {
    matches!(&result, Err(StorageError::Corrupt(text)) if text.contains("offset"))
}

/// Returns the offset of a stored value in the data file.
fn place_of_a_value(bytes: &[u8]) -> usize {
    let run = &value(7)[..1000];
    bytes
        .windows(run.len())
        .position(|part| part == run)
        .unwrap()
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_are_never_served() {
    let made = filled().await;
    let len = std::fs::metadata(made.path().join(DATA_FILE))
        .unwrap()
        .len() as usize;
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(0x5eed_c5c5));
    let mut found = 0;
    for _ in 0..150 {
        let copy = copy(made.path());
        let data = copy.path().join(DATA_FILE);
        flip(&data, random.usize(..len));
        found += usize::from(match open(copy.path()) {
            Ok(store) => !reads_all(&store, &data).await,
            Err(OpenError::Corrupt { .. }) => true,
            Err(error) => panic!("{error:?}"),
        });
    }
    assert!(found > 10, "{found}");
}

/// Restarts of an undamaged store do not verify the whole file; those after a crash do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_file_is_verified_after_a_crash_only() {
    let made = filled().await;
    for _ in 0..3 {
        let store = open(made.path()).unwrap();
        assert!(store.data.is_unverified());
        assert!(reads_all(&store, &made.path().join(DATA_FILE)).await);
    }
    let store = open(made.path()).unwrap();
    let crashed = copy(made.path());
    assert!(
        !open(crashed.path()).unwrap().data.is_unverified(),
        "a crash after the open"
    );
    store
        .put(Put {
            key: key(KEYS),
            value: "{}".into(),
            expect: Expect::Absent,
            ttl: None,
        })
        .await
        .unwrap();
    let crashed = copy(made.path());
    assert!(
        !open(crashed.path()).unwrap().data.is_unverified(),
        "a crash after a write"
    );
    drop(store);

    let copied = copy(made.path());
    std::fs::remove_file(copied.path().join(CHECKSUMS_FILE)).unwrap();
    assert!(
        !open(copied.path()).unwrap().data.is_unverified(),
        "without the checksums"
    );
    assert!(
        open(copied.path()).unwrap().data.is_unverified(),
        "and they are stored again"
    );
}

/// A file that was rejected is rejected again: what was read of it is not trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_file_is_rejected_again() {
    let made = filled().await;
    std::fs::remove_file(made.path().join(CHECKSUMS_FILE)).unwrap();
    let data = made.path().join(DATA_FILE);
    let bytes = std::fs::read(&data).unwrap();
    flip(&data, place_of_a_value(&bytes));
    for _ in 0..3 {
        let error = open(made.path()).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    }
}

/// Damage that no read meets is found in the background; then nothing more is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_damage_is_found_in_the_background() {
    let made = filled().await;
    let data = made.path().join(DATA_FILE);
    let bytes = std::fs::read(&data).unwrap();
    flip(&data, place_of_a_value(&bytes));
    let store = open(made.path()).unwrap();
    let mut next = Some(0);
    while let Some(offset) = next {
        next = store.verify_part(offset).await;
    }
    assert!(is_corrupt(store.current_revision().await));
    let deleted = store.delete(&key(1), ResourceVersion::new(1)).await;
    assert!(is_corrupt(deleted));
    drop(store);
    let error = open(made.path()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
}

/// Returns a store whose value 7 is in a damaged page.
async fn damaged() -> (tempfile::TempDir, Arc<Embedded>) {
    let made = filled().await;
    let data = made.path().join(DATA_FILE);
    let bytes = std::fs::read(&data).unwrap();
    flip(&data, place_of_a_value(&bytes));
    let store = open(made.path()).unwrap();
    (made, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_after_a_read_of_a_damaged_page() {
    let (_directory, store) = damaged().await;
    assert!(is_corrupt(store.get(&key(7)).await));
    let put = Put {
        key: key(KEYS),
        value: "{}".into(),
        expect: Expect::Absent,
        ttl: None,
    };
    assert!(is_corrupt(store.put(put).await));
    assert!(is_corrupt(store.compact(ResourceVersion::new(2)).await));
}

/// The writer meets the damage: each write of the batch gets the reason, also those whose reads the
/// database refuses because an earlier one has failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_reports_damage_that_it_finds() {
    let (_directory, store) = damaged().await;
    // It is refused with the value, which it reads.
    let delete = async |number| store.delete(&key(number), ResourceVersion::new(1)).await;
    let others = futures_util::future::join_all((8..40).map(&delete));
    let (seven, others) = tokio::join!(delete(7), others);
    assert!(is_corrupt(seven));
    for other in others {
        // A batch may have ended before the damage was found.
        assert!(matches!(other, Ok(Outcome::Refused(_))) || is_corrupt(other));
    }
    assert!(is_corrupt(delete(8).await));
}

/// The stored checksums of pages that only the database has read, when it verified the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_were_verified_by_the_database_are_verified_later() {
    let made = filled().await;
    let data = made.path().join(DATA_FILE);
    std::fs::remove_file(made.path().join(CHECKSUMS_FILE)).unwrap();
    let store = open(made.path()).unwrap();
    assert!(!store.data.is_unverified());
    drop(store);
    let bytes = std::fs::read(&data).unwrap();
    flip(&data, place_of_a_value(&bytes));
    let store = open(made.path()).unwrap();
    assert!(store.data.is_unverified());
    assert!(is_corrupt(store.get(&key(7)).await));
    assert!(!reads_all(&store, &data).await);
}

/// A part that cannot be verified now, because the file is being opened again, is verified later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verification_goes_on_after_the_file_was_closed() {
    let store = Embedded::in_memory(Duration::ZERO).unwrap();
    store.data.close();
    assert_eq!(store.verify_part(4096).await, Some(4096));
    assert!(store.status.failed().is_none());
}
