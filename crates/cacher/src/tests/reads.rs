//! Tests of lists and gets: pages, tokens, single keys, and fallback to storage.

use super::*;

fn cluster_scoped() -> CachedResource {
    CachedResource {
        name: "nodes".into(),
        namespaced: false,
        prefix: StorageKey::new("/nodes/").unwrap(),
        ..resource()
    }
}

fn node(name: &str) -> Option<String> {
    Some(json!({"metadata": {"name": name, "uid": name}}).to_string())
}

/// Returns every page of a list with its remaining count.
async fn pages(
    f: &Fixture,
    predicate: &SelectionPredicate,
    limit: usize,
) -> Vec<(usize, Option<u64>)> {
    let mut options = ListOptions {
        limit,
        ..ListOptions::default()
    };
    let mut pages_of = Vec::new();
    loop {
        let page = f.cacher.list(predicate, &options).await.unwrap();
        pages_of.push((page.items.len(), page.remaining));
        match page.continue_token {
            Some(token) => options.continue_token = Some(token),
            None => return pages_of,
        }
    }
}

/// WC-108: a token of a namespaced list is relative to the namespace, as kube-apiserver's is, so
/// that each server continues the other's lists. It was relative to the resource, so that such a
/// list started again.
#[tokio::test(start_paused = true)]
async fn tokens_are_relative_to_the_listed_namespace() {
    let f = Fixture::start();
    for key in ["ns/a", "ns/b", "other/a"] {
        f.put(key, "web", "n1");
    }
    f.wait_until_synced().await;
    let first = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    for (selection, start, rest) in [
        (predicate(Some("ns"), "", ""), "a\0", vec!["ns/b"]),
        (everything(), "ns/a\0", vec!["ns/b", "other/a"]),
        (
            predicate(None, "", "metadata.namespace=ns"),
            "ns/a\0",
            vec!["ns/b"],
        ),
    ] {
        for progress in [true, false] {
            // Without progress requests storage answers.
            f.storage.set_progress_supported(progress);
            let page = f.cacher.list(&selection, &first).await.unwrap();
            assert_eq!(keys(&page), ["ns/a"]);
            let token = page.continue_token.unwrap();
            assert_eq!(ContinueToken::decode(&token).unwrap().start, start);
            // kube-apiserver's token has no count.
            let theirs = ContinueToken {
                resource_version: Some(rv(4)),
                start: format!("/{start}"),
                remaining: None,
            };
            for token in [token, theirs.encode()] {
                let next = ListOptions {
                    continue_token: Some(token),
                    ..ListOptions::default()
                };
                let page = f.cacher.list(&selection, &next).await.unwrap();
                assert_eq!(keys(&page), rest, "{selection:?} progress {progress}");
            }
        }
    }
}

/// Counting the rest again for each page made a list in pages of 500 quadratic.
#[tokio::test(start_paused = true)]
async fn remaining_count_is_computed_once() {
    let f = Fixture::start();
    for n in 0..7 {
        f.put(&format!("ns/{n}"), "web", "n1");
    }
    f.put("other/a", "web", "n1");
    f.wait_until_synced().await;
    let pages_of = |numbers: &[(usize, u64)], last: usize| -> Vec<(usize, Option<u64>)> {
        let numbers = numbers.iter().map(|(items, rest)| (*items, Some(*rest)));
        numbers.chain([(last, None)]).collect()
    };
    for progress in [true, false] {
        f.storage.set_progress_supported(progress);
        assert_eq!(
            pages(&f, &everything(), 3).await,
            pages_of(&[(3, 5), (3, 2)], 2)
        );
        let namespaced = predicate(Some("ns"), "", "");
        assert_eq!(
            pages(&f, &namespaced, 3).await,
            pages_of(&[(3, 4), (3, 1)], 1)
        );
        let selective = predicate(None, "app=web", "");
        assert_eq!(
            pages(&f, &selective, 3).await,
            [(3, None), (3, None), (2, None)],
            "WC-105"
        );
    }
}

/// WC-109: a fixed name is a lookup without pages, in cluster-scoped and namespaced resources.
#[tokio::test(start_paused = true)]
async fn fixed_name_is_a_lookup() {
    let storage = FakeStorage::new();
    let at = ["a", "b", "c"].map(|name| storage.write(&format!("/nodes/{name}"), node(name)));
    let f = Fixture::of(cluster_scoped(), storage, CacherConfig::default());
    f.wait_until_synced().await;
    let named = |name: &str| predicate(None, "", &format!("metadata.name={name}"));
    let limited = |version: Option<u64>| ListOptions {
        limit: 1,
        resource_version: version.map(rv),
        ..ListOptions::default()
    };
    for progress in [true, false] {
        f.storage.set_progress_supported(progress);
        for version in [None, Some(0), Some(2), Some(4)] {
            let list = f.cacher.list(&named("b"), &limited(version)).await.unwrap();
            assert_eq!(
                (keys(&list), &list.continue_token),
                (vec!["b".to_owned()], &None)
            );
            assert_eq!(
                list.resource_version,
                rv(4),
                "at least {version:?}, not exactly"
            );
        }
        let garbage = ListOptions {
            continue_token: Some("%".into()),
            ..ListOptions::default()
        };
        let list = f.cacher.list(&named("b"), &garbage).await.unwrap();
        assert_eq!(keys(&list), ["b"], "the list has no pages");
        for nothing in ["aa", "", "..", "a/b"] {
            let list = f
                .cacher
                .list(&named(nothing), &limited(None))
                .await
                .unwrap();
            assert!(list.items.is_empty(), "{nothing:?}");
        }
        for (version, found) in [(at[0], vec![]), (at[1], vec!["b".to_owned()])] {
            let exactly = ListOptions {
                resource_version_match: Some(ResourceVersionMatch::Exact),
                ..from(version)
            };
            let list = f.cacher.list(&named("b"), &exactly).await.unwrap();
            assert_eq!((keys(&list), list.resource_version), (found, version));
        }
    }
    f.storage.set_progress_supported(true);
    let mut watch = f.watch(named("b"), watch_list()).await;
    assert_eq!(drain(&mut watch).await, ["ADDED b@3", "BOOKMARK @4 end"]);
    f.storage.write("/nodes/b", None);
    f.storage.write("/nodes/c", None);
    assert_eq!(drain(&mut watch).await, ["DELETED b@5"]);
    let mut absent = f.watch(named("b"), watch_list()).await;
    assert_eq!(drain(&mut absent).await, ["BOOKMARK @6 end"], "WC-159");
}

/// WC-183: a stopped cache is out of date. Watches opened on it with 200 and ended, and gets waited
/// for 3 s.
#[tokio::test(start_paused = true)]
async fn stopped_cache_leaves_reads_to_storage_and_rejects_watches() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.tasks.drain(Duration::from_secs(1)).await.unwrap();
    let last = f.put("ns/b", "web", "n1");
    let started = tokio::time::Instant::now();
    let error = f
        .cacher
        .watch(everything(), &from(rv(1)))
        .await
        .unwrap_err();
    assert!(matches!(error, ReadError::Stopped), "{error}");
    let both = ["ns/a", "ns/b"];
    let limited = ListOptions {
        limit: 5,
        ..ListOptions::default()
    };
    for options in [ListOptions::default(), limited, from(rv(0)), from(last)] {
        assert_eq!(f.keys(options).await, both);
    }
    let key = ObjectKey::from("ns/b");
    for version in [None, Some(rv(0)), Some(last)] {
        let options = GetOptions {
            resource_version: version,
        };
        assert!(f.cacher.get(&key, options).await.unwrap().is_some());
    }
    let future = GetOptions {
        resource_version: Some(rv(99)),
    };
    let error = f.cacher.get(&key, future).await.unwrap_err();
    assert!(
        matches!(error, ReadError::TooLargeResourceVersion { .. }),
        "{error}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

/// WC-168: storage without progress requests answers what the cache cannot confirm. A version that
/// the store had reached caused 3 s of waiting and a "too large" error.
#[tokio::test(start_paused = true)]
async fn without_progress_storage_answers_reads_at_a_version() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    f.storage.set_progress_supported(false);
    // Another resource advances the store; the cache does not notice.
    let at = f
        .storage
        .write("/configmaps/ns/x", Some(pod("ns/x", "", "", 0)));
    let started = tokio::time::Instant::now();
    for version in [None, Some(rv(0)), Some(at)] {
        let options = ListOptions {
            resource_version: version,
            ..watch_list()
        };
        let mut watch = f.watch(everything(), options).await;
        let pages_of = if version.is_some_and(ResourceVersion::is_zero) {
            rv(2)
        } else {
            at
        };
        let items = watch.next().await.unwrap();
        let words: Vec<String> = items.iter().map(describe).collect();
        assert_eq!(
            words,
            [
                "ADDED ns/a@2".to_owned(),
                format!("BOOKMARK @{pages_of} end")
            ]
        );
    }
    let list = f.list(from(at)).await.unwrap();
    assert_eq!(
        (keys(&list), list.resource_version),
        (vec!["ns/a".to_owned()], at)
    );
    let key = ObjectKey::from("ns/a");
    let options = GetOptions {
        resource_version: Some(at),
    };
    assert!(f.cacher.get(&key, options).await.unwrap().is_some());
    let future = ListOptions {
        resource_version: Some(rv(9)),
        ..watch_list()
    };
    let words = drain(&mut f.watch(everything(), future).await).await;
    assert_eq!(
        words,
        ["ERROR Too large resource version: 9, current: 3", "END"]
    );
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

/// WC-111: reads through an index equal scans, in pages and streams too.
#[tokio::test(start_paused = true)]
async fn indexed_reads_equal_unindexed_ones() {
    let seed = watchet_test_util::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let indexed = Fixture::start();
    let plain = CachedResource {
        triggers: vec![],
        ..resource()
    };
    let plain = Fixture::of(plain, indexed.storage.clone(), CacherConfig::default());
    let selections = [
        predicate(None, "", "spec.nodeName=n1"),
        predicate(None, "", "spec.nodeName="),
        predicate(None, "app!=db", "spec.nodeName=n0"),
        predicate(Some("ns1"), "", "spec.nodeName=n1"),
        predicate(Some("ns1"), "", "spec.nodeName=n1,metadata.name=p3"),
        predicate(None, "", "spec.nodeName=n1,spec.nodeName=n2"),
        predicate(None, "", "spec.nodeName=n1,spec.nodeName!=n1"),
        predicate(None, "", "spec.nodeName=nowhere"),
    ];
    let mut existing = std::collections::BTreeSet::new();
    for _ in 0..60 {
        for _ in 0..random.usize(1..20) {
            let key = format!("ns{}/p{}", random.u32(..3), random.u32(..10));
            if existing.contains(&key) && random.u32(..3) == 0 {
                existing.remove(&key);
                indexed.delete(&key);
            } else {
                let node = ["", "n0", "n1", "n2"][random.usize(..4)];
                indexed.put(&key, if random.bool() { "web" } else { "db" }, node);
                existing.insert(key);
            }
        }
        for selection in &selections {
            for limit in [0, 1, 3] {
                let expected = listed(&plain, selection, limit).await;
                let found = listed(&indexed, selection, limit).await;
                assert_eq!(found, expected, "seed {seed}: {selection:?} limit {limit}");
            }
            let expected = drain(&mut plain.watch(selection.clone(), watch_list()).await).await;
            let found = drain(&mut indexed.watch(selection.clone(), watch_list()).await).await;
            assert_eq!(found, expected, "seed {seed}: {selection:?}");
        }
    }
}

/// Returns all pages of a list, joined.
async fn listed(f: &Fixture, predicate: &SelectionPredicate, limit: usize) -> Vec<String> {
    let mut options = ListOptions {
        limit,
        ..ListOptions::default()
    };
    let mut found = Vec::new();
    loop {
        let page = f.cacher.list(predicate, &options).await.unwrap();
        assert!(limit == 0 || page.items.len() <= limit);
        let words = page.items.iter();
        found.extend(words.map(|object| format!("{}@{}", object.key(), object.resource_version())));
        match page.continue_token {
            Some(token) => options.continue_token = Some(token),
            None => return found,
        }
    }
}
