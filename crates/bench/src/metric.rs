//! Describes the values of a report: the title and the unit of each key, and whether a higher or a
//! lower value is better.

use super::latency::Summary;
use super::report::{Report, Value};

/// The part of a report that a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// An input of the run, from its arguments.
    Parameter,
    /// The amount of work done.
    Work,
    /// A count that is 0 in a run without faults.
    Fault,
    /// Latency or throughput.
    Speed,
    /// CPU time and memory of the server.
    Server,
    /// The load generator itself.
    Generator,
}

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Lower,
    Higher,
    Neither,
}

/// The unit of a value in the report. It determines the unit in which pages show the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    PerSecond,
    MegabytesPerSecond,
    /// A latency in microseconds, shown in milliseconds.
    Latency,
    Microseconds,
    Milliseconds,
    Bytes,
    /// An amount of data in bytes, shown in MB.
    Volume,
    /// Memory in bytes, shown in MiB.
    Memory,
    Kibibytes,
    /// A fraction from 0 to 1, shown in percent.
    Fraction,
    Text,
}

/// The description of a value of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metric {
    pub key: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub category: Category,
    pub better: Better,
}

const fn parameter(key: &'static str, title: &'static str, unit: Unit) -> Metric {
    new(key, title, unit, Category::Parameter, Better::Neither)
}

const fn work(key: &'static str, title: &'static str, unit: Unit) -> Metric {
    new(key, title, unit, Category::Work, Better::Neither)
}

const fn fault(key: &'static str, title: &'static str) -> Metric {
    new(key, title, Unit::Count, Category::Fault, Better::Lower)
}

const fn rate(key: &'static str, title: &'static str, unit: Unit) -> Metric {
    new(key, title, unit, Category::Speed, Better::Higher)
}

const fn latency(key: &'static str, title: &'static str) -> Metric {
    new(key, title, Unit::Latency, Category::Speed, Better::Lower)
}

const fn server(key: &'static str, title: &'static str, unit: Unit) -> Metric {
    new(key, title, unit, Category::Server, Better::Lower)
}

const fn generator(key: &'static str, title: &'static str, unit: Unit) -> Metric {
    new(key, title, unit, Category::Generator, Better::Neither)
}

const fn new(
    key: &'static str,
    title: &'static str,
    unit: Unit,
    category: Category,
    better: Better,
) -> Metric {
    Metric {
        key,
        title,
        unit,
        category,
        better,
    }
}

/// All values that the loads report.
const METRICS: &[Metric] = &[
    parameter("load", "Load", Unit::Text),
    parameter("target", "Server URL", Unit::Text),
    parameter("resource", "Resource", Unit::Text),
    parameter("mode", "Mode", Unit::Text),
    parameter("verb", "Verb", Unit::Text),
    parameter("path", "Path", Unit::Text),
    parameter("query", "Query", Unit::Text),
    parameter("mix", "Mix of requests", Unit::Text),
    parameter("accept", "Encoding of responses", Unit::Text),
    parameter("watchers", "Watchers", Unit::Count),
    parameter("connections", "Connections", Unit::Count),
    parameter("clients", "Clients", Unit::Count),
    parameter("workers", "Workers", Unit::Count),
    parameter("objects", "Objects", Unit::Count),
    parameter("namespaces", "Namespaces", Unit::Count),
    parameter("nodes", "Nodes", Unit::Count),
    parameter("requests", "Requests", Unit::Count),
    parameter("items", "Objects in a response", Unit::Count),
    parameter("size_bytes", "Size of an object", Unit::Bytes),
    parameter("rate_per_s", "Requested rate", Unit::PerSecond),
    parameter("seed", "Seed", Unit::Count),
    work("events_sent", "Events sent", Unit::Count),
    work("events_delivered", "Events delivered", Unit::Count),
    work("requests_answered", "Requests answered", Unit::Count),
    work("answers_complete", "Complete responses", Unit::Count),
    work("operations", "Requests", Unit::Count),
    work("changes", "Changes", Unit::Count),
    work("pages", "Pages", Unit::Count),
    work("bytes", "Size of all bodies", Unit::Volume),
    work("elapsed_ms", "Elapsed time", Unit::Milliseconds),
    work("watches_resumed", "Watches resumed", Unit::Count),
    work("objects_existed", "Objects that existed", Unit::Count),
    work("objects_missing", "Objects that were missing", Unit::Count),
    work(
        "webhook_converted",
        "Objects converted by the webhook",
        Unit::Count,
    ),
    fault("events_lost", "Events lost"),
    fault("events_duplicate", "Events received twice"),
    fault("events_out_of_order", "Events out of order"),
    fault(
        "events_foreign",
        "Events that match no write or selector of the run",
    ),
    fault("events_mistyped", "Events with the wrong type"),
    fault("watches_ended", "Watches that ended early"),
    fault("writes_failed", "Writes failed"),
    fault("requests_failed", "Requests failed"),
    fault("operations_failed", "Requests failed"),
    fault("reads_stale", "Stale reads"),
    fault("answers_wrong", "Responses with wrong objects"),
    fault("answers_failed", "Clients failed"),
    fault("objects_deviating", "Objects not as written"),
    fault("objects_differing", "Objects that differ from a list"),
    rate("deliveries_per_s", "Deliveries", Unit::PerSecond),
    rate("requests_per_s", "Throughput", Unit::PerSecond),
    rate("operations_per_s", "Throughput", Unit::PerSecond),
    rate("megabytes_per_s", "Data rate", Unit::MegabytesPerSecond),
    latency("latency_us", "Request"),
    latency("latency_us_last", "Acknowledgement to last watcher"),
    latency("latency_us_each", "Acknowledgement to each watcher"),
    latency("latency_us_write", "Write request"),
    latency("latency_us_write_to_last", "Write request to last watcher"),
    latency("latency_us_complete", "Complete response"),
    latency("latency_us_first", "First byte of the response"),
    latency("latency_us_watch", "Write to each watcher"),
    latency("latency_us_create", "Create"),
    latency("latency_us_update", "Update"),
    latency("latency_us_patch", "Patch"),
    latency("latency_us_delete", "Delete"),
    latency("latency_us_get", "Get"),
    latency("latency_us_list", "List"),
    new(
        "open_ms",
        "Time to open all watches",
        Unit::Milliseconds,
        Category::Speed,
        Better::Lower,
    ),
    server(
        "cpu_us_per_event",
        "CPU time per delivered event",
        Unit::Microseconds,
    ),
    server("cpu_us_per_write", "CPU time per write", Unit::Microseconds),
    server(
        "cpu_ms_per_request",
        "CPU time per request",
        Unit::Milliseconds,
    ),
    server(
        "cpu_ms_per_operation",
        "CPU time per request",
        Unit::Milliseconds,
    ),
    server(
        "cpu_ms_per_client",
        "CPU time per client",
        Unit::Milliseconds,
    ),
    server("cpu_ms_per_megabyte", "CPU time per MB", Unit::Milliseconds),
    server(
        "open_cpu_us_per_watcher",
        "CPU time to open a watch",
        Unit::Microseconds,
    ),
    server(
        "rss_kib_per_watcher",
        "Memory of a watcher",
        Unit::Kibibytes,
    ),
    server("rss_bytes_peak", "Peak memory", Unit::Memory),
    server("rss_bytes_after", "Memory after the run", Unit::Memory),
    new(
        "rss_bytes_before",
        "Memory before the run",
        Unit::Memory,
        Category::Server,
        Better::Neither,
    ),
    server("cpu_ms", "CPU time", Unit::Milliseconds),
    generator("generator_cpu_ms", "CPU time", Unit::Milliseconds),
    generator("generator_busy", "Busy part of its threads", Unit::Fraction),
    generator("generator_is_bottleneck", "Bottleneck", Unit::Text),
    generator(
        "write_late_ms_max",
        "Maximum delay of a write behind its schedule",
        Unit::Milliseconds,
    ),
];

/// Returns the description of a key; `None` if only a later version reports the key.
pub(super) fn find(key: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.key == key)
}

/// Returns the title of a key; an unknown key is its own title.
pub(super) fn title(key: &str) -> String {
    find(key).map_or_else(|| key.replace('_', " "), |metric| metric.title.to_owned())
}

/// Returns the rows that are parameters of the load. A report of an earlier version has no other parameters.
pub(super) fn parameter_rows(report: &Report) -> impl Iterator<Item = (&str, &Value)> {
    report.rows().filter(|(key, _)| {
        let category = find(key).map(|metric| metric.category);
        category == Some(Category::Parameter) && !matches!(*key, "load" | "target")
    })
}

/// The latencies that can represent a run, in order of preference.
const PRIMARY_LATENCIES: [&str; 4] = [
    "latency_us",
    "latency_us_last",
    "latency_us_complete",
    "latency_us_watch",
];

/// Returns the latency that represents the run: the first of [`PRIMARY_LATENCIES`] that has values,
/// else the first that has any.
pub(super) fn primary_latency<'k>(latencies: &[(&'k str, Summary)]) -> Option<(&'k str, Summary)> {
    let measured = || latencies.iter().filter(|(_, summary)| summary.count > 0);
    let preferred = PRIMARY_LATENCIES
        .iter()
        .find_map(|key| measured().find(|(name, _)| name == key));
    preferred.or_else(|| measured().next()).copied()
}

impl Unit {
    /// Returns the divisor that converts the report's unit to the shown unit, and the name of the
    /// shown unit.
    const fn shown(self) -> (f64, &'static str) {
        match self {
            Self::Count | Self::Text => (1.0, ""),
            Self::PerSecond => (1.0, "/s"),
            Self::MegabytesPerSecond => (1.0, "MB/s"),
            Self::Latency => (1e3, "ms"),
            Self::Microseconds => (1.0, "µs"),
            Self::Milliseconds => (1.0, "ms"),
            Self::Bytes => (1.0, "bytes"),
            Self::Volume => (1e6, "MB"),
            Self::Memory => (1_048_576.0, "MiB"),
            Self::Kibibytes => (1.0, "KiB"),
            Self::Fraction => (0.01, "%"),
        }
    }

    /// Returns the name of the unit that is shown.
    pub(super) const fn name(self) -> &'static str {
        self.shown().1
    }

    /// Returns a number of the report in the unit that is shown.
    pub(super) fn convert(self, number: f64) -> f64 {
        number / self.shown().0
    }

    /// Returns a number of the report with its unit, as text.
    pub(super) fn text(self, value: f64) -> String {
        let shown = number(self.convert(value));
        match self.name() {
            "" => shown,
            unit => format!("{shown} {unit}"),
        }
    }
}

/// Returns a value of the report with its unit, as text. A latency has several values and no text.
pub(super) fn value_text(key: &str, value: &Value) -> Option<String> {
    let unit = find(key).map_or(Unit::Count, |metric| metric.unit);
    match value {
        Value::Text(text) => Some(text.clone()),
        // A seed is a name, not an amount.
        Value::Count(count) if key == "seed" => Some(count.to_string()),
        Value::Count(count) => Some(unit.text(*count as f64)),
        Value::Number(number) => Some(unit.text(*number)),
        Value::Latency(_) => None,
    }
}

/// Returns a number with thousands separators; a number that is not an integer has at least three
/// significant digits.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || value.fract() == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.01 => 3,
        _ => 5,
    };
    let text = format!("{value:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        "" => format!("{sign}{grouped}"),
        fraction => format!("{sign}{grouped}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_few_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.0004, "0.0004"),
            (0.1234, "0.123"),
            (1.5, "1.5"),
            (12.345, "12.3"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1234.5, "-1,234"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
    }

    #[test]
    fn values_are_shown_in_the_units_of_a_reader() {
        for (key, value, expected) in [
            ("events_lost", Value::Count(50_000), "50,000"),
            ("rss_bytes_peak", Value::Count(3 << 20), "3 MiB"),
            ("bytes", Value::Count(73_409_550), "73.4 MB"),
            ("generator_busy", Value::Number(0.25), "25 %"),
            ("cpu_us_per_event", Value::Number(14.56), "14.6 µs"),
            ("seed", Value::Count(12345), "12345"),
            ("from_the_future", Value::Number(1.5), "1.5"),
        ] {
            assert_eq!(value_text(key, &value).as_deref(), Some(expected), "{key}");
        }
        assert_eq!(Unit::Latency.text(22_335.0), "22.3 ms");
        assert_eq!(title("events_lost"), "Events lost");
        assert_eq!(title("from_the_future"), "from the future");
    }

    #[test]
    fn keys_are_unique() {
        let keys: std::collections::HashSet<_> = METRICS.iter().map(|it| it.key).collect();
        assert_eq!(keys.len(), METRICS.len());
    }

    #[test]
    fn the_primary_latency_has_values() {
        let summary = |count| Summary {
            count,
            ..Summary::default()
        };
        let all = [
            ("latency_us_first", summary(3)),
            ("latency_us_complete", summary(3)),
        ];
        let found = primary_latency(&all).unwrap();
        assert_eq!(found.0, "latency_us_complete");
        let idle = [
            ("latency_us_watch", summary(0)),
            ("latency_us_get", summary(1)),
        ];
        assert_eq!(primary_latency(&idle).unwrap().0, "latency_us_get");
        assert!(primary_latency(&[]).is_none());
    }
}
