//! Runs the load on each store, kills it, checks what the store then has, and prints the tables.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::record;
use crate::stores::Kind;
use crate::table;

/// The numbers of objects and updates of the runs.
const RUNS: [(usize, usize); 2] = [(1_000, 20_000), (100_000, 20_000)];

/// The objects and the updates of the run that counts syncs.
const SYNCS_RUN: (usize, usize) = (1_600, 1_600);

/// The writes of the run that counts syncs.
pub(crate) const SYNCS_WRITES: usize = SYNCS_RUN.0 + SYNCS_RUN.1;

/// The rounds of each run. The stores are measured in turn, so that a busy machine affects all of them.
const ROUNDS: usize = 3;

/// How long the store is written before it is killed.
const UNTIL_KILL: Duration = Duration::from_secs(1);

/// The measurements of a store.
pub(crate) struct Measured {
    pub(crate) kind: Kind,
    pub(crate) objects: usize,
    pub(crate) updates: usize,
    /// By name, one value per round.
    values: HashMap<String, Vec<u64>>,
}

impl Measured {
    fn new(kind: Kind, objects: usize, updates: usize) -> Self {
        Self {
            kind,
            objects,
            updates,
            values: HashMap::new(),
        }
    }

    fn add(&mut self, name: &str, value: u64) {
        self.values.entry(name.to_owned()).or_default().push(value);
    }

    /// Returns the median of a measurement; `None` if this store does not have it.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let mut values = self.values.get(name)?.clone();
        values.sort_unstable();
        values.get(values.len() / 2).map(|value| *value as f64)
    }
}

pub(crate) fn run(kinds: &[Kind]) -> Result<()> {
    for (objects, updates) in RUNS {
        let new = |kind: &Kind| Measured::new(*kind, objects, updates);
        let mut measured: Vec<_> = kinds.iter().map(new).collect();
        for round in 1..=ROUNDS {
            for store in &mut measured {
                let name = store.kind.name();
                eprintln!("stores: {name}, {objects} objects, round {round} of {ROUNDS}");
                measure(store).context(name)?;
            }
        }
        for store in &mut measured {
            if let Some(syncs) = syncs(store.kind)? {
                store.add("syncs", syncs);
            }
        }
        table::print(&measured);
    }
    Ok(())
}

/// Returns a temporary directory below that of this package, because the usual one may be in memory.
fn new_directory() -> Result<TempDir> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::fs::create_dir_all(&parent)?;
    Ok(tempfile::tempdir_in(parent)?)
}

/// Runs the load, the kill and the check.
fn measure(measured: &mut Measured) -> Result<()> {
    let directory = new_directory()?;
    let mut acknowledged = vec![0; measured.objects];
    load(measured, directory.path(), &mut acknowledged)?;
    match measured.kind {
        Kind::Nothing => Ok(()),
        _ => verify(measured, directory.path(), &acknowledged),
    }
}

/// Runs the load until it is killed, and reads what it prints. `acknowledged` receives the last acknowledged version of each
/// object.
fn load(measured: &mut Measured, directory: &Path, acknowledged: &mut [u64]) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["load", measured.kind.name()])
        .arg(directory)
        .args([measured.objects.to_string(), measured.updates.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().context("the output is piped")?;
    let mut kill_at = None;
    for line in BufReader::new(out).split(b'\n') {
        let line = String::from_utf8(line?)?;
        if line == "ready" {
            kill_at = Some(Instant::now() + UNTIL_KILL);
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            child.kill()?;
            kill_at = None;
        }
        match line.split(' ').collect::<Vec<_>>()[..] {
            // The last line may be incomplete; its write counts as not acknowledged.
            ["acknowledged", object, version] => {
                if let (Ok(object), Ok(version)) = (object.parse::<usize>(), version.parse::<u64>())
                {
                    let last = acknowledged.get_mut(object).context("an object")?;
                    *last = version.max(*last);
                }
            }
            [name, value] => measured.add(name, value.parse()?),
            _ => {}
        }
    }
    use std::os::unix::process::ExitStatusExt as _;
    let status = child.wait()?;
    ensure!(status.signal() == Some(9), "the load ended with {status}");
    Ok(())
}

/// Opens the store again. Fails if it does not have all objects, each at the last acknowledged version or a later one that
/// was not acknowledged.
fn verify(measured: &mut Measured, directory: &Path, acknowledged: &[u64]) -> Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .args(["verify", measured.kind.name()])
        .arg(directory)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "it cannot be read after the kill");
    let mut objects = 0;
    for line in String::from_utf8(output.stdout)?.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["found", object, version] => {
                let (object, version): (usize, u64) = (object.parse()?, version.parse()?);
                let last = acknowledged[object];
                ensure!(
                    version == last || version == last + 1,
                    "{} has version {version}, and {last} was acknowledged",
                    record::key(object)
                );
                objects += 1;
            }
            [name, value] => measured.add(name, value.parse()?),
            _ => {}
        }
    }
    ensure!(objects == measured.objects, "it has {objects} objects");
    Ok(())
}

/// Counts the system calls that wait for the disk, in a run of its own under strace, which makes it slower; `None` without
/// strace.
fn syncs(kind: Kind) -> Result<Option<u64>> {
    if kind == Kind::Nothing {
        return Ok(None);
    }
    let directory = new_directory()?;
    let counts = directory.path().join("counts");
    let (objects, updates) = SYNCS_RUN;
    let status = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name"])
        .args(["-e", "trace=fsync,fdatasync,msync,sync_file_range", "-o"])
        .arg(&counts)
        .arg(std::env::current_exe()?)
        .args(["count", kind.name()])
        .arg(directory.path())
        .args([objects.to_string(), updates.to_string()])
        .stdout(Stdio::null())
        .status();
    match status {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        status => ensure!(status?.success(), "the run under strace failed"),
    }
    let counts = std::fs::read_to_string(counts)?;
    let total = counts.lines().find_map(|line| {
        let (count, name) = line.trim().split_once(' ')?;
        (name.trim() == "total").then(|| count.parse())
    });
    Ok(Some(total.context("strace has not printed a total")??))
}
