//! Tests of the frames and writes of a watch: polls its body over a scripted watcher.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;
use crate::test_objects::{config_maps, event, object, pods_as};
use watchet_api::WatchEvent;
use watchet_metrics::{Format, Metrics, RequestScope};
use watchet_registry::ReadError;
use watchet_test_util::scrape::Scrape;

/// A watcher that returns its batches, then ends, or stays open.
struct Script {
    batches: VecDeque<Vec<WatchItem>>,
    open: bool,
    /// The denial after the last batch was received.
    denial: Option<Status>,
    /// Its reference count shows whether the watcher was dropped.
    dropped: Arc<()>,
}

impl WatchSource for Script {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        match self.batches.pop_front() {
            None if self.open => Poll::Pending,
            batch => Poll::Ready(batch),
        }
    }

    fn take_received(&mut self) -> Option<ReceivedEvents> {
        None
    }

    fn denial(&self) -> Option<&Status> {
        self.denial.as_ref().filter(|_| self.batches.is_empty())
    }
}

fn script(batches: Vec<Vec<WatchItem>>) -> Script {
    Script {
        batches: batches.into(),
        open: false,
        denial: None,
        dropped: Arc::new(()),
    }
}

/// Returns the writes of a watch.
async fn writes(batches: Vec<Vec<WatchItem>>, renderer: Renderer, gzip: bool) -> Vec<Bytes> {
    counted_writes(batches, renderer, gzip, &Metrics::new()).await
}

async fn counted_writes(
    batches: Vec<Vec<WatchItem>>,
    renderer: Renderer,
    gzip: bool,
    metrics: &Metrics,
) -> Vec<Bytes> {
    let encoder = FrameEncoder::new(renderer, meter(metrics));
    let mut body = watch_body(WatchFrames::new(script(batches), encoder), gzip);
    let mut writes = Vec::new();
    while let Some(frame) = body.frame().await {
        writes.push(frame.unwrap().into_data().unwrap());
    }
    writes
}

fn meter(metrics: &Metrics) -> WatchMeter {
    WatchMeter {
        record: None,
        unsent_events: None,
        sent: (0, 0),
        metrics: metrics.http().watches("", "v1", "pods"),
        scope: RequestScope::Cluster,
        started: tokio::time::Instant::now(),
    }
}

fn modified(name: &str, at: u64) -> WatchItem {
    WatchItem::Event(event(name, at, EventType::Modified, 0))
}

fn lines(writes: &[Bytes]) -> Vec<Value> {
    let text = String::from_utf8(writes.concat()).unwrap();
    assert!(text.ends_with('\n'), "{text:?}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn one_event_is_sent_without_a_copy() {
    let event = event("a", 7, EventType::Modified, 0);
    let batch = vec![WatchItem::Event(event.clone())];
    let writes = writes(vec![batch], pods_as(Form::Object), false).await;
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].as_ptr(), event.json_frame().as_ptr());
}

#[tokio::test]
async fn items_that_are_ready_share_a_write() {
    let initial = WatchItem::Initial(object("a", 3, EventType::Modified, 0));
    let bookmark = |initial_events_end| WatchItem::Bookmark {
        resource_version: ResourceVersion::new(5),
        initial_events_end,
    };
    let deleted = WatchItem::Event(event("a", 9, EventType::Deleted, 0));
    let batches = vec![
        vec![initial, bookmark(true), modified("a", 7)],
        vec![deleted, bookmark(false)],
    ];
    let writes = writes(batches, pods_as(Form::Object), false).await;
    let text: Vec<&str> = writes
        .iter()
        .map(|write| std::str::from_utf8(write).unwrap())
        .collect();
    let object = |at| {
        format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{at}","name":"a"}},"data":{{"x":""}}}}"#
        )
    };
    let first = format!(
        "{{\"type\":\"ADDED\",\"object\":{}}}\n{}\n{{\"type\":\"MODIFIED\",\"object\":{}}}\n",
        object(3),
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        object(7),
    );
    let second = format!(
        "{{\"type\":\"DELETED\",\"object\":{}}}\n{}\n",
        object(9),
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5"}}}"#,
    );
    assert_eq!(text, [first, second]);
}

#[tokio::test]
async fn a_large_batch_is_sent_in_bounded_writes() {
    let size = 10_000;
    let items: Vec<_> = (0..100)
        .map(|n| WatchItem::Initial(object(&format!("o{n:03}"), n + 1, EventType::Added, size)))
        .collect();
    let writes = writes(vec![items], pods_as(Form::Object), false).await;
    assert!(writes.len() >= 4, "{} writes", writes.len());
    let most = writes.iter().map(Bytes::len).max().unwrap();
    assert!(most < WRITE_BYTES_MAX + 2 * size, "{most}");
    let names: Vec<_> = lines(&writes)
        .iter()
        .map(|frame| frame["object"]["metadata"]["name"].clone())
        .collect();
    let expect: Vec<_> = (0..100).map(|n| json!(format!("o{n:03}"))).collect();
    assert_eq!(names, expect);
}

#[tokio::test]
async fn a_failure_is_an_error_event_and_ends_the_watch() {
    let error = WatchItem::Error(ReadError::Expired {
        requested: ResourceVersion::new(1),
        oldest: ResourceVersion::new(5),
        fresh_token: None,
    });
    let writes = writes(vec![vec![error]], pods_as(Form::Object), false).await;
    let actual = &lines(&writes)[0];
    assert_eq!(actual["type"], "ERROR");
    assert_eq!(actual["object"]["kind"], "Status");
    assert_eq!(actual["object"]["code"], 410);
    assert_eq!(actual["object"]["reason"], "Expired");
}

#[tokio::test]
async fn only_the_first_table_has_column_definitions() {
    let renderer = Renderer::unconverted(config_maps(), Form::Table(IncludeObject::None));
    let end = WatchItem::Bookmark {
        resource_version: ResourceVersion::new(8),
        initial_events_end: true,
    };
    let batches = vec![vec![modified("a", 7), modified("b", 8)], vec![end]];
    let actual = lines(&writes(batches, renderer, false).await);
    let tables: Vec<&Value> = actual.iter().map(|frame| &frame["object"]).collect();
    assert_eq!(tables[0]["kind"], "Table");
    assert_eq!(tables[0]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(tables[0]["metadata"]["resourceVersion"], "7");
    assert_eq!(tables[0]["rows"][0]["cells"][0], "a");
    assert_eq!(tables[0]["rows"][0]["object"], Value::Null);
    assert_eq!(tables[1]["columnDefinitions"], Value::Null);
    assert_eq!(tables[1]["rows"][0]["cells"][0], "b");
    // The bookmark includes its metadata although includeObject is None.
    let metadata = &tables[2]["rows"][0]["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(tables[2]["metadata"]["resourceVersion"], "8");
}

#[tokio::test]
async fn watchers_of_one_form_share_its_frames() {
    let event = event("a", 7, EventType::Modified, 0);
    let batch = || vec![vec![WatchItem::Event(event.clone())]];
    let one = writes(batch(), pods_as(Form::Metadata), false).await;
    let other = writes(batch(), pods_as(Form::Metadata), false).await;
    assert_eq!(one[0].as_ptr(), other[0].as_ptr());
    let partial = r#"{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","name":"a"}}}"#;
    assert_eq!(one[0], format!("{partial}\n"));
}

#[tokio::test]
async fn each_compressed_write_is_a_complete_member() {
    let batches = vec![
        vec![modified("a", 7), modified("b", 8)],
        vec![modified("c", 9)],
    ];
    let plain = writes(batches.clone(), pods_as(Form::Object), false).await;
    let compressed = writes(batches, pods_as(Form::Object), true).await;
    assert_eq!(compressed.len(), 2);
    for (plain, member) in plain.iter().zip(compressed) {
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&member[..])
            .read_to_end(&mut read)
            .unwrap();
        assert_eq!(&read[..], &plain[..]);
    }
}

/// Without a sync flush, Go's reader returns the last data of a member only after the header of the next
/// one: no client-go informer ever saw its `initial-events-end` bookmark.
#[tokio::test]
async fn a_compressed_write_is_flushed_before_its_member_ends() {
    let batch = vec![modified("a", 7), modified("b", 8)];
    let plain = writes(vec![batch.clone()], pods_as(Form::Object), false).await;
    let compressed = writes(vec![batch], pods_as(Form::Object), true).await;
    // A sync flush ends with an empty stored block; the member then ends with an empty final block
    // and eight bytes of checksum and length.
    let member = &compressed[0];
    let empty_stored_block = [0, 0, 0xff, 0xff];
    let at = member
        .windows(4)
        .rposition(|window| window == empty_stored_block);
    let at = at.expect("a sync flush");
    assert!(member.len() - (at + 4) <= 2 + 8, "{member:?}");
    let mut read = vec![0; plain[0].len()];
    flate2::read::GzDecoder::new(&member[..at + 4])
        .read_exact(&mut read)
        .unwrap();
    assert_eq!(read, plain[0]);
}

/// The last frame of a failed watch is compressed like those before it: plain text after gzip
/// members is a corrupt stream, and the client would not see the error.
#[tokio::test]
async fn an_encoding_failure_is_sent_in_the_negotiated_encoding() {
    // An unpaired surrogate: storage accepts the bytes, but it is not a valid string.
    let broken = Object::decode(
        "ns/a".into(),
        ResourceVersion::new(7),
        EventType::Added,
        br#"{"metadata":{"name":"a"},"data":{"x":"\ud800"}}"#,
        &watchet_api::ColumnSet::default(),
    );
    let batch = vec![WatchItem::Initial(Arc::new(broken.unwrap()))];
    let renderer = Renderer::unconverted(config_maps(), Form::Table(IncludeObject::None));
    let metrics = Metrics::new();
    let batches = vec![batch, vec![modified("b", 8)]];
    let writes = counted_writes(batches, renderer, true, &metrics).await;
    assert_eq!(writes.len(), 1, "no other write follows");
    let actual = Scrape::parse(&metrics.render(Format::Prometheus));
    assert_eq!(actual.sum("apiserver_watch_events_total", &[]), 1.0);
    let mut read = String::new();
    let mut member = flate2::read::GzDecoder::new(&writes[0][..]);
    member.read_to_string(&mut read).unwrap();
    let actual = lines(&[read.into()]).remove(0);
    assert_eq!(
        (&actual["type"], &actual["object"]["code"]),
        (&json!("ERROR"), &json!(500))
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_body_stays_open_and_a_drop_ends_the_watcher() {
    let watcher = Script {
        open: true,
        ..script(vec![vec![modified("a", 7)]])
    };
    let dropped = watcher.dropped.clone();
    let encoder = FrameEncoder::new(pods_as(Form::Object), meter(&Metrics::new()));
    let mut body = watch_body(WatchFrames::new(watcher, encoder), false);
    assert!(body.frame().await.unwrap().is_ok());
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(60), body.frame());
    assert!(waiting.await.is_err(), "an idle watch stays open");
    assert_eq!(Arc::strong_count(&dropped), 2);
    drop(body);
    assert_eq!(Arc::strong_count(&dropped), 1);
}

#[tokio::test]
async fn frames_are_counted_as_they_are_sent() {
    let metrics = Metrics::new();
    let bookmark = |initial_events_end| WatchItem::Bookmark {
        resource_version: ResourceVersion::new(7),
        initial_events_end,
    };
    let initial = WatchItem::Initial(object("a", 5, EventType::Added, 0));
    let batches = vec![
        vec![initial, bookmark(true)],
        vec![modified("a", 8), modified("a", 9), bookmark(false)],
    ];
    let encoder = FrameEncoder::new(pods_as(Form::Object), meter(&metrics));
    let mut body = watch_body(WatchFrames::new(script(batches), encoder), false);
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().into_data().unwrap().len();
    }
    let actual = Scrape::parse(&metrics.render(Format::Prometheus));
    let check = |name: &str, expect: f64| {
        let series = format!("{name}{{group=\"\",version=\"v1\",resource=\"pods\"}}");
        assert_eq!(actual.get(&series), Some(expect), "{series}");
    };
    check("apiserver_watch_events_total", 5.0);
    check("apiserver_watch_events_sizes_count", 5.0);
    check("apiserver_watch_events_sizes_sum", bytes as f64);
    let ended = "apiserver_watch_list_duration_seconds_count";
    assert_eq!(actual.sum(ended, &[r#"scope="cluster""#]), 1.0);
    assert_eq!(actual.sum(ended, &[]), 1.0);
}

/// The events before the failing one used to be lost.
#[tokio::test]
async fn an_encoding_failure_follows_the_preceding_events() {
    let bad = Object::decode(
        watchet_api::ObjectKey::new(Some("ns"), "bad"),
        watchet_api::ResourceVersion::new(9),
        EventType::Modified,
        br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bad"},"data":{"x":5}}"#,
        &watchet_api::ColumnSet::default(),
    );
    let bad = WatchItem::Event(Arc::new(WatchEvent::new(
        EventType::Modified,
        Arc::new(bad.unwrap()),
    )));
    let renderer = Renderer::unconverted(config_maps(), Form::Object);
    let renderer = renderer
        .in_protobuf(&watchet_protobuf::Schema::for_tests())
        .unwrap();
    let batch = vec![modified("a", 7), modified("b", 8), bad, modified("c", 10)];
    let writes = writes(vec![batch], renderer, false).await;
    assert_eq!(
        writes.len(),
        2,
        "the preceding events, then the failure, which ends the watch"
    );
    let count = |bytes: &[u8], text: &[u8]| {
        let windows = bytes.windows(text.len());
        windows.filter(|window| window == &text).count()
    };
    assert_eq!(count(&writes[0], b"MODIFIED"), 2);
    assert_eq!(count(&writes[1], b"MODIFIED"), 0);
    assert_eq!(count(&writes[1], b"ERROR"), 1);
    assert!(count(&writes[1], b"bad") > 0, "the error names the object");
}

#[tokio::test]
async fn denial_replaces_received_events_and_ends_the_watch() {
    let metrics = Metrics::new();
    let batches = vec![
        vec![modified("a", 7)],
        vec![modified("b", 8), modified("c", 9)],
    ];
    let mut script = script(batches);
    script.denial = Some(Status::failure(403, "Forbidden", "no role".to_owned()));
    script.open = true;
    let encoder = FrameEncoder::new(pods_as(Form::Object), meter(&metrics));
    let mut body = watch_body(WatchFrames::new(script, encoder), false);
    let mut writes = Vec::new();
    while let Some(frame) = body.frame().await {
        writes.push(frame.unwrap().into_data().unwrap());
    }
    let events = lines(&writes);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0]["object"]["metadata"]["name"], "a");
    assert_eq!(events[1]["type"], "ERROR");
    assert_eq!(events[1]["object"]["code"], 403);
    assert_eq!(events[1]["object"]["message"], "no role");
}
