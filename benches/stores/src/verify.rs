//! The restart after a kill, in a process of its own: `stores verify STORE DIRECTORY`. Opens the store, reads all objects,
//! and prints `open_us`, `read_us` (after the store is open) and the version of each object.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tokio::time::Instant;

use crate::record::{self, Head};
use crate::stores::{Kind, Watchet};

/// The objects that were read.
struct Found {
    values: Vec<(String, Vec<u8>)>,
    begin: Instant,
    opened: Instant,
}

pub(crate) fn run(kind: Kind, directory: &Path) -> Result<()> {
    let found = read(kind, directory)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (opened, read) = (found.opened, found.opened.elapsed());
    writeln!(out, "open_us {}", (opened - found.begin).as_micros())?;
    writeln!(out, "read_us {}", read.as_micros())?;
    for (key, value) in found.values {
        let object = record::object(&key).context(key)?;
        let version = record::version(object, &value)?;
        writeln!(out, "found {object} {version}")?;
    }
    Ok(out.flush()?)
}

/// Reads all values. Their checksums are verified, as watchet does at each read.
fn read(kind: Kind, directory: &Path) -> Result<Found> {
    let begin = Instant::now();
    let mut values = Vec::new();
    let opened;
    match kind.engine() {
        Some(open) => {
            let engine = open(directory)?;
            opened = Instant::now();
            engine.each(&mut |key, head, bytes| {
                let modified = Head::decode(key, head)?.modified;
                let value = record::decode(modified, key, bytes)?;
                values.push((key.to_owned(), value.to_vec()));
                Ok(())
            })?;
        }
        None => {
            ensure!(kind == Kind::Watchet, "{} stores nothing", kind.name());
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            let store = Watchet::open(directory)?;
            opened = Instant::now();
            runtime.block_on(store.each(&mut |key, value| {
                values.push((key.to_owned(), value.to_vec()));
                Ok(())
            }))?;
        }
    }
    Ok(Found {
        values,
        begin,
        opened,
    })
}
