//! Tests of KMS providers with a plugin in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use prost::Message as _;
use watchet_metrics::{Format, Metrics};
use watchet_test_util::kms_plugin::{HEALTHY, KmsPlugin};
use watchet_test_util::scrape::Scrape;

use super::data_key::DataKey;
use super::encrypted_object::{AES_GCM_KEY, EncryptedObject};
use super::*;
use crate::configuration::KmsConfiguration;

const CONTEXT: &[u8] = b"/registry/secrets/default/a";

fn provider(socket: &Path) -> KmsProvider {
    let configuration = KmsConfiguration {
        name: "test".to_owned(),
        socket: socket.display().to_string(),
        timeout: Duration::from_secs(10),
    };
    KmsProvider::new(&configuration, Arc::default()).unwrap()
}

async fn decrypted(provider: &KmsProvider, stored: &[u8]) -> (Vec<u8>, bool) {
    let decrypted = provider.decrypt(stored, CONTEXT).await.unwrap();
    (decrypted.value, decrypted.is_stale)
}

#[tokio::test]
async fn another_process_decrypts_with_one_call_per_seed() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let plugin = KmsPlugin::start(&socket).unwrap();
    let first = provider(&socket);
    first.probe().await.unwrap();
    let values: Vec<_> = (0..20)
        .map(|number| first.encrypt(format!("value {number}").as_bytes(), CONTEXT))
        .collect::<Result<_, _>>()
        .unwrap();
    for value in &values {
        decrypted(&first, value).await;
    }
    assert_eq!(plugin.keys().calls("Decrypt"), 0);

    let second = provider(&socket);
    second.probe().await.unwrap();
    for (number, value) in values.iter().enumerate() {
        let expected = (format!("value {number}").into_bytes(), false);
        assert_eq!(decrypted(&second, value).await, expected);
    }
    assert_eq!(plugin.keys().calls("Decrypt"), 1);
    assert_eq!(
        second.cached_keys(),
        2,
        "its own seed and that of the first"
    );
}

#[tokio::test]
async fn concurrent_reads_share_a_call_and_its_failure_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let plugin = KmsPlugin::start(&socket).unwrap();
    let writer = provider(&socket);
    writer.probe().await.unwrap();
    let stored = writer.encrypt(b"value", CONTEXT).unwrap();
    let keys = plugin.keys().clone();
    drop(plugin);

    let reader = provider(&socket);
    let reads = || join_all((0..50).map(|_| reader.decrypt(&stored, CONTEXT)));
    assert!(reads().await.iter().all(Result::is_err));
    assert_eq!(reader.cached_keys(), 0);

    let plugin = KmsPlugin::with_keys(&socket, keys).unwrap();
    for read in reads().await {
        assert_eq!(read.unwrap().value, b"value");
    }
    assert_eq!(plugin.keys().calls("Decrypt"), 1);
}

#[tokio::test]
async fn a_rotated_key_makes_values_stale() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let plugin = KmsPlugin::start(&socket).unwrap();
    let provider = provider(&socket);
    provider.probe().await.unwrap();
    let old = provider.encrypt(b"old", CONTEXT).unwrap();
    provider.probe().await.unwrap();
    assert_eq!(plugin.keys().calls("Encrypt"), 1, "the key is the same");
    assert_eq!(decrypted(&provider, &old).await, (b"old".to_vec(), false));

    let id = plugin.keys().rotate();
    provider.probe().await.unwrap();
    assert_eq!(decrypted(&provider, &old).await, (b"old".to_vec(), true));
    let new = provider.encrypt(b"new", CONTEXT).unwrap();
    assert_eq!(EncryptedObject::decode(&*new).unwrap().key_id, id);
    assert_eq!(decrypted(&provider, &new).await, (b"new".to_vec(), false));
}

#[tokio::test]
async fn without_a_healthy_plugin_writes_end_after_three_minutes_and_reads_continue() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let provider = provider(&socket);
    let error = provider.encrypt(b"value", CONTEXT).unwrap_err();
    assert!(
        error.to_string().contains("no data encryption key yet"),
        "{error}"
    );
    provider.probe().await.unwrap_err();
    assert!(provider.health().is_err());

    let plugin = KmsPlugin::start(&socket).unwrap();
    provider.probe().await.unwrap();
    provider.health().unwrap();
    let stored = provider.encrypt(b"value", CONTEXT).unwrap();

    plugin.keys().set_health("the HSM is locked");
    let error = provider.probe().await.unwrap_err();
    let text = "KMS provider test: got unexpected healthz status: the HSM is locked";
    assert_eq!(error.to_string(), text);
    assert_eq!(provider.health(), Err(text.to_owned()));
    provider.encrypt(b"value", CONTEXT).unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(181)).await;
    let error = provider.encrypt(b"value", CONTEXT).unwrap_err();
    assert!(
        error.to_string().contains("has not confirmed its key"),
        "{error}"
    );
    assert!(matches!(error, KmsError::Unavailable { .. }));
    assert_eq!(
        decrypted(&provider, &stored).await,
        (b"value".to_vec(), false)
    );
    tokio::time::resume();

    plugin.keys().set_health(HEALTHY);
    provider.probe().await.unwrap();
    provider.encrypt(b"value", CONTEXT).unwrap();
    assert_eq!(
        plugin.keys().calls("Encrypt"),
        1,
        "the seed is still in use"
    );
}

#[tokio::test]
async fn a_plugin_can_be_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let plugin = KmsPlugin::start(&socket).unwrap();
    let keys = plugin.keys().clone();
    let provider = provider(&socket);
    provider.probe().await.unwrap();
    drop(plugin);
    // The server ends asynchronously.
    while provider.probe().await.is_ok() {
        tokio::task::yield_now().await;
    }
    let _plugin = KmsPlugin::with_keys(&socket, keys).unwrap();
    provider.probe().await.unwrap();
}

#[tokio::test]
async fn a_call_without_response_ends_after_the_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let plugin = KmsPlugin::start(&socket).unwrap();
    plugin.keys().hang(true);
    let configuration = KmsConfiguration {
        name: "test".to_owned(),
        socket: socket.display().to_string(),
        timeout: Duration::from_millis(20),
    };
    let provider = KmsProvider::new(&configuration, Arc::default()).unwrap();
    let error = provider.probe().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "KMS provider test: Status has no response after 20ms"
    );
}

#[tokio::test]
async fn a_damaged_value_is_invalid_and_an_unknown_key_is_temporary() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let _plugin = KmsPlugin::start(&socket).unwrap();
    let provider = provider(&socket);
    provider.probe().await.unwrap();
    let stored = provider.encrypt(b"value", CONTEXT).unwrap();
    let changed = |change: &dyn Fn(&mut EncryptedObject)| {
        let mut object = EncryptedObject::decode(&*stored).unwrap();
        change(&mut object);
        object.encode_to_vec()
    };
    let invalid = [
        b"\xff\xff".to_vec(),
        changed(&|object| object.encrypted_data[40] ^= 1),
        changed(&|object| object.encrypted_data.clear()),
        changed(&|object| object.key_id.clear()),
        changed(&|object| object.key_id = "k".repeat(1025)),
        changed(&|object| object.encrypted_dek_source = vec![0; 1025]),
        changed(&|object| {
            object.annotations.insert("no-domain".to_owned(), vec![]);
        }),
    ];
    for stored in invalid {
        let error = provider.decrypt(&stored, CONTEXT).await.unwrap_err();
        assert!(matches!(error, KmsError::InvalidValue { .. }), "{error}");
    }
    let error = provider
        .decrypt(&stored, b"/registry/secrets/default/b")
        .await
        .unwrap_err();
    assert!(matches!(error, KmsError::InvalidValue { .. }), "{error}");

    let unknown = changed(&|object| {
        object.key_id = "key-7".to_owned();
        object
            .annotations
            .values_mut()
            .for_each(|id| *id = b"key-7".to_vec());
    });
    let error = provider.decrypt(&unknown, CONTEXT).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "KMS provider test: Decrypt failed with NotFound: no key key-7"
    );
    assert!(matches!(error, KmsError::Unavailable { .. }));
}

#[tokio::test]
async fn values_of_older_servers_are_read_and_stale() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let _plugin = KmsPlugin::start(&socket).unwrap();
    let provider = provider(&socket);
    provider.probe().await.unwrap();
    // The plugin encrypted a key of AES instead of a seed.
    let configuration = KmsConfiguration {
        name: "test".to_owned(),
        socket: socket.display().to_string(),
        timeout: Duration::from_secs(10),
    };
    let plugin = plugin::Plugin::new(&configuration, Arc::default()).unwrap();
    let key = [7; 32];
    let encrypted = plugin
        .encrypt(plugin::EncryptRequest {
            plaintext: key.to_vec(),
            uid: "1".to_owned(),
        })
        .await
        .unwrap();
    let data_key = DataKey::new(AES_GCM_KEY, &key).unwrap();
    let object = EncryptedObject {
        encrypted_data: data_key.encrypt(b"value", CONTEXT).unwrap(),
        key_id: encrypted.key_id,
        encrypted_dek_source: encrypted.ciphertext,
        annotations: encrypted.annotations,
        encrypted_dek_source_type: AES_GCM_KEY,
    };
    let stored = object.encode_to_vec();
    assert_eq!(
        decrypted(&provider, &stored).await,
        (b"value".to_vec(), true)
    );
}

#[tokio::test]
async fn calls_and_keys_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kms.sock");
    let metrics = Metrics::new();
    let mut configuration = KmsConfiguration {
        name: "test".to_owned(),
        socket: socket.display().to_string(),
        timeout: Duration::from_secs(10),
    };
    let kms = || Arc::clone(&metrics.encryption().kms);
    let first = KmsProvider::new(&configuration, kms()).unwrap();
    let get = |series: &str| {
        let scrape = Scrape::parse(&metrics.render(Format::Prometheus));
        scrape.get(&format!("apiserver_envelope_encryption_{series}"))
    };
    let calls = |method: &str, code: &str| {
        get(&format!(
            r#"kms_operations_latency_seconds_count{{grpc_status_code="{code}",method_name="/v2.KeyManagementService/{method}",provider_name="test"}}"#
        ))
    };
    first.probe().await.unwrap_err();
    assert_eq!(calls("Status", "Unavailable"), Some(1.0));

    let plugin = KmsPlugin::start(&socket).unwrap();
    first.probe().await.unwrap();
    assert_eq!(calls("Status", "OK"), Some(1.0));
    assert_eq!(calls("Encrypt", "OK"), Some(1.0));
    let values = [b"a", b"b"].map(|value| first.encrypt(value, CONTEXT).unwrap());
    let second = KmsProvider::new(&configuration, kms()).unwrap();
    second.probe().await.unwrap();
    for value in &values {
        decrypted(&second, value).await;
    }
    assert_eq!(calls("Decrypt", "OK"), Some(1.0));
    let cached = r#"dek_source_cache_size{provider_name="test"}"#;
    assert_eq!(get(cached), Some(2.0));

    // The digest is that of sha256sum.
    let key_id = EncryptedObject::decode(&*values[0]).unwrap().key_id;
    let digest = provider::key_id_digest(&key_id);
    assert_eq!(
        provider::key_id_digest("1"),
        "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    );
    for transformation in ["to_storage", "from_storage"] {
        let labels = format!(
            r#"{{key_id_hash="{digest}",provider_name="test",transformation_type="{transformation}"}}"#
        );
        assert_eq!(get(&format!("key_id_hash_total{labels}")), Some(2.0));
        let last = get(&format!("key_id_hash_last_timestamp_seconds{labels}"));
        assert!(last.unwrap() > 1.7e9, "{last:?}");
    }
    let labels = format!(r#"{{key_id_hash="{digest}",provider_name="test"}}"#);
    let last = get(&format!(
        "key_id_hash_status_last_timestamp_seconds{labels}"
    ));
    assert!(last.unwrap() > 1.7e9, "{last:?}");

    // A call that is cancelled counts too, and so does one that times out.
    plugin.keys().hang(true);
    {
        let mut probe = Box::pin(first.probe());
        let pending = futures_util::poll!(&mut probe);
        assert!(pending.is_pending());
    }
    assert_eq!(calls("Status", "Canceled"), Some(1.0));
    configuration.timeout = Duration::from_millis(200);
    let impatient = KmsProvider::new(&configuration, kms()).unwrap();
    impatient.probe().await.unwrap_err();
    assert_eq!(calls("Status", "DeadlineExceeded"), Some(1.0));
}
