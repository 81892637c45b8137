//! Tests of restarts: history, deadlines and compaction continue.

use std::time::Duration;

use fastrand::Rng;
use watchet::storage::embedded::Durability;
use watchet::storage::{Expect, Outcome, Put};

use super::super::model::{Model, step};
use super::super::support::{Follow, Maintained, bytes, create, describe, key, update};
use super::{reopen, reopen_with};
use watchet_test_util::seeds::seed_or;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_survives_restarts() {
    let mut random = Rng::with_seed(seed_or(0x5eed_0002));
    for durability in [
        Durability::Fsync,
        Durability::Interval(Duration::from_secs(3600)),
        Durability::None,
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut model = None;
        for round in 0..4 {
            let store = reopen_with(directory.path(), durability);
            let revision = store.current_revision().await.unwrap();
            let model = model.get_or_insert_with(|| Model::empty_at(revision));
            model.check(&store).await;
            for _ in 0..30 {
                step(&store, model, &mut random).await;
            }
            if round % 2 == 1 {
                let at = watchet::api::ResourceVersion::new(model.revision().get() - 7);
                store.compact(at).await.unwrap();
                model.compact(at);
            }
            model.check(&store).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumes_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path());
    let first = create(&store, "/pods/ns/a", "one").await;
    let second = update(&store, "/pods/ns/a", first, "two").await;
    let mut watch = Follow::open(&store, "/pods/", second).await;
    drop(store);
    // An open watch that is not read does not lock the directory; it ends with an error.
    let store = reopen(directory.path());
    assert!(watch.batch().await.is_err());
    let mut resumed = Follow::open(&store, "/pods/", first).await;
    update(&store, "/pods/ns/a", second, "three").await;
    assert_eq!(
        describe(&resumed.events(2).await),
        ["/pods/ns/a=two was one", "/pods/ns/a=three was two"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path());
    let put = Put {
        key: key("/events/ns/a"),
        value: bytes("brief"),
        expect: Expect::Absent,
        ttl: Some(Duration::from_millis(600)),
    };
    let Outcome::Done(made) = store.put(put).await.unwrap() else {
        panic!("the key was absent");
    };
    drop(store);
    let store = reopen(directory.path());
    let _maintained = Maintained::start(&store);
    let mut watch = Follow::open(&store, "/events/", made).await;
    assert_eq!(
        describe(&watch.events(1).await),
        ["/events/ns/a=- was brief"]
    );
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("made/by/open");
    let store = reopen(&directory);
    create(&store, "/secrets/ns/a", "secret").await;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = directory
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}
