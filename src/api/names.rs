//! The characters of names: DNS labels and subdomains, the names and values of labels. What a name may
//! be of, and what is told of one that is bad, is said where it is checked.

/// The longest DNS label, and the longest name or value of a label.
pub const LABEL_LENGTH_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// Whether `text` is made as a DNS label is, whatever its length: lower-case letters, digits and `-`,
/// with a letter or digit at both ends.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether `text` is DNS labels with dots between, whatever its length.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Whether `text` is made as a label's name or value is, whatever its length: letters, digits, `-`, `_`
/// and `.`, with a letter or digit at both ends.
pub fn is_label_text(text: &str) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && end(text.bytes().next())
        && end(text.bytes().last())
}
