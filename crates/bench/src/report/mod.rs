//! The report: named values in order, and faults; printed as a table, as JSON, or as single values.

mod json;

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::latency::{Latencies, Summary};
use super::latency_timeline::{LatencyInterval, LatencyTimeline};
use super::metadata::Metadata;
use super::server_info::ServerInfo;

pub(super) use json::ReportFormatError;

/// A value of the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Value {
    Text(String),
    Count(u64),
    Number(f64),
    Latency(Summary),
}

/// The result of a load.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<(Cow<'static, str>, Value)>,
    /// Why the run failed; one sentence each.
    pub faults: Vec<String>,
    /// Distributions from [`Latencies::points`], by the key of their row.
    pub distributions: Vec<(Cow<'static, str>, Points)>,
    /// Units of work per second, by the second.
    pub throughput: Points,
    /// The latencies of one row by the time of the run.
    pub latency_timeline: Option<RowTimeline>,
    pub metadata: Option<Metadata>,
    pub server: Option<ServerInfo>,
}

/// The points of a plot.
pub(super) type Points = Vec<(f64, f64)>;

/// The latencies of a row by the time of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RowTimeline {
    /// The key of the row.
    pub key: Cow<'static, str>,
    pub intervals: Vec<LatencyInterval>,
}

/// A key of `--print` that the report does not have.
#[derive(Debug, thiserror::Error)]
#[error("--print {key}: the report has no such value; it has {known}")]
pub(super) struct UnknownKey {
    key: String,
    known: String,
}

impl Report {
    pub(super) fn text(&mut self, key: &'static str, value: impl Into<String>) {
        self.push(key, Value::Text(value.into()));
    }

    pub(super) fn count(&mut self, key: &'static str, value: impl Into<u64>) {
        self.push(key, Value::Count(value.into()));
    }

    /// Adds a measured value, rounded to the precision of the measurement: three decimals.
    pub(super) fn number(&mut self, key: &'static str, value: f64) {
        let rounded = (value * 1e3).round() / 1e3;
        self.push(key, Value::Number(rounded));
    }

    fn push(&mut self, key: &'static str, value: Value) {
        self.rows.push((Cow::Borrowed(key), value));
    }

    pub(super) fn latency(&mut self, key: &'static str, latencies: &Latencies) {
        let points = latencies.points();
        self.distributions.push((Cow::Borrowed(key), points));
        let mut summary = latencies.summary();
        summary.mean = summary.mean.round();
        self.push(key, Value::Latency(summary));
    }

    /// Adds the latencies of a row by the time of the run.
    pub(super) fn timeline(&mut self, key: &'static str, timeline: &LatencyTimeline) {
        self.latency_timeline = Some(RowTimeline {
            key: Cow::Borrowed(key),
            intervals: timeline.intervals(),
        });
    }

    /// Adds a fault if `count` is not 0. `what` follows the number.
    pub(super) fn fault(&mut self, count: u64, what: impl fmt::Display) {
        if count > 0 {
            self.faults.push(format!("{count} {what}"));
        }
    }

    /// Returns the value of a key, or of a percentile with a dot and its name appended.
    ///
    /// # Errors
    /// The report has no such value.
    pub(super) fn value(&self, key: &str) -> Result<String, UnknownKey> {
        let (name, part) = key.split_once('.').unwrap_or((key, ""));
        let value = match self.get(name) {
            Some(Value::Latency(summary)) if !part.is_empty() => {
                let found = parts(summary).into_iter().find(|(name, _)| *name == part);
                found.map(|(_, value)| value.to_string())
            }
            Some(value) if part.is_empty() => Some(value.to_string()),
            _ => None,
        };
        value.ok_or_else(|| UnknownKey {
            key: key.to_owned(),
            known: self
                .rows
                .iter()
                .map(|row| row.0.as_ref())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let row = self.rows.iter().find(|(row, _)| row == key);
        row.map(|(_, value)| value)
    }

    /// Returns the value of a key as a number; `None` for a text or a latency.
    pub(super) fn get_number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Count(count) => Some(*count as f64),
            Value::Number(number) => Some(*number),
            Value::Text(_) | Value::Latency(_) => None,
        }
    }

    /// Returns the name of the load.
    pub(super) fn load(&self) -> &str {
        match self.get("load") {
            Some(Value::Text(load)) => load,
            _ => "",
        }
    }

    /// Returns true if the load generator limited the rate of the run.
    pub(super) fn is_generator_bottleneck(&self) -> bool {
        matches!(self.get("generator_is_bottleneck"), Some(Value::Text(text)) if text == "true")
    }

    /// Returns the rows with their keys.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.rows.iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// Returns the latencies with their keys.
    pub(super) fn latencies(&self) -> Vec<(&str, Summary)> {
        let latencies = self.rows().filter_map(|(key, value)| match value {
            Value::Latency(summary) => Some((key, *summary)),
            _ => None,
        });
        latencies.collect()
    }

    /// Returns a table with one line per value.
    pub(super) fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
        let mut table = String::new();
        for (key, value) in &self.rows {
            let written = writeln!(table, "{key:width$}  {value}");
            written.expect("writing to memory cannot fail");
        }
        table
    }
}

/// Returns the values of a summary with their names in `--print`.
pub(super) fn parts(summary: &Summary) -> [(&'static str, f64); 7] {
    [
        ("p50", summary.p50 as f64),
        ("p90", summary.p90 as f64),
        ("p99", summary.p99 as f64),
        ("p999", summary.p999 as f64),
        ("max", summary.max as f64),
        ("mean", summary.mean),
        ("count", summary.count as f64),
    ]
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Latency(summary) => {
                let parts = parts(summary).map(|(name, value)| format!("{name} {value}"));
                f.write_str(&parts.join("  "))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn report() -> Report {
        let mut latencies = Latencies::default();
        for ms in [1, 2, 3] {
            latencies.record(Duration::from_millis(ms));
        }
        let mut report = Report::default();
        report.text("load", "watch");
        report.count("events_sent", 3_u32);
        report.number("cpu_us_per_event", 2.0 / 3.0);
        report.latency("latency_us", &latencies);
        report.fault(0, "events were lost");
        report.fault(2, "writes failed");
        report
    }

    #[test]
    fn all_forms_have_the_same_rows() {
        let report = report();
        assert_eq!(
            report.table(),
            "load              watch\n\
             events_sent       3\n\
             cpu_us_per_event  0.667\n\
             latency_us        p50 2000  p90 3001  p99 3001  p999 3001  max 3001  mean 2000  count 3\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        let expected = serde_json::json!({
            "load": "watch", "events_sent": 3, "cpu_us_per_event": 0.667,
            "latency_us": {"count": 3, "mean": 2000.0, "p50": 2000, "p90": 3001, "p99": 3001,
                "p999": 3001, "max": 3001},
            "faults": ["2 writes failed"],
        });
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&json[key], value, "{key}");
        }
        assert_eq!(report.value("events_sent").unwrap(), "3");
        assert_eq!(report.value("latency_us.p50").unwrap(), "2000");
        for key in ["x", "latency_us.p98", "events_sent.p50"] {
            let error = report.value(key).unwrap_err().to_string();
            assert!(error.contains("cpu_us_per_event, latency_us"), "{error}");
        }
    }
}
