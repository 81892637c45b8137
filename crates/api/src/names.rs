//! Syntax of names (DNS labels, DNS subdomains, label keys and values) and name generation from
//! `generateName`. The messages are upstream's.

/// The longest DNS label, and the longest name or value of a label.
pub const LABEL_LENGTH_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// The rule for DNS subdomains, in upstream's words.
pub const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Maximum number of bytes taken from `generateName`: a label's length less the suffix.
const GENERATED_BASE_MAX: usize = LABEL_LENGTH_MAX - SUFFIX_LENGTH;
const SUFFIX_LENGTH: usize = 5;
/// Has no vowels and no characters that resemble one another, as upstream's alphabet.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns true if `text` has the syntax of a DNS label, regardless of length: lower-case letters,
/// digits and `-`, with a letter or digit at both ends.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Returns true if `text` consists of DNS labels separated by dots, regardless of length.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Returns true if `text` has the syntax of a label's name or value, regardless of length: letters,
/// digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub fn is_label_text(text: &str) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && end(text.bytes().next())
        && end(text.bytes().last())
}

/// The rule for the names of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most resources.
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// A DNS label that begins with a letter: services.
    Label1035,
    /// Any segment of a path: roles and bindings.
    PathSegment,
}

impl NameRule {
    /// Returns the problems of `name`; with `prefix`, of `name` as the prefix of a generated name.
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        // A suffix follows, so a '-' at the end of a prefix is allowed.
        let masked;
        let trimmed = match prefix && name.ends_with('-') {
            true => {
                masked = format!("{name}a");
                &masked
            }
            false => name,
        };
        let (max, good, rule) = match self {
            Self::Subdomain => (
                SUBDOMAIN_LENGTH_MAX,
                is_dns_subdomain(trimmed),
                SUBDOMAIN_RULE,
            ),
            Self::Label => (LABEL_LENGTH_MAX, is_dns_label(trimmed), LABEL),
            Self::Label1035 => {
                let letter = trimmed.starts_with(|c: char| c.is_ascii_lowercase());
                (
                    LABEL_LENGTH_MAX,
                    letter && is_dns_label(trimmed),
                    LABEL_1035,
                )
            }
            Self::PathSegment => return path_segment_problems(name),
        };
        let mut problems = Vec::new();
        if name.len() > max {
            problems.push(format!("must be no more than {max} characters"));
        }
        if !good {
            problems.push(rule.to_owned());
        }
        problems
    }
}

/// Returns the problems of `name` as a segment of a storage path.
pub fn path_segment_problems(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// Returns the problems of a qualified name, `[prefix/]name`.
pub fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let of_prefix = NameRule::Subdomain.problems(prefix, false);
                // In this message upstream counts bytes; for DNS names it says characters.
                let of_prefix = of_prefix
                    .iter()
                    .map(|p| p.replace("253 characters", "253 bytes"));
                problems.extend(of_prefix.map(|p| format!("prefix part {p}")));
            }
            name
        }
        _ => {
            let rule = QUALIFIED.trim_start_matches("name part ");
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        problems.push(format!(
            "name part must be no more than {LABEL_LENGTH_MAX} bytes"
        ));
    }
    if !is_label_text(name) {
        problems.push(QUALIFIED.to_owned());
    }
    problems
}

/// Returns a name of at most 63 bytes: `base`, truncated, and a random suffix of five characters.
pub fn generate(base: &str) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], suffix())
}

fn suffix() -> String {
    // Bytes above the largest multiple of the alphabet's length are skipped: they would bias the
    // result.
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
    fn generated_name_is_base_and_five_characters() {
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
