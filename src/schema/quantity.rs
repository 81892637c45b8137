//! Quantities of resources (`100m`, `1.5Gi`, `2e3`): what they are worth, and how Kubernetes writes them
//! again. What is finer than a billionth is rounded up, as upstream.

use std::fmt;

/// How a quantity was written, which is how it is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, …
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`
    Exponent,
}

/// An amount of something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    /// In billionths; more than storage can say is the most that it can.
    nano: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
/// Upstream's amounts end where its integers do.
const NANO_MAX: i128 = i64::MAX as i128 * NANO;

/// Suffixes with their powers of ten.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// Suffixes, each 1024 times the one before.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Reads one; `None` when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (digits, suffix) = unsigned.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (format, ten, two) = scale(suffix)?;
        let nano = amount(whole, fraction, ten, two);
        let nano = if text.starts_with('-') { -nano } else { nano };
        Some(Self { nano, format })
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nano == 0
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is a number of whole units.
    pub(crate) fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// In the form of the first.
    fn add(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano).min(NANO_MAX),
            ..self
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.nano.partial_cmp(&other.nano)
    }
}

/// What a suffix means: a power of ten, and one of two.
fn scale(suffix: &str) -> Option<(Format, i32, u32)> {
    if let Some((_, ten)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Format::Decimal, *ten, 0));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some((Format::Binary, 0, 10 * (at as u32 + 1)));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    // More than three digits is more than any amount has; longer ones are not numbers to upstream.
    Some((Format::Exponent, exponent.parse::<i16>().ok()?.into(), 0))
}

/// The billionths in `whole.fraction`, scaled; too much is the maximum, and what is left of a
/// billionth counts as one.
fn amount(whole: &str, fraction: &str, ten: i32, two: u32) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // Longer ones only say more of what is beyond all precision.
    let kept = &digits[..digits.len().min(30)];
    let power = ten + 9 - fraction.len() as i32 + (digits.len() - kept.len()) as i32;
    let number: i128 = kept.parse().unwrap_or(NANO_MAX);
    let scaled = match u32::try_from(power) {
        Ok(up) => 10_i128
            .checked_pow(up)
            .and_then(|factor| number.checked_mul(factor))
            .and_then(|n| n.checked_mul(1_i128.checked_shl(two)?)),
        Err(_) => {
            let number = number.checked_mul(1_i128 << two);
            let down = 10_i128.checked_pow(power.unsigned_abs());
            number.map(|n| down.map_or(1, |down| n.div_euclid(down) + (n % down != 0) as i128))
        }
    };
    scaled.unwrap_or(NANO_MAX).min(NANO_MAX)
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, and the largest suffix that allows that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self.format {
            // Small or broken amounts have no binary form.
            Format::Binary if self.nano.abs() < 1024 * NANO || !self.is_whole() => Format::Decimal,
            format => format,
        };
        if self.nano == 0 {
            return f.write_str("0");
        }
        if format == Format::Binary {
            let mut units = self.nano / NANO;
            let mut suffix = "";
            for larger in BINARY {
                if units % 1024 != 0 {
                    break;
                }
                units /= 1024;
                suffix = larger;
            }
            return write!(f, "{units}{suffix}");
        }
        let mut units = self.nano;
        let mut at = 0;
        while units % 1000 == 0 && at + 1 < DECIMAL.len() {
            units /= 1000;
            at += 1;
        }
        let (suffix, ten) = DECIMAL[at];
        match format {
            Format::Exponent if ten != 0 => write!(f, "{units}e{ten}"),
            _ => write!(f, "{units}{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_in_their_canonical_form() {
        for (sent, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("+1.50", "1500m"),
            ("-2k", "-2k"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("100Ki", "100Ki"),
            ("2e3", "2e3"),
            ("12e-1", "1200e-3"),
            ("0.1n", "1n"),
            (".5", "500m"),
            ("5.", "5"),
            ("8E", "8E"),
            ("100E", "9223372036854775807"),
        ] {
            let parsed = Quantity::parse(sent).unwrap_or_else(|| panic!("{sent} is none"));
            assert_eq!(parsed.to_string(), canonical, "{sent}");
            let again = Quantity::parse(canonical).unwrap();
            assert_eq!(again.to_string(), canonical, "{sent}");
            assert_eq!(again, parsed, "{sent}");
        }
        for bad in [
            "", "-", ".", "1x", "1 Gi", "Gi", "1.1.1", "1e", "1ee3", "one", "1K", "1e99999",
        ] {
            assert!(Quantity::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn amounts_have_an_order() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert!(parse("1Gi") > parse("1G"));
        assert!(parse("999m") < parse("1"));
        assert_eq!(parse("0.001"), parse("1m"));
        assert!(parse("1e300") > parse("1E") && parse("1e-300") > parse("0"));
        assert!(parse("0").is_zero() && parse("-1n").is_negative());
        assert!(parse("2").is_whole() && !parse("2m").is_whole());
        let long = "9".repeat(5000);
        assert_eq!(parse(&long), parse("100E"));
    }
}
