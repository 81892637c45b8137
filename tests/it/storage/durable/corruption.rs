//! Tests of damaged files: the store rejects each with an error that names it, or reads only correct data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use watchet::storage::embedded::{CHECKSUMS_FILE, DATA_FILE, OpenError, REVISION_FILE};
use watchet::storage::{Expect, Put, Storage, StorageError};

use super::super::model::{Model, step};
use super::super::support::{create, key};
use super::{flush, open, reopen};
use watchet_test_util::seeds::seed_or;

/// The length of the file's header, which locates everything else.
const HEADER_LEN: usize = 320;

/// The files of a store after a clean end or a kill, and their content.
struct Sample {
    data: Vec<u8>,
    revision_file: Vec<u8>,
    /// `None` after a kill: the data file has changed since the last clean end.
    checksums: Option<Vec<u8>>,
    model: Model,
}

impl Sample {
    async fn make(clean: bool, random: &mut Rng) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = reopen(directory.path());
        let mut model = Model::empty_at(store.current_revision().await.unwrap());
        for round in 0..120 {
            step(&store, &mut model, random).await;
            if round == 60 {
                let at = model.revision();
                store.compact(at).await.unwrap();
                model.compact(at);
            }
        }
        let data = directory.path().join(DATA_FILE);
        flush(&store).await;
        if clean {
            drop(store);
        }
        Self {
            data: std::fs::read(data).unwrap(),
            revision_file: std::fs::read(directory.path().join(REVISION_FILE)).unwrap(),
            checksums: clean.then(|| std::fs::read(directory.path().join(CHECKSUMS_FILE)).unwrap()),
            model,
        }
    }

    /// Opens a copy of the store with the file content `data` and reads everything. Returns true if all data is
    /// correct, and false if the store was rejected with the expected error.
    async fn survives(&self, data: &[u8], story: &str) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DATA_FILE);
        std::fs::write(&path, data).unwrap();
        std::fs::write(directory.path().join(REVISION_FILE), &self.revision_file).unwrap();
        if let Some(checksums) = &self.checksums {
            std::fs::write(directory.path().join(CHECKSUMS_FILE), checksums).unwrap();
        }
        let store: Arc<dyn Storage> = match open(directory.path()) {
            Ok(store) => store,
            Err(error) => {
                assert_refused(&error, &path, story);
                return false;
            }
        };
        match self.model.verify(&store).await {
            Ok(()) => true,
            Err(StorageError::Corrupt(text)) => {
                assert!(text.contains(&*path.to_string_lossy()), "{story}: {text}");
                false
            }
            Err(error) => panic!("{story}: {error:?}"),
        }
    }
}

fn assert_refused(error: &OpenError, path: &Path, story: &str) {
    let text = error.to_string();
    let corrupt = matches!(error, OpenError::Corrupt { .. });
    assert!(corrupt, "{story}: {error:?}");
    assert!(text.contains(&*path.to_string_lossy()), "{story}: {text}");
    assert!(text.contains("restore"), "{story}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_flipped_after_a_clean_end_are_never_served() {
    let random = &mut Rng::with_seed(seed_or(0x5eed_f11b));
    flipped_bits_are_never_served(&Sample::make(true, random).await, random).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_flipped_after_a_clean_end_without_checksums_are_never_served() {
    let random = &mut Rng::with_seed(seed_or(0x5eed_f11d));
    let sample = Sample {
        checksums: None,
        ..Sample::make(true, random).await
    };
    flipped_bits_are_never_served(&sample, random).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_flipped_after_a_kill_are_never_served() {
    let random = &mut Rng::with_seed(seed_or(0x5eed_f11c));
    flipped_bits_are_never_served(&Sample::make(false, random).await, random).await;
}

async fn flipped_bits_are_never_served(sample: &Sample, random: &mut Rng) {
    let clean = sample.checksums.is_some();
    assert!(sample.survives(&sample.data, "untouched").await);
    // After a kill the header decides which commit is valid, so each of its bytes is damaged; after a clean end every
    // fifth. Then random positions are damaged.
    let header: Vec<_> = (0..HEADER_LEN).filter(|at| !clean || at % 5 == 0).collect();
    let anywhere = (0..80).map(|_| random.usize(..sample.data.len()));
    let places: Vec<_> = header.into_iter().chain(anywhere).collect();
    let mut refused = 0;
    for at in &places {
        let bit = random.usize(..8);
        let mut data = sample.data.clone();
        data[*at] ^= 1 << bit;
        let story = format!("clean {clean}, byte {at}, bit {bit}");
        refused += usize::from(!sample.survives(&data, &story).await);
    }
    println!("clean {clean}: {refused} of {} refused", places.len());
    assert!(refused > 20, "flips in live pages must be found: {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bit_of_the_state_byte_is_checked() {
    let mut random = Rng::with_seed(seed_or(0x5eed_060d));
    for clean in [true, false] {
        let sample = Sample::make(clean, &mut random).await;
        // The first byte after the magic number selects the last valid commit and says how it was made.
        for bit in 0..8 {
            let mut data = sample.data.clone();
            data[9] ^= 1 << bit;
            sample
                .survives(&data, &format!("clean {clean}, bit {bit}"))
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overwritten_stretches_are_never_served() {
    let mut random = Rng::with_seed(seed_or(0x5eed_0bad));
    let sample = Sample::make(false, &mut random).await;
    let mut refused = 0;
    for _ in 0..100 {
        let at = random.usize(..sample.data.len());
        let len = (1 + random.usize(..8192)).min(sample.data.len() - at);
        let mut data = sample.data.clone();
        let zero = random.usize(..2) == 0;
        data[at..at + len].fill_with(|| if zero { 0 } else { random.u64(..) as u8 });
        let story = format!("{len} bytes at {at}, zeroed: {zero}");
        refused += u32::from(!sample.survives(&data, &story).await);
    }
    assert!(refused > 10, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_files_are_errors() {
    let mut random = Rng::with_seed(seed_or(0x5eed_0c07));
    let sample = Sample::make(false, &mut random).await;
    let some = (0..60).map(|_| random.usize(..sample.data.len()));
    for len in [0, 1, 100, 4095, 4096].into_iter().chain(some) {
        // A truncation after the last used page loses nothing.
        let survived = sample
            .survives(&sample.data[..len], &format!("cut at {len}"))
            .await;
        assert!(!survived || len > 8192, "cut at {len}");
    }
}

/// A page with a correct checksum at the wrong place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swapped_pages_are_never_served() {
    const PAGE: usize = 4096;
    let mut random = Rng::with_seed(seed_or(0x5eed_5a9e));
    for clean in [true, false] {
        let sample = Sample::make(clean, &mut random).await;
        let pages = sample.data.len() / PAGE;
        let is_used = |page: &usize| {
            let bytes = &sample.data[page * PAGE..(page + 1) * PAGE];
            bytes.iter().any(|byte| *byte != 0)
        };
        let used: Vec<usize> = (1..pages).filter(is_used).collect();
        let mut refused = 0;
        for _ in 0..60 {
            let (a, b) = (
                used[random.usize(..used.len())],
                used[random.usize(..used.len())],
            );
            let mut data = sample.data.clone();
            for at in 0..PAGE {
                data.swap(a * PAGE + at, b * PAGE + at);
            }
            let story = format!("clean {clean}, pages {a} and {b}");
            let survived = sample.survives(&data, &story).await;
            assert!(survived || a != b, "{story}");
            refused += usize::from(!survived);
        }
        println!("clean {clean}: {refused} of 60 swaps refused");
        assert!(refused > 5, "clean {clean}: {refused}");
    }
}

/// The revision file is only a check of the other files: without it they are read as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_revision_file_hides_nothing() {
    let mut random = Rng::with_seed(seed_or(0x5eed_0f11));
    let mut sample = Sample::make(true, &mut random).await;
    let intact = sample.revision_file.clone();
    let (data, len) = (sample.data.clone(), intact.len());
    for bit in 0..len * 8 {
        sample.revision_file = intact.clone();
        sample.revision_file[bit / 8] ^= 1 << (bit % 8);
        assert!(sample.survives(&data, &format!("bit {bit}")).await);
    }
    for cut in 0..len {
        sample.revision_file = intact[..cut].to_vec();
        assert!(sample.survives(&data, &format!("cut at {cut}")).await);
    }
}

fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(name)
}

/// A missing or older data file is an error, not an empty or older store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_and_older_files_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let data = file(directory.path(), DATA_FILE);
    let store = reopen(directory.path());
    create(&store, "/pods/ns/a", "x").await;
    drop(store);
    let older = std::fs::read(&data).unwrap();
    let store = reopen(directory.path());
    let last = create(&store, "/pods/ns/b", "x").await;
    drop(store);
    std::fs::write(&data, &older).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert_refused(&error, &data, "older");
    assert!(error.to_string().contains(&last.to_string()), "{error}");
    assert!(error.to_string().contains(REVISION_FILE), "{error}");

    std::fs::remove_file(&data).unwrap();
    assert_refused(&open(directory.path()).unwrap_err(), &data, "missing");
    assert!(!data.exists(), "nothing is made in its place");

    // As the error message says, a user can accept the older file.
    std::fs::write(&data, &older).unwrap();
    std::fs::remove_file(file(directory.path(), REVISION_FILE)).unwrap();
    let store = reopen(directory.path());
    assert!(store.current_revision().await.unwrap() < last);
}

/// Damage of the file while the store is open is detected when the record is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_damaged_under_an_open_store_are_not_served() {
    // More than the page cache holds, so that some records are read from the file again.
    const RECORDS: usize = 32;
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path());
    let value = |number: usize| Bytes::from(vec![number as u8 + 1; 1 << 20]);
    for number in 0..RECORDS {
        let put = Put {
            key: key(&format!("/blobs/{number}")),
            value: value(number),
            expect: Expect::Absent,
            ttl: None,
        };
        store.put(put).await.unwrap();
    }
    flush(&store).await;
    let data = file(directory.path(), DATA_FILE);
    let mut bytes = std::fs::read(&data).unwrap();
    for number in 0..RECORDS {
        let run = vec![number as u8 + 1; 4096];
        let at = bytes
            .chunks(4096)
            .position(|page| page == run)
            .expect("it was written");
        bytes[at * 4096] ^= 1;
    }
    std::fs::write(&data, &bytes).unwrap();
    let mut found = 0;
    for number in 0..RECORDS {
        match store.get(&key(&format!("/blobs/{number}"))).await {
            Ok((item, _)) => assert_eq!(item.unwrap().value, value(number)),
            Err(StorageError::Corrupt(text)) => {
                assert!(text.contains(&*data.to_string_lossy()), "{text}");
                found += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(found > 0, "the page cache cannot hold them all");
    let health = store.current_revision().await;
    assert!(
        matches!(health, Err(StorageError::Corrupt(_))),
        "{health:?}"
    );
}
