//! What responses add up to, and when progress is believed and asked for. Whole watches are tested
//! against a real etcd.

use etcd_client::proto::PbResponseHeader;

use super::*;

fn event(revision: u64) -> StorageEvent {
    StorageEvent {
        key: StorageKey::new(&format!("/pods/ns/{revision}")).unwrap(),
        revision: ResourceVersion::new(revision),
        value: Some(Bytes::new()),
        previous: None,
    }
}

#[test]
fn a_fragment_keeps_back_the_revision_it_ends_in() {
    let revisions = |events: &[StorageEvent]| -> Vec<u64> {
        events.iter().map(|event| event.revision.get()).collect()
    };
    let mut events: Vec<_> = [1, 2, 2, 3, 3].map(event).into();
    let tail = split_last_revision(&mut events);
    assert_eq!(
        (revisions(&events), revisions(&tail)),
        (vec![1, 2, 2], vec![3, 3])
    );
    let mut one: Vec<_> = [7, 7].map(event).into();
    assert_eq!(split_last_revision(&mut one).len(), 2);
    assert!(one.is_empty());
}

fn batches_after(delivered: u64) -> Batches {
    let truthfulness = Arc::new(Truthfulness::default());
    truthfulness.told("3.6.0", truthfulness.failures());
    Batches {
        layout: Layout::new("/registry").unwrap(),
        watch_id: 0,
        truthfulness,
        requested: ResourceVersion::new(delivered),
        delivered: ResourceVersion::new(delivered),
        tail: Vec::new(),
    }
}

fn progress(watch_id: i64, revision: i64) -> PbWatchResponse {
    PbWatchResponse {
        watch_id,
        header: Some(PbResponseHeader {
            revision,
            ..PbResponseHeader::default()
        }),
        ..PbWatchResponse::default()
    }
}

/// A watch that begins after what one member told can be opened at another that is behind, and
/// the answer to a progress request came with that one's revision: the Reflector went down.
#[test]
fn progress_never_goes_back() {
    let mut batches = batches_after(7);
    let mut told = |watch_id, revision| {
        let batch = batches.take(progress(watch_id, revision)).unwrap();
        batch.map(|batch| batch.revision.get())
    };
    assert_eq!(told(STREAM_WATCH_ID, 5), None, "of the past");
    assert_eq!(told(0, 6), None, "of the past");
    assert_eq!(told(STREAM_WATCH_ID, 7), Some(7));
    assert_eq!(told(1, 8), None, "another watch's");
    assert_eq!(told(0, 9), Some(9));
    assert_eq!(told(STREAM_WATCH_ID, 8), None, "of the past");
}

/// A watch that was opened while a member was unknown was deaf to progress until its stream broke:
/// each consistent read of a quiet resource took seconds.
#[test]
fn progress_is_believed_as_soon_as_it_can_be() {
    let mut batches = batches_after(7);
    let truthfulness = Arc::new(Truthfulness::default());
    batches.truthfulness = truthfulness.clone();
    let mut told = |watch_id| batches.take(progress(watch_id, 9)).unwrap().is_some();
    assert!(!told(STREAM_WATCH_ID), "the member is unknown");
    truthfulness.told("3.5.16", truthfulness.failures());
    assert!(told(STREAM_WATCH_ID));
    truthfulness.failed();
    assert!(!told(STREAM_WATCH_ID), "it may be an older one now");
    assert!(told(0), "of its own accord etcd never lied");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_is_repeated_less_and_less() {
    let mut request = Request::default();
    let started = Instant::now();
    request.begin();
    let mut repeated = 0;
    while let Some(due) = request
        .due
        .filter(|due| *due - started < 60 * PROGRESS_REPEAT_MAX)
    {
        sleep_until(due).await;
        request.repeat();
        repeated += 1;
        if started.elapsed() < Duration::from_millis(200) {
            assert!(request.due.unwrap() - due <= Duration::from_millis(200));
        }
    }
    assert!((60..70).contains(&repeated), "{repeated} in ten minutes");
    request.end();
    assert_eq!(request.due, None);
}

#[test]
fn a_cancellation_says_why() {
    let response = |compact_revision, cancel_reason: &str| PbWatchResponse {
        canceled: true,
        compact_revision,
        cancel_reason: cancel_reason.into(),
        ..PbWatchResponse::default()
    };
    assert_eq!(
        canceled(&response(7, "mvcc: required revision")),
        Failure::Compacted
    );
    assert!(canceled(&response(0, "etcdserver: no leader")).is_unavailable());
    assert!(!canceled(&response(0, "rpc error: permission denied")).is_unavailable());
}
