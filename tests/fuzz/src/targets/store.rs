//! Damaged files of the embedded store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_storage::embedded::{
    self, CHECKSUMS_FILE, DATA_FILE, Embedded, EmbeddedConfig, REVISION_FILE, WAL_FILES,
};
use watchet_storage::{Expect, ListRequest, Outcome, Put, Storage};

use crate::mutate::split;

pub(super) const WORDS: &[&str] = &[
    "write data ",
    "write wal0 ",
    "write wal1 ",
    "write revision ",
    "write checksums ",
    "truncate ",
    "delete ",
    "fill ",
    "swap ",
    "append ",
    "contents ",
    "check",
    "data",
    "wal0",
    "wal1",
    "revision",
    "checksums",
    "4096",
    "8192",
    "65536",
    "00",
    "ff",
    " 0 ",
    " 1 ",
];

/// The names of the files in inputs.
const FILES: [(&str, &str); 5] = [
    ("data", DATA_FILE),
    ("wal0", WAL_FILES[0]),
    ("wal1", WAL_FILES[1]),
    ("revision", REVISION_FILE),
    ("checksums", CHECKSUMS_FILE),
];

/// Two stores: one after a clean shutdown, and one as a killed process has left it.
static STORES: LazyLock<[Store; 2]> = LazyLock::new(|| [Store::new(true), Store::new(false)]);

/// The files of a store, and the values that were ever written to it.
struct Store {
    files: BTreeMap<&'static str, Vec<u8>>,
    values: BTreeSet<Bytes>,
}

fn key(number: usize) -> StorageKey {
    StorageKey::new(&format!("/things/n{number:03}")).expect("it is a key")
}

/// Returns an empty directory in memory, if the machine has one.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    made.expect("a directory can be made")
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .expect("the process may have more files")
}

impl Store {
    fn new(is_closed: bool) -> Self {
        let directory = directory();
        let store = Embedded::open(directory.path(), EmbeddedConfig::default()).expect("it is new");
        let values = runtime().block_on(write(&*store));
        if is_closed {
            drop(store);
            let files = read_files(directory.path());
            return Self { files, values };
        }
        // The files of an open store are those that a killed process leaves.
        let files = read_files(directory.path());
        drop(store);
        Self { files, values }
    }
}

/// Writes, changes and deletes some keys.
async fn write(store: &dyn Storage) -> BTreeSet<Bytes> {
    let mut values = BTreeSet::new();
    for round in 0..3 {
        for number in 0..20 {
            let (current, _) = store.get(&key(number)).await.expect("it is not damaged");
            let expect = current
                .as_ref()
                .map_or(Expect::Absent, |current| Expect::At(current.mod_revision));
            if let Some(current) = current
                && number % 7 == round
            {
                let deleted = store.delete(&key(number), current.mod_revision).await;
                assert!(matches!(deleted, Ok(Outcome::Done(_))), "{deleted:?}");
                continue;
            }
            let value = Bytes::from(format!(
                "{{\"number\":{number},\"round\":{round},\"text\":\"{}\"}}",
                "x".repeat(number * 30)
            ));
            values.insert(value.clone());
            let put = Put {
                key: key(number),
                value,
                expect,
                ttl: (number == 3).then_some(std::time::Duration::from_secs(1 << 30)),
            };
            let written = store.put(put).await;
            assert!(matches!(written, Ok(Outcome::Done(_))), "{written:?}");
        }
    }
    values
}

fn read_files(directory: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read =
        |(name, file): &(&'static str, &str)| Some((*name, fs::read(directory.join(file)).ok()?));
    FILES.iter().filter_map(read).collect()
}

/// The first part is lines that damage the files of a store, `killed` first for that of a killed process:
///
/// - `write FILE OFFSET HEX` replaces bytes, `fill FILE OFFSET LENGTH BYTE` a range, `swap FILE OFFSET OFFSET LENGTH` two ranges
/// - `truncate FILE LENGTH` and `append FILE HEX` change the length, `delete FILE` deletes it
/// - `contents FILE` replaces it by the next part
/// - `check` checks the store, as `watchet store check`, before it is opened
///
/// The store is opened or refused, and all values that it returns were written to it.
pub(super) fn store_files(input: &[u8]) {
    let mut parts = split(input);
    let Ok(script) = str::from_utf8(parts.next().unwrap_or_default()) else {
        return;
    };
    let original = &STORES[usize::from(script.starts_with("killed"))];
    let mut files = original.files.clone();
    for line in script.lines().take(16) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["contents", name] => {
                if let Some(contents) = parts.next()
                    && let Some((name, _)) = FILES.iter().find(|(known, _)| *known == name)
                {
                    files.insert(name, contents.to_vec());
                }
            }
            ["delete", name] => drop(files.remove(name)),
            [operation, name, ..] => {
                if let Some(file) = files.get_mut(name) {
                    damage(file, operation, &words[2..]);
                }
            }
            _ => {}
        }
    }
    let directory = directory();
    for (name, contents) in &files {
        let (_, file) = FILES
            .iter()
            .find(|(known, _)| known == name)
            .expect("it is one of them");
        fs::write(directory.path().join(file), contents).expect("the disk has space");
    }
    if script.contains("check") {
        drop(embedded::check(directory.path(), &mut |_, _| {}));
    }
    open(directory.path(), &original.values);
}

fn damage(file: &mut Vec<u8>, operation: &str, arguments: &[&str]) {
    let number = |at: usize| {
        arguments
            .get(at)
            .and_then(|word| word.parse::<usize>().ok())
    };
    let len = file.len();
    match (operation, number(0), number(1), number(2)) {
        ("truncate", Some(length), _, _) => file.truncate(length),
        ("append", _, _, _) => file.extend(hex(arguments.first().copied().unwrap_or_default())),
        ("write", Some(offset), _, _) => {
            let bytes = hex(arguments.get(1).copied().unwrap_or_default());
            let end = offset.saturating_add(bytes.len());
            if end <= len {
                file[offset..end].copy_from_slice(&bytes);
            }
        }
        ("fill", Some(offset), Some(length), Some(byte)) => {
            let range = offset.min(len)..offset.saturating_add(length).min(len);
            file[range].fill(byte as u8);
        }
        ("swap", Some(one), Some(other), Some(length)) => {
            for at in 0..length.min(len) {
                if one.max(other).saturating_add(at) < len {
                    file.swap(one + at, other + at);
                }
            }
        }
        _ => {}
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2).take(4096);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.map_while(byte).collect()
}

/// Opens the store, reads everything, and writes to it.
fn open(directory: &Path, values: &BTreeSet<Bytes>) {
    let Ok(store) = Embedded::open(directory, EmbeddedConfig::default()) else {
        return;
    };
    runtime().block_on(async {
        for number in 0..20 {
            if let Ok((Some(read), _)) = store.get(&key(number)).await {
                assert!(
                    values.contains(&read.value),
                    "{} was never written",
                    read.key
                );
            }
        }
        let prefix = StorageKey::new("/things/").expect("it is a key");
        for at in [
            None,
            Some(ResourceVersion::new(20)),
            Some(ResourceVersion::new(40)),
        ] {
            let request = ListRequest {
                prefix: prefix.clone(),
                start: String::new(),
                at,
                limit: 0,
                count: true,
            };
            for item in store
                .list(request)
                .await
                .into_iter()
                .flat_map(|page| page.items)
            {
                assert!(
                    values.contains(&item.value),
                    "{} was never written",
                    item.key
                );
            }
        }
        let put = Put {
            key: key(999),
            value: Bytes::from_static(b"{}"),
            expect: Expect::Absent,
            ttl: None,
        };
        drop(store.put(put).await);
    });
    assert_eq!(Arc::strong_count(&store), 1);
}
