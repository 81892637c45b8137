//! Tests of notifications: order, consistency with the indexer, tombstones, handlers that are added
//! late or removed.

use std::time::Duration;

use tokio::time::sleep;

use super::{A_WHILE, Host, Log, run_until_idle};
use crate::shared::tests::collection::name_of;
use crate::{Deleted, ResourceEventHandlerFuncs};

#[tokio::test(start_paused = true)]
async fn each_change_is_delivered_once_in_order() {
    let host = Host::new(&["a"]);
    let (log, _) = host.listen();
    host.start();
    run_until_idle().await;
    assert_eq!(log.take(), ["add a@1 initially"]);
    host.collection.put("b");
    host.collection.put("b");
    host.collection.put("a");
    host.collection.delete("b");
    run_until_idle().await;
    // Changes in one batch are grouped by object.
    let expected = ["add b@2", "update b@2 b@3", "delete b@5", "update a@1 a@4"];
    assert_eq!(log.take(), expected);
    assert!(host.is_equal());
}

#[tokio::test(start_paused = true)]
async fn the_indexer_is_updated_before_handlers_are_called() {
    let host = Host::new(&[]);
    let (added, updated, deleted) = {
        let indexer = || host.informer.indexer().clone();
        (indexer(), indexer(), indexer())
    };
    let seen = Log::default();
    let [of_add, of_update, of_delete] = [(); 3].map(|()| seen.book.clone());
    let handler = ResourceEventHandlerFuncs::new()
        .on_add(move |map, _| {
            let known = added.get(&*map).is_some();
            of_add.lock().push(format!("add {known}"));
        })
        .on_update(move |_, new| {
            let known = updated.get(&*new).is_some_and(|known| known == new);
            of_update.lock().push(format!("update {known}"));
        })
        .on_delete(move |deleted_object: Deleted<_>| {
            let deleted_object = deleted.get(&**deleted_object.object()).is_none();
            of_delete.lock().push(format!("delete {deleted_object}"));
        });
    host.informer.add_event_handler(handler).unwrap();
    host.start();
    for _ in 0..2 {
        host.collection.put("a");
        run_until_idle().await;
    }
    host.collection.delete("a");
    run_until_idle().await;
    assert_eq!(seen.take(), ["add true", "update true", "delete true"]);
}

#[tokio::test(start_paused = true)]
async fn a_missed_deletion_is_a_tombstone() {
    let host = Host::new(&["a", "b", "c"]);
    let (log, _) = host.listen();
    host.start();
    run_until_idle().await;
    log.take();
    host.collection.lose(|meanwhile| {
        meanwhile.delete("a");
        meanwhile.put("b");
        meanwhile.put("d");
    });
    sleep(A_WHILE).await;
    let mut lines = log.take();
    lines.sort();
    // `c` is unchanged, and no handler is due a resync.
    assert_eq!(lines, ["add d@6", "tombstone a@1", "update b@2 b@5"]);
    assert!(host.is_equal());
    assert_eq!(host.collection.lists(), 2);
}

/// An object that was deleted and created again while the watch was down is an update, as in
/// client-go: handlers can compare the uids.
#[tokio::test(start_paused = true)]
async fn an_unseen_recreation_is_an_update() {
    let host = Host::new(&["a"]);
    let (log, _) = host.listen();
    host.start();
    run_until_idle().await;
    host.collection.lose(|meanwhile| {
        meanwhile.delete("a");
        meanwhile.put("a");
    });
    sleep(A_WHILE).await;
    assert_eq!(log.take(), ["add a@1 initially", "update a@1 a@3"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_watch_is_resumed() {
    let host = Host::new(&["a", "b"]);
    let (log, _) = host.listen();
    host.start();
    run_until_idle().await;
    log.take();
    host.collection.cut();
    host.collection.fail(3);
    host.collection.delete("a");
    host.collection.put("b");
    sleep(A_WHILE).await;
    assert_eq!(log.take(), ["delete a@3", "update b@2 b@4"]);
    assert_eq!(host.collection.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_first_receives_each_known_object() {
    let host = Host::new(&["a", "b"]);
    host.start();
    run_until_idle().await;
    host.collection.put("c");
    run_until_idle().await;
    let (log, registration) = host.listen();
    assert!(host.informer.has_synced() && !registration.has_synced());
    host.collection.put("a");
    host.collection.delete("b");
    registration.wait_for_sync().await.unwrap();
    run_until_idle().await;
    let expected = [
        "add a@1 initially",
        "add b@2 initially",
        "add c@3 initially",
        "update a@1 a@4",
        "delete b@5",
    ];
    assert_eq!(log.take(), expected);
}

/// Handlers are added while changes are applied on another thread: each receives every object, and
/// every change after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_handler_misses_nothing_and_receives_nothing_twice() {
    const CHANGES: u64 = 3000;
    let host = Host::new(&["a"]);
    host.collection.batch_max(1);
    host.start();
    host.informer.wait_for_cache_sync().await.unwrap();
    let mut handlers = Vec::new();
    for version in 2..=CHANGES {
        host.collection.put("a");
        if version % 100 == 0 {
            handlers.push(host.listen());
            tokio::task::yield_now().await;
        }
    }
    for (log, _registration) in handlers {
        let last = format!("a@{CHANGES}");
        let mut book = Vec::new();
        while !book
            .last()
            .is_some_and(|line: &String| line.ends_with(&last))
        {
            sleep(Duration::from_millis(1)).await;
            book.append(&mut log.take());
        }
        let (first, rest) = book.split_first().unwrap();
        let mut at = first.strip_prefix("add ").unwrap();
        at = at.strip_suffix(" initially").unwrap();
        for line in rest {
            let (old, new) = line
                .strip_prefix("update ")
                .unwrap()
                .split_once(' ')
                .unwrap();
            assert_eq!(old, at, "{book:?}");
            at = new;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_receives_nothing_more() {
    let host = Host::new(&["a"]);
    let (removed, registration) = host.listen();
    let (stays, _) = host.listen();
    host.start();
    run_until_idle().await;
    assert!(host.informer.remove_event_handler(&registration));
    assert!(!host.informer.remove_event_handler(&registration));
    host.collection.put("a");
    run_until_idle().await;
    assert_eq!(removed.take(), ["add a@1 initially"]);
    assert_eq!(stays.take(), ["add a@1 initially", "update a@1 a@2"]);
    assert!(registration.has_synced());
    assert_eq!(registration.metrics().pending.get(), 0);
}

/// The ID is that of a handler here, but of another informer.
#[tokio::test(start_paused = true)]
async fn another_informers_handler_is_not_removed() {
    let (host, other) = (Host::new(&["a"]), Host::new(&["a"]));
    let (log, _) = host.listen();
    let (_, foreign) = other.listen();
    assert!(!host.informer.remove_event_handler(&foreign));
    host.start();
    run_until_idle().await;
    assert_eq!(log.take(), ["add a@1 initially"]);
}

/// Pending notifications are dropped; a call in progress is completed.
#[tokio::test(start_paused = true)]
async fn a_handler_is_removed_during_a_call() {
    let host = Host::new(&["a", "b", "c"]);
    let pause = Duration::from_secs(1);
    let log = Log {
        pause,
        ..Log::default()
    };
    let registration = host.informer.add_event_handler(log.clone()).unwrap();
    host.start();
    run_until_idle().await;
    assert_eq!(registration.metrics().pending.get(), 2);
    host.informer.remove_event_handler(&registration);
    assert_eq!(registration.metrics().pending.get(), 0);
    sleep(pause * 5).await;
    assert_eq!(log.take(), ["add a@1 initially"]);
    assert_eq!(
        registration.metrics().delivered.get(),
        1,
        "the call has returned"
    );
    assert!(registration.wait_for_sync().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn transformed_objects_are_stored_and_delivered() {
    let host = Host::new(&["a"]);
    let transform = |map: &mut k8s_openapi::api::core::v1::ConfigMap| {
        let labels = map.metadata.labels.get_or_insert_default();
        // Once per object, without changing the source's own.
        assert!(
            labels
                .insert("seen".to_owned(), "once".to_owned())
                .is_none()
        );
    };
    host.informer.set_transform(transform).unwrap();
    let seen = Log::default();
    let book = seen.book.clone();
    let label = |map: &k8s_openapi::api::core::v1::ConfigMap| {
        map.metadata.labels.as_ref().unwrap()["seen"].clone()
    };
    let handler = ResourceEventHandlerFuncs::new()
        .on_update(move |old, new| book.lock().push(label(&old) + &label(&new)));
    host.informer.add_event_handler(handler).unwrap();
    host.start();
    run_until_idle().await;
    host.collection.put("a");
    run_until_idle().await;
    host.collection.lose(|meanwhile| meanwhile.put("a"));
    sleep(A_WHILE).await;
    assert_eq!(seen.take(), ["onceonce", "onceonce"]);
    for map in &host.informer.indexer().list() {
        assert_eq!((name_of(map), label(map).as_str()), ("a", "once"));
    }
}
