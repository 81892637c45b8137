//! Tests of quantities with upstream's examples, and against arbitrary-precision arithmetic.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn quantities_are_formatted_canonically() {
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
        ("1.1Ki", "1126400m"),
        ("2e3", "2e3"),
        ("12e-1", "1200e-3"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        (".5", "500m"),
        ("8E", "8E"),
        // Amounts beyond the largest suffix use an exponent, without limit.
        ("100E", "100E"),
        ("1000E", "1e21"),
        ("123456789012345678901", "123456789012345678901"),
        ("1234567890123456789012000", "1234567890123456789012k"),
        ("1e21", "1e21"),
        ("1e2000000000", "100e1999999998"),
        ("0.1234567891", "123456790n"),
        ("999999999.9999999999", "1G"),
        ("1e-300", "1e-9"),
        // Binary amounts saturate.
        ("7Ei", "7Ei"),
        ("8Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("7.99999999999999999999Ei", "9223372036854775807"),
        ("99999999999999999999Ki", "9223372036854775807"),
    ] {
        let parsed = parse(sent);
        assert_eq!(parsed.to_string(), canonical, "{sent}");
        let again = parse(canonical);
        assert_eq!(again.to_string(), canonical, "{sent}");
        assert_eq!(again, parsed, "{sent}");
    }
}

/// Upstream keeps these texts unchanged.
#[test]
fn some_non_canonical_texts_are_kept() {
    for same in [
        "1.500",
        "5.",
        "+1",
        "007",
        "1.500k",
        "+12Mi",
        "012Mi",
        "12345678901234567.8e1",
    ] {
        assert_eq!(parse(same).to_string(), same);
    }
    assert_eq!(parse("1.500"), parse("1500m"));
    assert_eq!(parse("0.500").to_string(), "500m");
}

#[test]
fn error_messages_equal_upstream() {
    use QuantityError::{Form, Number, Suffix};
    for (bad, why) in [
        ("", Form),
        ("1x", Form),
        ("1 Gi", Form),
        ("1 ", Form),
        ("1.1.1", Form),
        ("one", Form),
        ("-3.01e-x", Form),
        ("1e", Suffix),
        ("1ee3", Suffix),
        ("1K", Suffix),
        ("1i", Suffix),
        ("0.1mi", Suffix),
        ("+-1", Suffix),
        ("1e99999999999999999999", Suffix),
        ("Pi", Number),
        ("-.Ei", Number),
        ("e-300", Number),
    ] {
        assert_eq!(Quantity::parse(bad).err(), Some(why), "{bad:?}");
    }
    // Missing digits are zero in upstream's fast path.
    for nothing in ["-", ".", "Gi", "+.k"] {
        assert!(parse(nothing).is_zero(), "{nothing}");
    }
}

#[test]
fn quantities_are_compared_and_added() {
    assert!(parse("1Gi") > parse("1G"));
    assert!(parse("999m") < parse("1"));
    assert_eq!(parse("0.001"), parse("1m"));
    assert!(parse("1e300") > parse("100E") && parse("1e-300") > parse("0"));
    assert!(parse("-1e300") < parse("-1") && parse("-1") < parse("0"));
    assert!(parse("0").is_zero() && parse("-1n").is_negative());
    assert!(parse("2").is_whole() && !parse("2m").is_whole());
    assert_eq!((parse("500m") + parse("1.5")).to_string(), "2");
    assert_eq!((parse("1Gi") + parse("-1Mi")).to_string(), "1023Mi");
    assert_eq!(parse("1e2000000000") + parse("1"), parse("1e2000000000"));
    // Each of these fits into 128 bits, but their sum does not.
    assert_eq!(parse("9e28") + parse("9e28"), parse("9e28"));
}

/// Parses three megabytes of digits.
#[test]
fn long_amounts_are_parsed_in_linear_time() {
    let long = "9".repeat(3 << 20);
    assert_eq!(parse(&long).to_string(), long);
    assert_eq!(parse(&format!("0.{long}")), parse("1"));
    assert_eq!(
        parse(&format!("{long}Ei")).to_string(),
        i64::MAX.to_string()
    );
    assert_eq!(parse(&format!("0.{long}Ki")), parse("1Ki"));
}

/// A generated quantity.
#[derive(Debug, Clone)]
struct QuantityText {
    negative: bool,
    integer: String,
    fraction: String,
    suffix: String,
    ten: i32,
    two: u32,
}

impl QuantityText {
    fn text(&self) -> String {
        let Self {
            integer,
            fraction,
            suffix,
            ..
        } = self;
        let sign = if self.negative { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{integer}{point}{fraction}{suffix}")
    }

    /// Returns the value in billionths.
    fn nanos(&self) -> BigUint {
        let digits = format!("{}{}", self.integer, self.fraction);
        let number: BigUint = digits.parse().unwrap();
        let ten = |power: i32| BigUint::from(10_u32).pow(power.max(0) as u32);
        let power = self.ten + 9 - self.fraction.len() as i32;
        let (up, down) = (
            number * ten(power) * BigUint::from(2_u32).pow(self.two),
            ten(-power),
        );
        let nanos = (up + &down - 1_u32) / down;
        match self.two {
            0 => nanos,
            _ => nanos.min(BigUint::from(i64::MAX as u64) * ten(9)),
        }
    }

    fn canonical(&self) -> String {
        let nanos = self.nanos();
        let (nothing, ten) = (BigUint::ZERO, |power| BigUint::from(10_u32).pow(power));
        if nanos == nothing {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        if self.two > 0 && nanos >= ten(9) * 1024_u32 && &nanos % ten(9) == nothing {
            let (mut units, mut at) = (nanos / ten(9), 0);
            while &units % 1024_u32 == nothing && at < 6 {
                (units, at) = (units / 1024_u32, at + 1);
            }
            return format!(
                "{sign}{units}{}",
                ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][at]
            );
        }
        let (mut units, mut exponent) = (nanos, -9);
        while &units % 1000_u32 == nothing {
            (units, exponent) = (units / 1000_u32, exponent + 3);
        }
        let exponents = self.suffix.len() > 1 && self.suffix.starts_with('e');
        let suffix = match (exponents, exponent) {
            (_, 0) => String::new(),
            (false, ..=18) => ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
                [(exponent / 3 + 3) as usize]
                .to_owned(),
            _ => format!("e{exponent}"),
        };
        format!("{sign}{units}{suffix}")
    }
}

fn quantity_text() -> impl Strategy<Value = QuantityText> {
    let tens = DECIMAL.map(|(name, ten)| (name.to_owned(), ten as i32, 0));
    let twos = BINARY
        .iter()
        .zip(1..)
        .map(|(name, n)| ((*name).to_owned(), 0, 10 * n));
    let suffixes: Vec<_> = tens.into_iter().chain(twos).collect();
    let exponents = (-30..40_i32).prop_map(|ten| (format!("e{ten}"), ten, 0));
    let suffix = prop_oneof![3 => prop::sample::select(suffixes), 1 => exponents];
    // Runs of zeros and nines exercise carries.
    let digits = |most| {
        let run = prop_oneof!["[0-9]{0,4}", "0{0,30}", "9{0,30}"];
        prop::collection::vec(run, 0..most).prop_map(|runs| runs.concat())
    };
    (any::<bool>(), "[0-9]", digits(3), digits(5), suffix).prop_map(
        |(negative, first, more, fraction, (suffix, ten, two))| QuantityText {
            negative,
            integer: first + &more,
            fraction,
            suffix,
            ten,
            two,
        },
    )
}

#[test]
fn sums_have_the_format_of_the_first_nonzero_operand() {
    for (one, two, sum, difference) in [
        ("1Gi", "1Mi", "1025Mi", "1023Mi"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("1500m", "1", "2500m", "500m"),
        ("1", "1", "2", "0"),
        ("100m", "1", "1100m", "-900m"),
    ] {
        assert_eq!((parse(one) + parse(two)).to_string(), sum, "{one} + {two}");
        let found = (parse(one) - parse(two)).to_string();
        assert_eq!(found, difference, "{one} - {two}");
    }
}

#[test]
fn values_are_rounded_up() {
    for (text, units, thousandths, rounded) in [
        ("0", 0, 0, "0"),
        ("1m", 1, 1, "1"),
        ("1500m", 2, 1500, "2"),
        ("1u", 1, 1, "1"),
        ("2Ki", 2048, 2_048_000, "2Ki"),
        ("-1500m", -1, -1500, "-1"),
        ("100E", i64::MAX, i64::MAX, "100E"),
        ("1e40", i64::MAX, i64::MAX, "1e40"),
        ("-1m", 0, -1, "0"),
        // Amounts above 10^29 were not rounded.
        (
            "770368547703685477036854775808.5",
            i64::MAX,
            i64::MAX,
            "770368547703685477036854775809",
        ),
        (
            "-770368547703685477036854775808.5",
            i64::MIN,
            i64::MIN,
            "-770368547703685477036854775808",
        ),
    ] {
        let quantity = parse(text);
        assert_eq!(quantity.value(), units, "{text}");
        assert_eq!(quantity.milli_value(), thousandths, "{text}");
        assert_eq!(quantity.rounded_up(), parse(rounded), "{text}");
    }
    assert_eq!(Quantity::of_count(12_000).to_string(), "12k");
    assert!(Quantity::of_count(0).is_zero());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn amounts_equal_big_number_arithmetic(one in quantity_text(), two in quantity_text()) {
        let read = parse(&one.text());
        let canonical = one.canonical();
        if read.text.is_none() {
            prop_assert_eq!(read.to_string(), &*canonical);
        }
        prop_assert_eq!(&read, &parse(&canonical));
        prop_assert_eq!(parse(&read.to_string()), parse(&canonical));
        let other = parse(&two.text());
        let signed = |of: &QuantityText| match of.negative {
            true => -num_bigint::BigInt::from(of.nanos()),
            false => of.nanos().into(),
        };
        prop_assert_eq!(read.partial_cmp(&other), Some(signed(&one).cmp(&signed(&two))));
        prop_assert_eq!(read == other, signed(&one) == signed(&two));
        let integer = &one.nanos() % 1_000_000_000_u32 == BigUint::ZERO;
        prop_assert_eq!(read.is_whole(), integer);
    }
}
