//! Recognizes values that kube-apiserver, or a server of this project, has encrypted at rest.

/// The beginning of every encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";

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
