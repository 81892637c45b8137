//! Tests of the write-ahead log on disk: logs that are cut, damaged, missing or from an earlier store, and data
//! directories of versions without a log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use watchet::api::ResourceVersion;
use watchet::storage::Storage;
use watchet::storage::embedded::{DATA_FILE, OpenError, REVISION_FILE, WAL_FILES};

use super::super::support::{create, list, pairs};
use super::{Crashed, flush, open, reopen};

/// The files of a store that was killed: after some writes are in the data file, each of the rest is a frame in the log.
struct Killed {
    files: Crashed,
    /// The keys and values after each number of frames.
    states: Vec<Vec<String>>,
    /// The offsets of the frames in the first file of the log, and the end of the last.
    frames: Vec<usize>,
}

impl Killed {
    async fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = reopen(directory.path());
        create(&store, "/pods/ns/flushed", "x").await;
        flush(&store).await;
        let mut states = vec![state(&store).await];
        for number in 0..4 {
            create(
                &store,
                &format!("/pods/ns/{number}"),
                &"v".repeat(number * 10),
            )
            .await;
            states.push(state(&store).await);
        }
        let files = Crashed::copy(directory.path());
        let log = files.read(ACTIVE);
        let mut frames: Vec<_> = log
            .windows(4)
            .enumerate()
            .filter(|(_, w)| w == b"wtf1")
            .map(|(at, _)| at)
            .collect();
        assert_eq!(frames.len(), 4, "one for each write");
        let last = log
            .iter()
            .rposition(|byte| *byte != 0)
            .expect("frames are not zeros");
        frames.push(last + 1);
        Self {
            files,
            states,
            frames,
        }
    }

    fn copy(&self) -> Crashed {
        Crashed::copy(self.files.path())
    }
}

/// The file that is in use after the first was written to the data file.
const ACTIVE: &str = WAL_FILES[1];

impl Crashed {
    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).expect("a readable file")
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(name);
        change(&mut bytes);
        std::fs::write(self.file(name), bytes).expect("a writable file");
    }

    /// A power failure can leave the revision file as it was earlier.
    fn forget_revision(&self) {
        std::fs::remove_file(self.file(REVISION_FILE)).expect("it exists");
    }
}

async fn state(store: &Arc<dyn Storage>) -> Vec<String> {
    pairs(&list(store, "/pods/", None).await.unwrap())
}

fn assert_corrupt(directory: &Path, words: &[&str]) {
    match open(directory) {
        Err(error @ OpenError::Corrupt { .. }) => {
            let text = error.to_string();
            for word in words.iter().chain(&["restore"]) {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        other => panic!("{words:?}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incomplete_last_frame_was_never_acknowledged() {
    let killed = Killed::make().await;
    let (start, end) = (killed.frames[3], killed.frames[4]);
    for cut in (start..end).step_by(3) {
        for zeros in [false, true] {
            let crashed = killed.copy();
            crashed.forget_revision();
            crashed.change(ACTIVE, |bytes| match zeros {
                true => bytes[cut..].fill(0),
                false => bytes.truncate(cut),
            });
            let store = reopen(crashed.path());
            assert_eq!(state(&store).await, killed.states[3], "cut at {cut}");
            create(&store, "/pods/ns/new", "x").await;
            drop(store);
            let store = reopen(crashed.path());
            assert_eq!(state(&store).await.len(), killed.states[3].len() + 1);
        }
    }
}

/// The revision file shows that the last frame was complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_last_frame_is_an_error() {
    let killed = Killed::make().await;
    let crashed = killed.copy();
    crashed.change(ACTIVE, |bytes| bytes[killed.frames[3] + 50] ^= 1);
    assert_corrupt(crashed.path(), &[DATA_FILE, REVISION_FILE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_frame_is_an_error_with_its_offset() {
    let killed = Killed::make().await;
    for frame in 0..3 {
        for at in (killed.frames[frame]..killed.frames[frame + 1] - 7).step_by(5) {
            let crashed = killed.copy();
            crashed.forget_revision();
            crashed.change(ACTIVE, |bytes| bytes[at] ^= 0x10);
            let offset = format!("offset {},", killed.frames[frame]);
            assert_corrupt(crashed.path(), &[ACTIVE, &offset]);
        }
    }
}

/// The files of the log may be exchanged, since their frames are numbered; their parts may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanged_logs_are_read_and_exchanged_frames_are_errors() {
    let killed = Killed::make().await;
    let crashed = killed.copy();
    let [a, b] = WAL_FILES.map(|name| crashed.read(name));
    crashed.change(WAL_FILES[0], |bytes| *bytes = b);
    crashed.change(WAL_FILES[1], |bytes| *bytes = a);
    let store = reopen(crashed.path());
    assert_eq!(state(&store).await, killed.states[4]);
    drop(store);
    for first in 0..3 {
        let crashed = killed.copy();
        crashed.change(ACTIVE, |bytes| {
            let [start, middle, end] = [0, 1, 2].map(|next| killed.frames[first + next]);
            // Frames are padded: the last one ends before its padding.
            let end = end.next_multiple_of(8);
            bytes[start..end].rotate_left(middle - start);
        });
        assert_corrupt(crashed.path(), &[]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_log_is_an_error() {
    let killed = Killed::make().await;
    let crashed = killed.copy();
    std::fs::remove_file(crashed.file(ACTIVE)).unwrap();
    assert_corrupt(crashed.path(), &[DATA_FILE, REVISION_FILE]);
    // As the message says, a user can accept the loss.
    crashed.forget_revision();
    let store = reopen(crashed.path());
    assert_eq!(state(&store).await, killed.states[0]);
}

/// A data file of another time under a log is an error, or the log completes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_data_file_under_a_log_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path());
    drop(store);
    let empty = std::fs::read(directory.path().join(DATA_FILE)).unwrap();
    let killed = Killed::make().await;
    let crashed = killed.copy();
    // The first file of the log still has the first frame.
    crashed.change(DATA_FILE, |bytes| *bytes = empty.clone());
    let store = reopen(crashed.path());
    assert_eq!(state(&store).await, killed.states[4]);
    drop(store);
    let crashed = killed.copy();
    crashed.change(DATA_FILE, |bytes| *bytes = empty);
    std::fs::remove_file(crashed.file(WAL_FILES[0])).unwrap();
    assert_corrupt(crashed.path(), &["frame 1 is missing", "older copy"]);
}

/// A version without a log wrote the directory, or the store was closed; its data file is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_needs_no_log() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path());
    let revision = create(&store, "/pods/ns/a", "x").await;
    drop(store);
    for file in WAL_FILES {
        let path = directory.path().join(file);
        assert_eq!(path.metadata().unwrap().len(), 0, "{file}");
        std::fs::remove_file(path).unwrap();
    }
    let store = reopen(directory.path());
    assert_eq!(state(&store).await, ["/pods/ns/a=x"]);
    assert_eq!(store.current_revision().await.unwrap(), revision);
    let listed = list(
        &store,
        "/pods/",
        Some(ResourceVersion::new(revision.get() - 1)),
    );
    assert!(listed.await.unwrap().items.is_empty(), "history too");
}
