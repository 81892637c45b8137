//! Tests of lists: order, prefixes, pages and past states.

use std::sync::Arc;

use watchet::api::ResourceVersion;
use watchet::storage::{ListRequest, Storage, StorageError};

use super::support::{create, delete, key, list, page, pairs, update};

pub(crate) async fn lists_are_ordered_and_bounded_by_the_prefix(store: Arc<dyn Storage>) {
    // `-` and `.` sort before `/`, and `0` after it.
    for at in [
        "/pods/foobar/a",
        "/pods/foo/b",
        "/pods/foo/a",
        "/pods/foo/a.b",
        "/pods/foo-1/a",
        "/pods/foo.1/a",
        "/pods/foo0/a",
        "/podsecrets/foo/a",
        "/pods.metrics/foo/a",
    ] {
        create(&store, at, "x").await;
    }
    let namespace = list(&store, "/pods/foo/", None).await.unwrap();
    assert_eq!(
        pairs(&namespace),
        ["/pods/foo/a=x", "/pods/foo/a.b=x", "/pods/foo/b=x"]
    );
    let pods = list(&store, "/pods/", None).await.unwrap();
    let expected = [
        "/pods/foo-1/a=x",
        "/pods/foo.1/a=x",
        "/pods/foo/a=x",
        "/pods/foo/a.b=x",
        "/pods/foo/b=x",
        "/pods/foo0/a=x",
        "/pods/foobar/a=x",
    ];
    assert_eq!(pairs(&pods), expected);
    assert!(list(&store, "/none/", None).await.unwrap().items.is_empty());
}

pub(crate) async fn pages_join_up_to_the_whole(store: Arc<dyn Storage>) {
    for number in 0..7 {
        create(&store, &format!("/pods/ns/{number}"), "x").await;
    }
    create(&store, "/secrets/ns/0", "x").await;
    let whole = list(&store, "/pods/", None).await.unwrap();
    for limit in 1..9 {
        let mut joined = Vec::new();
        let mut start = String::new();
        loop {
            let part = page(&store, "/pods/", &start, None, limit).await.unwrap();
            joined.extend(part.items.clone());
            let left = 7 - joined.len() as u64;
            assert_eq!(part.remaining, Some(left), "limit {limit}");
            let Some(last) = part.items.last().filter(|_| part.more) else {
                break;
            };
            // The key after the last one, as in a continue token.
            let relative = last.key.as_str().strip_prefix("/pods/").unwrap();
            start = format!("{relative}\0");
        }
        assert_eq!(joined, whole.items, "limit {limit}");
    }
    let tail = page(&store, "/pods/", "ns/5", None, 0).await.unwrap();
    assert_eq!(pairs(&tail), ["/pods/ns/5=x", "/pods/ns/6=x"]);
    let beyond = page(&store, "/pods/", "nz", None, 3).await.unwrap();
    assert_eq!((beyond.items.len(), beyond.remaining), (0, Some(0)));
    // Without a count, a list still reports whether more keys follow.
    for (limit, more) in [(6, true), (7, false), (0, false)] {
        let uncounted = store.list(ListRequest {
            prefix: key("/pods/"),
            start: String::new(),
            at: None,
            limit,
            count: false,
        });
        let part = uncounted.await.unwrap();
        assert_eq!((part.more, part.remaining), (more, None), "limit {limit}");
    }
}

pub(crate) async fn pages_stay_pinned_while_writers_write(store: Arc<dyn Storage>) {
    let mut revisions = Vec::new();
    for number in 0..6 {
        revisions.push(create(&store, &format!("/pods/ns/{number}"), "old").await);
    }
    let first = page(&store, "/pods/", "", None, 2).await.unwrap();
    assert_eq!(first.remaining, Some(4));
    // One key is changed, one deleted and one created, all after the first page.
    update(&store, "/pods/ns/2", revisions[2], "new").await;
    delete(&store, "/pods/ns/3", revisions[3]).await;
    create(&store, "/pods/ns/31", "new").await;
    let pinned = Some(first.revision);
    let second = page(&store, "/pods/", "ns/1\0", pinned, 2).await.unwrap();
    assert_eq!(pairs(&second), ["/pods/ns/2=old", "/pods/ns/3=old"]);
    assert_eq!(
        (second.revision, second.remaining),
        (first.revision, Some(2))
    );
    let third = page(&store, "/pods/", "ns/3\0", pinned, 0).await.unwrap();
    assert_eq!(pairs(&third), ["/pods/ns/4=old", "/pods/ns/5=old"]);
    let latest = page(&store, "/pods/", "ns/1\0", None, 2).await.unwrap();
    assert_eq!(pairs(&latest), ["/pods/ns/2=new", "/pods/ns/31=new"]);
    assert_eq!(latest.remaining, Some(2));
}

pub(crate) async fn old_revisions_show_the_old_state(store: Arc<dyn Storage>) {
    let before = store.current_revision().await.unwrap();
    let first = create(&store, "/pods/ns/a", "one").await;
    let second = update(&store, "/pods/ns/a", first, "two").await;
    let third = create(&store, "/pods/ns/b", "b").await;
    let fourth = delete(&store, "/pods/ns/a", second).await;
    let fifth = create(&store, "/pods/ns/a", "again").await;
    let sixth = delete(&store, "/pods/ns/b", third).await;
    let states: [(ResourceVersion, &[&str]); 7] = [
        (before, &[]),
        (first, &["/pods/ns/a=one"]),
        (second, &["/pods/ns/a=two"]),
        (third, &["/pods/ns/a=two", "/pods/ns/b=b"]),
        (fourth, &["/pods/ns/b=b"]),
        (fifth, &["/pods/ns/a=again", "/pods/ns/b=b"]),
        (sixth, &["/pods/ns/a=again"]),
    ];
    for (revision, expected) in states {
        let listed = list(&store, "/pods/", Some(revision)).await.unwrap();
        assert_eq!(pairs(&listed), expected, "at {revision}");
    }
    let old = list(&store, "/pods/", Some(second)).await.unwrap();
    assert_eq!(old.items[0].create_revision, first);
    assert_eq!(old.items[0].mod_revision, second);
    let reborn = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(reborn.items[0].create_revision, fifth);
}

pub(crate) async fn exact_lists_report_their_revision(store: Arc<dyn Storage>) {
    let first = create(&store, "/pods/ns/a", "one").await;
    let last = create(&store, "/secrets/ns/a", "x").await;
    let exact = list(&store, "/pods/", Some(first)).await.unwrap();
    assert_eq!(exact.revision, first);
    let latest = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(latest.revision, last, "not that of the newest item");
}

pub(crate) async fn list_at_a_future_revision_is_future_error(store: Arc<dyn Storage>) {
    let last = create(&store, "/pods/ns/a", "one").await;
    let ahead = ResourceVersion::new(last.get() + 1000);
    match list(&store, "/pods/", Some(ahead)).await {
        Err(StorageError::Future { requested, current }) => {
            assert_eq!((requested, current), (ahead, last));
        }
        other => panic!("{other:?}"),
    }
    assert!(list(&store, "/pods/", Some(last)).await.is_ok());
}
