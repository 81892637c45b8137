//! Parses amounts of memory as Kubernetes writes them (`256Mi`, `1Gi`, plain bytes).

/// Binary units with their powers of 1,024; a number without a unit is bytes.
const UNITS: [(&str, u32); 4] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4)];

/// Parses an amount; `None` if it is invalid or larger than the address space.
pub(in crate::server) fn parse(text: &str) -> Option<usize> {
    let split = UNITS
        .iter()
        .find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)));
    let (number, power) = split.unwrap_or((text, 0));
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number
        .parse::<usize>()
        .ok()?
        .checked_mul(1024_usize.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_are_parsed() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("4Ki", Some(4096)),
            ("256Mi", Some(256 << 20)),
            ("2Gi", Some(2 << 30)),
            ("", None),
            ("Mi", None),
            ("+1", None),
            ("-1", None),
            ("1.5Gi", None),
            ("256 Mi", None),
            ("256MB", None),
            ("99999999999Ti", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
