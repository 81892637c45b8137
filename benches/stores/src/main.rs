//! Compares embedded stores on the load of watchet's store: many writers, each waits until its write is on disk, and each
//! write changes an index by key and appends to a history by revision. See `load` for the phases and `docs/storage.md` for
//! the results.
//!
//! `stores [STORE]...` runs all or the named stores and prints tables in Markdown. It starts itself for each store, kills
//! that process while it writes, and starts itself again to check that no acknowledged write is lost.

mod compare;
mod group;
mod load;
mod process;
mod record;
mod stores;
mod table;
mod verify;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use load::End;
use stores::Kind;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [
            command @ ("load" | "count"),
            store,
            directory,
            objects,
            updates,
        ] => load::run(
            Kind::from_name(store)?,
            Path::new(directory),
            objects.parse().context("objects")?,
            updates.parse().context("updates")?,
            match command {
                "load" => End::Kill,
                _ => End::AfterUpdates,
            },
        ),
        ["verify", store, directory] => verify::run(Kind::from_name(store)?, Path::new(directory)),
        ["load" | "count" | "verify", ..] => bail!("usage: stores [STORE]..."),
        [] => compare::run(Kind::ALL),
        ref names => {
            let kinds: Result<Vec<_>> = names.iter().map(|name| Kind::from_name(name)).collect();
            compare::run(&kinds?)
        }
    }
}
