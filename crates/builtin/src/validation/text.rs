//! The formats of strings and numbers in Kubernetes: names, ports, keys, addresses.

use std::net::{IpAddr, Ipv4Addr};

use watchet_registry::names;
use watchet_registry::names::NameRule;

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const IMMUTABLE: &str = "field is immutable";

/// A DNS label.
pub(super) fn label(text: &str) -> Vec<String> {
    NameRule::Label.problems(text, false)
}

/// A DNS subdomain.
pub(super) fn subdomain(text: &str) -> Vec<String> {
    NameRule::Subdomain.problems(text, false)
}

/// `[prefix/]name`
pub(super) fn qualified(text: &str) -> Vec<String> {
    names::qualified_name_problems(text)
}

/// The name of a role and the like.
pub(super) fn path_segment(text: &str) -> Vec<String> {
    NameRule::PathSegment.problems(text, false)
}

/// The value of a label.
pub(super) fn label_value(text: &str) -> Vec<String> {
    names::label_value_problems(text)
}

/// `example.com/name`: a qualified name with its prefix.
pub(super) fn domain_prefixed(text: &str) -> Vec<String> {
    match text.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => subdomain(domain),
        _ => vec!["must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned()],
    }
}

/// Checks that a number is in a range; the error is, for example, `must be between 1 and 65535, inclusive`.
pub(super) fn range(number: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&number) {
        return Vec::new();
    }
    vec![format!("must be between {min} and {max}, inclusive")]
}

/// The number of a port.
pub(super) fn port(number: i64) -> Vec<String> {
    range(number, 1, 65535)
}

/// The name of a port.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |good: bool, problem: &str| {
        if !good {
            problems.push(problem.to_owned());
        }
    };
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    check(text.len() <= 15, "must be no more than 15 characters");
    check(
        !text.is_empty() && text.bytes().all(known),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(
        text.bytes().any(|b| b.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    check(!text.contains("--"), "must not contain consecutive hyphens");
    check(
        !text.starts_with('-') && !text.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    problems
}

/// The key of a config map or a secret.
pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(known) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
             'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// The name of a variable in a container's environment.
pub(super) fn variable(text: &str) -> Vec<String> {
    let known = |b: u8| (b' '..=b'~').contains(&b) && b != b'=';
    if !text.is_empty() && text.bytes().all(known) {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other \
         than '='"
            .to_owned(),
    ]
}

/// An identifier of the language C.
pub(super) fn c_identifier(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.starts_with(|c: char| is_word(c) && !c.is_ascii_digit());
    if starts && text.chars().all(is_word) {
        return Vec::new();
    }
    vec![
        "a valid C identifier must start with alphabetic character or '_', followed by a string of \
         alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used \
         for validation is '[A-Za-z_][A-Za-z0-9_]*')"
            .to_owned(),
    ]
}

/// Returns true for a version of <https://semver.org/spec/v2.0.0.html>.
pub(super) fn is_semantic_version(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_identifier = |part: &str| !part.is_empty() && part.chars().all(is_word);
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let is_number =
        |part: &str| !part.is_empty() && is_digits(part) && (part == "0" || !part.starts_with('0'));
    let (version, build) = match text.split_once('+') {
        Some((version, build)) => (version, Some(build)),
        None => (text, None),
    };
    let (core, release) = match version.split_once('-') {
        Some((core, release)) => (core, Some(release)),
        None => (version, None),
    };
    let is_release = |part: &str| is_number(part) || is_identifier(part) && !is_digits(part);
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_release))
        && build.is_none_or(|build| build.split('.').all(is_identifier))
}

/// Parses an address as Go does: without leading zeros.
pub(super) fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// Returns what is wrong with an address, as upstream's `IsValidIPForLegacyField` with strict
/// validation.
pub(super) fn ip(text: &str) -> Vec<String> {
    let problem = match parse_ip(text) {
        Some(address) if is_mapped(address) => "must not be an IPv4-mapped IPv6 address",
        Some(_) => return Vec::new(),
        None if parse_ip(&without_leading_zeros(text)).is_some() => "must not have leading 0s",
        None => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    };
    vec![problem.to_owned()]
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// Removes the leading zeros of the octets of an IPv4 address.
fn without_leading_zeros(text: &str) -> String {
    let octets = text.split('.').map(|octet| {
        let significant = octet.trim_start_matches('0');
        match significant.is_empty() && !octet.is_empty() {
            true => "0",
            false => significant,
        }
    });
    octets.collect::<Vec<_>>().join(".")
}

/// Parses an address with the length of its prefix. Either may have leading zeros.
fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = parse_ip(address).or_else(|| parse_ip(&without_leading_zeros(address)))?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let bits: u8 = bits.parse().ok().filter(|_| is_number)?;
    (bits <= bits_max).then_some((address, bits))
}

/// Returns what is wrong with a CIDR, as upstream's `IsValidCIDRForLegacyField` with strict
/// validation.
pub(super) fn cidr(text: &str) -> Vec<String> {
    let problem = match parse_cidr(text) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some((_, bits)) if has_leading_zeros(text, bits) => {
            "must not have leading 0s in IP or prefix length"
        }
        Some((address, _)) if is_mapped(address) => "must not have an IPv4-mapped IPv6 address",
        Some((address, bits)) if has_host_bits(address, bits) => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return Vec::new(),
    };
    vec![problem.to_owned()]
}

/// Returns true for an address and the length of a prefix, with or without host bits.
pub(super) fn is_cidr(text: &str) -> bool {
    parse_cidr(text).is_some()
}

/// Returns true if the range `inner` is a proper part of `outer`; `None` if either is not a range.
pub(super) fn is_strict_subset(inner: &str, outer: &str) -> Option<bool> {
    let ((outer, bits), (inner, inner_bits)) = (parse_cidr(outer)?, parse_cidr(inner)?);
    let bits = u32::from(bits);
    let is_within = match (outer, inner) {
        (IpAddr::V4(outer), IpAddr::V4(inner)) => {
            let differing = outer.to_bits() ^ inner.to_bits();
            differing.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(outer), IpAddr::V6(inner)) => {
            let differing = outer.to_bits() ^ inner.to_bits();
            differing.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    };
    Some(is_within && bits < u32::from(inner_bits))
}

fn has_leading_zeros(cidr: &str, bits: u8) -> bool {
    let (address, length) = cidr.split_once('/').unwrap_or((cidr, ""));
    parse_ip(address).is_none() || length != bits.to_string()
}

/// Returns true if a bit after the first `bits` is set.
fn has_host_bits(address: IpAddr, bits: u8) -> bool {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => address.to_bits().checked_shl(bits).unwrap_or(0) != 0,
        IpAddr::V6(address) => address.to_bits().checked_shl(bits).unwrap_or(0) != 0,
    }
}

/// Validates the IP of an endpoint, which other machines must be able to reach.
pub(super) fn endpoint_ip(text: &str) -> Vec<String> {
    let Some(address) = parse_ip(text) else {
        return ip(text);
    };
    let mut problems = Vec::new();
    let mut refuse = |bad: bool, what: &str| {
        if bad {
            problems.push(what.to_owned());
        }
    };
    refuse(address.is_unspecified(), "may not be unspecified (0.0.0.0)");
    refuse(
        address.is_loopback(),
        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
    );
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    refuse(
        link_local,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
    );
    let multicast_local = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == Ipv4Addr::new(224, 0, 0, 0).octets()[..3],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    refuse(
        multicast_local,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(rule(text), [""; 0], "{text}");
        }
        for text in bad {
            assert_ne!(rule(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn texts() {
        check(
            port_name,
            &["http", "a-1"],
            &["", "1", "Http", "a--b", "-a", "sixteen-letters-"],
        );
        check(
            config_key,
            &["a", "A_b-c.d", ".x"],
            &["", ".", "..", "..a", "a b", "a/b"],
        );
        check(variable, &["A", "a.b-c d", "1"], &["", "a=b", "ä"]);
        check(
            ip,
            &["10.0.0.1", "::1"],
            &["", "10.0.0", "010.0.0.1", "10.0.0.1/8", "x"],
        );
        check(
            cidr,
            &["10.0.0.0/8", "::/0", "10.0.0.1/32", "2001:db8::/64"],
            &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "/8", "10.0.0.0/"],
        );
        check(
            endpoint_ip,
            &["10.0.0.1"],
            &["127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1"],
        );
        check(
            domain_prefixed,
            &["acme.io/foo"],
            &["foo", "/foo", "acme.io/", "A/b"],
        );
        check(c_identifier, &["a", "_1"], &["", "1a", "a-b", "é"]);
        for (version, is_one) in [
            ("1.0.0", true),
            ("1.2.3-rc.1+build.05", true),
            ("1.0.0-a-b", true),
            ("1.0", false),
            ("01.0.0", false),
            ("1.0.0-01", false),
            ("1.0.0-", false),
            ("v1.0.0", false),
        ] {
            assert_eq!(is_semantic_version(version), is_one, "{version}");
        }
        for (address, problem) in [
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
            (
                "x",
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
        ] {
            assert_eq!(ip(address), [problem], "{address}");
        }
        let zeros = "must not have leading 0s in IP or prefix length";
        for (range, problem) in [
            ("010.0.0.0/8", zeros),
            ("10.0.0.0/08", zeros),
            (
                "::ffff:10.0.0.0/120",
                "must not have an IPv4-mapped IPv6 address",
            ),
            (
                "10.0.0.1/8",
                "must not have bits set beyond the prefix length",
            ),
            (
                "2001:db8::1/64",
                "must not have bits set beyond the prefix length",
            ),
        ] {
            assert_eq!(cidr(range), [problem], "{range}");
        }
        assert_eq!(port(0), ["must be between 1 and 65535, inclusive"]);
        assert_eq!(port(65535), [""; 0]);
    }
}
