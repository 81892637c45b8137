//! Tests with many watchers on several threads: groups that join and leave during a dispatch, and
//! work that yields.

use super::*;

/// Polls a watch once and returns the number of items.
async fn poll_once(watch: &mut CacheWatcher) -> usize {
    match futures::poll!(std::pin::pin!(watch.next())) {
        std::task::Poll::Ready(items) => items.expect("the watch is open").len(),
        std::task::Poll::Pending => 0,
    }
}

/// Joins more groups during a dispatch than one lock acquisition serves: each watch receives every
/// event once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_join_during_a_dispatch_miss_nothing() {
    const EVENTS: u64 = 60;
    let f = Fixture::start();
    f.wait_until_synced().await;
    let selection = |n: usize| predicate(None, &format!("app!=x{n}"), "");
    let mut early = Vec::new();
    for n in 0..3000 {
        let mut watch = f.watch(selection(n), from(rv(1))).await;
        while f.cacher.dispatcher.members() <= n {
            assert_eq!(poll_once(&mut watch).await, 0, "no events yet");
        }
        early.push(watch);
    }
    let joining = async {
        let mut late = Vec::new();
        for n in 0..200 {
            // Half of them join groups that exist.
            let mut watch = f.watch(selection(2900 + n), from(rv(1))).await;
            let count = poll_once(&mut watch).await;
            late.push((watch, count));
            tokio::task::yield_now().await;
        }
        late
    };
    let writing = async {
        for n in 0..EVENTS {
            f.put(&format!("ns/p{n}"), "web", "n1");
            tokio::task::yield_now().await;
        }
    };
    let (late, ()) = tokio::join!(joining, writing);
    let all = early.into_iter().map(|watch| (watch, 0)).chain(late);
    for (mut watch, mut count) in all {
        while count < EVENTS as usize {
            let items = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
            for item in items.expect("all events arrive").unwrap() {
                count += 1;
                assert!(
                    describe(&item).ends_with(&format!("@{}", count + 1)),
                    "{item:?}"
                );
            }
        }
        assert_eq!(poll_once(&mut watch).await, 0, "nothing twice");
    }
    assert_eq!(f.cacher.dispatcher.members(), 0, "all have left");
}

/// A watch without matches read all of a long history in one poll, and a list without matches all
/// objects, which blocked the thread.
#[tokio::test(start_paused = true)]
async fn long_searches_yield() {
    let f = Fixture::start();
    f.storage.write_together(
        (0..20_000)
            .map(|n| format!("ns/p{n}"))
            .map(|key| (format!("/pods/{key}"), Some(pod(&key, "web", "n1", 0))))
            .collect(),
    );
    f.wait_until_synced().await;
    for n in 0..2000 {
        f.put(&format!("ns/p{n}"), "web", "n1");
    }
    f.wait_until_synced().await;
    let none = predicate(None, "app=db", "");
    for options in [from(rv(2)), watch_list()] {
        let mut watch = f.watch(none.clone(), options).await;
        let mut next = std::pin::pin!(watch.next());
        let mut goes = 0;
        while goes < 100 && futures::poll!(next.as_mut()).is_pending() {
            goes += 1;
            if f.cacher.dispatcher.members() > 0 {
                break;
            }
        }
        assert!((4..100).contains(&goes), "{goes} goes");
    }
    let options = ListOptions {
        resource_version: Some(ResourceVersion::ZERO),
        ..ListOptions::default()
    };
    let mut list = std::pin::pin!(f.cacher.list(&none, &options));
    let mut goes = 1;
    while futures::poll!(list.as_mut()).is_pending() {
        goes += 1;
    }
    assert_eq!(goes, 5, "20,000 objects, 4,096 at a time");
}

/// Returns how often another task of the thread ran until a watch of each group received an event.
async fn turns(groups: usize) -> usize {
    let f = Fixture::start();
    f.wait_until_synced().await;
    let mut watches = Vec::new();
    for n in 0..groups {
        let selection = predicate(None, &format!("app!=x{n}"), "");
        let mut watch = f.watch(selection, from(rv(1))).await;
        assert_eq!(poll_once(&mut watch).await, 0);
        watches.push(watch);
    }
    assert_eq!(f.cacher.dispatcher.members(), groups, "all are live");
    f.put("ns/a", "web", "n1");
    let mut turns = 0;
    while f.cacher.dispatcher.dispatched() < rv(2) {
        tokio::task::yield_now().await;
        turns += 1;
    }
    for watch in &mut watches {
        assert_eq!(poll_once(watch).await, 1);
    }
    turns
}

/// An event with ten thousand predicates blocked the thread for some hundred milliseconds.
#[tokio::test(start_paused = true)]
async fn large_dispatches_yield() {
    let (one, many) = (turns(1).await, turns(10_000).await);
    assert!(many >= one + 3, "{one} and {many} turns");
}
