//! Tests of watches: decoding, piece boundaries, ends.

use super::*;

/// Watches these lines after version 5, to the end.
async fn watched(reply: Reply) -> (Vec<String>, Option<u64>, Option<SourceError>) {
    let fake = Fake::start([reply]).await;
    let mut source = listing_maps(&fake);
    let changes = source.watch(ResourceVersion::new(5)).await.unwrap();
    drained(changes).await
}

#[tokio::test]
async fn changes_come_in_order_and_bookmarks_move_the_version_only() {
    let lines = [
        event("ADDED", &map("a", 6)),
        event("MODIFIED", &map("a", 7)),
        event("DELETED", &map("a", 9)),
        bookmark(12),
    ];
    let fake = Fake::start([watch(&lines, End::Complete), watch(&[], End::Complete)]).await;
    let mut source = listing_maps(&fake);
    let changes = source.watch(ResourceVersion::new(5)).await.unwrap();
    let (changes_seen, at, end) = drained(changes).await;
    assert_eq!(
        (changes_seen.join(" ").as_str(), at),
        ("+a ~a -a", Some(12))
    );
    assert!(end.is_none());
    assert_eq!(source.metrics().last_sync_resource_version().get(), 12);
    drop(source.watch(ResourceVersion::new(12)).await.unwrap());
    let mut seconds = Vec::new();
    for (line, version) in fake.lines().iter().zip([5, 12]) {
        let expected = format!("GET /api/v1/configmaps?resourceVersion={version}&{WATCH}");
        assert_eq!(timeless(line), expected);
        let timeout = line.rsplit_once("timeoutSeconds=").unwrap().1;
        seconds.push(timeout.parse::<u64>().unwrap());
    }
    assert!(
        seconds.iter().all(|seconds| (300..600).contains(seconds)),
        "{seconds:?}"
    );
}

/// Events in one piece are one batch, without a copy.
#[tokio::test]
async fn events_in_one_piece_are_one_batch() {
    let piece = [
        event("ADDED", &map("a", 6)),
        event("ADDED", &map("b", 7)),
        bookmark(8),
    ]
    .concat();
    let fake = Fake::start([watch(&[piece, event("ADDED", &map("c", 9))], End::Complete)]).await;
    let mut changes = listing_maps(&fake)
        .watch(ResourceVersion::new(5))
        .await
        .unwrap();
    let first = changes.next().await.unwrap().unwrap();
    assert!(shorts(&first).join(" ").starts_with("+a +b"), "{first:?}");
    assert!(first.at.get() >= 8);
}

#[tokio::test]
async fn an_incomplete_event_is_discarded() {
    let whole = event("ADDED", &map("a", 6));
    let half = event("ADDED", &map("b", 7));
    for length in [1, 20, half.len() - 1] {
        for end in [End::Cut, End::Complete] {
            let lines = [whole.clone(), half[..length].to_owned()];
            let (changes_seen, at, end) = watched(watch(&lines, end)).await;
            assert_eq!((changes_seen.join(" ").as_str(), at), ("+a", Some(6)));
            assert!(
                matches!(end, Some(SourceError::Unavailable { .. })),
                "{end:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_interruption_between_events_is_an_error() {
    let (changes_seen, _, end) = watched(watch(&[event("ADDED", &map("a", 6))], End::Cut)).await;
    assert_eq!(changes_seen, ["+a"]);
    assert!(
        matches!(end, Some(SourceError::Unavailable { .. })),
        "{end:?}"
    );
}

const EXPIRED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
    "message":"too old resource version: 5 (9)","reason":"Expired","code":410}"#;

#[tokio::test]
async fn an_expired_version_is_a_status_or_an_error_event() {
    let fake = Fake::start([Reply::new(410, EXPIRED)]).await;
    let mut source = listing_maps(&fake);
    match source.watch(ResourceVersion::new(5)).await {
        Err(SourceError::Expired { at, detail }) => {
            assert_eq!(
                (at.get(), detail.as_str()),
                (5, "too old resource version: 5 (9)")
            );
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the request was rejected"),
    }
    // In one piece with the preceding change, and in a separate one.
    let change = event("ADDED", &map("a", 6));
    let error = event("ERROR", &EXPIRED.replace('\n', ""));
    for lines in [
        vec![[change.clone(), error.clone()].concat()],
        vec![change, error],
    ] {
        let (changes_seen, at, end) = watched(watch(&lines, End::Complete)).await;
        assert_eq!((changes_seen.join(" ").as_str(), at), ("+a", Some(6)));
        assert!(
            matches!(end, Some(SourceError::Expired { at, .. }) if at.get() == 6),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn rejected_watches_return_the_retry_delay() {
    let refusals = [
        Reply::failure(429, "TooManyRequests").header("retry-after", "3"),
        Reply::failure(503, "ServiceUnavailable"),
        // The definition was deleted; a new one with its name has another history.
        Reply::failure(404, "NotFound"),
        // The server was restored from a backup.
        lists::too_large(),
        // A retry at this version would fail again.
        Reply::failure(400, "BadRequest"),
    ];
    let fake = Fake::start(refusals).await;
    let mut source = listing_maps(&fake);
    let mut refused = async || {
        source
            .watch(ResourceVersion::new(5))
            .await
            .map(drop)
            .unwrap_err()
    };
    let wish = |error| match error {
        SourceError::Unavailable { retry_after, .. } => retry_after,
        other => panic!("{other:?}"),
    };
    assert_eq!(wish(refused().await), Some(Duration::from_secs(3)));
    assert_eq!(wish(refused().await), None);
    for _ in 0..2 {
        assert!(matches!(refused().await, SourceError::Expired { .. }));
    }
    let asked_in_vain = refused().await;
    assert!(
        matches!(asked_in_vain, SourceError::Undecodable { .. }),
        "{asked_in_vain:?}"
    );
}

#[tokio::test]
async fn other_error_events_end_the_watch() {
    let status = |code: u16, reason: &str| {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","reason":"{reason}","details":{{"retryAfterSeconds":2}},"code":{code}}}"#
        )
    };
    let busy = event("ERROR", &status(429, "TooManyRequests"));
    match watched(watch(&[busy], End::Never)).await.2 {
        Some(SourceError::Unavailable { retry_after, .. }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(2)));
        }
        other => panic!("{other:?}"),
    }
    // The server cannot continue the watch, but it can list.
    let broken = event("ERROR", &status(500, "InternalError"));
    let (_, _, end) = watched(watch(&[broken], End::Never)).await;
    assert!(
        matches!(end, Some(SourceError::Undecodable { .. })),
        "{end:?}"
    );
}

#[tokio::test]
async fn events_of_unexpected_kinds_are_ignored() {
    let secret =
        r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","resourceVersion":"7"}}"#;
    let lines = [
        event("ADDED", &map("a", 6)),
        event("ADDED", secret),
        event("SURPRISE", &map("b", 8)),
        event("ADDED", &map("c", 9)),
    ];
    let (changes_seen, at, end) = watched(watch(&lines, End::Complete)).await;
    assert_eq!((changes_seen.join(" ").as_str(), at), ("+a +c", Some(9)));
    assert!(end.is_none(), "{end:?}");
}

#[tokio::test]
async fn untyped_events_are_checked_for_their_kind_too() {
    let foo = |kind: &str, name: &str, version: u64| {
        let object = format!(
            r#"{{"kind":"{kind}","apiVersion":"ex.io/v1","metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#
        );
        event("ADDED", &object)
    };
    let lines = [foo("Foo", "a", 6), foo("Bar", "b", 7), foo("Foo", "c", 8)];
    let fake = Fake::start([watch(&lines, End::Complete)]).await;
    let foos = ApiResource::cluster("ex.io", "v1", "foos", "Foo");
    let foos = fake
        .client()
        .resource::<super::super::super::DynamicObject>(foos);
    let mut source = HttpListerWatcher::new(foos, ListWatchOptions::default());
    let mut changes = source.watch(ResourceVersion::new(5)).await.unwrap();
    let mut changes_seen = 0;
    while let Some(batch) = changes.next().await {
        changes_seen += batch.unwrap().changes.len();
    }
    assert_eq!(changes_seen, 2);
}

#[tokio::test]
async fn an_invalid_event_ends_the_watch_after_the_valid_ones() {
    let valid = event("ADDED", &map("a", 6));
    for invalid in [
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":7}}\n".to_owned(),
        "no JSON\n".to_owned(),
        event(
            "ADDED",
            r#"{"metadata":{"name":"x","resourceVersion":"new"}}"#,
        ),
    ] {
        let lines = [valid.clone(), invalid, event("ADDED", &map("b", 9))];
        let (changes_seen, at, end) = watched(watch(&lines, End::Complete)).await;
        assert_eq!((changes_seen.join(" ").as_str(), at), ("+a", Some(6)));
        assert!(
            matches!(end, Some(SourceError::Undecodable { .. })),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn an_endless_event_is_an_error() {
    let pieces = vec![vec![b'x'; 1 << 20]; 17];
    let (_, _, end) = watched(Reply::pieces(200, pieces, End::Never)).await;
    match end {
        Some(SourceError::Undecodable { detail }) => {
            assert!(detail.contains("larger than 16777216 bytes"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_decreasing_version_requires_a_list() {
    let lines = [event("ADDED", &map("a", 6)), event("ADDED", &map("b", 3))];
    let (changes_seen, at, end) = watched(watch(&lines, End::Never)).await;
    assert_eq!((changes_seen.join(" ").as_str(), at), ("+a", Some(6)));
    assert!(matches!(end, Some(SourceError::Expired { .. })), "{end:?}");
}

#[tokio::test]
async fn lists_and_watches_are_counted() {
    let fake = Fake::start([
        list(5, "", &["a", "b"]),
        watch(&[event("ADDED", &map("c", 6)), bookmark(7)], End::Complete),
        watch(&[], End::Complete),
    ])
    .await;
    let mut source = listing_maps(&fake);
    let metrics = source.metrics();
    let listing = source.list().await.unwrap();
    assert_eq!((metrics.lists.get(), metrics.list_seconds.count()), (1, 1));
    assert_eq!(metrics.list_items.sum(), 2.0);
    drained(source.watch(listing.at).await.unwrap()).await;
    drained(source.watch(ResourceVersion::new(7)).await.unwrap()).await;
    assert_eq!((metrics.watches.get(), metrics.short_watches.get()), (2, 1));
    assert_eq!(
        (metrics.watch_items.count(), metrics.watch_items.sum()),
        (2, 2.0)
    );
    assert_eq!(metrics.watch_seconds.count(), 2);
}
