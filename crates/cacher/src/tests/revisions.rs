//! Tests of revisions with several events: transactions of another client of the same etcd, and
//! expired leases with many keys.

use super::*;

/// Puts or deletes `ns/p000` to `ns/p{count}` in one revision.
fn together(f: &Fixture, count: usize, app: Option<&str>) -> ResourceVersion {
    let writes = (0..count).map(|n| {
        let key = format!("ns/p{n:03}");
        (
            format!("/pods/{key}"),
            app.map(|app| pod(&key, app, "n1", 0)),
        )
    });
    f.storage.write_together(writes.collect())
}

/// More events than a batch, a catch-up step and an inbox hold.
#[tokio::test(start_paused = true)]
async fn large_revision_arrives_whole() {
    for count in [300, 1500] {
        let f = Fixture::start();
        let mut live = f.watch(everything(), from(rv(1))).await;
        let mut selective = f.watch(predicate(None, "app=db", ""), from(rv(1))).await;
        assert!(drain(&mut live).await.is_empty());
        assert!(drain(&mut selective).await.is_empty());
        let put = together(&f, count, Some("web"));
        let changed = together(&f, count, Some("db"));
        let deleted = together(&f, count, None);
        let expect = |kinds: &[(&str, ResourceVersion)]| -> Vec<String> {
            let events = kinds
                .iter()
                .flat_map(|(kind, at)| (0..count).map(move |n| format!("{kind} ns/p{n:03}@{at}")));
            events.collect()
        };
        let all = expect(&[("ADDED", put), ("MODIFIED", changed), ("DELETED", deleted)]);
        assert_eq!(drain(&mut live).await, all, "live");
        let selected = expect(&[("ADDED", changed), ("DELETED", deleted)]);
        assert_eq!(drain(&mut selective).await, selected, "selective");
        let mut late = f.watch(everything(), from(rv(1))).await;
        assert_eq!(drain(&mut late).await, all, "from history");
        let mut between = f.watch(everything(), from(put)).await;
        assert_eq!(drain(&mut between).await, all[count..], "from its middle");
        let restarted = Fixture::over(f.storage.clone(), CacherConfig::default());
        let mut resumed = restarted.watch(everything(), from(put)).await;
        assert_eq!(drain(&mut resumed).await, all[count..], "after a restart");
        for (at, there) in [(put, count), (changed, count), (deleted, 0)] {
            let exactly = ListOptions {
                resource_version_match: Some(ResourceVersionMatch::Exact),
                ..from(at)
            };
            assert_eq!(f.keys(exactly).await.len(), there, "at {at}");
        }
    }
}

/// The start of history is a boundary between revisions.
#[tokio::test(start_paused = true)]
async fn history_drops_whole_revisions() {
    let config = CacherConfig {
        history_bytes_max: 60_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    let mut revisions = vec![];
    for round in 0..20 {
        let app = format!("round{round}");
        revisions.push(together(&f, 10, Some(&app)));
        f.wait_until_synced().await;
    }
    let mut rejected = 0;
    for (index, at) in revisions.iter().enumerate() {
        let mut watch = f.watch(everything(), from(*at)).await;
        let words = drain(&mut watch).await;
        if words.last().is_some_and(|event| event == "END") {
            assert_eq!(rejected, index, "no 410 after a version that is served");
            rejected += 1;
        } else {
            assert_eq!(
                words.len(),
                (revisions.len() - 1 - index) * 10,
                "after {at}"
            );
        }
    }
    assert!((1..19).contains(&rejected), "{rejected} of 20 are dropped");
}
