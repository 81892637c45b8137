//! Stored objects that cannot be decoded, as a list from storage tells of them.

use super::*;

/// A cache that is cold for good, because its first list fails: limited lists come from storage.
async fn told(corrupt: usize, good: usize) -> CorruptObjects {
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

/// WC-112: one failure names them all, up to a number, wherever they lie in what was examined.
#[tokio::test]
async fn a_list_names_all_objects_that_cannot_be_decoded() {
    let few = told(30, 1).await;
    assert!(!few.truncated);
    let keys: Vec<&str> = few.objects.iter().map(|(key, _)| key.as_str()).collect();
    let expect: Vec<String> = (0..30).map(|n| format!("/pods/ns/c{n:03}")).collect();
    assert_eq!(keys, expect);
    assert!(few.objects[0].1.starts_with("undecodable object ns/c000"));

    let exactly = told(CorruptObjects::MAX, 1).await;
    assert_eq!((exactly.objects.len(), exactly.truncated), (100, false));
    let many = told(CorruptObjects::MAX + 1, 1).await;
    assert_eq!((many.objects.len(), many.truncated), (100, true));
}
