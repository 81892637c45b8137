//! Tests that versions compacted in storage are rejected although the cache retains them.

use super::*;

fn exactly(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..from(version)
    }
}

#[tokio::test(start_paused = true)]
async fn wc_188_exact_reads_end_where_storage_was_compacted() {
    // WC-188: a quiet resource retains a hundred events regardless of age, but a server started
    // later has none of them, so the same request succeeded on one and failed on the other.
    let f = Fixture::start();
    f.wait_until_synced().await;
    let made: Vec<_> = (0..5)
        .map(|n| f.put(&format!("ns/p{n}"), "web", "n1"))
        .collect();
    f.wait_until_synced().await;
    let first = ListOptions {
        limit: 1,
        ..from(made[1])
    };
    let page = f.list(first).await.unwrap();
    assert_eq!(keys(&page), ["ns/p0"]);
    f.storage.compact_to(made[3]);
    tokio::time::sleep(Duration::from_secs(16)).await;
    for version in &made[..3] {
        let error = f.list(exactly(*version)).await.unwrap_err();
        let ReadError::Expired { oldest, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(oldest, made[3]);
    }
    let lists = *f.storage.lists.lock();
    assert_eq!(f.keys(exactly(made[3])).await.len(), 4);
    assert_eq!(*f.storage.lists.lock(), lists, "from the cache");
    // The pages of a list that began earlier also fail, with a token to continue.
    let next = ListOptions {
        continue_token: page.continue_token,
        ..ListOptions::default()
    };
    let error = f.list(next).await.unwrap_err();
    assert!(
        matches!(
            &error,
            ReadError::Expired {
                fresh_token: Some(_),
                ..
            }
        ),
        "{error}"
    );
    // Watches continue: their events are in the cache.
    let mut watch = f.watch(everything(), from(made[0])).await;
    assert_eq!(drain(&mut watch).await.len(), 4);
}
