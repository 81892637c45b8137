//! Tests of the size of the data file, which must not remain what a burst of changes made it.

use std::path::Path;

use super::restored::copy_directory;
use super::*;

fn open(directory: &Path) -> Arc<Embedded> {
    let config = EmbeddedConfig {
        durability: Durability::Fsync,
        compaction_interval: Duration::ZERO,
        retention: None,
    };
    Embedded::open(directory, config).unwrap()
}

fn data_file_bytes(directory: &Path) -> u64 {
    std::fs::metadata(directory.join(DATA_FILE)).unwrap().len()
}

/// Creates and deletes objects, whose values have 60 MB in total, and compacts their history.
async fn burst(store: &Embedded) {
    for number in 0..60 {
        let at = format!("/pods/ns/{number}");
        let put = Put {
            key: key(&at),
            value: vec![number; 1 << 20].into(),
            expect: Expect::Absent,
            ttl: None,
        };
        let Outcome::Done(made) = store.put(put).await.unwrap() else {
            panic!("the key did not exist")
        };
        store.delete(&key(&at), made).await.unwrap();
    }
    done(store, "/pods/ns/last", Expect::Absent).await;
    let now = store.current_revision().await.unwrap();
    store.compact(now).await.unwrap();
    sizes(store).await;
}

/// 51,000 pairs of creations and deletions left a data file of 140 MB, also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_file_shrinks_while_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    done(&store, "/pods/ns/first", Expect::Absent).await;
    burst(&store).await;
    let before = data_file_bytes(directory.path());
    assert!(before > 32 << 20, "{before}");
    let tasks = Tasks::new();
    let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers = (0..4).map(|_| {
        let (store, is_done) = (store.clone(), is_done.clone());
        tasks.spawn("reader", async move {
            let mut reads = 0;
            // Once at least: all threads may wait until the file is smaller.
            while reads == 0 || !is_done.load(Ordering::Relaxed) {
                let (found, _) = store.get(&key("/pods/ns/first")).await.unwrap();
                assert!(found.is_some());
                assert!(store.current_revision().await.is_ok());
                reads += 1;
                tokio::task::yield_now().await;
            }
            reads
        })
    });
    let readers: Vec<_> = readers.collect();
    let started = Instant::now();
    store.execute(Op::Shrink).await.unwrap();
    println!(
        "a file of {before} bytes shrank within {:?}",
        started.elapsed()
    );
    is_done.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    let after = data_file_bytes(directory.path());
    assert!(after < 2 << 20, "{after}");
    let last = done(&store, "/pods/ns/after", Expect::Absent).await;
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.current_revision().await.unwrap(), last);
    assert!(store.get(&key("/pods/ns/last")).await.unwrap().0.is_some());
}

/// A visitor that waits in its first part until the sender is dropped, also by a panic of the test.
struct BlockingVisitor {
    has_begun: tokio::sync::Notify,
    released: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl crate::ListVisitor for BlockingVisitor {
    fn visit(&self, _: usize, _: &[crate::VisitedValue<'_>]) {
        self.has_begun.notify_one();
        assert!(self.released.lock().recv().is_err());
    }
}

/// Each get blocked a worker of the runtime for up to 5 s, while the shrink waited for a long list, and failed then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_block_no_thread_while_the_data_file_waits_for_a_long_list() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let last = done(&store, "/pods/ns/first", Expect::Absent).await;
    burst(&store).await;
    let now = store.current_revision().await.unwrap();
    assert!(now > last);
    let tasks = Tasks::new();
    let (release, released) = std::sync::mpsc::channel();
    let visitor = Arc::new(BlockingVisitor {
        has_begun: tokio::sync::Notify::new(),
        released: Mutex::new(released),
    });
    let visit = {
        let (store, visitor) = (store.clone(), visitor.clone());
        tasks.spawn("visit", async move {
            store.visit(&key("/pods/"), visitor).await
        })
    };
    visitor.has_begun.notified().await;
    let shrink = {
        let store = store.clone();
        tasks.spawn("shrink", async move { store.execute(Op::Shrink).await })
    };
    while !store.data.is_paused() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reads = (0..4).map(|_| {
        let store = store.clone();
        tasks.spawn("read", async move {
            store.get(&key("/pods/ns/first")).await?;
            store.compacted_revision().await?;
            drop(store.watch(&key("/pods/"), now).await?);
            store.current_revision().await
        })
    });
    let reads: Vec<_> = reads.collect();
    // Tasks of the runtime go on.
    for _ in 0..10 {
        let started = Instant::now();
        let timer = tasks.spawn("timer", tokio::time::sleep(Duration::from_millis(10)));
        timer.await.unwrap();
        let elapsed = started.elapsed();
        // Shorter than the 5 s of the defect.
        assert!(elapsed < Duration::from_secs(4), "{elapsed:?}");
    }
    assert!(store.data.is_paused() && reads.iter().all(|read| !read.is_finished()));
    // The watch cache requests it for consistent reads, on any thread.
    assert_eq!(store.known_revision().unwrap().unwrap(), now);
    drop(release);
    for read in reads {
        assert_eq!(read.await.unwrap().unwrap(), now);
    }
    shrink.await.unwrap().unwrap();
    drop(visit.await.unwrap());
    assert!(data_file_bytes(directory.path()) < 2 << 20);
}

#[tokio::test]
async fn the_data_file_shrinks_at_a_clean_end_and_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    burst(&store).await;
    store.execute(Op::Flush).await.unwrap();
    let killed = tempfile::tempdir().unwrap();
    copy_directory(directory.path(), killed.path());
    drop(store);
    let after = data_file_bytes(directory.path());
    assert!(after < 2 << 20, "{after}");

    assert!(data_file_bytes(killed.path()) > 32 << 20);
    for path in [killed.path(), directory.path()] {
        let store = open(path);
        assert!(data_file_bytes(path) < 2 << 20);
        assert!(store.get(&key("/pods/ns/last")).await.unwrap().0.is_some());
        drop(store);
        super::super::check(path, &mut |_, _| {}).unwrap();
    }
}

/// Prints the figures of docs/storage.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes some minutes: cargo test -p watchet-storage --lib sizes_after_many_changes -- --ignored --nocapture"]
async fn sizes_after_many_changes() {
    const WRITERS: usize = 64;
    let directory = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig {
        durability: Durability::Fsync,
        compaction_interval: Duration::from_secs(5),
        retention: None,
    };
    let store = Embedded::open(directory.path(), config).unwrap();
    let tasks = Tasks::new();
    let (maintained, stop) = (store.clone(), tasks.token());
    drop(tasks.spawn("maintain", async move { maintained.maintain(stop).await }));
    let mib = || data_file_bytes(directory.path()) as f64 / f64::from(1 << 20);
    let mut largest = 0_f64;
    println!("new store: {:.1} MiB", mib());
    for (story, count, distinct) in [
        ("objects created and deleted", 51_000, true),
        ("updates of 64 objects", 1_000_000, false),
    ] {
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tasks.spawn("writer", async move {
                let mut at = None;
                for number in 0..count / WRITERS {
                    let name = if distinct { number } else { 0 };
                    let name = key(&format!("/pods/{writer}/{name}"));
                    let put = Put {
                        key: name.clone(),
                        value: vec![b'x'; 1000].into(),
                        expect: at.map_or(Expect::Absent, Expect::At),
                        ttl: None,
                    };
                    let Outcome::Done(made) = store.put(put).await.unwrap() else {
                        panic!("no other writer has {name}")
                    };
                    match distinct {
                        true => drop(store.delete(&name, made).await.unwrap()),
                        false => at = Some(made),
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            largest = largest.max(mib());
        }
        println!(
            "{count} {story}: {:.1} MiB, at most {largest:.1} MiB",
            mib()
        );
        tokio::time::sleep(Duration::from_secs(30)).await;
        println!("30 s later, with a compaction each 5 s: {:.1} MiB", mib());
        assert!(mib() < 32.0);
        assert!(largest < 1024.0, "more than all updates and their history");
    }
    drop(tasks.token());
}
