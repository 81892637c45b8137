//! The three hottest paths, each as a fixed amount of work, whose instructions scripts/instructions counts under
//! valgrind. This program itself counts and times nothing.
//!
//! `instructions PATH` runs one path; without a PATH, as `cargo bench` starts it, the program runs all.

#[path = "../fixture/mod.rs"]
#[allow(dead_code, reason = "the benches of parts use all of it")]
mod fixture;

use fixture::Server;
use fixture::pods::{Changes, FIRST_LIST};

/// Runs the work. scripts/instructions counts the instructions of this function, by its name, on this thread.
#[inline(never)]
fn counted_work(work: &mut dyn FnMut()) {
    work();
}

/// Decodes 1,024 events of storage in batches of 64 and applies them to a cache of 2,000 pods.
fn apply() {
    let (server, mut changes) = (Server::with(2_000), Changes::of(2_000));
    let mut batches: Vec<_> = (0..17).map(|_| changes.batch(64)).collect();
    server.apply(batches.remove(0));
    let mut batches = batches.into_iter();
    counted_work(&mut || batches.by_ref().for_each(|batch| server.apply(batch)));
}

/// Sends eight events, one after another, each to 1,000 watchers.
fn dispatch() {
    const WATCHERS: usize = 1_000;
    let (server, mut changes) = (Server::with(100), Changes::of(100));
    let uri = format!("/api/v1/pods?watch=1&resourceVersion={FIRST_LIST}");
    let crowd = server.crowd(WATCHERS, |_| uri.clone());
    crowd.take(changes.batch(1), WATCHERS);
    let mut events = (0..8)
        .map(|_| changes.batch(1))
        .collect::<Vec<_>>()
        .into_iter();
    counted_work(&mut || {
        events
            .by_ref()
            .for_each(|event| crowd.take(event, WATCHERS))
    });
}

/// Reads the body of a list of 2,000 pods.
fn list() {
    let server = Server::with(2_000);
    let uri = "/api/v1/pods?resourceVersion=0";
    let length = server.get(uri);
    counted_work(&mut || assert_eq!(server.get(uri), length));
}

const PATHS: [(&str, fn()); 3] = [("apply", apply), ("dispatch", dispatch), ("list", list)];

fn main() {
    // `cargo bench` passes `--bench`.
    let named = std::env::args()
        .skip(1)
        .find(|name| !name.starts_with("--"));
    let selected = |(path, _): &&(&str, fn())| named.as_deref().is_none_or(|name| name == *path);
    let selected: Vec<_> = PATHS.iter().filter(selected).collect();
    assert!(!selected.is_empty(), "no path is called {named:?}");
    for (path, work) in selected {
        eprintln!("instructions: {path} works; scripts/instructions counts");
        work();
    }
}
