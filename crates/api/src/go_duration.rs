//! Parses Go durations (`5m0s`, `1h30m`, `250ms`), the format of upstream's flags and query
//! parameters.

use std::time::Duration;

/// Units in nanoseconds; of units with a common prefix the longest is first.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Parses a non-negative Go duration. Returns `None` if the text is not one or exceeds Go's maximum
/// (about 292 years).
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    let nanos = nanoseconds(text.strip_prefix('+').unwrap_or(text))?;
    (nanos <= i64::MAX as f64).then(|| Duration::from_nanos(nanos as u64))
}

/// Returns true if `text` is a Go duration of any length; it may be negative.
pub fn is_go_duration(text: &str) -> bool {
    nanoseconds(text.strip_prefix(['+', '-']).unwrap_or(text)).is_some()
}

/// Returns the length of an unsigned duration.
fn nanoseconds(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let mut rest = text;
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let (unit, scale) = UNITS
            .iter()
            .filter(|(unit, _)| tail.starts_with(unit))
            .max_by_key(|(unit, _)| unit.len())?;
        nanos += number * scale;
        rest = &tail[unit.len()..];
    }
    (!text.is_empty()).then_some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        let seconds = |n| Some(Duration::from_secs(n));
        for (text, expected) in [
            ("0", seconds(0)),
            ("0s", seconds(0)),
            ("5m0s", seconds(300)),
            ("1h30m", seconds(5400)),
            ("1.5h", seconds(5400)),
            ("250ms", Some(Duration::from_millis(250))),
            ("1m2s3ms", Some(Duration::from_millis(62_003))),
            ("10us", Some(Duration::from_micros(10))),
            ("10µs", Some(Duration::from_micros(10))),
            ("+5s", seconds(5)),
            ("", None),
            ("+", None),
            ("++5s", None),
            ("5", None),
            ("-5s", None),
            ("5 s", None),
            ("s", None),
            (".", None),
            ("5d", None),
            ("1s2", None),
            ("1..5s", None),
            ("999999999h", None),
        ] {
            assert_eq!(parse_go_duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn is_go_duration_accepts_signs_and_any_length() {
        for valid in ["0", "-0", "+5s", "-1.5h", "1h30m", "10µs", "999999999h"] {
            assert!(is_go_duration(valid), "{valid:?}");
        }
        for invalid in ["", "+", "-", "--5s", "5", "5d", "1s2", "s", "."] {
            assert!(!is_go_duration(invalid), "{invalid:?}");
        }
    }
}
