//! Tests of failures of the disk: writes and syncs that fail, and crashes at every access.

use super::disk::{DATA, DATA_DURING_LOG_SYNC, Disk, FULL, LOG_SYNC, LOG_TORN, NONE};
use super::*;

#[tokio::test]
async fn a_failing_disk_acknowledges_nothing() {
    for fault in [FULL, LOG_SYNC, LOG_TORN] {
        let disk = Disk::default();
        let store = disk.open(Durability::Fsync, true);
        let first = done(&store, "/pods/ns/a", Expect::Absent).await;
        let mut watch = store.watch(&key("/pods/"), first).await.unwrap();

        disk.fail(fault);
        let unsure = put(&store, "/pods/ns/b", Expect::Absent).await;
        assert!(
            matches!(unsure, Err(StorageError::OutcomeUnknown(_))),
            "{unsure:?}"
        );
        let (shown, _) = store.get(&key("/pods/ns/b")).await.unwrap();
        assert_eq!(shown, None, "it may be lost, so no read returns it");
        // A later sync that succeeds says nothing about writes before a failed one.
        disk.fail(NONE);
        let refused = put(&store, "/pods/ns/c", Expect::Absent).await;
        match refused {
            Err(StorageError::Failed(text)) => assert!(text.contains("opened again"), "{text}"),
            other => panic!("{other:?}"),
        }
        let refused = store.delete(&key("/pods/ns/a"), first).await;
        assert!(
            matches!(refused, Err(StorageError::Failed(_))),
            "{refused:?}"
        );
        assert!(
            watch.batches.next().now_or_never().is_none(),
            "nothing happened"
        );
        drop(store);
        let end = watch.batches.next().await;
        assert!(
            matches!(end, Some(Err(StorageError::Unavailable(_)))),
            "{end:?}"
        );
        assert!(watch.batches.next().await.is_none());
        // After a restart the unacknowledged write exists if its frame is complete.
        let store = disk.open(Durability::Fsync, false);
        let found = keys(&store).await;
        match fault {
            LOG_SYNC => assert_eq!(found, ["/pods/ns/a", "/pods/ns/b"]),
            _ => assert_eq!(found, ["/pods/ns/a"]),
        }
    }
}

/// After a sync that failed, the frame can be read until a power failure, but a later sync does not
/// write it to disk. A start that only synced lost it, and every write acknowledged after it.
#[tokio::test]
async fn a_frame_whose_sync_failed_is_durable_after_a_restart() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed());
    let disk = Disk::default();
    let store = disk.open(Durability::Fsync, true);
    done(&store, "/pods/ns/a", Expect::Absent).await;
    disk.fail(LOG_SYNC);
    put(&store, "/pods/ns/b", Expect::Absent).await.unwrap_err();
    drop(store);
    disk.fail(NONE);

    let store = disk.open(Durability::Fsync, false);
    assert_eq!(keys(&store).await, ["/pods/ns/a", "/pods/ns/b"]);
    let visible = disk.accesses();
    done(&store, "/pods/ns/c", Expect::Absent).await;
    let acknowledged = disk.accesses();
    drop(store);
    for accesses in visible..=disk.accesses() {
        let copy = disk.crash_after(accesses, Some(&mut random));
        let found = keys(&copy.open(Durability::Fsync, false)).await;
        let known = if accesses < acknowledged { 2 } else { 3 };
        let expected = ["/pods/ns/a", "/pods/ns/b", "/pods/ns/c"];
        assert_eq!(found[..known], expected[..known], "after {accesses}");
    }
}

fn maintain(store: &Arc<Embedded>) {
    let tasks = Tasks::new();
    let (maintained, stop) = (store.clone(), tasks.token());
    tasks.spawn("maintain", async move { maintained.maintain(stop).await });
}

/// Advances the paused time until `done`, and lets the writer thread, which runs in real time,
/// work.
async fn until(done: impl AsyncFn() -> bool) {
    for _ in 0..5000 {
        if done().await {
            return;
        }
        tokio::time::sleep(operation::REOPEN_PAUSE).await;
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition is never met");
}

/// After a failure of the log the store recovers by itself, without the unacknowledged write, also
/// if it is killed immediately afterwards.
#[tokio::test(start_paused = true)]
async fn store_recovers_once_its_disk_works() {
    for fault in [FULL, LOG_SYNC, LOG_TORN] {
        let disk = Disk::default();
        let store = disk.open(Durability::Fsync, true);
        maintain(&store);
        let first = done(&store, "/pods/ns/a", Expect::Absent).await;
        let mut watch = store.watch(&key("/pods/"), first).await.unwrap();

        disk.fail(fault);
        put(&store, "/pods/ns/b", Expect::Absent).await.unwrap_err();
        put(&store, "/pods/ns/c", Expect::Absent).await.unwrap_err();
        // Attempts to open it fail.
        tokio::time::sleep(3 * operation::REOPEN_PAUSE).await;
        if fault != LOG_TORN {
            put(&store, "/pods/ns/c", Expect::Absent).await.unwrap_err();
            // The health check fails.
            store.current_revision().await.unwrap_err();
        }
        disk.fail(NONE);
        until(async || store.status.failed().is_none()).await;
        let (a, _) = store.get(&key("/pods/ns/a")).await.unwrap();
        assert_eq!(a.unwrap().mod_revision, first);
        let c = done(&store, "/pods/ns/c", Expect::Absent).await;
        assert_eq!(c, first.next(), "no client has seen the revision");
        let batch = watch.batches.next().await.unwrap().unwrap();
        let events: Vec<_> = batch.events.iter().map(|event| event.revision).collect();
        assert_eq!(events, [c], "each change, once, in order");

        let store = disk.crash().open(Durability::Fsync, false);
        assert_eq!(keys(&store).await, ["/pods/ns/a", "/pods/ns/c"]);
        assert_eq!(store.current_revision().await.unwrap(), c);
    }
}

/// A failure of the tables loses nothing: the log has it, and so has the memory.
#[tokio::test(start_paused = true)]
async fn a_failed_checkpoint_loses_nothing() {
    let disk = Disk::default();
    let store = disk.open(Durability::Fsync, true);
    let first = done(&store, "/pods/ns/a", Expect::Absent).await;
    disk.fail(DATA);
    let second = done(&store, "/pods/ns/b", Expect::Absent).await;
    store.execute(Op::Flush).await.unwrap_err();
    put(&store, "/pods/ns/c", Expect::Absent).await.unwrap_err();
    let (b, _) = store.get(&key("/pods/ns/b")).await.unwrap();
    assert_eq!(b.unwrap().mod_revision, second);

    let copy = disk.crash().open(Durability::Fsync, false);
    assert_eq!(keys(&copy).await, ["/pods/ns/a", "/pods/ns/b"]);
    assert_eq!(copy.current_revision().await.unwrap(), second);
    maintain(&store);
    tokio::time::sleep(3 * operation::REOPEN_PAUSE).await;
    disk.fail(NONE);
    until(async || store.status.failed().is_none()).await;
    let third = done(&store, "/pods/ns/c", Expect::Absent).await;
    assert_eq!(third, second.next());
    let mut watch = store.watch(&key("/pods/"), first).await.unwrap();
    let batch = watch.batches.next().await.unwrap().unwrap();
    let events: Vec<_> = batch.events.iter().map(|event| event.revision).collect();
    assert_eq!(events, [second, third]);
}

/// A batch is in the log and visible before the store looks at the result of an earlier checkpoint, which
/// may have failed. Its writes are done: answered as failures, they were repeated by clients.
#[tokio::test]
async fn a_checkpoint_that_failed_in_the_background_fails_no_logged_write() {
    let disk = Disk::default();
    let store = disk.open(Durability::Fsync, true);
    done(&store, "/pods/ns/a", Expect::Absent).await;
    disk.fail(DATA_DURING_LOG_SYNC);
    let queue = store.queue.as_ref().unwrap();
    queue.send(Op::Checkpoint).await.unwrap();
    while store.data.frozen().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // It is due when the first one, which fails during the put, has ended.
    queue.send(Op::Checkpoint).await.unwrap();
    let failure = async {
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.status.failed().is_none() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The checkpoint thread sends its result just after it reports the failure, and the put must find it.
        tokio::time::sleep(Duration::from_millis(300)).await;
        // The sync of the log ends, and with it the put.
        disk.fail(NONE);
    };
    let (b, ()) = tokio::join!(done(&store, "/pods/ns/b", Expect::Absent), failure);
    assert!(store.status.failed().is_some(), "the checkpoint has failed");
    let refused = put(&store, "/pods/ns/c", Expect::Absent).await;
    assert!(
        matches!(refused, Err(StorageError::Failed(_))),
        "{refused:?}"
    );
    let (stored, _) = store.get(&key("/pods/ns/b")).await.unwrap();
    assert_eq!(stored.unwrap().mod_revision, b);
    let store = disk.crash().open(Durability::Fsync, false);
    assert_eq!(keys(&store).await, ["/pods/ns/a", "/pods/ns/b"]);
    drop(store);
}

/// With interval durability, the flush each second prevented the store from being opened again. A
/// store that goes on after a failure loses nothing.
#[tokio::test(start_paused = true)]
async fn store_with_interval_durability_recovers() {
    let disk = Disk::default();
    let store = disk.open(Durability::Interval(Duration::from_secs(1)), true);
    let flushed = done(&store, "/pods/ns/flushed", Expect::Absent).await;
    store.execute(Op::Flush).await.unwrap();
    let mut watch = store.watch(&key("/pods/"), flushed).await.unwrap();
    let unflushed = done(&store, "/pods/ns/unflushed", Expect::Absent).await;
    disk.fail(FULL);
    store.execute(Op::Flush).await.unwrap_err();
    put(&store, "/pods/ns/c", Expect::Absent).await.unwrap_err();
    disk.fail(NONE);
    maintain(&store);
    until(async || store.status.failed().is_none()).await;

    let made = done(&store, "/pods/ns/new", Expect::Absent).await;
    assert_eq!(made, unflushed.next());
    let mut revisions = Vec::new();
    while revisions.len() < 2 {
        let batch = watch.batches.next().await.unwrap().unwrap();
        revisions.extend(batch.events.into_iter().map(|event| event.revision));
    }
    assert_eq!(revisions, [unflushed, made]);
}

/// A crash of the process or a power failure after each access to the disk, in a life with
/// checkpoints, reuses of the files of the log, compactions and a clean shutdown:
/// acknowledged writes are there, other writes are there or not, and the store works.
#[tokio::test]
async fn a_crash_at_any_access_loses_nothing() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed());
    let disk = Disk::default();
    let store = disk.open(Durability::Fsync, true);
    // Of each acknowledged write, the accesses before and its revision.
    let mut acknowledged = vec![(disk.accesses(), 1)];
    for round in 0..24 {
        let at = format!("/pods/ns/{round:03}");
        let revision = done(&store, &at, Expect::Absent).await;
        acknowledged.push((disk.accesses(), revision.get()));
        match round % 8 {
            // In the background, so that further writes are made meanwhile.
            2 | 5 => drop(store.queue.as_ref().unwrap().try_send(Op::Checkpoint)),
            6 => store.compact(revision).await.unwrap(),
            7 => store.execute(Op::Flush).await.unwrap(),
            _ => {}
        }
    }
    drop(store);
    let (first, last) = (acknowledged[0].0, disk.accesses());
    assert!(last - first > 150, "{first} to {last}");
    for accesses in first..=last {
        let before = acknowledged.iter().take_while(|(at, _)| *at <= accesses);
        let expected = before.last().unwrap().1;
        let crashes = [
            ("after", Some(disk.crash_after(accesses, None))),
            ("in the next after", disk.crash_in(accesses)),
            (
                "power failure after",
                Some(disk.crash_after(accesses, Some(&mut random))),
            ),
        ];
        for (moment, crashed) in crashes {
            let Some(crashed) = crashed else { continue };
            let story = format!("{moment} {accesses} accesses");
            let store = crashed.open(Durability::Fsync, false);
            let revision = store.current_revision().await.unwrap().get();
            assert!(
                (expected..=expected + 1).contains(&revision),
                "{story}: {revision}, {expected}"
            );
            let found = keys(&store).await;
            let numbers = 0..revision - 1;
            let keys: Vec<_> = numbers.map(|n| format!("/pods/ns/{n:03}")).collect();
            assert_eq!(found, keys, "{story}");
            check_everything(&store, &story);
            let next = done(&store, "/pods/ns/next", Expect::Absent).await;
            assert_eq!(next.get(), revision + 1, "{story}");
        }
    }
}

/// Checks each record, index entry and deadline.
fn check_everything(store: &Embedded, story: &str) {
    let checked = store
        .data
        .read(|snapshot| super::super::check::check_snapshot(snapshot, &mut |_, _| {}));
    checked.unwrap_or_else(|error| panic!("{story}: {error}"));
}

/// Writes, checkpoints and compacts; opens the store again after a failure. Returns the acknowledged keys and those of
/// which that is not known.
async fn work_despite_failures(store: &Embedded) -> (Vec<String>, Vec<String>) {
    let (mut acknowledged, mut unsure) = (Vec::new(), Vec::new());
    for round in 0..24 {
        let at = format!("/pods/ns/{round:03}");
        match put(store, &at, Expect::Absent).await {
            Ok(Outcome::Done(_)) => acknowledged.push(at),
            Ok(refused) => panic!("{refused:?}"),
            Err(_) => unsure.push(at),
        }
        let worked = match round % 8 {
            2 | 5 => store.execute(Op::Flush).await,
            6 => {
                let revision = store.known_revision().unwrap();
                match revision {
                    Ok(revision) => store.compact(revision).await,
                    Err(error) => Err(error),
                }
            }
            _ => Ok(()),
        };
        if worked.is_err() || store.status.failed().is_some() {
            store.execute(Op::Reopen).await.unwrap();
        }
    }
    (acknowledged, unsure)
}

/// Each write, sync and change of the length fails once; a failed write is cut in the middle.
#[tokio::test]
async fn a_failure_of_any_access_loses_nothing() {
    let disk = Disk::default();
    let store = disk.open(Durability::Fsync, true);
    let before = disk.accesses();
    let (all, _) = work_despite_failures(&store).await;
    assert_eq!(all.len(), 24);
    // The collection of compacted records, in the background, may add some.
    let accesses = disk.accesses() - before;
    assert!(accesses > 100, "{accesses}");
    let mut failures = 0;
    for number in 1..=accesses {
        let disk = Disk::default();
        let store = disk.open(Durability::Fsync, true);
        disk.fail_once(number);
        let (acknowledged, unsure) = work_despite_failures(&store).await;
        failures += usize::from(acknowledged.len() < all.len());
        let killed = disk.crash();
        let revision = store.current_revision().await;
        drop(store);
        for disk in [killed, disk] {
            let story = format!("access {number}, unsure {unsure:?}");
            let store = disk.open(Durability::Fsync, false);
            check_everything(&store, &story);
            let found = keys(&store).await;
            for at in &acknowledged {
                assert!(found.contains(at), "{story}: {at} is lost");
            }
            for at in found.iter().filter(|at| !acknowledged.contains(at)) {
                assert!(unsure.contains(at), "{story}: {at} was not written");
            }
            if let Ok(revision) = &revision {
                assert!(
                    store.current_revision().await.unwrap() >= *revision,
                    "{story}"
                );
            }
        }
    }
    println!("{accesses} accesses, {failures} failures made a write unsure");
    assert!(failures > 20, "{failures} of {accesses}");
}

/// A crash or a power failure after each access of a compaction of the data file.
#[tokio::test]
async fn a_crash_during_the_compaction_of_the_file_loses_nothing() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed());
    let disk = Disk::default();
    let store = disk.open(Durability::Fsync, true);
    let mut expected = Vec::new();
    for round in 0..60 {
        let at = format!("/pods/ns/{round:03}");
        let put = Put {
            key: key(&at),
            value: vec![round; 20_000].into(),
            expect: Expect::Absent,
            ttl: None,
        };
        let Outcome::Done(made) = store.put(put).await.unwrap() else {
            panic!("the key did not exist")
        };
        match round % 6 {
            0 => expected.push(at),
            _ => drop(store.delete(&key(&at), made).await.unwrap()),
        }
    }
    let now = store.current_revision().await.unwrap();
    store.compact(now).await.unwrap();
    sizes(&store).await;
    let before = store.data.file_len().unwrap();
    let first = disk.accesses();
    store.data.compact_file().unwrap();
    let last = disk.accesses();
    let after = store.data.file_len().unwrap();
    assert!(after < before, "{after} of {before}");
    assert!(last - first > 20, "{first} to {last}");
    for accesses in first..=last {
        for power_failure in [false, true] {
            let crashed = disk.crash_after(accesses, power_failure.then_some(&mut random));
            let story = format!("{accesses} accesses, power failure: {power_failure}");
            let store = crashed.open(Durability::Fsync, false);
            assert_eq!(keys(&store).await, expected, "{story}");
            let revision = store.current_revision().await.unwrap();
            assert_eq!(revision, now, "{story}");
            for at in &expected {
                let (found, _) = store.get(&key(at)).await.unwrap();
                assert_eq!(found.unwrap().value.len(), 20_000, "{story}");
            }
            let next = done(&store, "/pods/ns/next", Expect::Absent).await;
            assert_eq!(next, now.next(), "{story}");
        }
    }
}
