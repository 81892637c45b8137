//! The Reflector against scripted sources, in paused time.

use std::collections::VecDeque;

use futures_util::stream;
use parking_lot::Mutex;

use super::super::{Change, ChangeStream, Listing};
use super::*;

/// What the source answers to the next call, whichever it is; the calls are recorded.
enum Answer {
    List(Result<Listing<u64>, SourceError>),
    Watch(Vec<Result<ChangeBatch<u64>, SourceError>>),
    WatchRefused(SourceError),
}

#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn tell(&self, what: String) {
        self.told.lock().push(what);
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

fn away() -> SourceError {
    SourceError::Unavailable {
        detail: "refused".into(),
        retry_after: None,
    }
}

impl ListerWatcher for Script {
    type Object = u64;

    async fn list(&mut self) -> Result<Listing<u64>, SourceError> {
        self.tell("list".into());
        let answer = self.answers.lock().pop_front();
        match answer {
            Some(Answer::List(result)) => result,
            Some(_) => panic!("the script wanted a watch, the Reflector lists"),
            None => std::future::pending().await,
        }
    }

    async fn watch(&mut self, after: ResourceVersion) -> Result<ChangeStream<u64>, SourceError> {
        self.tell(format!("watch {after}"));
        let answer = self.answers.lock().pop_front();
        match answer {
            Some(Answer::Watch(batches)) => Ok(Box::pin(stream::iter(batches))),
            Some(Answer::WatchRefused(error)) => Err(error),
            Some(Answer::List(_)) => panic!("the script wanted a list, the Reflector watches"),
            None => Ok(Box::pin(stream::pending())),
        }
    }
}

impl ReflectorStore for Script {
    type Object = u64;

    async fn replace(&mut self, objects: Vec<Arc<u64>>, at: ResourceVersion) {
        self.tell(format!("replace {objects:?} {at}"));
    }

    async fn watching(&mut self) {
        self.tell("watching".into());
    }

    async fn apply(&mut self, batch: ChangeBatch<u64>) {
        self.tell(format!("apply {} to {}", batch.changes.len(), batch.at));
    }

    async fn failed(&mut self, error: &SourceError) {
        self.tell(format!("failed: {error}"));
    }
}

/// Runs the answers and then five quiet minutes; expects exactly these calls.
async fn check(answers: Vec<Answer>, expect: &[&str]) {
    let script = Script {
        answers: Arc::new(Mutex::new(answers.into())),
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
    assert_eq!(*script.told.lock(), expect);
}

fn listing(at: u64) -> Answer {
    Answer::List(Ok(Listing {
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
async fn a_watch_that_ends_is_resumed_where_it_ended() {
    check(
        vec![listing(5), Answer::Watch(vec![added(6), added(8)])],
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

/// A watch that meets what cannot be read was once opened again where it met it, and met it again,
/// until the source had forgotten it.
#[tokio::test(start_paused = true)]
async fn what_is_gone_or_cannot_be_read_means_list_again_and_nothing_else_does() {
    check(
        vec![
            Answer::List(Err(away())),
            listing(5),
            Answer::WatchRefused(away()),
            Answer::Watch(vec![added(6), Err(away())]),
            Answer::Watch(vec![Err(expired())]),
            listing(9),
            Answer::Watch(vec![added(10), Err(unreadable())]),
            Answer::List(Err(unreadable())),
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
            "failed: source sent what cannot be read: garbage",
            "list",
            "failed: source sent what cannot be read: garbage",
            "list",
            "replace [12] 12",
            "watch 12",
            "watching",
        ],
    )
    .await;
}

/// It is the source's mistake and not ours: its word no longer holds, and a list begins anew.
#[tokio::test(start_paused = true)]
async fn a_source_that_goes_back_is_listed_again() {
    check(
        vec![
            listing(5),
            Answer::Watch(vec![added(7), added(6), added(8)]),
            listing(4),
        ],
        &[
            "list",
            "replace [5] 5",
            "watch 5",
            "watching",
            "apply 1 to 7",
            "failed: resource version 7 is too old: the source went back from it to 6",
            "list",
            "replace [4] 4",
            "watch 4",
            "watching",
        ],
    )
    .await;
}

/// How often the source was listed, and watched, in a minute in which it has these answers.
async fn asked_in_a_minute(answers: Vec<Answer>) -> (usize, usize) {
    let script = Script {
        answers: Arc::new(Mutex::new(answers.into())),
        ..Script::default()
    };
    let stop = CancellationToken::new();
    let run = Reflector::new(script.clone(), script.clone(), Backoff::default().seeded(7));
    tokio::join!(run.run(stop.clone()), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        stop.cancel();
    });
    let told = script.told.lock();
    let count = |what| told.iter().filter(|told| told.starts_with(what)).count();
    (count("list"), count("watch "))
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_of_no_use_is_not_asked_in_a_tight_loop() {
    let mut ends_at_once = vec![listing(5)];
    ends_at_once.extend((0..1000).map(|_| Answer::Watch(vec![])));
    let (lists, watches) = asked_in_a_minute(ends_at_once).await;
    assert_eq!(lists, 1);
    assert!((2..10).contains(&watches), "{watches} watches in a minute");

    // Each list is too old for a watch by the time that it has arrived.
    let always_expired = (0..1000).flat_map(|_| [listing(5), Answer::WatchRefused(expired())]);
    let (lists, watches) = asked_in_a_minute(always_expired.collect()).await;
    assert!((2..10).contains(&lists), "{lists} lists in a minute");
    assert_eq!(lists, watches);

    // Each watch gets somewhere before it is: that was once listed again without any pause.
    let expired_after_progress = (0..1000).flat_map(|n| {
        [
            listing(5 * n),
            Answer::Watch(vec![added(5 * n + 1), Err(expired())]),
        ]
    });
    let (lists, watches) = asked_in_a_minute(expired_after_progress.collect()).await;
    assert!((2..10).contains(&lists), "{lists} lists in a minute");
    assert_eq!(lists, watches);

    let always_unreadable =
        (0..1000).flat_map(|_| [listing(5), Answer::Watch(vec![Err(unreadable())])]);
    let (lists, _) = asked_in_a_minute(always_unreadable.collect()).await;
    assert!((2..10).contains(&lists), "{lists} lists in a minute");
}

/// How long after the beginning each list was asked for, in seconds, when all watches end with a 410 after
/// these seconds.
async fn lists_when_watches_last(seconds: u64, lists: usize) -> Vec<u64> {
    #[derive(Clone)]
    struct Forgetful {
        lasting: Duration,
        begun: Instant,
        lists: Arc<Mutex<Vec<u64>>>,
    }
    impl ListerWatcher for Forgetful {
        type Object = u64;
        async fn list(&mut self) -> Result<Listing<u64>, SourceError> {
            self.lists.lock().push(self.begun.elapsed().as_secs());
            Ok(Listing {
                objects: Vec::new(),
                at: rv(5),
            })
        }
        async fn watch(&mut self, _: ResourceVersion) -> Result<ChangeStream<u64>, SourceError> {
            let lasting = self.lasting;
            Ok(Box::pin(stream::once(async move {
                tokio::time::sleep(lasting).await;
                Err(expired())
            })))
        }
    }
    let source = Forgetful {
        lasting: Duration::from_secs(seconds),
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

/// The first 410 in two minutes is no failure: what is there now is listed at once, also after an outage.
#[tokio::test(start_paused = true)]
async fn what_expires_now_and_then_is_listed_at_once() {
    assert_eq!(lists_when_watches_last(180, 4).await, [0, 180, 360, 540]);
    let often = lists_when_watches_last(10, 7).await;
    assert_eq!(often[..2], [0, 10]);
    let pauses: Vec<_> = often.windows(2).map(|two| two[1] - two[0] - 10).collect();
    assert!(pauses.is_sorted() && pauses[5] >= 12, "{pauses:?}");

    let outage = (0..10).map(|_| Answer::WatchRefused(away()));
    let answers = std::iter::once(listing(5)).chain(outage);
    let answers = answers.chain([Answer::WatchRefused(expired())]).collect();
    let script = Script {
        answers: Arc::new(Mutex::new(answers)),
        ..Script::default()
    };
    let stop = CancellationToken::new();
    let run = Reflector::new(script.clone(), script.clone(), Backoff::default().seeded(7));
    tokio::join!(run.run(stop.clone()), async {
        let has_expired = |told: &String| told.contains("too old");
        while !script.told.lock().iter().any(has_expired) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(script.told.lock().last().unwrap(), "list");
        stop.cancel();
    });
}

#[tokio::test(start_paused = true)]
async fn a_source_that_wants_to_be_left_alone_is() {
    let busy = SourceError::Unavailable {
        detail: "busy".into(),
        retry_after: Some(Duration::from_secs(45)),
    };
    let answers = vec![
        listing(5),
        Answer::WatchRefused(busy),
        Answer::WatchRefused(away()),
    ];
    let (_, watches) = asked_in_a_minute(answers).await;
    assert_eq!(watches, 3, "at once, after 45 s, and soon after that");
}

#[tokio::test(start_paused = true)]
async fn stops_in_the_middle_of_a_list() {
    let script = Script::default();
    let stop = CancellationToken::new();
    let run = Reflector::new(script.clone(), script.clone(), Backoff::default()).run(stop.clone());
    let stopped = async {
        while script.told.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(run, stopped) };
    let ended = tokio::time::timeout(Duration::from_secs(1), both).await;
    assert!(ended.is_ok(), "it goes on");
    assert_eq!(*script.told.lock(), ["list"]);
}
