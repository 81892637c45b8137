//! Tests of lists with stored objects that cannot be decoded.

use super::*;

/// Returns the error of a list. The cache has no state because its first list fails, so storage
/// answers limited lists.
async fn list_error(corrupt: usize, good: usize) -> CorruptObjects {
    let storage = FakeStorage::new();
    for n in 0..corrupt {
        storage.write(&format!("/pods/ns/c{n:03}"), Some("garbage".to_owned()));
    }
    for n in 0..good {
        let key = format!("ns/g{n:03}");
        storage.write(&format!("/pods/{key}"), Some(pod(&key, "web", "n", 1)));
    }
    let fixture = Fixture::over(storage, CacherConfig::default());
    let page = ListOptions {
        limit: 20,
        ..ListOptions::default()
    };
    match fixture.list(page).await {
        Err(ReadError::Corrupt(corrupt)) => corrupt,
        other => panic!("{other:?}"),
    }
}

/// WC-112: one error has the keys of all such objects, up to a limit.
#[tokio::test]
async fn list_error_contains_all_corrupt_keys() {
    let few = list_error(30, 1).await;
    assert!(!few.truncated);
    let keys: Vec<&str> = few.objects.iter().map(|(key, _)| key.as_str()).collect();
    let expect: Vec<String> = (0..30).map(|n| format!("/pods/ns/c{n:03}")).collect();
    assert_eq!(keys, expect);
    assert!(few.objects[0].1.starts_with("undecodable object ns/c000"));

    let exactly = list_error(CorruptObjects::MAX, 1).await;
    assert_eq!((exactly.objects.len(), exactly.truncated), (100, false));
    let many = list_error(CorruptObjects::MAX + 1, 1).await;
    assert_eq!((many.objects.len(), many.truncated), (100, true));
}
