//! Tests of the consistency checker. Every other test asserts at its end that the cache is
//! consistent.

use super::*;

const PERIOD: Duration = Duration::from_secs(300);

fn fixture() -> Fixture {
    let config = CacherConfig {
        consistency_check_period: Some(PERIOD),
        ..CacherConfig::default()
    };
    Fixture::over(FakeStorage::new(), config)
}

fn checks(f: &Fixture) -> [u64; 3] {
    let checks = f.cacher.consistency_checks();
    [checks.success, checks.failure, checks.error]
}

fn exactly(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..from(version)
    }
}

/// WC-190.
#[tokio::test(start_paused = true)]
async fn wc_190_difference_ends_watches_and_is_repaired() {
    let mut f = fixture();
    f.failures = 1;
    f.wait_until_synced().await;
    for key in ["ns/a", "ns/b", "ns/c"] {
        f.put(key, "web", "n1");
    }
    tokio::time::sleep(PERIOD * 2).await;
    let [success, 0, 0] = checks(&f) else {
        panic!("{:?}", checks(&f))
    };
    assert!((1..=2).contains(&success), "each 300 to 450 s");
    let mut watch = f.watch(everything(), from(rv(4))).await;
    assert!(drain(&mut watch).await.is_empty());

    f.storage.lose("/pods/ns/b");
    assert_eq!(
        f.keys(ListOptions::default()).await,
        ["ns/a", "ns/b", "ns/c"],
        "not found yet"
    );
    while checks(&f)[1] == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // The state sent to clients was wrong, and no version exists at which it became so.
    let expired = ["ERROR too old resource version: 4 (4)", "END"];
    assert_eq!(drain(&mut watch).await, expired);
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a", "ns/c"]);

    // Storage answers reads at past versions until a check succeeds.
    let lists = || *f.storage.lists.lock();
    let before = lists();
    assert_eq!(f.keys(exactly(rv(4))).await, ["ns/a", "ns/c"]);
    assert_eq!(lists(), before + 1);
    tokio::time::sleep(PERIOD * 2).await;
    let [more, 1, 0] = checks(&f) else {
        panic!("{:?}", checks(&f))
    };
    assert!(more > success);
    let last = f.put("ns/d", "web", "n1");
    let before = lists();
    assert_eq!(f.keys(exactly(last)).await, ["ns/a", "ns/c", "ns/d"]);
    assert_eq!(lists(), before, "from memory again");
}

/// A failed check is not a difference and has no effect.
#[tokio::test(start_paused = true)]
async fn storage_failure_is_not_a_difference() {
    let f = fixture();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.set_down(true);
    tokio::time::sleep(PERIOD * 2).await;
    let [0, 0, errors] = checks(&f) else {
        panic!("{:?}", checks(&f))
    };
    assert!(errors > 0);
    f.storage.set_down(false);
    // The version of the last change is compacted later: the check uses a current one.
    let later = f
        .storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 0)));
    f.storage.compact_to(later);
    tokio::time::sleep(PERIOD * 2).await;
    let [success, 0, same] = checks(&f) else {
        panic!("{:?}", checks(&f))
    };
    assert!(success > 0 && same == errors, "{:?}", checks(&f));
    // Without progress requests compaction leaves nothing to compare.
    f.storage.set_progress_supported(false);
    let later = f
        .storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 1)));
    f.storage.compact_to(later);
    tokio::time::sleep(PERIOD * 2).await;
    let [_, 0, more] = checks(&f) else {
        panic!("{:?}", checks(&f))
    };
    assert!(more > errors);
}
