//! Tests of batches and progress requests. Complete watches are tested against etcd.

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
fn last_revision_of_a_fragment_is_held_back() {
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
    let progress_support = Arc::new(ProgressSupport::default());
    progress_support.set_version("3.6.0", progress_support.failures());
    Batches {
        layout: Layout::new("/registry").unwrap(),
        watch_id: 0,
        progress_support,
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

/// A watch from a revision of one member opened at another that lagged behind, whose progress
/// response had an earlier revision: the Reflector's revision decreased.
#[test]
fn progress_never_decreases() {
    let mut batches = batches_after(7);
    let mut progress_of = |watch_id, revision| {
        let batch = batches.take(progress(watch_id, revision)).unwrap();
        batch.map(|batch| batch.revision.get())
    };
    assert_eq!(progress_of(STREAM_WATCH_ID, 5), None, "earlier revision");
    assert_eq!(progress_of(0, 6), None, "earlier revision");
    assert_eq!(progress_of(STREAM_WATCH_ID, 7), Some(7));
    assert_eq!(progress_of(1, 8), None, "another watch's");
    assert_eq!(progress_of(0, 9), Some(9));
    assert_eq!(progress_of(STREAM_WATCH_ID, 8), None, "earlier revision");
}

/// A watch opened while a member's version was unknown ignored progress until its stream broke:
/// each consistent read of a quiet resource took seconds.
#[test]
fn progress_is_used_once_support_is_known() {
    let mut batches = batches_after(7);
    let progress_support = Arc::new(ProgressSupport::default());
    batches.progress_support = progress_support.clone();
    let mut progress_of = |watch_id| batches.take(progress(watch_id, 9)).unwrap().is_some();
    assert!(!progress_of(STREAM_WATCH_ID), "the member is unknown");
    progress_support.set_version("3.5.16", progress_support.failures());
    assert!(progress_of(STREAM_WATCH_ID));
    progress_support.failed();
    assert!(!progress_of(STREAM_WATCH_ID), "it may run an older version");
    assert!(progress_of(0), "unsolicited progress is always correct");
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_backs_off() {
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
fn cancellation_reports_the_reason() {
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
