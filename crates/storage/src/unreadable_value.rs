//! Values that are not in the form in which the server reads them: encrypted ones, and ones that a storage cannot decode.

use bytes::Bytes;

/// The beginning of every encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The beginning of a value that stands for one that cannot be decoded. No stored value begins with it.
const UNDECODABLE: &[u8] = b"\0undecodable: ";

/// Returns a value that stands for one that a storage cannot decode, and has the reason, for [`unreadable_reason`]. A
/// request for many values does not fail for one of them.
pub fn undecodable_value(reason: &str) -> Bytes {
    [UNDECODABLE, reason.as_bytes()].concat().into()
}

/// Returns why a value that a storage has returned cannot be read, for error messages: it is encrypted, or the storage
/// could [not decode](undecodable_value) it. `None` if the value is as it was written.
///
/// ```
/// use watchet_storage::{undecodable_value, unreadable_reason};
/// assert_eq!(
///     unreadable_reason(b"k8s:enc:aesgcm:v1:key1:\x93\xab").as_deref(),
///     Some("it is encrypted (k8s:enc:aesgcm:v1:key1:) and cannot be decrypted")
/// );
/// assert_eq!(unreadable_reason(&undecodable_value("it is damaged")).as_deref(), Some("it is damaged"));
/// assert_eq!(unreadable_reason(b"{}"), None);
/// ```
pub fn unreadable_reason(value: &[u8]) -> Option<String> {
    if let Some(reason) = value.strip_prefix(UNDECODABLE) {
        return Some(String::from_utf8_lossy(reason).into_owned());
    }
    let prefix = encryption_prefix(value)?;
    Some(format!(
        "it is encrypted ({prefix}) and cannot be decrypted"
    ))
}

/// Returns the prefix `k8s:enc:PROVIDER:VERSION:NAME:` of a value that is encrypted at rest, for error messages; `None`
/// if the value is not encrypted. A key is the provider's key NAME; a KMS provider has that NAME.
///
/// ```
/// use watchet_storage::encryption_prefix;
/// assert_eq!(encryption_prefix(b"k8s:enc:aesgcm:v1:key1:\x93\xab").as_deref(), Some("k8s:enc:aesgcm:v1:key1:"));
/// assert_eq!(encryption_prefix(b"{}"), None);
/// ```
pub fn encryption_prefix(value: &[u8]) -> Option<String> {
    // A damaged value can have anything in place of a name.
    const PREFIX_BYTES_MAX: usize = 128;
    if !value.starts_with(ENCRYPTED) {
        return None;
    }
    let beginning = value.iter().take(PREFIX_BYTES_MAX).enumerate();
    let mut ends = beginning.filter_map(|(at, byte)| (*byte == b':').then_some(at + 1));
    let end = ends.nth(4).unwrap_or(ENCRYPTED.len());
    Some(String::from_utf8_lossy(&value[..end]).into_owned())
}
