//! What storage has forgotten is refused, though the cache still has it.

use super::*;

fn exactly(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..from(version)
    }
}

#[tokio::test(start_paused = true)]
async fn wc_188_exact_reads_end_where_storage_was_compacted() {
    // WC-188: a quiet resource keeps a hundred events however old they are, and another server, that
    // was started since, has none of them: the same request was answered by one and refused by the
    // other.
    let f = Fixture::start();
    f.settle().await;
    let made: Vec<_> = (0..5)
        .map(|n| f.put(&format!("ns/p{n}"), "web", "n1"))
        .collect();
    f.settle().await;
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
    // The pages of a list that was begun before end as well, with a way to go on.
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
    // Watches go on: what they follow is in the cache.
    let mut watch = f.watch(everything(), from(made[0])).await;
    assert_eq!(said(&mut watch).await.len(), 4);
}
