//! Tests of the correlator in paused time, and of the recorder with a scripted server.

use super::super::rest::fake::{Fake, Reply};
use super::*;

fn event(object: &str, reason: &str, message: &str) -> Event {
    let about = ObjectReference {
        kind: Some("Pod".into()),
        name: Some(object.into()),
        namespace: Some("n".into()),
        ..ObjectReference::default()
    };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{message}")),
            namespace: Some("n".into()),
            ..ObjectMeta::default()
        },
        involved_object: about,
        reason: Some(reason.into()),
        message: Some(message.into()),
        count: Some(1),
        ..Event::default()
    }
}

fn correlate(correlator: &mut Correlator, event: Event) -> Option<Write> {
    correlator.correlate(event, Instant::now())
}

/// Returns whether the write is a create, and the name, count and message of the event.
fn short(write: Option<Write>) -> Option<(bool, String, i32, String)> {
    let (new, event) = match write? {
        Write::Create(event) => (true, event),
        Write::Patch(event, patch) => {
            assert_eq!(patch["count"], event.count.unwrap());
            assert_eq!(patch["message"], event.message.clone().unwrap());
            (false, event)
        }
    };
    let name = event.metadata.name.unwrap();
    Some((new, name, event.count.unwrap(), event.message.unwrap()))
}

#[tokio::test(start_paused = true)]
async fn repeated_events_are_counted() {
    let mut correlator = Correlator::default();
    for count in 1..=3 {
        let actual = short(correlate(&mut correlator, event("a", "Started", "m"))).unwrap();
        assert_eq!(actual, (count == 1, "a.m".into(), count, "m".into()));
    }
    for other in [
        event("b", "Started", "m"),
        event("a", "Stopped", "m"),
        event("a", "Started", "o"),
    ] {
        assert!(matches!(
            correlate(&mut correlator, other),
            Some(Write::Create(_))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn similar_events_are_aggregated() {
    let mut correlator = Correlator::default();
    for number in 1..SIMILAR {
        let actual = short(correlate(
            &mut correlator,
            event("a", "Failed", &format!("m{number}")),
        ));
        assert_eq!(actual.unwrap().2, 1);
    }
    for (count, number) in (1..).zip(SIMILAR..SIMILAR + 5) {
        let actual = short(correlate(
            &mut correlator,
            event("a", "Failed", &format!("m{number}")),
        ));
        let (new, _, actual_count, message) = actual.unwrap();
        assert_eq!((new, actual_count), (count == 1, count));
        assert_eq!(
            message,
            format!("(combined from similar events): m{number}")
        );
    }
    // Other events are not affected, nor is this one after a pause.
    let actual = short(correlate(&mut correlator, event("a", "Other", "m"))).unwrap();
    assert_eq!((actual.0, actual.3.as_str()), (true, "m"));
    tokio::time::advance(Duration::from_secs(601)).await;
    let actual = short(correlate(&mut correlator, event("a", "Failed", "later"))).unwrap();
    assert_eq!((actual.0, actual.3.as_str()), (true, "later"));
}

const SIMILAR: i32 = 10;

#[tokio::test(start_paused = true)]
async fn events_are_rate_limited_per_source_and_object() {
    let mut correlator = Correlator::default();
    for _ in 0..25 {
        assert!(correlate(&mut correlator, event("a", "Failed", "m")).is_some());
    }
    assert!(correlate(&mut correlator, event("a", "Failed", "m")).is_none());
    assert!(correlate(&mut correlator, event("a", "Other", "m")).is_none());
    assert!(correlate(&mut correlator, event("b", "Failed", "m")).is_some());
    tokio::time::advance(Duration::from_secs(299)).await;
    assert!(correlate(&mut correlator, event("a", "Failed", "m")).is_none());
    tokio::time::advance(Duration::from_secs(2)).await;
    // Events that were not written are counted.
    let actual = short(correlate(&mut correlator, event("a", "Failed", "m"))).unwrap();
    assert_eq!((actual.0, actual.2), (false, 28));
    assert!(correlate(&mut correlator, event("a", "Failed", "m")).is_none());
}

fn written(name: &str) -> Reply {
    let body = format!(
        r#"{{"kind":"Event","apiVersion":"v1","metadata":{{"name":"{name}"}},"involvedObject":{{}}}}"#
    );
    Reply::new(200, body)
}

#[tokio::test]
async fn events_are_created_patched_and_recreated() {
    let fake = Fake::start([
        written("a.1"),
        Reply::failure(404, "NotFound"),
        written("a.2"),
        written("a.2"),
        Reply::failure(403, "Forbidden"),
    ])
    .await;
    let tasks = Tasks::new();
    let recorder = EventRecorder::new(&fake.client(), "tests", &tasks);
    let about = ObjectReference {
        name: Some("a".into()),
        ..ObjectReference::default()
    };
    for _ in 0..3 {
        recorder.warning(&about, "Failed", "m");
    }
    recorder.normal(&about, "Done", "refused");
    // All but the last one; then the shutdown.
    while fake.lines().len() < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tasks.drain(Duration::from_secs(10)).await.unwrap();
    let lines = fake.lines();
    let events = "/api/v1/namespaces/default/events";
    assert_eq!(lines[0], format!("POST {events}"));
    assert_eq!(lines[1], format!("PATCH {events}/a.1"));
    assert_eq!(lines[2], format!("POST {events}"));
    assert_eq!(lines[3], format!("PATCH {events}/a.2"));
    assert_eq!(lines[4], format!("POST {events}"));
    let body = |at: usize| -> serde_json::Value {
        serde_json::from_slice(&fake.requests()[at].body).unwrap()
    };
    assert_eq!(body(0)["type"], "Warning");
    assert_eq!(body(0)["source"]["component"], "tests");
    assert_eq!(
        body(2)["count"],
        2,
        "the count continues under the new name"
    );
    assert_ne!(body(2)["metadata"]["name"], body(0)["metadata"]["name"]);
    assert_eq!(body(3)["count"], 3);
    assert_eq!(recorder.lost(), 1, "the rejected event");
    recorder.normal(&about, "Late", "m");
    assert_eq!(recorder.lost(), 2, "the writing task has ended");
}

/// Events about RBAC objects used to be rejected by the server because of their name.
#[test]
fn events_have_valid_names_for_any_object_name() {
    let now = Timestamp::from_nanosecond(0x1f).unwrap();
    assert_eq!(correlate::event_name("web-0", now), "web-0.1f");
    let long = "a".repeat(253);
    for object in ["system:node", "Admin", "", "-a", "a..b", long.as_str()] {
        let name = correlate::event_name(object, now);
        assert!(uuid::Uuid::parse_str(&name).is_ok(), "{object}: {name}");
        assert_ne!(name, correlate::event_name(object, now));
    }
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let fake = Fake::start([]).await;
    let tasks = Tasks::new();
    let recorder = EventRecorder::new(&fake.client(), "tests", &tasks);
    let about = ObjectReference::default();
    // There is no await here, so the task writes nothing.
    for number in 0..QUEUE_MAX + 7 {
        recorder.normal(&about, "R", number.to_string());
    }
    assert_eq!(recorder.lost(), 7);
    drop(fake);
}
