//! A second process: this test program, which writes to the data directory in its environment until it is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use fastrand::Rng;
use watchet::api::ResourceVersion;
use watchet::storage::{Expect, Outcome, Storage};
use watchet::tasks::Tasks;

use super::super::support::{key, list, put};
use super::reopen;

/// The directory of the store; set only for the child.
const DIRECTORY: &str = "WATCHET_TEST_CHILD_DIRECTORY";
/// The seed; set only for the child.
const SEED: &str = "WATCHET_TEST_CHILD_SEED";

const WRITERS: u64 = 8;

/// A running child that writes, and its output.
pub(super) struct Writing {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// An acknowledged write: its key, revision and value (`None`: a deletion).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acknowledged {
    pub(super) key: String,
    pub(super) revision: ResourceVersion,
    pub(super) value: Option<String>,
}

impl Writing {
    pub(super) fn start(directory: &Path, seed: u64) -> Self {
        let this = std::env::current_exe().expect("a test knows its binary");
        let mut child = Command::new(this)
            .args(["storage::durable::child::a_burst_is_acknowledged_in_order"])
            .args(["--exact", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(SEED, seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        Self {
            child,
            lines: BufReader::new(stdout),
        }
    }

    /// Waits until the child has acknowledged a write.
    pub(super) fn first(&mut self) -> Acknowledged {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("a readable pipe");
            assert_ne!(read, 0, "the child ended before its first write");
            if let Some(acknowledged) = parse(&line) {
                return acknowledged;
            }
        }
    }

    /// Kills the child with SIGKILL and returns the writes that it had acknowledged.
    pub(super) fn kill(mut self) -> Vec<Acknowledged> {
        self.child.kill().expect("the child was running");
        self.child.wait().expect("it is our child");
        let lines = self
            .lines
            .lines()
            .map(|line| line.expect("a readable pipe"));
        // The kill may have truncated the last line, which then lacks its end mark and does not parse.
        lines.filter_map(|line| parse(&line)).collect()
    }
}

/// `ack <key> <revision> <value or -> .`
fn parse(line: &str) -> Option<Acknowledged> {
    let rest = line.trim_end().strip_prefix("ack ")?.strip_suffix(" .")?;
    let mut words = rest.split(' ');
    let key = words.next()?.to_owned();
    let revision = words.next()?.parse().ok()?;
    let value = words.next().filter(|value| *value != "-");
    Some(Acknowledged {
        key,
        revision,
        value: value.map(str::to_owned),
    })
}

fn acknowledge(at: &str, revision: ResourceVersion, value: Option<&str>) {
    let value = value.unwrap_or("-");
    // One write call for the whole line, so that lines of several writers do not mix.
    let line = format!("ack {at} {revision} {value} .\n");
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).expect("a writable pipe");
    out.flush().expect("a writable pipe");
}

/// Runs one writer, which creates, updates and deletes its own keys.
async fn write(store: Arc<dyn Storage>, writer: u64, rounds: u64) {
    let given = std::env::var(SEED).ok();
    let seed = given
        .as_deref()
        .map_or(1, |seed| seed.parse().expect("a number"));
    let mut random = Rng::with_seed(seed ^ (writer << 32));
    for round in 0..rounds {
        let at = format!("/pods/{writer}/{}", random.usize(..6));
        let (found, revision) = store.get(&key(&at)).await.unwrap();
        let value = format!("{round}-{}", "x".repeat(random.usize(..3000)));
        let (value, outcome) = match found {
            Some(item) if random.usize(..4) == 0 => {
                let outcome = store.delete(&key(&at), item.mod_revision).await.unwrap();
                (None, outcome)
            }
            Some(item) => {
                let expect = Expect::At(item.mod_revision);
                let outcome = put(&store, &at, &value, expect).await.unwrap();
                (Some(value), outcome)
            }
            None => {
                let outcome = put(&store, &at, &value, Expect::Absent).await.unwrap();
                (Some(value), outcome)
            }
        };
        let Outcome::Done(made) = outcome else {
            panic!("no other process writes {at}: {outcome:?}");
        };
        if given.is_some() {
            acknowledge(&at, made, value.as_deref());
        }
        if random.usize(..100) == 0 && revision.get() > 300 {
            // Another writer may have compacted a later revision already.
            drop(
                store
                    .compact(ResourceVersion::new(revision.get() - 300))
                    .await,
            );
        }
    }
}

/// Runs the writers of the child for a moment (`crash` starts the child).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_acknowledged_in_order() {
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
    let own = tempfile::tempdir().unwrap();
    let rounds = if directory.is_some() { u64::MAX } else { 10 };
    let store = reopen(directory.as_deref().unwrap_or(own.path()));
    let before = store.current_revision().await.unwrap();
    let tasks = Tasks::new();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tasks.spawn("writer", write(store, writer, rounds))
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    let after = store.current_revision().await.unwrap();
    assert_eq!(after.get() - before.get(), WRITERS * rounds);
    let listed = list(&store, "/pods/", None).await.unwrap();
    assert!(!listed.items.is_empty());
}

#[test]
fn acknowledgements_parse() {
    let expected = Acknowledged {
        key: "/pods/1/2".to_owned(),
        revision: ResourceVersion::new(7),
        value: None,
    };
    assert_eq!(parse("ack /pods/1/2 7 - .\n"), Some(expected));
    assert_eq!(parse("ack /pods/1/2 7 xx"), None, "cut by the kill");
}
