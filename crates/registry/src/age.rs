//! Ages and durations as kubectl prints them: at most two units, which are coarser for longer durations.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY_HOURS: i64 = 24;
const YEAR_DAYS: i64 = 365;

/// Formats a duration of `seconds`: `119s`, `2m3s`, `10m`, `3h5m`, `2d1h`, `8d`, `2y3d`.
///
/// Slightly negative durations are clock skew and read as zero; more than a second is `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / MINUTE, seconds / HOUR);
    let days = hours / DAY_HOURS;
    if seconds < 2 * MINUTE {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % MINUTE, "s")
    } else if minutes < 3 * 60 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 2 * DAY_HOURS {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % DAY_HOURS, "h")
    } else if days < 2 * YEAR_DAYS {
        format!("{days}d")
    } else if days < 8 * YEAR_DAYS {
        two(days / YEAR_DAYS, "y", days % YEAR_DAYS, "d")
    } else {
        format!("{}y", days / YEAR_DAYS)
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

/// Returns the time in `value`, an RFC 3339 text.
pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Formats the time since `then`; `<unknown>` if that is absent.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(
        || "<unknown>".to_owned(),
        |then| human_duration(between(then, now)),
    )
}

/// Returns the whole seconds from `start` to `end`, rounded towards zero.
pub fn between(start: Timestamp, end: Timestamp) -> i64 {
    end.duration_since(start).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_prints_them() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 300, "3h5m"),
            (8 * HOUR, "8h"),
            (48 * HOUR - 1, "47h"),
            (48 * HOUR, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * 24 * HOUR, "8d"),
            (730 * 24 * HOUR, "2y"),
            (733 * 24 * HOUR, "2y3d"),
            (8 * 365 * 24 * HOUR, "8y"),
            (3000 * 24 * HOUR, "8y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn an_age_without_a_time_is_unknown() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(age(None, now), "<unknown>");
        let then = time(&serde_json::json!("1970-01-12T13:44:40Z"));
        assert_eq!(age(then, now), "2m");
        assert_eq!(time(&serde_json::json!("yesterday")), None);
    }
}
