//! The stored form of a value that a KMS provider encrypted: a protobuf message, defined by upstream in
//! `k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2/api.proto`.

use std::collections::BTreeMap;

/// The maximum length of a key ID and of an encrypted data encryption key, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// The maximum length of all annotations, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 32 * 1024;

/// The source type of values that older servers wrote: the data encryption key is an AES key, the value is AES-GCM.
pub(super) const AES_GCM_KEY: i32 = 0;
/// The source type of new values: the data encryption key is a seed, the value is AES-GCM with a derived key.
pub(super) const HKDF_SHA256_XNONCE_AES_GCM_SEED: i32 = 1;

/// A stored value.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) encrypted_data: Vec<u8>,
    /// The ID of the plugin's key that encrypted the data encryption key.
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    /// The encrypted data encryption key or seed.
    #[prost(bytes = "vec", tag = "3")]
    pub(super) encrypted_dek_source: Vec<u8>,
    /// The annotations, which the plugin needs to decrypt the key.
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
    /// [`AES_GCM_KEY`] or [`HKDF_SHA256_XNONCE_AES_GCM_SEED`].
    #[prost(int32, tag = "5")]
    pub(super) encrypted_dek_source_type: i32,
}

/// Returns upstream's code for the error of a key ID; `None` if it is valid.
pub(super) fn invalid_key_id(key_id: &str) -> Option<&'static str> {
    match key_id.len() {
        0 => Some("empty"),
        length if length > TEXT_BYTES_MAX => Some("too_long"),
        _ => None,
    }
}

/// # Errors
/// The ID of a key is empty or too long.
pub(super) fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("the ID of the key is empty".to_owned()),
        length if length > TEXT_BYTES_MAX => Err(format!(
            "the ID of the key has {length} bytes: at most {TEXT_BYTES_MAX} are allowed"
        )),
        _ => Ok(()),
    }
}

/// # Errors
/// An encrypted key is empty or too long.
pub(super) fn check_encrypted_key(key: &[u8]) -> Result<(), String> {
    match key.len() {
        0 => Err("the encrypted key is empty".to_owned()),
        length if length > TEXT_BYTES_MAX => Err(format!(
            "the encrypted key has {length} bytes: at most {TEXT_BYTES_MAX} are allowed"
        )),
        _ => Ok(()),
    }
}

/// # Errors
/// The annotations are too long, or a key is not a domain name with a dot.
pub(super) fn check_annotations(annotations: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let length: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if length > ANNOTATIONS_BYTES_MAX {
        return Err(format!(
            "the annotations have {length} bytes: at most {ANNOTATIONS_BYTES_MAX} are allowed"
        ));
    }
    let is_label = |label: &str| {
        let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        (1..=63).contains(&label.len())
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
            && label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
    };
    // As upstream, a final dot is allowed.
    let is_domain = |key: &str| {
        let key = key.strip_suffix('.').unwrap_or(key);
        key.len() <= 253 && key.contains('.') && key.split('.').all(is_label)
    };
    match annotations.keys().find(|key| !is_domain(key)) {
        Some(key) => Err(format!(
            "the key {key:?} of an annotation is not a fully qualified domain name"
        )),
        None => Ok(()),
    }
}
