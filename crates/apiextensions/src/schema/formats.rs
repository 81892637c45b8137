//! The formats of strings. As upstream, unknown formats are not checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use watchet_api::is_go_duration;

/// Returns true if `text` has `format`, or if the format is unknown.
pub(super) fn is(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_go_duration(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<IpAddr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "uri" => text
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.scheme().is_some() || text.starts_with('/')),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "hexcolor" => is_hex_color(text),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| p.len() == 2 && is_hex(p))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns true for a UUID of this version, or of any, with or without dashes.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let plain: String = match text.len() {
        36 => text.split('-').collect(),
        _ => text.to_owned(),
    };
    plain.len() == 32 && is_hex(&plain) && version.is_none_or(|v| plain.as_bytes()[12] == v)
}

fn is_email(text: &str) -> bool {
    let parts = text.rsplit_once('@');
    parts.is_some_and(|(local, domain)| {
        !local.is_empty() && !local.contains(char::is_whitespace) && is_hostname(domain)
    })
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let edges = label.starts_with('-') || label.ends_with('-');
        !label.is_empty()
            && label.len() <= 63
            && !edges
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_reject_examples() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "yesterday"),
            ("date-time", "2026-01-02T03:04:05.5+02:00", "2026-01-02"),
            ("date", "2026-02-28", "2026-02-30"),
            ("duration", "1h30m0.5s", "1 hour"),
            ("duration", "-300ms", "5"),
            ("byte", "aGk=", "a-b"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:1a:2b:3c:4d:5e", "00:1a:2b"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            (
                "uuid4",
                "123e4567-e89b-42d3-a456-426614174000",
                "123e4567-e89b-12d3-a456-426614174000",
            ),
            ("uri", "https://example.com/a", "not a uri"),
            ("email", "a@example.com", "a@"),
            ("hostname", "a-b.example.com", "-a.example"),
            ("hexcolor", "#fFa500", "#ggg"),
        ] {
            assert!(is(format, good), "{format} {good}");
            assert!(!is(format, bad), "{format} {bad}");
        }
        assert!(is("whatever", "anything"));
    }
}
