//! Tests of watches: catching up, live events, progress and expiry.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use watchet::api::ResourceVersion;
use watchet::storage::{Expect, Outcome, Put, Storage, StorageError};
use watchet::tasks::Tasks;

use super::support::{
    Follow, Maintained, PATIENCE, bytes, create, delete, describe, key, list, put, update,
};

pub(crate) async fn catches_up_then_follows(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let first = create(&store, "/pods/ns/a", "one").await;
    let second = update(&store, "/pods/ns/a", first, "two").await;
    let mut all = Follow::open(&store, "/pods/", start).await;
    let mut later = Follow::open(&store, "/pods/", first).await;
    let mut live = Follow::open(&store, "/pods/", second).await;
    let third = delete(&store, "/pods/ns/a", second).await;

    let events = all.events(3).await;
    assert_eq!(
        describe(&events),
        [
            "/pods/ns/a=one was -",
            "/pods/ns/a=two was one",
            "/pods/ns/a=- was two"
        ]
    );
    let revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
    assert_eq!(revisions, [first, second, third]);
    assert!(events[0].is_create() && !events[1].is_create() && !events[2].is_create());
    assert_eq!(later.events(2).await, events[1..]);
    assert_eq!(live.events(1).await, events[2..]);
}

pub(crate) async fn events_carry_previous_values(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let mut live = Follow::open(&store, "/pods/", start).await;
    let first = create(&store, "/pods/ns/a", "").await;
    let second = update(&store, "/pods/ns/a", first, "full").await;
    let third = update(&store, "/pods/ns/a", second, "").await;
    let gone = delete(&store, "/pods/ns/a", third).await;
    create(&store, "/pods/ns/a", "again").await;
    let expected = [
        "/pods/ns/a= was -",
        "/pods/ns/a=full was ",
        "/pods/ns/a= was full",
        "/pods/ns/a=- was ",
        "/pods/ns/a=again was -",
    ];
    assert_eq!(describe(&live.events(5).await), expected);
    let mut replay = Follow::open(&store, "/pods/", start).await;
    assert_eq!(describe(&replay.events(5).await), expected);
    let mut rest = Follow::open(&store, "/pods/", gone).await;
    assert!(rest.events(1).await[0].is_create(), "also after a deletion");
}

pub(crate) async fn watch_of_a_prefix_excludes_longer_names(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let mut namespace = Follow::open(&store, "/pods/foo/", start).await;
    let mut pods = Follow::open(&store, "/pods/", start).await;
    for at in [
        "/pods/foobar/a",
        "/pods/foo/a",
        "/pods/foo0/a",
        "/podsecrets/foo/a",
        "/pods/foo/b",
    ] {
        create(&store, at, "x").await;
    }
    let mut replay = Follow::open(&store, "/pods/foo/", start).await;
    let expected = ["/pods/foo/a=x was -", "/pods/foo/b=x was -"];
    assert_eq!(describe(&namespace.events(2).await), expected);
    assert_eq!(describe(&replay.events(2).await), expected);
    assert_eq!(pods.events(4).await.len(), 4);
}

pub(crate) async fn a_single_key_can_be_watched(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let mut one = Follow::open(&store, "/pods/ns/a", start).await;
    create(&store, "/pods/ns/ab", "x").await;
    let revision = create(&store, "/pods/ns/a", "x").await;
    create(&store, "/pods/ns/b", "x").await;
    update(&store, "/pods/ns/a", revision, "y").await;
    let expected = ["/pods/ns/a=x was -", "/pods/ns/a=y was x"];
    assert_eq!(describe(&one.events(2).await), expected);
    let mut replay = Follow::open(&store, "/pods/ns/a", start).await;
    assert_eq!(describe(&replay.events(2).await), expected);
}

/// Watches that begin at every revision of a history that is being written receive all later events.
pub(crate) async fn history_and_live_join_without_gap_or_duplicate(store: Arc<dyn Storage>) {
    const WRITES: usize = 200;
    const STEP: usize = 8;
    let start = store.current_revision().await.unwrap();
    let tasks = Tasks::new();
    // The reader permits the writer a few writes at a time, and opens a watch while they are made.
    let allowed = Arc::new(tokio::sync::Semaphore::new(0));
    let writing = {
        let (store, allowed) = (store.clone(), allowed.clone());
        tasks.spawn("writes", async move {
            let mut revisions = Vec::new();
            for number in 0..WRITES {
                allowed.acquire().await.unwrap().forget();
                let space = if number % 3 == 0 { "noise" } else { "pods" };
                let at = format!("/{space}/ns/{number}");
                let revision = create(&store, &at, "x").await;
                if space == "pods" {
                    revisions.push(revision);
                }
            }
            revisions
        })
    };
    let mut watches = Vec::new();
    let mut after = start;
    for _ in 0..WRITES / STEP {
        allowed.add_permits(STEP);
        watches.push((after, Follow::open(&store, "/pods/", after).await));
        after = store.current_revision().await.unwrap();
    }
    let revisions = writing.await.unwrap();
    let end = *revisions.last().unwrap();
    for (after, mut watch) in watches {
        let seen: Vec<_> = watch.until(end).await;
        let seen: Vec<_> = seen.iter().map(|event| event.revision).collect();
        let expected: Vec<_> = revisions.iter().filter(|r| **r > after).copied().collect();
        assert_eq!(seen, expected, "after {after}");
    }
}

/// A revision that was never written is unknown to clients. A watch after it comes from a store that has lost it, and
/// must fail instead of waiting.
pub(crate) async fn watch_from_a_future_revision_is_future_error(store: Arc<dyn Storage>) {
    let made = create(&store, "/pods/ns/a", "1").await;
    for after in [made.next(), ResourceVersion::new(made.get() + 1000)] {
        match store.watch(&key("/pods/"), after).await {
            Err(StorageError::Future { requested, current }) => {
                assert_eq!((requested, current), (after, made));
            }
            other => panic!("{other:?}"),
        }
    }
    let mut watch = Follow::open(&store, "/pods/", made).await;
    update(&store, "/pods/ns/a", made, "2").await;
    assert_eq!(describe(&watch.events(1).await), ["/pods/ns/a=2 was 1"]);
}

pub(crate) async fn progress_is_not_ahead_of_events(store: Arc<dyn Storage>) {
    assert!(store.progress_supported());
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/pods/", start).await;
    for round in 0..20 {
        let seen = create(&store, &format!("/pods/ns/{round}"), "x").await;
        let noise = create(&store, &format!("/noise/ns/{round}"), "x").await;
        // Progress that is requested after a revision was learned reaches that revision, however it was learned.
        let known = match round % 3 {
            0 => noise,
            1 => store.current_revision().await.unwrap(),
            _ => list(&store, "/noise/", None).await.unwrap().revision,
        };
        let events = watch.until(known).await;
        let revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, [seen], "all of it, and before the progress");
    }
}

/// A progress request reaches a revision that a reader has seen, even if its write is not acknowledged yet. No event
/// has the prefix of the watch, so that only progress responses advance it.
pub(crate) async fn progress_reaches_the_revision_of_a_read(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/idle/", start).await;
    let tasks = Tasks::new();
    for writer in 0..3 {
        let (store, token) = (store.clone(), tasks.token());
        tasks.spawn("noise", async move {
            let mut number = 0;
            while !token.is_cancelled() {
                create(&store, &format!("/noise/{writer}/{number}"), "x").await;
                number += 1;
            }
        });
    }
    for _ in 0..300 {
        let seen = store.current_revision().await.unwrap();
        assert!(watch.until(seen).await.is_empty());
    }
    tasks.drain(PATIENCE).await.unwrap();
}

pub(crate) async fn progress_answers_an_idle_watch(store: Arc<dyn Storage>) {
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/pods/", start).await;
    let start = create(&store, "/noise/ns/first", "x").await;
    for _ in 0..3 {
        watch.watch.progress.request();
        let batch = watch.batch().await.unwrap();
        assert!(batch.events.is_empty());
        assert!(batch.revision >= start);
    }
    // A watch of a prefix without changes is not behind.
    let mut last = start;
    for number in 0..50 {
        last = create(&store, &format!("/noise/ns/{number}"), "x").await;
    }
    assert!(watch.until(last).await.is_empty());
}

/// A list plus every later event equals any later list.
pub(crate) async fn list_then_watch_equals_a_later_list(store: Arc<dyn Storage>) {
    const WRITERS: usize = 4;
    const EACH: usize = 40;
    let tasks = Tasks::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tasks.spawn("writer", async move {
                for number in 0..EACH {
                    let at = format!("/pods/{writer}/{}", number % 5);
                    let (found, _) = store.get(&key(&at)).await.unwrap();
                    match found {
                        None => create(&store, &at, "new").await,
                        Some(found) if number % 3 == 0 => {
                            delete(&store, &at, found.mod_revision).await
                        }
                        Some(found) => {
                            let value = number.to_string();
                            update(&store, &at, found.mod_revision, &value).await
                        }
                    };
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let first = list(&store, "/pods/", None).await.unwrap();
    let mut watch = Follow::open(&store, "/pods/", first.revision).await;
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    let last = list(&store, "/pods/", None).await.unwrap();
    let mut state: std::collections::BTreeMap<_, _> = first
        .items
        .into_iter()
        .map(|item| (item.key, item.value))
        .collect();
    for event in watch.until(last.revision).await {
        let before = match event.value {
            Some(value) => state.insert(event.key.clone(), value),
            None => state.remove(&event.key),
        };
        assert_eq!(before, event.previous, "{} @{}", event.key, event.revision);
    }
    let listed: Vec<_> = last
        .items
        .into_iter()
        .map(|item| (item.key, item.value))
        .collect();
    assert_eq!(state.into_iter().collect::<Vec<_>>(), listed);
}

pub(crate) async fn many_watches_see_the_same(store: Arc<dyn Storage>) {
    const WATCHES: usize = 60;
    const WRITES: usize = 120;
    let start = store.current_revision().await.unwrap();
    let mut watches = Vec::new();
    for number in 0..WATCHES {
        let prefix = format!("/kind{}/", number % 6);
        watches.push((number % 6, Follow::open(&store, &prefix, start).await));
    }
    let mut last = start;
    for number in 0..WRITES {
        last = create(&store, &format!("/kind{}/ns/{number}", number % 6), "x").await;
    }
    for (kind, mut watch) in watches {
        let seen = watch.until(last).await;
        let expected: Vec<_> = (0..WRITES)
            .filter(|number| number % 6 == kind)
            .map(|number| format!("/kind{kind}/ns/{number}=x was -"))
            .collect();
        assert_eq!(describe(&seen), expected);
    }
}

/// Longer than a busy machine pauses between two steps of a test; otherwise a key could expire too early.
const TTL: Duration = Duration::from_secs(4);

async fn put_for(store: &Arc<dyn Storage>, at: &str, expect: Expect) -> ResourceVersion {
    let put = Put {
        key: key(at),
        value: bytes("brief"),
        expect,
        ttl: Some(TTL),
    };
    match store.put(put).await.unwrap() {
        Outcome::Done(revision) => revision,
        refused => panic!("{refused:?}"),
    }
}

pub(crate) async fn expiry_is_a_deletion(store: Arc<dyn Storage>) {
    let _maintained = Maintained::start(&store);
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/events/", start).await;
    let kept = create(&store, "/events/ns/kept", "long").await;
    let brief = put_for(&store, "/events/ns/brief", Expect::Absent).await;
    let (found, _) = store.get(&key("/events/ns/brief")).await.unwrap();
    assert_eq!(found.unwrap().mod_revision, brief, "alive at first");
    let events = timeout(PATIENCE, watch.events(3))
        .await
        .expect("it expires");
    assert_eq!(
        describe(&events),
        [
            "/events/ns/kept=long was -",
            "/events/ns/brief=brief was -",
            "/events/ns/brief=- was brief"
        ]
    );
    assert!(events[2].revision > brief, "a revision of its own");
    assert_eq!(store.get(&key("/events/ns/brief")).await.unwrap().0, None);
    let old = list(&store, "/events/", Some(brief)).await.unwrap();
    assert_eq!(old.items.len(), 2, "history still shows it");
    // The key can be created again, and an existing key can get a TTL.
    let again = put_for(&store, "/events/ns/kept", Expect::At(kept)).await;
    create(&store, "/events/ns/brief", "again").await;
    let events = timeout(PATIENCE, watch.events(3))
        .await
        .expect("it expires");
    assert_eq!(events[0].revision, again);
    assert_eq!(describe(&events[2..]), ["/events/ns/kept=- was brief"]);
}

pub(crate) async fn update_without_ttl_removes_the_ttl(store: Arc<dyn Storage>) {
    let _maintained = Maintained::start(&store);
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/events/", start).await;
    let first = put_for(&store, "/events/ns/a", Expect::Absent).await;
    let freed = put(&store, "/events/ns/a", "free", Expect::At(first)).await;
    let Outcome::Done(freed) = freed.unwrap() else {
        panic!("it was not expired yet");
    };
    // A second key with the same TTL, created later, shows that the first one would have expired.
    put_for(&store, "/events/ns/b", Expect::Absent).await;
    let events = timeout(PATIENCE, watch.events(4)).await.expect("b expires");
    assert_eq!(describe(&events[3..]), ["/events/ns/b=- was brief"]);
    let (found, _) = store.get(&key("/events/ns/a")).await.unwrap();
    assert_eq!(found.unwrap().mod_revision, freed);
}
