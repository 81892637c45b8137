//! Checks times as Go's `time.Parse` does with the layout of RFC 3339, and returns its errors.

/// The name of a number, and its minimum and maximum.
type Range = (&'static str, u32, u32);

/// The elements of the layout before the fraction of a second, with the range of each number.
const ELEMENTS: [(&str, Option<Range>); 11] = [
    ("2006", None),
    ("-", None),
    ("01", Some(("month", 1, 12))),
    ("-", None),
    // The maximum depends on the month, so it is checked last.
    ("02", None),
    ("T", None),
    ("15", Some(("hour", 0, 23))),
    (":", None),
    ("04", Some(("minute", 0, 59))),
    (":", None),
    ("05", Some(("second", 0, 59))),
];

/// The layout of the time zone.
const ZONE: &str = "Z07:00";

/// Checks a time. `fraction` is the layout of the fraction of a second; if it is empty, the time can have any number of digits
/// there, or none.
///
/// # Errors
/// The error of Go's parser.
pub(super) fn parse(text: &str, fraction: &str) -> Result<(), String> {
    let misplaced = |rest: &str, element: &str| {
        let layout: String = ELEMENTS.iter().map(|(element, _)| *element).collect();
        format!(
            "parsing time {text:?} as \"{layout}{fraction}{ZONE}\": cannot parse {rest:?} as {element:?}"
        )
    };
    let out_of_range = |what: &str| format!("parsing time {text:?}: {what} out of range");
    let mut rest = text;
    let (mut numbers, mut index) = ([0; 6], 0);
    for (element, range) in ELEMENTS {
        let Some((number, after)) = read(element, rest) else {
            return Err(misplaced(rest, element));
        };
        if let Some((what, min, max)) = range
            && !(min..=max).contains(&number)
        {
            return Err(out_of_range(what));
        }
        if element.len() > 1 {
            numbers[index] = number;
            index += 1;
        }
        rest = after;
    }
    rest = match fraction {
        "" => after_fraction(rest, None).unwrap_or(rest),
        fraction => after_fraction(rest, Some(fraction.len() - 1))
            .ok_or_else(|| misplaced(rest, fraction))?,
    };
    let Some((hours, minutes, after)) = zone(rest) else {
        return Err(misplaced(rest, ZONE));
    };
    if hours > 24 {
        return Err(out_of_range("time zone offset hour"));
    }
    if minutes > 60 {
        return Err(out_of_range("time zone offset minute"));
    }
    if !after.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {after:?}"));
    }
    let [year, month, day, ..] = numbers;
    if !(1..=days_of(year, month)).contains(&day) {
        return Err(out_of_range("day"));
    }
    // Encoders read stored times again. Go also accepts an hour of one digit, and times of the last two days of the year 9999.
    match text.parse::<jiff::Timestamp>() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("parsing time {text:?}: {error}")),
    }
}

/// Reads an element at the start of `text`. Returns its number, zero for a separator, and what follows.
fn read<'t>(element: &str, text: &'t str) -> Option<(u32, &'t str)> {
    match element {
        "-" | "T" | ":" => text.strip_prefix(element).map(|rest| (0, rest)),
        // In Go an hour can have one digit.
        "15" => digits(text, 2).or_else(|| digits(text, 1)),
        element => digits(text, element.len()),
    }
}

fn digits(text: &str, count: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(count)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some((number.parse().ok()?, rest)))?
}

/// Returns what follows a fraction of a second with so many digits, or any number but none.
fn after_fraction(text: &str, count: Option<usize>) -> Option<&str> {
    let fraction = text.strip_prefix(['.', ','])?;
    let rest = match count {
        Some(count) => digits(fraction, count)?.1,
        None => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
    };
    (rest.len() < fraction.len()).then_some(rest)
}

/// Returns the hours and minutes of a time zone, and what follows.
fn zone(text: &str) -> Option<(u32, u32, &str)> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some((0, 0, rest));
    }
    let (hours, rest) = digits(text.strip_prefix(['+', '-'])?, 2)?;
    let (minutes, rest) = digits(rest.strip_prefix(':')?, 2)?;
    Some((hours, minutes, rest))
}

fn days_of(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors are those of Go 1.26. Times without a part, and those of leases and events with another number of digits, were
    /// accepted.
    #[test]
    fn errors_equal_those_of_go() {
        for good in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.1Z",
            "2026-01-02T03:04:05,5Z",
            "2026-01-02T03:04:05+01:30",
            "2024-02-29T00:00:00-24:00",
        ] {
            assert_eq!(parse(good, ""), Ok(()), "{good}");
        }
        for good in ["2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05,123456Z"] {
            assert_eq!(parse(good, ".000000"), Ok(()), "{good}");
        }
        for unsupported in ["2026-01-02T3:04:05Z", "9999-12-31T23:59:59Z"] {
            assert!(parse(unsupported, "").is_err(), "{unsupported}");
        }
        for (time, rest, element) in [
            ("today", "today", "2006"),
            ("2026-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("2026-01-02T03:04Z", "Z", ":"),
            ("2026-01-02T03:04:05", "", "Z07:00"),
            ("2026-01-02T03:04:05z", "z", "Z07:00"),
            ("2026-01-02T03:04:05.Z", ".Z", "Z07:00"),
        ] {
            let seconds = "2006-01-02T15:04:05Z07:00";
            let error = format!(
                "parsing time {time:?} as {seconds:?}: cannot parse {rest:?} as {element:?}"
            );
            assert_eq!(parse(time, ""), Err(error));
        }
        for (time, problem) in [
            ("2026-01-02T03:04:05Z[UTC]", "extra text: \"[UTC]\""),
            ("2026-02-30T03:04:05Z", "day out of range"),
            ("2025-02-29T03:04:05Z", "day out of range"),
            ("2026-13-02T03:04:05Z", "month out of range"),
            ("2026-01-02T24:04:05Z", "hour out of range"),
            ("2026-01-02T23:59:60Z", "second out of range"),
            (
                "2026-01-02T03:04:05+25:30",
                "time zone offset hour out of range",
            ),
        ] {
            let error = format!("parsing time {time:?}: {problem}");
            assert_eq!(parse(time, ""), Err(error));
        }
        for (time, rest, element) in [
            ("2026-01-02T03:04:05Z", "Z", ".000000"),
            ("2026-01-02T03:04:05.1Z", ".1Z", ".000000"),
            ("2026-01-02T03:04:05.1234567Z", "7Z", "Z07:00"),
        ] {
            let micro = "2006-01-02T15:04:05.000000Z07:00";
            let error =
                format!("parsing time {time:?} as {micro:?}: cannot parse {rest:?} as {element:?}");
            assert_eq!(parse(time, ".000000"), Err(error));
        }
    }
}
