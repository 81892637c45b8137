//! Resource quantities (`100m`, `1.5Gi`, `2e3`): exact values and canonical texts, with the rules
//! of apimachinery's `resource.Quantity`: fractions below 10^-9 are rounded up, amounts with a
//! binary suffix are limited to 64 bits, others are unlimited.
//!
//! An amount is stored as decimal digits and a power of ten, so that `1e2000000000` uses little
//! memory.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// The format of a quantity's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, …
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`
    Exponent,
}

/// The error for an invalid quantity.
pub(super) const QUANTITY_FORM: &str = "quantities must match the regular expression \
                             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The reason why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// It does not match the format.
    #[error("{QUANTITY_FORM}")]
    Form,
    /// It has no digits.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is not a unit.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// A resource quantity.
#[derive(Debug, Clone)]
pub struct Quantity {
    negative: bool,
    amount: Amount,
    format: Format,
    /// The original text if upstream keeps it although it is not canonical.
    text: Option<Box<str>>,
}

/// Digits times a power of ten.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Amount {
    /// Without leading and trailing zeros; empty for zero.
    digits: String,
    power: i64,
}

/// The exponent of the smallest amount, 10^-9.
const NANO: i64 = -9;
/// Upstream has a fast path for numbers of up to this many digits.
const DIGITS_SHORT_MAX: usize = 18;
/// Maximum number of significant fraction digits of a binary amount: no multiple of 10^-9 · 2^-60
/// has more.
const FRACTION_MAX: usize = 70;
/// An amount with more integer digits exceeds 64 bits.
const WHOLE_MAX: usize = 19;

/// Suffixes with their exponents.
const DECIMAL: [(&str, i64); 10] = [
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
/// Suffixes, each 1024 times the previous one.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The meaning of a suffix.
enum Unit {
    Ten(Format, i64),
    Two(u32),
}

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// Returns upstream's error for an invalid text.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Form);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (integer, rest) = split(unsigned, |c| c.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split(rest, |c| c.is_ascii_digit()),
            None => ("", rest),
        };
        let unit = unit(suffix)?;
        // As upstream, a missing number is zero, and counts as one digit.
        let none = integer.is_empty() && fraction.is_empty();
        let integer = integer.trim_start_matches('0');
        let number = format!("{integer}{fraction}");
        let length = integer.len().max(1) + fraction.len();
        let (format, amount, original) = match unit {
            Unit::Ten(format, ten) => {
                let power = ten - fraction.len() as i64;
                let short = length <= DIGITS_SHORT_MAX && power >= NANO;
                if none && !short {
                    return Err(QuantityError::Number);
                }
                let tidy = !number.ends_with("000") && !integer.is_empty() && power % 3 == 0;
                (format, Amount::rounded(number, power), short && tidy)
            }
            Unit::Two(two) => {
                let short = fraction.is_empty() && length + two as usize * 3 / 10 < 15;
                if none && !short {
                    return Err(QuantityError::Number);
                }
                let odd = number.parse::<u64>().is_ok_and(|number| number % 8 != 0);
                (
                    Format::Binary,
                    Amount::of_two(integer, fraction, two),
                    short && odd,
                )
            }
        };
        Ok(Self {
            negative: text.starts_with('-') && !amount.is_zero(),
            amount,
            format,
            text: original.then(|| text.into()),
        })
    }

    /// Parses a quantity from the text of a JSON string, without the spaces around it. Kube-apiserver removes white space before it
    /// replaces escapes, so control characters, which JSON must escape, are invalid.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse).
    pub(crate) fn parse_string(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text.trim_matches(|c: char| c.is_whitespace() && !c.is_ascii_control()))
    }

    /// Parses a quantity from a JSON string or number.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse_string(text).ok(),
            Value::Number(number) => Self::parse(&number.to_string()).ok(),
            _ => None,
        }
    }

    /// Returns true if the quantity is zero.
    pub fn is_zero(&self) -> bool {
        self.amount.is_zero()
    }

    /// Returns true if the quantity is below zero.
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Returns true if it is an integer.
    pub fn is_whole(&self) -> bool {
        self.amount.power >= 0
    }

    /// Returns the quantity of an integer, in decimal format.
    pub fn of_count(count: u64) -> Self {
        Self {
            negative: false,
            amount: Amount::rounded(count.to_string(), 0),
            format: Format::Decimal,
            text: None,
        }
    }

    /// Returns the integer value, rounded up, saturated to 64 bits.
    pub fn value(&self) -> i64 {
        self.in_units_of(0)
    }

    /// Returns the value in thousandths, rounded up, saturated to 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.in_units_of(-3)
    }

    fn in_units_of(&self, power: i64) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        let unit = 10_i128.pow((power - NANO) as u32);
        // Values above 10^29 exceed 64 bits too.
        let units = self.nanos().map(|nanos| -(-nanos).div_euclid(unit));
        units.map_or(limit, |units| i64::try_from(units).unwrap_or(limit))
    }

    /// Rounds up to an integer.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        if self.is_whole() {
            return self;
        }
        let amount = self.amount.cut_at(0, !self.negative);
        Self {
            negative: self.negative && !amount.is_zero(),
            amount,
            format: self.format,
            text: None,
        }
    }

    /// Returns the value in billionths if it is less than 10^29.
    fn nanos(&self) -> Option<i128> {
        let nanos = self.amount.scaled(NANO)?;
        let nanos = i128::try_from(nanos).ok()?;
        Some(if self.negative { -nanos } else { nanos })
    }
}

/// Splits `text` after its longest prefix of characters for which `of` is true.
fn split(text: &str, of: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !of(c)).unwrap_or(text.len()))
}

fn unit(suffix: &str) -> Result<Unit, QuantityError> {
    let (_, rest) = split(suffix, |c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    if !rest.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Form);
    }
    if let Some((_, ten)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok(Unit::Ten(Format::Decimal, *ten));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Ok(Unit::Two(10 * (at as u32 + 1)));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).map(str::parse::<i64>);
    match exponent {
        // Upstream truncates the exponent to 32 bits.
        Some(Ok(exponent)) => Ok(Unit::Ten(Format::Exponent, (exponent as i32).into())),
        _ => Err(QuantityError::Suffix),
    }
}

impl Amount {
    /// Returns digits times a power of ten, rounded up to 10^-9.
    fn rounded(digits: String, power: i64) -> Self {
        Self { digits, power }.cut_at(NANO, true)
    }

    /// Returns the amount as a multiple of 10^`finest`, without zeros at its ends. What is cut rounds the amount up if `is_up`.
    fn cut_at(self, finest: i64, is_up: bool) -> Self {
        let Self {
            mut digits,
            mut power,
        } = self;
        let fine = usize::try_from(finest - power).unwrap_or(0);
        if fine > 0 {
            let cut = digits.split_off(digits.len().saturating_sub(fine));
            power = finest;
            if is_up && cut.bytes().any(|digit| digit != b'0') {
                increment(&mut digits);
            }
        }
        let start = digits.len() - digits.trim_start_matches('0').len();
        digits.drain(..start);
        if digits.is_empty() {
            return Self { digits, power: 0 };
        }
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        digits.truncate(digits.len() - zeros);
        Self {
            digits,
            power: power + zeros as i64,
        }
    }

    /// Returns `integer.fraction` times a power of two, rounded up to 10^-9 and saturated.
    fn of_two(integer: &str, fraction: &str, two: u32) -> Self {
        let most = Self::rounded(i64::MAX.to_string(), 0);
        if integer.len() > WHOLE_MAX {
            return most;
        }
        // At most 19 digits and 60 bits.
        let mut units = integer.parse::<u128>().unwrap_or(0) << two;
        let (near, far) = fraction.split_at(fraction.len().min(FRACTION_MAX));
        let mut near: Vec<u8> = near.bytes().map(|digit| digit - b'0').collect();
        let mut carried = 0_u128;
        for _ in 0..two {
            let mut carry = 0;
            for digit in near.iter_mut().rev() {
                let doubled = *digit * 2 + carry;
                (*digit, carry) = (doubled % 10, doubled / 10);
            }
            carried = carried * 2 + u128::from(carry);
        }
        units += carried;
        let mut digits = units.to_string();
        digits.extend(near.iter().map(|digit| char::from(b'0' + digit)));
        let mut power = -(near.len() as i64);
        if far.bytes().any(|digit| digit != b'0') {
            // Only matters whether there is more, for rounding.
            digits.push('1');
            power -= 1;
        }
        let amount = Self::rounded(digits, power);
        match amount.compare(&most) {
            Ordering::Greater => most,
            _ => amount,
        }
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Returns the multiple of 10^`power` if it is an integer of at most 38 digits.
    fn scaled(&self, power: i64) -> Option<u128> {
        if self.is_zero() {
            return Some(0);
        }
        let zeros = u32::try_from(self.power.checked_sub(power)?).ok()?;
        if self.digits.len() as u64 + u64::from(zeros) > 38 {
            return None;
        }
        Some(self.digits.parse::<u128>().ok()? * 10_u128.pow(zeros))
    }

    fn compare(&self, other: &Self) -> Ordering {
        // The position of the first digit decides, unless an amount is zero.
        let first = |amount: &Self| match amount.is_zero() {
            true => None,
            false => Some(amount.power + amount.digits.len() as i64),
        };
        let places = first(self).cmp(&first(other));
        places.then_with(|| self.digits.cmp(&other.digits))
    }
}

/// Adds one to a decimal number.
fn increment(digits: &mut String) {
    let nines = digits.len() - digits.trim_end_matches('9').len();
    digits.truncate(digits.len() - nines);
    let last = digits.pop().map_or(1, |last| last as u8 - b'0' + 1);
    digits.push(char::from(b'0' + last));
    digits.extend(std::iter::repeat_n('0', nines));
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// Returns the sum in the format of the first operand, unless that is zero. Amounts above 10^29
    /// are returned unchanged, as they cannot be added.
    fn add(self, other: Self) -> Self {
        let nanos = self.nanos().zip(other.nanos());
        let Some(sum) = nanos.and_then(|(one, two)| one.checked_add(two)) else {
            return match self.amount.compare(&other.amount) {
                Ordering::Less => other,
                _ => self,
            };
        };
        Self {
            negative: sum < 0,
            amount: Amount::rounded(sum.unsigned_abs().to_string(), NANO),
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
            text: None,
        }
    }
}

impl std::ops::Sub for Quantity {
    type Output = Self;

    /// See [`Add`](std::ops::Add).
    fn sub(self, mut other: Self) -> Self {
        other.negative = !other.negative && !other.is_zero();
        self + other
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.negative == other.negative && self.amount == other.amount
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(match (self.negative, other.negative) {
            (false, false) => self.amount.compare(&other.amount),
            (true, true) => other.amount.compare(&self.amount),
            (one, two) => two.cmp(&one),
        })
    }
}

impl fmt::Display for Quantity {
    /// Formats the canonical form: no fraction, and the largest possible suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        // Small or fractional amounts have no binary form.
        let units = self.amount.scaled(0).filter(|units| *units >= 1024);
        if let (Format::Binary, Some(mut units)) = (self.format, units) {
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
        let Amount { digits, power } = &self.amount;
        let zeros = power.rem_euclid(3);
        let exponent = power - zeros;
        f.write_str(digits)?;
        (0..zeros).try_for_each(|_| f.write_str("0"))?;
        let suffix = DECIMAL.iter().find(|(_, ten)| *ten == exponent);
        match (suffix, self.format) {
            (Some(("", _)), _) => Ok(()),
            // Beyond the last suffix only exponents are possible.
            (None, _) | (_, Format::Exponent) => write!(f, "e{exponent}"),
            (Some((suffix, _)), _) => f.write_str(suffix),
        }
    }
}

#[cfg(test)]
mod tests;
