//! `Moment`: a past state as people write it: a resourceVersion, a time, a time before now, or `now`.

use jiff::civil::{DateTime, Time};
use jiff::{Span, Timestamp, Zoned};

use super::error::CliError;

/// The help of an argument with a moment.
pub(crate) const HELP: &str = "a resourceVersion (1234), a time before now (5m, 2h30m), a time (14:30, 2026-11-27T14:30:00Z) or now";

/// A past state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The latest state.
    Now,
    /// The state at a resourceVersion.
    Revision(String),
    /// The state at a time.
    Time(Timestamp),
}

impl Moment {
    /// Parses the text of `argument` at the time `now`, in whose time zone it may be.
    pub(crate) fn parse(argument: &'static str, text: &str, now: &Zoned) -> Result<Self, CliError> {
        if text == "now" {
            return Ok(Self::Now);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::Revision(text.to_owned()));
        }
        let wrong = |problem: String| CliError::Value { argument, problem };
        let time = time_of(text, now)
            .ok_or_else(|| wrong(format!("{text:?} is not a moment: give {HELP}")))?;
        if time > now.timestamp() {
            return Err(wrong(format!(
                "{text:?} is in the future: give a time before now"
            )));
        }
        Ok(Self::Time(time))
    }
}

fn time_of(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Ok(civil) = text.parse::<DateTime>() {
        return Some(civil.to_zoned(now.time_zone().clone()).ok()?.timestamp());
    }
    if text.contains(':')
        && let Ok(time) = text.parse::<Time>()
    {
        let today = now.date().to_datetime(time);
        return Some(today.to_zoned(now.time_zone().clone()).ok()?.timestamp());
    }
    let span: Span = text.parse().ok()?;
    Some(now.checked_sub(span.abs()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let now: Zoned = "2026-11-27T15:00:00+02:00[+02:00]".parse().unwrap();
        let moment = Moment::parse("<MOMENT>", text, &now);
        match expected {
            Some(expected) => {
                let time: Timestamp = expected.parse().unwrap();
                assert_eq!(moment.unwrap(), Moment::Time(time), "{text}");
            }
            None => {
                let error = moment.unwrap_err();
                assert!(error.is_usage(), "{text}: {error}");
                assert!(error.to_string().starts_with("<MOMENT>: "), "{error}");
            }
        }
    }

    #[test]
    fn times_are_absolute_local_or_before_now() {
        check("5m", Some("2026-11-27T12:55:00Z"));
        check("2h30m", Some("2026-11-27T10:30:00Z"));
        check("90s", Some("2026-11-27T12:58:30Z"));
        check("2d", Some("2026-11-25T13:00:00Z"));
        check("2026-11-27T10:00:00Z", Some("2026-11-27T10:00:00Z"));
        check("2026-11-27T10:00:00+01:00", Some("2026-11-27T09:00:00Z"));
        check("2026-11-27 10:00", Some("2026-11-27T08:00:00Z"));
        check("14:30", Some("2026-11-27T12:30:00Z"));
        for wrong in ["", "soon", "16:00", "2027-01-01T00:00:00Z", "-"] {
            check(wrong, None);
        }
    }

    #[test]
    fn digits_are_a_resource_version() {
        let now = Zoned::now();
        let parsed = |text| Moment::parse("<MOMENT>", text, &now).unwrap();
        assert_eq!(parsed("1234"), Moment::Revision("1234".to_owned()));
        assert_eq!(parsed("now"), Moment::Now);
    }
}
