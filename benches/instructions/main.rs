//! The three hottest paths, each as one piece of work that is always the same, for scripts/instructions
//! to count the instructions of under valgrind. It counts nothing itself and reports no times.
//!
//! `instructions PATH` works on one of them; without a path, as `cargo bench` starts it, on all.

#[path = "../fixture/mod.rs"]
#[allow(dead_code, reason = "the benches of parts use all of it")]
mod fixture;

use fixture::Server;
use fixture::pods::{Changes, FIRST_LIST};

/// What is counted is what happens in here, on this thread; scripts/instructions looks for the name.
#[inline(never)]
fn counted_work(work: &mut dyn FnMut()) {
    work();
}

/// 1,024 events of storage in batches of 64, decoded and applied to a cache of 2,000 pods.
fn apply() {
    let (server, mut changes) = (Server::with(2_000), Changes::of(2_000));
    let mut batches: Vec<_> = (0..17).map(|_| changes.batch(64)).collect();
    server.apply(batches.remove(0));
    let mut batches = batches.into_iter();
    counted_work(&mut || batches.by_ref().for_each(|batch| server.apply(batch)));
}

/// Eight events, one after another, each taken by 1,000 watchers.
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

/// The body of a list of 2,000 pods.
fn list() {
    let server = Server::with(2_000);
    let uri = "/api/v1/pods?resourceVersion=0";
    let length = server.get(uri);
    counted_work(&mut || assert_eq!(server.get(uri), length));
}

const PATHS: [(&str, fn()); 3] = [("apply", apply), ("dispatch", dispatch), ("list", list)];

fn main() {
    // Cargo's own `--bench` names no path.
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
