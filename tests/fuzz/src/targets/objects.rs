//! Objects as bytes: the scan of stored JSON, stored values, and request bodies.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use watchet_api::{
    ColumnSet, EventType, FieldColumn, FieldRef, Object, ObjectKey, ResourceVersion, StorageKey,
};
use watchet_encryption::{EncryptedStorage, Encryption, EncryptionConfiguration};
use watchet_http::fuzzing::{Protobuf, decode_patch};
use watchet_metrics::Metrics;
use watchet_protobuf::{Messages, StorageMediaType, TranscodingStorage};
use watchet_schema::{KindType, Types};
use watchet_storage::memory::Memory;
use watchet_storage::{Expect, Outcome, Put, Storage, StorageError, encryption_prefix};

use super::parts;

pub(super) const WORDS: &[&str] = &[
    "metadata",
    "labels",
    "uid",
    "resourceVersion",
    "name",
    "namespace",
    "spec",
    "status",
    "phase",
    "nodeName",
    "type",
    "\"",
    "\\u006d",
    "\\\"",
    "null",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    "\r",
];

pub(super) const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "k8s\u{0}",
    "&a",
    "*a",
    "<<: *a",
    "!!str",
    "|",
    ">-",
    "? ",
    "---",
    "...",
    "%YAML 1.2",
    "0x1F",
    "~",
    ".inf",
];

/// The columns of pods, and one that has a fallback.
static COLUMNS: LazyLock<ColumnSet> = LazyLock::new(|| {
    let labels = [
        "spec.nodeName",
        "status.phase",
        "spec.hostNetwork",
        "type",
        "metadata.annotations",
    ];
    let mut columns: Vec<_> = labels.into_iter().map(FieldColumn::new).collect();
    columns[3].fallback = Some("status.phase".into());
    ColumnSet::new(columns)
});

/// The object that is read from JSON has what serde_json reads from it, and its frames are JSON with the same object.
pub(super) fn json_objects(input: &[u8]) {
    let key = ObjectKey::new(Some("ns"), "name");
    let at = ResourceVersion::new(7);
    let parsed: Result<Value, _> = serde_json::from_slice(input);
    let object = match Object::decode(key, at, EventType::Added, input, &COLUMNS) {
        Ok(object) => object,
        Err(error) => {
            if let Ok(value) = &parsed {
                assert!(!is_plain(value, input), "{error}");
            }
            return;
        }
    };
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(input).is_ok();
    assert!(is_json, "what an object is read from is JSON");
    // A number that is too large for serde_json, or too many levels: only the bytes of such an object are served.
    let Ok(mut expected) = parsed else {
        return;
    };
    expected["metadata"]["resourceVersion"] = "7".into();
    let body: Value = serde_json::from_slice(object.body_slice()).expect("a body is JSON");
    assert_eq!(body, expected, "the body");
    assert!(!object.body_slice().contains(&b'\n'), "a frame is one line");
    let metadata: Value =
        serde_json::from_slice(object.metadata_slice()).expect("metadata are JSON");
    assert_eq!(metadata, expected["metadata"], "the metadata");
    assert_eq!(
        object.uid(),
        expected["metadata"]["uid"].as_str().unwrap_or_default(),
        "the uid"
    );
    for (name, value) in expected["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        assert_eq!(object.label(name), value.as_str(), "the label {name:?}");
    }
    for (index, field) in COLUMNS.fields().iter().enumerate() {
        let value = field
            .path
            .iter()
            .try_fold(&expected, |value, name| value.get(&**name));
        if let Some(Value::String(text)) = value
            && !text.is_empty()
        {
            assert_eq!(
                object.field(FieldRef::Column(index)),
                text,
                "the field {}",
                field.label
            );
        }
    }
    check_frames(&object, &expected);
    expected["metadata"]["resourceVersion"] = "1000".into();
    check_frames(&object.deleted_at(ResourceVersion::new(1000)), &expected);
}

fn check_frames(object: &Object, expected: &Value) {
    for event_type in [EventType::Added, EventType::Modified, EventType::Deleted] {
        let frame = object.json_frame(event_type);
        let frame: Value = match serde_json::from_slice(&frame) {
            Ok(frame) => frame,
            // The frame has one level more than the object.
            Err(error) if error.to_string().starts_with("recursion limit") => return,
            Err(error) => panic!("a frame is no JSON: {error}"),
        };
        assert_eq!(frame["type"], event_type.as_str());
        assert_eq!(frame["object"], *expected, "the object of {event_type:?}");
    }
}

/// Returns true if a text can only be read as this value: an object with valid metadata, and no name occurs twice.
fn is_plain(value: &Value, text: &[u8]) -> bool {
    let metadata = &value["metadata"];
    let is_text = |name: &str| {
        metadata
            .get(name)
            .is_none_or(|value| value.is_string() || value.is_null())
    };
    let labels_fit = match &metadata["labels"] {
        Value::Null => true,
        Value::Object(labels) => labels.values().all(Value::is_string),
        _ => false,
    };
    // Written again without spaces it has the same number of names.
    let names = |text: &[u8]| text.iter().filter(|byte| **byte == b':').count();
    let fits = value.is_object() && metadata.is_object() && labels_fit;
    fits && ["name", "namespace", "uid"].into_iter().all(is_text)
        && names(text) == names(value.to_string().as_bytes())
        && !text.contains(&b'\\')
}

/// A stored value, under encryption at rest and in protobuf.
struct Stored {
    runtime: tokio::runtime::Runtime,
    raw: Arc<Memory>,
    encrypted: Arc<dyn Storage>,
    /// Writes objects of built-in kinds as protobuf.
    transcoding: Arc<dyn Storage>,
}

thread_local! {
    static STORED: Stored = Stored::new();
}

const ENCRYPTION: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: k, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}
  - aescbc: {keys: [{name: k, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}
  - secretbox: {keys: [{name: k, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}
  - identity: {}
"#;

impl Stored {
    fn new() -> Self {
        let runtime = super::server::runtime();
        let entered = runtime.enter();
        let raw = Memory::new(Duration::ZERO).expect("memory can be allocated");
        let configuration: EncryptionConfiguration =
            ENCRYPTION.parse().expect("the configuration is valid");
        let encryption = runtime
            .block_on(Encryption::new(configuration, "/registry", Metrics::new()))
            .expect("the configuration is valid");
        let encrypted = EncryptedStorage::new(encryption, "", "secrets", raw.clone());
        let messages = Arc::new(Messages::new(PROTOBUF.0.clone()));
        let media_type = StorageMediaType::Protobuf;
        let transcoding = TranscodingStorage::new(messages, media_type, None, raw.clone());
        drop(entered);
        Self {
            runtime,
            raw,
            encrypted,
            transcoding,
        }
    }

    /// Stores `value` through `to`, and returns what is read through `from`, if it can be read.
    fn copy(&self, to: &dyn Storage, value: &[u8], from: &dyn Storage) -> Option<Bytes> {
        let key = StorageKey::new("/secrets/ns/name").expect("it is a key");
        self.runtime.block_on(async {
            let (current, _) = self.raw.get(&key).await.expect("memory can be read");
            let put = Put {
                key: key.clone(),
                value: Bytes::copy_from_slice(value),
                expect: current.map_or(Expect::Absent, |current| Expect::At(current.mod_revision)),
                ttl: None,
            };
            match to.put(put).await {
                Ok(Outcome::Done(_)) => {}
                // JSON that is no object of its kind cannot be encoded.
                Err(StorageError::Failed(_)) => return None,
                written => panic!("memory can be written: {written:?}"),
            }
            let (read, _) = from.get(&key).await.ok()?;
            Some(read.expect("it was written").value)
        })
    }

    fn decrypted(&self, value: &[u8]) -> Option<Bytes> {
        self.copy(&*self.raw, value, &*self.encrypted)
    }

    /// Returns the JSON of a stored value; none if it cannot be decoded.
    fn decoded(&self, value: &[u8]) -> Option<Bytes> {
        let json = self.copy(&*self.raw, value, &*self.transcoding)?;
        json.starts_with(b"{").then_some(json)
    }

    /// Stores JSON as protobuf, and returns what is read again.
    fn encoded_and_decoded(&self, json: &[u8]) -> Option<Bytes> {
        self.copy(&*self.transcoding, json, &*self.transcoding)
    }
}

/// A stored value is an object or an error, and one that cannot be decrypted is not changed. What a value in protobuf is decoded to
/// is stored and read again as the same. The first part of an input is a key.
pub(super) fn etcd_values(input: &[u8]) {
    let [key, value] = parts(input);
    if let Ok(text) = str::from_utf8(key)
        && let Ok(key) = StorageKey::new(text)
    {
        assert_eq!(key.as_str(), text);
    }
    let prefix = encryption_prefix(value);
    let columns = ColumnSet::default();
    let object = |value: &[u8]| {
        let key = ObjectKey::new(Some("ns"), "name");
        Object::decode(
            key,
            ResourceVersion::new(1),
            EventType::Modified,
            value,
            &columns,
        )
    };
    drop(object(value));
    if value.is_empty() || value.len() > 64 << 10 {
        return;
    }
    let json = STORED.with(|stored| stored.decoded(value));
    if let Some(json) = json.filter(|_| value.starts_with(b"k8s\0")) {
        drop(object(&json));
        let written = |json: &[u8]| STORED.with(|stored| stored.encoded_and_decoded(json));
        // In Go too, null in a map of bytes is decoded as no bytes, so only the second round changes nothing.
        if let Some(first) = written(&json) {
            assert_eq!(written(&first), Some(first), "{json:?}");
        }
    }
    let read = STORED.with(|stored| stored.decrypted(value));
    // AES-CBC is not authenticated: one of 256 random values has a valid padding, and is decrypted to something.
    let is_authenticated = !value.starts_with(b"k8s:enc:aescbc:");
    if let Some(read) = read.filter(|_| is_authenticated) {
        // No value of a corpus is encrypted with these keys.
        assert_eq!(
            read, value,
            "a value with the prefix {prefix:?} was decrypted"
        );
        drop(object(&read));
    }
}

/// The built-in types and their messages.
pub(super) static PROTOBUF: LazyLock<(Arc<Types>, Protobuf)> = LazyLock::new(|| {
    let types = Types::builtins();
    (types.clone(), Protobuf::new(types))
});

/// What was decoded from a body is decoded from its JSON to the same.
pub(super) fn bodies(input: &[u8]) {
    let [content_type, body] = parts(input);
    let Ok(content_type) = str::from_utf8(content_type) else {
        return;
    };
    let (types, protobuf) = &*PROTOBUF;
    drop(decode_patch(content_type, body));
    if let Ok(value) = protobuf.decode_body(None, content_type, body) {
        let again = protobuf.decode_body(None, "application/json", value.to_string().as_bytes());
        assert_eq!(again.as_ref(), Ok(&value), "{content_type}");
    }
    let kind = KindType::builtin(types, "v1", "Pod");
    if let Ok(value) = protobuf.decode_body(kind.as_ref(), content_type, body) {
        let again = protobuf.decode_body(
            kind.as_ref(),
            "application/json",
            value.to_string().as_bytes(),
        );
        assert_eq!(again.as_ref(), Ok(&value), "a pod in {content_type}");
    }
}
