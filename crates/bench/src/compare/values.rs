//! The values of two reports, their ratios, and which one is better.

use std::cmp::Ordering;

use crate::metric::{self, Better, Category, Metric, Unit};
use crate::report::{Report, Value, parts};

/// The relative difference up to which two values count as similar. Two runs on one server can
/// differ by more.
pub(super) const SIMILAR: f64 = 0.05;

/// A value of both reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub title: String,
    /// The values as text; `None` if the report does not have it.
    pub a: Option<String>,
    pub b: Option<String>,
    /// The value of B divided by that of A.
    pub ratio: Option<f64>,
    pub assessment: Assessment,
}

/// How the value of B compares with that of A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assessment {
    Better,
    Worse,
    Similar,
    /// Neither a higher nor a lower value is better, both are 0, or one is missing.
    None,
}

impl Assessment {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Similar => "similar",
            Self::None => "",
        }
    }

    /// Compares two values.
    pub(crate) fn of(better: Better, a: f64, b: f64) -> Self {
        let (low, high) = (a.min(b), a.max(b));
        if better == Better::Neither || high == 0.0 {
            return Self::None;
        }
        if high - low <= low * SIMILAR {
            return Self::Similar;
        }
        match (better, b.partial_cmp(&a)) {
            (Better::Lower, Some(Ordering::Less)) | (Better::Higher, Some(Ordering::Greater)) => {
                Self::Better
            }
            _ => Self::Worse,
        }
    }
}

impl Row {
    pub(super) fn cells(&self) -> [String; 5] {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        [
            self.title.clone(),
            shown(&self.a),
            shown(&self.b),
            self.ratio_text(),
            self.assessment.text().to_owned(),
        ]
    }

    /// Returns the ratio as text; `-` if there is none.
    pub(crate) fn ratio_text(&self) -> String {
        self.ratio.map_or_else(|| "-".to_owned(), ratio_text)
    }
}

/// Returns a ratio as text.
pub(crate) fn ratio_text(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 100.0 => format!("{ratio:.0}"),
        _ if ratio >= 10.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

/// Returns the compared values in the order of A, then those that only B has.
pub(super) fn rows(a: &Report, b: &Report) -> Vec<Row> {
    let only_b = b.rows().filter(|(key, _)| a.get(key).is_none());
    let keys = a.rows().chain(only_b).map(|(key, _)| key);
    let metrics = keys.filter_map(metric::find);
    let compared =
        metrics.filter(|it| !matches!(it.category, Category::Parameter | Category::Generator));
    compared
        .flat_map(|metric| rows_of(metric, a.get(metric.key), b.get(metric.key)))
        .collect()
}

/// Returns the row of a value, or the rows of the percentiles of a latency.
fn rows_of(metric: &Metric, a: Option<&Value>, b: Option<&Value>) -> Vec<Row> {
    let latency = |value: Option<&Value>| match value {
        Some(Value::Latency(summary)) if summary.count > 0 => Some(parts(summary)),
        _ => None,
    };
    if metric.unit == Unit::Latency {
        let (a, b) = (latency(a), latency(b));
        let names = PERCENTILES.iter().enumerate();
        return match (&a, &b) {
            (None, None) => Vec::new(),
            _ => names
                .map(|(at, name)| {
                    let value = |parts: &Option<[(&str, f64); 7]>| parts.map(|it| it[at].1);
                    let title = format!("{}, {name}", metric.title);
                    row(metric, title, value(&a), value(&b))
                })
                .collect(),
        };
    }
    let number = |value: Option<&Value>| match value {
        Some(Value::Count(count)) => Some(*count as f64),
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    vec![row(metric, metric.title.to_owned(), number(a), number(b))]
}

/// The names of the compared parts of a latency, in the order of [`parts`]; its last part, the
/// count, is not compared.
const PERCENTILES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "maximum", "mean"];

fn row(metric: &Metric, title: String, a: Option<f64>, b: Option<f64>) -> Row {
    let text = |value: Option<f64>| value.map(|value| metric.unit.text(value));
    Row {
        title,
        a: text(a),
        b: text(b),
        ratio: a.zip(b).filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a),
        assessment: a.zip(b).map_or(Assessment::None, |(a, b)| {
            Assessment::of(metric.better, a, b)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assessments_follow_the_better_direction() {
        for (better, a, b, expected) in [
            (Better::Lower, 100.0, 94.0, Assessment::Better),
            (Better::Lower, 100.0, 104.0, Assessment::Similar),
            (Better::Lower, 0.0, 1.0, Assessment::Worse),
            (Better::Lower, 0.0, 0.0, Assessment::None),
            (Better::Higher, 100.0, 120.0, Assessment::Better),
            (Better::Higher, 100.0, 50.0, Assessment::Worse),
            (Better::Neither, 100.0, 50.0, Assessment::None),
        ] {
            let found = Assessment::of(better, a, b);
            assert_eq!(found, expected, "{better:?} {a} {b}");
        }
    }
}
