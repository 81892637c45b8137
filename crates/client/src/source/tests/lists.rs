//! Tests of lists: streaming, complete, in pages, and with failures.

use super::*;

const STREAM: &str =
    "GET /api/v1/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn paged(limit: u32) -> ListWatchOptions {
    ListWatchOptions {
        page_size: Some(limit),
        watch_list: false,
        ..ListWatchOptions::default()
    }
}

#[tokio::test]
async fn a_streaming_list_continues_as_a_watch() {
    let lines = [
        event("ADDED", &map("b", 3)),
        event("ADDED", &map("a", 2)),
        event("MODIFIED", &map("a", 4)),
        event("ADDED", &map("c", 5)),
        event("DELETED", &map("c", 6)),
        initial_events_end(7),
        event("ADDED", &map("d", 8)),
    ];
    let fake = Fake::start([watch(&lines, End::Complete)]).await;
    let options = ListWatchOptions {
        labels: Some("app in (x,y)".into()),
        fields: Some("metadata.name!=z".into()),
        ..ListWatchOptions::default()
    };
    let mut source = maps(&fake.client(), options);
    let listing = source.list().await.unwrap();
    assert_eq!(names(&listing), (vec!["a", "b"], 7));
    let version = |at: usize| listing.objects[at].metadata.resource_version.as_deref();
    assert_eq!(version(0), Some("4"));
    let changes = source.watch(listing.at).await.unwrap();
    let (formatted, at, end) = drained(changes).await;
    assert_eq!((formatted, at), (vec!["+d".to_owned()], Some(8)));
    assert!(end.is_none(), "{end:?}");
    let expected = format!(
        "GET /api/v1/configmaps?labelSelector=app%20in%20%28x%2Cy%29&fieldSelector=metadata.name\
         %21%3Dz&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&{WATCH}"
    );
    let lines: Vec<String> = fake.lines().iter().map(|line| timeless(line)).collect();
    assert_eq!(lines, [expected], "a single watch request");
    assert_eq!(source.metrics().last_sync_resource_version().get(), 8);
}

#[tokio::test]
async fn the_next_streamed_list_is_not_older_than_the_last_one() {
    let end = |version| watch(&[initial_events_end(version)], End::Never);
    let fake = Fake::start([end(7), end(9)]).await;
    let mut source = maps(&fake.client(), ListWatchOptions::default());
    source.list().await.unwrap();
    source.list().await.unwrap();
    let lines: Vec<String> = fake.lines().iter().map(|line| timeless(line)).collect();
    let expected = [
        format!("{STREAM}&{WATCH}"),
        format!("{STREAM}&resourceVersion=7&{WATCH}"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn unsupported_streaming_lists_are_remembered() {
    for refusal in [
        Reply::failure(422, "Invalid"),
        Reply::failure(400, "BadRequest"),
        // A server without streaming lists sends ordinary bookmarks.
        watch(&[event("ADDED", &map("a", 1)), bookmark(5)], End::Never),
    ] {
        let fake = Fake::start([refusal, list(5, "", &["a"]), list(6, "", &["a", "b"])]).await;
        let mut source = maps(&fake.client(), ListWatchOptions::default());
        assert_eq!(names(&source.list().await.unwrap()), (vec!["a"], 5));
        assert_eq!(names(&source.list().await.unwrap()), (vec!["a", "b"], 6));
        let lines = fake.lines();
        assert!(lines[0].starts_with(STREAM));
        assert_eq!(
            lines[1..],
            [
                "GET /api/v1/configmaps?resourceVersion=0",
                "GET /api/v1/configmaps?resourceVersion=5"
            ]
        );
    }
}

#[tokio::test]
async fn a_failed_streaming_list_falls_back_once() {
    let end = watch(&[initial_events_end(9)], End::Never);
    let fake = Fake::start([Reply::failure(500, "InternalError"), list(5, "", &[]), end]).await;
    let mut source = maps(&fake.client(), ListWatchOptions::default());
    assert_eq!(source.list().await.unwrap().at.get(), 5);
    assert_eq!(source.list().await.unwrap().at.get(), 9);
    assert!(fake.lines()[2].starts_with(STREAM));
}

#[tokio::test]
async fn an_interrupted_streaming_list_is_discarded() {
    for end in [End::Cut, End::Complete] {
        let lines = [event("ADDED", &map("a", 1))];
        let fake = Fake::start([watch(&lines, end)]).await;
        let mut source = maps(&fake.client(), ListWatchOptions::default());
        let error = source.list().await.unwrap_err();
        assert!(
            matches!(error, SourceError::Unavailable { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn lists_are_not_older_than_the_last() {
    let fake = Fake::start([list(5, "", &["a"]), list(9, "", &["a"])]).await;
    let mut source = listing_maps(&fake);
    assert_eq!(source.list().await.unwrap().at.get(), 5);
    assert_eq!(source.list().await.unwrap().at.get(), 9);
    let expected = [
        "GET /api/v1/configmaps?resourceVersion=0",
        "GET /api/v1/configmaps?resourceVersion=5",
    ];
    assert_eq!(fake.lines(), expected);
}

pub(super) fn too_large() -> Reply {
    Reply::new(
        504,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Timeout",
            "details":{"causes":[{"reason":"ResourceVersionTooLarge"}]},"code":504}"#,
    )
}

/// After a restore from a backup the server may never reach the client's version.
#[tokio::test]
async fn an_unreachable_version_is_abandoned_by_lists() {
    for refusal in [too_large(), Reply::failure(410, "Expired")] {
        let fake = Fake::start([list(9, "", &["a"]), refusal, list(4, "", &["b"])]).await;
        let mut source = listing_maps(&fake);
        source.list().await.unwrap();
        assert_eq!(names(&source.list().await.unwrap()), (vec!["b"], 4));
        // A list without a version may read from storage, so it uses pages.
        assert_eq!(fake.lines()[2], "GET /api/v1/configmaps?limit=500");
        fake.then(list(5, "", &[]));
        source.list().await.unwrap();
        assert_eq!(fake.lines()[3], "GET /api/v1/configmaps?resourceVersion=4");
    }
}

#[tokio::test]
async fn an_unreachable_version_is_abandoned_by_streaming_lists() {
    let end = |version| watch(&[initial_events_end(version)], End::Never);
    let expired = event(
        "ERROR",
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}"#,
    );
    for refusal in [too_large(), watch(&[expired], End::Complete)] {
        let fake = Fake::start([end(9), refusal, end(4)]).await;
        let mut source = maps(&fake.client(), ListWatchOptions::default());
        source.list().await.unwrap();
        assert_eq!(source.list().await.unwrap().at.get(), 4);
        let lines: Vec<String> = fake.lines().iter().map(|line| timeless(line)).collect();
        assert_eq!(lines[1], format!("{STREAM}&resourceVersion=9&{WATCH}"));
        assert_eq!(lines[2], format!("{STREAM}&{WATCH}"));
    }
}

#[tokio::test]
async fn pages_are_combined() {
    let fake = Fake::start([
        list(5, "t/1", &["a", "b"]),
        list(5, "t/2", &["c", "d"]),
        list(5, "", &["e"]),
    ])
    .await;
    let mut source = maps(&fake.client(), paged(2));
    let listing = source.list().await.unwrap();
    assert_eq!(names(&listing), (vec!["a", "b", "c", "d", "e"], 5));
    let expected = [
        "GET /api/v1/configmaps?limit=2&resourceVersion=0",
        "GET /api/v1/configmaps?continue=t%2F1&limit=2",
        "GET /api/v1/configmaps?continue=t%2F2&limit=2",
    ];
    assert_eq!(fake.lines(), expected);
}

#[tokio::test]
async fn expired_pages_fall_back_to_a_complete_list() {
    let fake = Fake::start([
        list(5, "t", &["a", "b"]),
        Reply::failure(410, "Expired"),
        list(8, "", &["b", "c", "d"]),
    ])
    .await;
    let mut source = maps(&fake.client(), paged(2));
    let listing = source.list().await.unwrap();
    assert_eq!(names(&listing), (vec!["b", "c", "d"], 8));
    assert_eq!(fake.lines()[2], "GET /api/v1/configmaps?resourceVersion=0");
}

#[tokio::test]
async fn failed_lists_return_the_retry_delay() {
    let busy = || Reply::failure(429, "TooManyRequests").header("retry-after", "7");
    let fake = Fake::start([busy(), busy(), Reply::new(200, "{\"items\":[{]}")]).await;
    let mut streaming = maps(&fake.client(), ListWatchOptions::default());
    let mut listing = listing_maps(&fake);
    for error in [streaming.list().await, listing.list().await] {
        match error {
            Err(SourceError::Unavailable { retry_after, .. }) => {
                assert_eq!(retry_after, Some(Duration::from_secs(7)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        fake.lines().len(),
        2,
        "no other request before the requested delay"
    );
    let error = listing.list().await.unwrap_err();
    assert!(
        matches!(error, SourceError::Undecodable { .. }),
        "{error:?}"
    );

    let stopped = Fake::start([]).await;
    let client = stopped.client();
    drop(stopped);
    // The socket is closed by its task, asynchronously.
    loop {
        let mut source = maps(&client, ListWatchOptions::default());
        match source.list().await {
            Err(SourceError::Unavailable { detail, .. }) if detail.contains("refused") => break,
            Err(SourceError::Unavailable { .. }) => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn untyped_items_get_the_type_of_their_list() {
    use super::super::super::{DynamicObject, PartialObjectMetadata};
    let body = r#"{"kind":"FooList","apiVersion":"ex.io/v1","metadata":{"resourceVersion":"3"},
        "items":[{"metadata":{"name":"a"},"spec":{"x":1}}]}"#;
    let metadata = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
        "metadata":{"resourceVersion":"3"},"items":[{"metadata":{"name":"a"}}]}"#;
    let fake = Fake::start([Reply::new(200, body), Reply::new(200, metadata)]).await;
    let foos = ApiResource::namespaced("ex.io", "v1", "foos", "Foo");
    let options = ListWatchOptions {
        watch_list: false,
        ..ListWatchOptions::default()
    };
    let dynamic = fake
        .client()
        .resource::<DynamicObject>(foos.clone())
        .namespace("n");
    let listing = HttpListerWatcher::new(dynamic, options.clone())
        .list()
        .await
        .unwrap();
    assert_eq!(listing.objects[0].types.kind, "Foo");
    assert_eq!(listing.objects[0].data["spec"]["x"], 1);
    let partial = fake.client().resource::<PartialObjectMetadata>(foos);
    let listing = HttpListerWatcher::new(partial, options)
        .list()
        .await
        .unwrap();
    assert_eq!(listing.objects[0].types.kind, "PartialObjectMetadata");
    let requests = fake.requests();
    assert_eq!(
        requests[0].line,
        "GET /apis/ex.io/v1/namespaces/n/foos?resourceVersion=0"
    );
    assert_eq!(requests[0].header("accept"), "application/json");
    let accept = requests[1].header("accept");
    assert!(
        accept.starts_with("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        "{accept}"
    );
}

#[tokio::test]
async fn null_items_of_a_go_server_are_an_empty_list() {
    let body = r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"3"},"items":null}"#;
    let fake = Fake::start([Reply::new(200, body)]).await;
    assert_eq!(
        names(&listing_maps(&fake).list().await.unwrap()),
        (vec![], 3)
    );
}
