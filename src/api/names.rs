//! The characters of names: DNS labels and subdomains, the names and values of labels; and how a name is
//! made from `generateName`. What a name may be of is checked in `registry`.

/// The longest DNS label, and the longest name or value of a label.
pub const LABEL_LENGTH_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// How much of `generateName` is kept: a label's length less the suffix.
const GENERATED_BASE_MAX: usize = LABEL_LENGTH_MAX - SUFFIX_LENGTH;
const SUFFIX_LENGTH: usize = 5;
/// No vowels, and nothing that reads as one: no words, and no taking one letter for another.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

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

/// A name that begins with `base`, of at most 63 bytes (§1.4).
pub fn generate(base: &str) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], suffix())
}

fn suffix() -> String {
    // Bytes above the largest multiple of the alphabet's length would make some letters likelier.
    let fair = (256 / SUFFIX_ALPHABET.len() * SUFFIX_ALPHABET.len()) as u16;
    let mut suffix = String::with_capacity(SUFFIX_LENGTH);
    loop {
        let random = *uuid::Uuid::new_v4().as_bytes();
        // Bytes 6 and 8 hold the version and the variant.
        for (at, byte) in random.into_iter().enumerate() {
            if at != 6 && at != 8 && u16::from(byte) < fair {
                let letter = SUFFIX_ALPHABET[usize::from(byte) % SUFFIX_ALPHABET.len()];
                suffix.push(char::from(letter));
                if suffix.len() == SUFFIX_LENGTH {
                    return suffix;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WC-011
    #[test]
    fn a_generated_name_is_base_and_five_letters() {
        let name = generate("web-");
        assert_eq!((name.len(), &name[..4]), (9, "web-"));
        assert!(name[4..].bytes().all(|b| SUFFIX_ALPHABET.contains(&b)));
        assert_eq!(generate(&"x".repeat(100)).len(), 63);
        let name = generate(&"ä".repeat(40));
        assert!(name.len() <= 63 && name.starts_with('ä'));
        let distinct: std::collections::BTreeSet<_> = (0..100).map(|_| suffix()).collect();
        assert!(distinct.len() > 90, "suffixes repeat: {distinct:?}");
    }
}
