//! Tests of the Reflector with scripted sources, in paused time.

use std::collections::VecDeque;

use futures_util::stream;
use parking_lot::Mutex;

use super::super::{Change, ChangeStream, Listing};
use super::*;

/// The result of the source's next call; the calls are recorded.
enum Reply {
    List(Result<Listing<u64>, SourceError>),
    Watch(Vec<Result<ChangeBatch<u64>, SourceError>>),
    WatchFailed(SourceError),
}

#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn record(&self, what: String) {
        self.calls.lock().push(what);
    }
}

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion::new(n)
}

fn added(n: u64) -> Result<ChangeBatch<u64>, SourceError> {
    Ok(ChangeBatch {
        changes: vec![Change::Added(Arc::new(n))],
        at: rv(n),
    })
}

fn expired() -> SourceError {
    SourceError::Expired {
        at: rv(1),
        detail: "compacted".into(),
    }
}

fn unavailable() -> SourceError {
    SourceError::Unavailable {
        detail: "refused".into(),
        retry_after: None,
    }
}

impl ListerWatcher for Script {
    type Object = u64;

    async fn list(&mut self) -> Result<Listing<u64>, SourceError> {
        self.record("list".into());
        let answer = self.replies.lock().pop_front();
        match answer {
            Some(Reply::List(result)) => result,
            Some(_) => panic!("the script expects a watch, the Reflector lists"),
            None => std::future::pending().await,
        }
    }

    async fn watch(&mut self, after: ResourceVersion) -> Result<ChangeStream<u64>, SourceError> {
        self.record(format!("watch {after}"));
        let answer = self.replies.lock().pop_front();
        match answer {
            Some(Reply::Watch(batches)) => Ok(Box::pin(stream::iter(batches))),
            Some(Reply::WatchFailed(error)) => Err(error),
            Some(Reply::List(_)) => panic!("the script expects a list, the Reflector watches"),
            None => Ok(Box::pin(stream::pending())),
        }
    }
}

impl ReflectorStore for Script {
    type Object = u64;

    async fn replace(&mut self, objects: Vec<Arc<u64>>, at: ResourceVersion) {
        self.record(format!("replace {objects:?} {at}"));
    }

    async fn watching(&mut self) {
        self.record("watching".into());
    }

    async fn apply(&mut self, batch: ChangeBatch<u64>) {
        self.record(format!("apply {} to {}", batch.changes.len(), batch.at));
    }

    async fn failed(&mut self, error: &SourceError) {
        self.record(format!("failed: {error}"));
    }
}

/// Runs the replies and five quiet minutes, and asserts the calls.
async fn check(replies: Vec<Reply>, expect: &[&str]) {
    let script = Script {
        replies: Arc::new(Mutex::new(replies.into())),
        ..Script::default()
    };
    let stop = CancellationToken::new();
    let backoff = Backoff::default().seeded(7);
    let run = Reflector::new(script.clone(), script.clone(), backoff).run(stop.clone());
    let end = async {
        tokio::time::sleep(Duration::from_secs(300)).await;
        stop.cancel();
    };
    tokio::join!(run, end);
    assert_eq!(*script.calls.lock(), expect);
}

fn listing(at: u64) -> Reply {
    Reply::List(Ok(Listing {
        objects: vec![Arc::new(at)],
        at: rv(at),
    }))
}

fn unreadable() -> SourceError {
    SourceError::Undecodable {
        detail: "garbage".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn watch_is_resumed_at_its_last_version() {
    check(
        vec![listing(5), Reply::Watch(vec![added(6), added(8)])],
        &[
            "list",
            "replace [5] 5",
            "watch 5",
            "watching",
            "apply 1 to 6",
            "apply 1 to 8",
            "watch 8",
            "watching",
        ],
    )
    .await;
}

/// A watch with undecodable data was resumed at the same version repeatedly, until the source had
/// compacted it.
#[tokio::test(start_paused = true)]
async fn only_expiry_and_undecodable_data_cause_a_relist() {
    check(
        vec![
            Reply::List(Err(unavailable())),
            listing(5),
            Reply::WatchFailed(unavailable()),
            Reply::Watch(vec![added(6), Err(unavailable())]),
            Reply::Watch(vec![Err(expired())]),
            listing(9),
            Reply::Watch(vec![added(10), Err(unreadable())]),
            Reply::List(Err(unreadable())),
            listing(12),
        ],
        &[
            "list",
            "failed: source unavailable: refused",
            "list",
            "replace [5] 5",
            "watch 5",
            "failed: source unavailable: refused",
            "watch 5",
            "watching",
            "apply 1 to 6",
            "failed: source unavailable: refused",
            "watch 6",
            "watching",
            "failed: resource version 1 is too old: compacted",
            "list",
            "replace [9] 9",
            "watch 9",
            "watching",
            "apply 1 to 10",
            "failed: source sent undecodable data: garbage",
            "list",
            "failed: source sent undecodable data: garbage",
            "list",
            "replace [12] 12",
            "watch 12",
            "watching",
        ],
    )
    .await;
}

/// A source whose version decreases is faulty and is listed again.
#[tokio::test(start_paused = true)]
async fn source_with_decreasing_version_is_listed_again() {
    check(
        vec![
            listing(5),
            Reply::Watch(vec![added(7), added(6), added(8)]),
            listing(4),
        ],
        &[
            "list",
            "replace [5] 5",
            "watch 5",
            "watching",
            "apply 1 to 7",
            "failed: resource version 7 is too old: the source went back to 6",
            "list",
            "replace [4] 4",
            "watch 4",
            "watching",
        ],
    )
    .await;
}

/// Returns the numbers of lists and watches in a minute with these replies.
async fn calls_in_a_minute(replies: Vec<Reply>) -> (usize, usize) {
    let script = Script {
        replies: Arc::new(Mutex::new(replies.into())),
        ..Script::default()
    };
    let stop = CancellationToken::new();
    let run = Reflector::new(script.clone(), script.clone(), Backoff::default().seeded(7));
    tokio::join!(run.run(stop.clone()), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        stop.cancel();
    });
    let calls = script.calls.lock();
    let count = |what| calls.iter().filter(|calls| calls.starts_with(what)).count();
    (count("list"), count("watch "))
}

#[tokio::test(start_paused = true)]
async fn failing_source_is_not_called_in_a_tight_loop() {
    let mut ends_immediately = vec![listing(5)];
    ends_immediately.extend((0..1000).map(|_| Reply::Watch(vec![])));
    let (lists, watches) = calls_in_a_minute(ends_immediately).await;
    assert_eq!(lists, 1);
    assert!((2..10).contains(&watches), "{watches} watches in a minute");

    // Each list has expired before its watch starts.
    let always_expired = (0..1000).flat_map(|_| [listing(5), Reply::WatchFailed(expired())]);
    let (lists, watches) = calls_in_a_minute(always_expired.collect()).await;
    assert!((2..10).contains(&lists), "{lists} lists in a minute");
    assert_eq!(lists, watches);

    // Each watch makes progress before it expires.
    let expired_after_progress = (0..1000).flat_map(|n| {
        [
            listing(5 * n),
            Reply::Watch(vec![added(5 * n + 1), Err(expired())]),
        ]
    });
    let (lists, watches) = calls_in_a_minute(expired_after_progress.collect()).await;
    assert!((2..10).contains(&lists), "{lists} lists in a minute");
    assert_eq!(lists, watches);

    let always_unreadable =
        (0..1000).flat_map(|_| [listing(5), Reply::Watch(vec![Err(unreadable())])]);
    let (lists, _) = calls_in_a_minute(always_unreadable.collect()).await;
    assert!((2..10).contains(&lists), "{lists} lists in a minute");
}

/// Returns when each list started, in seconds, if all watches expire after these seconds.
async fn lists_when_watches_last(seconds: u64, lists: usize) -> Vec<u64> {
    #[derive(Clone)]
    struct ExpiringSource {
        duration: Duration,
        begun: Instant,
        lists: Arc<Mutex<Vec<u64>>>,
    }
    impl ListerWatcher for ExpiringSource {
        type Object = u64;
        async fn list(&mut self) -> Result<Listing<u64>, SourceError> {
            self.lists.lock().push(self.begun.elapsed().as_secs());
            Ok(Listing {
                objects: Vec::new(),
                at: rv(5),
            })
        }
        async fn watch(&mut self, _: ResourceVersion) -> Result<ChangeStream<u64>, SourceError> {
            let duration = self.duration;
            Ok(Box::pin(stream::once(async move {
                tokio::time::sleep(duration).await;
                Err(expired())
            })))
        }
    }
    let source = ExpiringSource {
        duration: Duration::from_secs(seconds),
        begun: Instant::now(),
        lists: Arc::default(),
    };
    let stop = CancellationToken::new();
    let backoff = Backoff::default().seeded(7);
    let run = Reflector::new(source.clone(), Script::default(), backoff).run(stop.clone());
    tokio::join!(run, async {
        while source.lists.lock().len() < lists {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stop.cancel();
    });
    let lists = source.lists.lock();
    lists.clone()
}

/// The first expiry in two minutes is not a failure: it is followed by an immediate list, also
/// after an outage.
#[tokio::test(start_paused = true)]
async fn rare_expiry_is_followed_by_an_immediate_list() {
    assert_eq!(lists_when_watches_last(180, 4).await, [0, 180, 360, 540]);
    let often = lists_when_watches_last(10, 7).await;
    assert_eq!(often[..2], [0, 10]);
    let pauses: Vec<_> = often.windows(2).map(|two| two[1] - two[0] - 10).collect();
    assert!(pauses.is_sorted() && pauses[5] >= 12, "{pauses:?}");

    let outage = (0..10).map(|_| Reply::WatchFailed(unavailable()));
    let replies = std::iter::once(listing(5)).chain(outage);
    let replies = replies.chain([Reply::WatchFailed(expired())]).collect();
    let script = Script {
        replies: Arc::new(Mutex::new(replies)),
        ..Script::default()
    };
    let stop = CancellationToken::new();
    let run = Reflector::new(script.clone(), script.clone(), Backoff::default().seeded(7));
    tokio::join!(run.run(stop.clone()), async {
        let has_expired = |calls: &String| calls.contains("too old");
        while !script.calls.lock().iter().any(has_expired) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(script.calls.lock().last().unwrap(), "list");
        stop.cancel();
    });
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected() {
    let busy = SourceError::Unavailable {
        detail: "busy".into(),
        retry_after: Some(Duration::from_secs(45)),
    };
    let replies = vec![
        listing(5),
        Reply::WatchFailed(busy),
        Reply::WatchFailed(unavailable()),
    ];
    let (_, watches) = calls_in_a_minute(replies).await;
    assert_eq!(watches, 3, "immediately, after 45 s, and soon after that");
}

#[tokio::test(start_paused = true)]
async fn stops_in_the_middle_of_a_list() {
    let script = Script::default();
    let stop = CancellationToken::new();
    let run = Reflector::new(script.clone(), script.clone(), Backoff::default()).run(stop.clone());
    let stopped = async {
        while script.calls.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(run, stopped) };
    let ended = tokio::time::timeout(Duration::from_secs(1), both).await;
    assert!(ended.is_ok(), "the Reflector stops");
    assert_eq!(*script.calls.lock(), ["list"]);
}
