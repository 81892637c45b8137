//! Sections that the page of a report and that of a comparison share.

use std::fmt::Write as _;

use super::html::{Cell, escape};
use crate::metric::{self, Category, Metric, Unit};
use crate::report::Report;

/// A key figure.
#[derive(Debug, Clone)]
pub(super) struct Card {
    pub title: String,
    /// The values with their names; that of a single value is empty.
    pub values: Vec<(String, String)>,
    /// A line below the value; empty for none.
    pub note: String,
    /// The class of the note.
    pub class: &'static str,
}

/// Returns cards side by side.
pub(super) fn cards(cards: &[Card]) -> String {
    let mut html = "<ul class=\"cards\">\n".to_owned();
    for card in cards {
        let note = match card.note.as_str() {
            "" => String::new(),
            note => format!(
                "<span class=\"note {}\">{}</span>",
                card.class,
                escape(note)
            ),
        };
        let value = |(name, value): &(String, String)| match name.as_str() {
            "" => format!("<strong>{}</strong>", escape(value)),
            name => format!(
                "<span class=\"pair\"><span class=\"name\">{}</span> <strong>{}</strong></span>",
                escape(name),
                escape(value)
            ),
        };
        let values: String = card.values.iter().map(value).collect();
        writeln!(
            html,
            "<li><span class=\"title\">{}</span>{values}{note}</li>",
            escape(&card.title),
        )
        .expect("writing to memory cannot fail");
    }
    html + "</ul>\n"
}

/// A figure that represents a run, with the number that the report has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyFigure {
    pub title: String,
    pub metric: &'static Metric,
    pub number: f64,
}

/// Alternative values: a page shows the first that the report has.
const RATES: [&str; 3] = ["deliveries_per_s", "requests_per_s", "operations_per_s"];
const CPU_TIMES: [&str; 4] = [
    "cpu_us_per_event",
    "cpu_ms_per_request",
    "cpu_ms_per_operation",
    "cpu_ms_per_client",
];

/// Returns the key figures of a report: throughput, latency, CPU time and memory.
pub(super) fn key_figures(report: &Report) -> Vec<KeyFigure> {
    let figure = |key: &str| {
        let metric = metric::find(key)?;
        Some(KeyFigure {
            title: metric.title.to_owned(),
            metric,
            number: report.get_number(key)?,
        })
    };
    let first = |keys: &[&str]| keys.iter().find_map(|key| figure(key));
    let rate = first(&RATES).or_else(|| figure("megabytes_per_s"));
    let mut figures: Vec<KeyFigure> = rate.into_iter().collect();
    if let Some((key, summary)) = metric::primary_latency(&report.latencies())
        && let Some(metric) = metric::find(key)
    {
        let percentiles = [
            ("Median latency", summary.p50),
            ("p99 latency", summary.p99),
        ];
        figures.extend(percentiles.map(|(title, us)| KeyFigure {
            title: title.to_owned(),
            metric,
            number: us as f64,
        }));
    }
    figures.extend(first(&CPU_TIMES));
    figures.extend(figure("rss_bytes_peak"));
    figures
}

/// Returns the unit of the throughput over time.
pub(super) fn throughput_unit(report: &Report) -> &'static str {
    match report.load() {
        "watch" => "deliveries per second",
        "storm" => "clients per second",
        _ => "requests per second",
    }
}

/// Returns the title of the latency that the report has over time.
pub(super) fn timeline_title(report: &Report) -> String {
    let timeline = report.latency_timeline.as_ref();
    timeline.map_or_else(String::new, |timeline| metric::title(&timeline.key))
}

/// Returns the values of a report in one category, as a table of titles and values. Latencies have
/// tables of their own.
pub(super) fn values(report: &Report, category: Category) -> Vec<Vec<Cell>> {
    let rows = report.rows().filter_map(|(key, value)| {
        let metric = metric::find(key)?;
        let text = metric::value_text(key, value).filter(|text| !text.is_empty())?;
        let cell = match metric.unit {
            Unit::Text => Cell::text(text),
            _ => Cell::number(text),
        };
        (metric.category == category).then(|| vec![Cell::text(metric.title), cell])
    });
    rows.collect()
}

/// Returns what ran, as pairs of names and values: the server, the time, the machine, the version of
/// the load generator.
pub(super) fn environment(report: &Report) -> Vec<(&'static str, String)> {
    let server = report.server.clone().unwrap_or_default();
    let mut pairs = Vec::new();
    let mut add = |name, value: Option<String>| {
        pairs.extend(value.filter(|it| !it.is_empty()).map(|value| (name, value)));
    };
    add("Server", server.version);
    add("Storage", server.storage);
    add("Server URL", report.get("target").map(ToString::to_string));
    if let Some(metadata) = &report.metadata {
        add("Start", Some(metadata.started.clone()));
        add(
            "Machine of the load generator",
            Some(metadata.machine.text()),
        );
        add(
            "Load generator",
            Some(format!("watchet {}", metadata.generator)),
        );
    }
    pairs
}

/// Returns the parameters of a run: its arguments or, of a report of an earlier version, the
/// parameters among its rows.
pub(super) fn parameters(report: &Report) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: &str| vec![Cell::text(name), Cell::text(value)];
    if let Some(metadata) = &report.metadata {
        let parameters = metadata.parameters.iter();
        return parameters.map(|(name, value)| row(name, value)).collect();
    }
    let rows = metric::parameter_rows(report);
    rows.map(|(key, value)| row(&metric::title(key), &value.to_string()))
        .collect()
}

/// Returns contents side by side where the screen is wide enough; they must be HTML.
pub(super) fn columns(contents: &[String]) -> String {
    let columns = contents.iter().filter(|content| !content.is_empty());
    let column = |content: &String| format!("<div>\n{content}</div>\n");
    let columns: String = columns.map(column).collect();
    format!("<div class=\"columns\">\n{columns}</div>\n")
}

/// Returns the command that repeats a run; empty if the report does not have it.
pub(super) fn command(report: &Report, title: &str) -> String {
    match &report.metadata {
        Some(metadata) if !metadata.command.is_empty() => format!(
            "<p class=\"label\">{}</p>\n<pre tabindex=\"0\"><code>{}</code></pre>\n",
            escape(title),
            escape(&metadata.command)
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn key_figures_are_those_of_the_load() {
        let report = json!({
            "load": "watch", "deliveries_per_s": 5000.0, "cpu_us_per_event": 14.5,
            "latency_us_write": {"count": 9, "mean": 1.0, "p50": 1, "p90": 1, "p99": 1,
                "p999": 1, "max": 1},
            "latency_us_last": {"count": 9, "mean": 2.0, "p50": 2000, "p90": 4000, "p99": 5000,
                "p999": 6000, "max": 7000},
            "faults": [],
        });
        let figures = key_figures(&Report::parse(&report.to_string()).unwrap());
        let shown: Vec<String> = figures
            .iter()
            .map(|it| format!("{}: {}", it.title, it.metric.unit.text(it.number)))
            .collect();
        assert_eq!(
            shown,
            [
                "Deliveries: 5,000 /s",
                "Median latency: 2 ms",
                "p99 latency: 5 ms",
                "CPU time per delivered event: 14.5 µs",
            ]
        );
    }
}
