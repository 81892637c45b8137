//! Validation of the schedules of cron jobs.

use watchet_api::is_go_duration;

/// The fields of a schedule: their least and greatest values, and names for some.
const FIELDS: [(i64, i64, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (
        1,
        12,
        &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    ),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

const NAMED: &[&str] = &[
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Checks a schedule.
///
/// # Errors
/// Returns the reason why it is invalid.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.starts_with('@') {
        return named(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!(
            "expected exactly 5 fields, found {found}: {fields:?}"
        ));
    }
    for (field, (min, max, names)) in fields.iter().zip(FIELDS) {
        for part in field.split(',') {
            range(part, min, max, names)?;
        }
    }
    Ok(())
}

fn named(schedule: &str) -> Result<(), String> {
    if let Some(every) = schedule.strip_prefix("@every ") {
        return match is_go_duration(every) {
            true => Ok(()),
            false => Err(format!(
                "failed to parse duration {schedule}: time: invalid duration {every:?}"
            )),
        };
    }
    match NAMED.contains(&schedule) {
        true => Ok(()),
        false => Err(format!("unrecognized descriptor: {schedule}")),
    }
}

/// Parses a number, as Go does.
fn number(text: &str) -> Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match text.parse::<i64>() {
        Ok(number @ ..0) => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number),
        Err(error) => {
            let why = match error.kind() {
                NegOverflow | PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Err(format!(
                "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"
            ))
        }
    }
}

/// One part of a field: `*`, `5`, `1-5`, `*/10`, `mon-fri/2`.
fn range(part: &str, min: i64, max: i64, names: &[&str]) -> Result<(), String> {
    let (span, step) = match part.split_once('/') {
        None => (part, None),
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {part}")),
        Some((span, step)) => (span, Some(step)),
    };
    let value = |text: &str| {
        let name = names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text));
        match name {
            Some(at) => Ok(at as i64 + min),
            None => number(text),
        }
    };
    let (start, mut end) = match span.split_once('-') {
        _ if matches!(span, "*" | "?") => (min, max),
        None => (value(span)?, value(span)?),
        Some((_, end)) if end.contains('-') => return Err(format!("too many hyphens: {part}")),
        Some((start, end)) => (value(start)?, value(end)?),
    };
    if let Some(step) = step {
        let step = value(step)?;
        if step == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        if !span.contains('-') {
            end = max;
        }
    }
    if start < min {
        return Err(format!(
            "beginning of range ({start}) below minimum ({min}): {part}"
        ));
    }
    if end > max {
        return Err(format!(
            "end of range ({end}) above maximum ({max}): {part}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in [
            "* * * * *",
            "*/5 0-12/2 1,15 jan-mar MON",
            "0 0 ? * sun",
            "@hourly",
            "@every 1h30m",
            "5/15 * * * *",
            "*/4294967296 * * * *",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "expected exactly 5 fields, found 0: []"),
            (
                "* * * *",
                "expected exactly 5 fields, found 4: [\"*\", \"*\", \"*\", \"*\"]",
            ),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            (
                "*/9223372036854775808 * * * *",
                "failed to parse int from 9223372036854775808: strconv.Atoi: parsing \"9223372036854775808\": value out \
                 of range",
            ),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("*/1/2 * * * *", "too many slashes: */1/2"),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
        assert!(check("x * * * *").is_err() && check("@every 5").is_err());
    }
}
