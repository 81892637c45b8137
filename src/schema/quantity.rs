//! Quantities of resources (`100m`, `1.5Gi`, `2e3`): what they are worth, exactly, and how Kubernetes writes
//! them again. The rules are those of apimachinery's `resource.Quantity`: what is finer than a billionth is
//! rounded up, amounts with a binary suffix end where integers of 64 bits do, and others end nowhere.
//!
//! An amount is kept as its decimal digits and a power of ten, so that `1e2000000000` costs what it is long.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

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

/// What a text that is no quantity is told.
pub(super) const QUANTITY_FORM: &str = "quantities must match the regular expression \
                             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Why a text is no quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    /// It does not look like one.
    #[error("{QUANTITY_FORM}")]
    Form,
    /// It has no digits.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// What follows the digits is no unit.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An amount of something.
#[derive(Debug, Clone)]
pub(crate) struct Quantity {
    negative: bool,
    amount: Amount,
    format: Format,
    /// What was sent, where upstream finds that good enough to write it again: also some that could be shorter.
    text: Option<Box<str>>,
}

/// Digits times a power of ten.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Amount {
    /// Without zeros at either end; none are zero.
    digits: String,
    power: i64,
}

/// The power of ten of a billionth, the smallest amount.
const NANO: i64 = -9;
/// Upstream takes a shorter way for numbers of so many digits.
const DIGITS_SHORT_MAX: usize = 18;
/// How many digits of a binary amount's fraction can matter: no multiple of a billionth of 2^-60 has more.
const FRACTION_MAX: usize = 70;
/// Where the integers of 64 bits have more digits than this, an amount is over their end.
const WHOLE_MAX: usize = 19;

/// Suffixes with their powers of ten.
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
/// Suffixes, each 1024 times the one before.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// What a suffix means.
enum Unit {
    Ten(Format, i64),
    Two(u32),
}

impl Quantity {
    /// Reads one.
    ///
    /// # Errors
    /// Upstream's, for a text that is none.
    pub(crate) fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Form);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split(unsigned, |c| c.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split(rest, |c| c.is_ascii_digit()),
            None => ("", rest),
        };
        let unit = unit(suffix)?;
        // A number without digits is nothing, as upstream; it has one digit there all the same.
        let none = whole.is_empty() && fraction.is_empty();
        let whole = whole.trim_start_matches('0');
        let number = format!("{whole}{fraction}");
        let length = whole.len().max(1) + fraction.len();
        let (format, amount, kept) = match unit {
            Unit::Ten(format, ten) => {
                let power = ten - fraction.len() as i64;
                let short = length <= DIGITS_SHORT_MAX && power >= NANO;
                if none && !short {
                    return Err(QuantityError::Number);
                }
                let tidy = !number.ends_with("000") && !whole.is_empty() && power % 3 == 0;
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
                    Amount::of_two(whole, fraction, two),
                    short && odd,
                )
            }
        };
        Ok(Self {
            negative: text.starts_with('-') && !amount.is_zero(),
            amount,
            format,
            text: kept.then(|| text.into()),
        })
    }

    /// Reads what JSON has for one; texts and numbers are both.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text.trim()).ok(),
            Value::Number(number) => Self::parse(&number.to_string()).ok(),
            _ => None,
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.amount.is_zero()
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.negative
    }

    /// Whether it is a number of whole units.
    pub(crate) fn is_whole(&self) -> bool {
        self.amount.power >= 0
    }

    /// Returns a whole number, written in decimal.
    pub(crate) fn of_count(count: u64) -> Self {
        Self {
            negative: false,
            amount: Amount::rounded(count.to_string(), 0),
            format: Format::Decimal,
            text: None,
        }
    }

    /// Returns the number of whole units, rounded up, as near as 64 bits can be.
    pub(crate) fn value(&self) -> i64 {
        self.in_units_of(0)
    }

    /// Returns the number of thousandths, rounded up, as near as 64 bits can be.
    pub(crate) fn milli_value(&self) -> i64 {
        self.in_units_of(-3)
    }

    fn in_units_of(&self, power: i64) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        let unit = 10_i128.pow((power - NANO) as u32);
        // What is beyond 10^29 is beyond 64 bits too.
        let units = self.nanos().map(|nanos| -(-nanos).div_euclid(unit));
        units.map_or(limit, |units| i64::try_from(units).unwrap_or(limit))
    }

    /// Returns it rounded up to whole units.
    pub(crate) fn rounded_up(self) -> Self {
        match (self.is_whole(), self.nanos()) {
            (false, Some(nanos)) => {
                let units = -(-nanos).div_euclid(10_i128.pow(9));
                Self {
                    negative: units < 0,
                    amount: Amount::rounded(units.unsigned_abs().to_string(), 0),
                    format: self.format,
                    text: None,
                }
            }
            _ => self,
        }
    }

    /// In billionths, if it is less than 10^29.
    fn nanos(&self) -> Option<i128> {
        let nanos = self.amount.scaled(NANO)?;
        let nanos = i128::try_from(nanos).ok()?;
        Some(if self.negative { -nanos } else { nanos })
    }
}

/// What of `text` is `of` a kind from its beginning on, and the rest.
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
        // Upstream keeps 32 bits of it.
        Some(Ok(exponent)) => Ok(Unit::Ten(Format::Exponent, (exponent as i32).into())),
        _ => Err(QuantityError::Suffix),
    }
}

impl Amount {
    /// Digits, with zeros at their ends or not, times a power of ten, to a billionth.
    fn rounded(mut digits: String, power: i64) -> Self {
        let start = digits.len() - digits.trim_start_matches('0').len();
        digits.drain(..start);
        if digits.is_empty() {
            return Self { digits, power: 0 };
        }
        let fine = usize::try_from(NANO - power).unwrap_or(0);
        let mut power = power;
        if fine > 0 {
            let cut = digits.split_off(digits.len().saturating_sub(fine));
            power = NANO;
            if cut.bytes().any(|digit| digit != b'0') {
                increment(&mut digits);
            }
        }
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        digits.truncate(digits.len() - zeros);
        Self {
            digits,
            power: power + zeros as i64,
        }
    }

    /// `whole.fraction` times a power of two, to a billionth; too much is the most that there is.
    fn of_two(whole: &str, fraction: &str, two: u32) -> Self {
        let most = Self::rounded(i64::MAX.to_string(), 0);
        if whole.len() > WHOLE_MAX {
            return most;
        }
        // At most 19 digits and 60 bits.
        let mut units = whole.parse::<u128>().unwrap_or(0) << two;
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
            // That there is more is all that counts.
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

    /// How many of 10^`power` it is, if that is a whole number of 38 digits at most.
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
        // Where the first digit stands decides, unless one has none.
        let first = |amount: &Self| match amount.is_zero() {
            true => None,
            false => Some(amount.power + amount.digits.len() as i64),
        };
        let places = first(self).cmp(&first(other));
        places.then_with(|| self.digits.cmp(&other.digits))
    }
}

/// Adds one to a number.
fn increment(digits: &mut String) {
    let nines = digits.len() - digits.trim_end_matches('9').len();
    digits.truncate(digits.len() - nines);
    let last = digits.pop().map_or(1, |last| last as u8 - b'0' + 1);
    digits.push(char::from(b'0' + last));
    digits.extend(std::iter::repeat_n('0', nines));
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// In the form of the first, unless that is zero. What is beyond 10^29 is the sum alone: there is no such
    /// amount to add up.
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
    /// The canonical form: no fraction, and the largest suffix that allows that.
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
        // Small or broken amounts have no binary form.
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
            // Beyond the last suffix there are exponents only.
            (None, _) | (_, Format::Exponent) => write!(f, "e{exponent}"),
            (Some((suffix, _)), _) => f.write_str(suffix),
        }
    }
}

#[cfg(test)]
mod tests;
