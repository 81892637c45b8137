//! Tests of the limits of history: age, number, bytes.

use super::*;

/// Returns the number of events of a watch from `version`, or `None` for a 410.
async fn replayed(f: &Fixture, version: ResourceVersion) -> Option<usize> {
    let words = drain(&mut f.watch(everything(), from(version)).await).await;
    (words.last().map(String::as_str) != Some("END")).then_some(words.len())
}

/// WC-129, WC-186: 75 s of history, and a hundred events regardless of age.
#[tokio::test(start_paused = true)]
async fn wc_186_history_expires_except_for_the_last_hundred_events() {
    let f = Fixture::start();
    f.wait_until_synced().await;
    for n in 0..250 {
        f.put(&format!("ns/p{n}"), "web", "n1");
    }
    f.wait_until_synced().await;
    assert_eq!(replayed(&f, rv(1)).await, Some(250));
    tokio::time::sleep(Duration::from_secs(76)).await;
    f.put("ns/last", "web", "n1");
    f.wait_until_synced().await;
    assert_eq!(replayed(&f, rv(152)).await, Some(100));
    assert_eq!(replayed(&f, rv(151)).await, None);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    f.wait_until_synced().await;
    assert_eq!(
        replayed(&f, rv(152)).await,
        Some(100),
        "clients of an idle resource can resume"
    );
}

/// Each version counted twice, as an event's object and as the next event's previous state, so that
/// history used half of its limit.
#[tokio::test(start_paused = true)]
async fn each_version_counts_once() {
    let config = CacherConfig {
        history_bytes_max: 200_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    f.wait_until_synced().await;
    for n in 0..30 {
        let large = json!({"metadata": {}, "data": "x".repeat(10_000), "n": n}).to_string();
        f.storage.write("/pods/ns/a", Some(large));
    }
    f.wait_until_synced().await;
    assert_eq!(replayed(&f, rv(31 - 19)).await, Some(19));
    assert_eq!(replayed(&f, rv(31 - 20)).await, None);
}

/// Frames in other formats were retained as long as history, without being counted.
#[tokio::test(start_paused = true)]
async fn encoded_frames_are_dropped_after_their_retention() {
    let f = Fixture::start();
    let mut watch = f.watch(everything(), from(rv(1))).await;
    f.put("ns/a", "web", "n1");
    let items = watch.next().await.unwrap();
    let [WatchItem::Event(event)] = &items[..] else {
        panic!("{items:?}")
    };
    let mut made = 0;
    let mut frame = || {
        let make = || {
            made += 1;
            Ok::<_, ()>("a table".into())
        };
        event.frame_as(1, 0, make).unwrap();
        made
    };
    assert_eq!(frame(), 1);
    f.put("ns/b", "web", "n1");
    f.wait_until_synced().await;
    assert_eq!(frame(), 1, "shared");
    tokio::time::sleep(Duration::from_secs(11)).await;
    f.put("ns/c", "web", "n1");
    f.wait_until_synced().await;
    assert_eq!(frame(), 2, "dropped and encoded again");
}
