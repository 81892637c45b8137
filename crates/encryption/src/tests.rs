//! Tests of encryption over a storage.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_metrics::{Format, Metrics};
use watchet_storage::memory::Memory;
use watchet_storage::{Expect, KeyValue, ListRequest, Outcome, Put, Storage, StorageError};

use super::{ActivationError, EncryptedStorage, Encryption, EncryptionConfiguration};

const KEY_1: &str = "{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}";
const KEY_2: &str = "{name: key2, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";

/// Returns a configuration of Secrets with `providers` in YAML.
fn configuration(providers: &str) -> EncryptionConfiguration {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
         resources: [{{resources: [secrets], providers: [{providers}]}}]\n"
    );
    text.parse().unwrap()
}

/// A memory store, and its Secrets with encryption.
struct Fixture {
    encryption: Arc<Encryption>,
    metrics: Arc<Metrics>,
    raw: Arc<Memory>,
    secrets: Arc<dyn Storage>,
}

impl Fixture {
    async fn new(providers: &str) -> Self {
        let metrics = Metrics::new();
        let encryption = Encryption::new(configuration(providers), "/registry", metrics.clone());
        let encryption = encryption.await.unwrap();
        let raw = Memory::new(Duration::from_secs(300)).unwrap();
        Self {
            secrets: EncryptedStorage::new(encryption.clone(), "", "secrets", raw.clone()),
            encryption,
            metrics,
            raw,
        }
    }

    async fn replace(&self, providers: &str) {
        let replaced = self.encryption.replace(configuration(providers));
        replaced.await.unwrap();
    }
}

fn key(name: &str) -> StorageKey {
    StorageKey::new(&format!("/secrets/default/{name}")).unwrap()
}

async fn put(storage: &dyn Storage, name: &str, value: &str, expect: Expect) -> ResourceVersion {
    let put = Put {
        key: key(name),
        value: Bytes::copy_from_slice(value.as_bytes()),
        expect,
        ttl: None,
    };
    match storage.put(put).await.unwrap() {
        Outcome::Done(revision) => revision,
        Outcome::Refused(current) => panic!("refused: {current:?}"),
    }
}

async fn get(storage: &dyn Storage, name: &str) -> KeyValue {
    storage.get(&key(name)).await.unwrap().0.unwrap()
}

async fn stored(fixture: &Fixture, name: &str) -> String {
    let item = get(&*fixture.raw, name).await;
    String::from_utf8_lossy(&item.value).into_owned()
}

#[tokio::test]
async fn every_read_decrypts() {
    let fixture = Fixture::new(&format!("{{aesgcm: {{keys: [{KEY_1}]}}}}")).await;
    let secrets = &*fixture.secrets;
    let prefix = StorageKey::new("/secrets/").unwrap();
    let start = secrets.current_revision().await.unwrap();
    let mut watch = secrets.watch(&prefix, start).await.unwrap();
    let first = put(secrets, "a", "one", Expect::Absent).await;
    let second = put(secrets, "a", "two", Expect::At(first)).await;
    assert!(
        stored(&fixture, "a")
            .await
            .starts_with("k8s:enc:aesgcm:v1:key1:")
    );
    assert_eq!(get(secrets, "a").await.value, "two");

    let list = ListRequest {
        prefix: prefix.clone(),
        start: String::new(),
        at: None,
        limit: 0,
        count: false,
    };
    let page = secrets.list(list).await.unwrap();
    assert_eq!(page.items[0].value, "two");
    let refused = Put {
        key: key("a"),
        value: "three".into(),
        expect: Expect::At(first),
        ttl: None,
    };
    for outcome in [
        secrets.put(refused).await.unwrap(),
        secrets.delete(&key("a"), first).await.unwrap(),
    ] {
        let Outcome::Refused(Some(current)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(
            (current.value, current.mod_revision),
            ("two".into(), second)
        );
    }
    secrets.delete(&key("a"), second).await.unwrap();

    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(watch.batches.next().await.unwrap().unwrap().events);
    }
    let values: Vec<_> = events
        .into_iter()
        .map(|event| (event.previous, event.value))
        .collect();
    let (one, two) = (Bytes::from("one"), Bytes::from("two"));
    assert_eq!(
        values,
        [
            (None, Some(one.clone())),
            (Some(one), Some(two.clone())),
            (Some(two), None)
        ]
    );
}

#[tokio::test]
async fn a_value_of_another_key_or_provider_is_stale() {
    let first = format!("{{aescbc: {{keys: [{KEY_1}]}}}}");
    let fixture = Fixture::new(&format!("{{identity: {{}}}}, {first}")).await;
    let secrets = &*fixture.secrets;
    put(secrets, "plain", "value", Expect::Absent).await;
    assert_eq!(stored(&fixture, "plain").await, "value");
    assert!(!get(secrets, "plain").await.is_stale);

    // Encrypt from now on.
    fixture
        .replace(&format!("{first}, {{identity: {{}}}}"))
        .await;
    let item = get(secrets, "plain").await;
    assert_eq!((&*item.value, item.is_stale), (&b"value"[..], true));
    let at = put(secrets, "plain", "value", Expect::At(item.mod_revision)).await;
    assert!(
        stored(&fixture, "plain")
            .await
            .starts_with("k8s:enc:aescbc:v1:key1:")
    );
    assert!(!get(secrets, "plain").await.is_stale);

    // Rotate the key.
    fixture
        .replace(&format!("{{aescbc: {{keys: [{KEY_2}, {KEY_1}]}}}}"))
        .await;
    let item = get(secrets, "plain").await;
    assert_eq!((&*item.value, item.is_stale), (&b"value"[..], true));
    put(secrets, "plain", "value", Expect::At(at)).await;
    assert!(
        stored(&fixture, "plain")
            .await
            .starts_with("k8s:enc:aescbc:v1:key2:")
    );

    // Back to plaintext.
    fixture
        .replace(&format!(
            "{{identity: {{}}}}, {{aescbc: {{keys: [{KEY_2}]}}}}"
        ))
        .await;
    let item = get(secrets, "plain").await;
    assert_eq!((&*item.value, item.is_stale), (&b"value"[..], true));
}

#[tokio::test]
async fn keys_with_the_same_name_are_tried_in_turn() {
    let renamed = KEY_2.replace("key2", "key1");
    let fixture = Fixture::new(&format!("{{aesgcm: {{keys: [{KEY_1}]}}}}")).await;
    put(&*fixture.secrets, "a", "value", Expect::Absent).await;
    fixture
        .replace(&format!(
            "{{aesgcm: {{keys: [{renamed}]}}}}, {{aesgcm: {{keys: [{KEY_1}]}}}}"
        ))
        .await;
    let item = get(&*fixture.secrets, "a").await;
    assert_eq!((&*item.value, item.is_stale), (&b"value"[..], true));
}

#[tokio::test]
async fn what_cannot_be_decrypted_is_returned_as_it_is_stored() {
    let fixture = Fixture::new(&format!("{{aesgcm: {{keys: [{KEY_1}]}}}}")).await;
    put(&*fixture.secrets, "a", "value", Expect::Absent).await;
    let encrypted = stored(&fixture, "a").await;

    // A value of another object.
    let item = get(&*fixture.raw, "a").await;
    let copy = Put {
        key: key("copy"),
        value: item.value.clone(),
        expect: Expect::Absent,
        ttl: None,
    };
    fixture.raw.put(copy).await.unwrap();
    assert_eq!(get(&*fixture.secrets, "copy").await.value, item.value);

    // Without the key, and values that are not encrypted.
    fixture
        .replace(&format!("{{aesgcm: {{keys: [{KEY_2}]}}}}"))
        .await;
    put(&*fixture.raw, "plain", "value", Expect::Absent).await;
    let item = get(&*fixture.secrets, "a").await;
    assert_eq!(String::from_utf8_lossy(&item.value), encrypted);
    assert_eq!(get(&*fixture.secrets, "plain").await.value, "value");
    assert!(!item.is_stale);
    let metrics = fixture.metrics.render(Format::Prometheus);
    for (direction, prefix, status, count) in [
        ("to_storage", "k8s:enc:aesgcm:v1:", "OK", 1),
        ("from_storage", "unknown", "Unknown", 3),
    ] {
        let line = format!(
            "apiserver_storage_transformation_operations_total{{resource=\"secrets\",status=\"{status}\",\
             transformation_type=\"{direction}\",transformer_prefix=\"{prefix}\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn resources_without_a_rule_are_not_changed() {
    let fixture = Fixture::new(&format!("{{aesgcm: {{keys: [{KEY_1}]}}}}")).await;
    let others = EncryptedStorage::new(
        fixture.encryption.clone(),
        "",
        "configmaps",
        fixture.raw.clone(),
    );
    put(&*others, "a", "value", Expect::Absent).await;
    assert_eq!(stored(&fixture, "a").await, "value");
    assert_eq!(get(&*others, "a").await.value, "value");
}

#[cfg(feature = "kms")]
#[tokio::test]
async fn without_its_plugin_requests_fail_and_a_new_configuration_is_rejected() {
    use watchet_test_util::kms_plugin::KmsPlugin;

    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let kms = format!(
        "{{kms: {{apiVersion: v2, name: test, endpoint: 'unix://{}'}}}}",
        socket.display()
    );
    let with_identity = format!("{kms}, {{identity: {{}}}}");
    let fixture = Fixture::new("{identity: {}}").await;
    put(&*fixture.secrets, "a", "value", Expect::Absent).await;
    let rejected = fixture
        .encryption
        .replace(configuration(&with_identity))
        .await;
    assert!(
        matches!(rejected, Err(ActivationError::Unhealthy(_))),
        "{rejected:?}"
    );
    put(&*fixture.secrets, "b", "value", Expect::Absent).await;

    let plugin = KmsPlugin::start(&socket).unwrap();
    fixture.replace(&with_identity).await;
    assert!(fixture.encryption.has_kms());
    let item = get(&*fixture.secrets, "a").await;
    assert!(item.is_stale);
    put(
        &*fixture.secrets,
        "a",
        "value",
        Expect::At(item.mod_revision),
    )
    .await;
    assert!(
        stored(&fixture, "a")
            .await
            .starts_with("k8s:enc:kms:v2:test:")
    );
    drop(plugin);

    // A server that starts without the plugin.
    let metrics = Metrics::new();
    let encryption = Encryption::new(configuration(&kms), "/registry", metrics);
    let encryption = encryption.await.unwrap();
    assert!(encryption.health().is_err());
    let secrets = EncryptedStorage::new(encryption.clone(), "", "secrets", fixture.raw.clone());
    let read = secrets.get(&key("a")).await;
    let Err(StorageError::Unavailable(text)) = &read else {
        panic!("{read:?}");
    };
    assert!(
        text.starts_with("cannot decrypt /secrets/default/a: KMS provider test: "),
        "{text}"
    );
    let write = Put {
        key: key("c"),
        value: "value".into(),
        expect: Expect::Absent,
        ttl: None,
    };
    let written = secrets.put(write).await;
    assert!(
        matches!(written, Err(StorageError::Unavailable(_))),
        "{written:?}"
    );
}
