//! The plots of reports, with tables of the same numbers: latency percentiles, and latency and
//! throughput over the time of the run.

use super::chart::{Chart, Line};
use super::html::{Cell, details, table};
use super::scale::Scale;
use crate::latency::Summary;
use crate::latency_timeline::LatencyInterval;
use crate::metric::{Unit, number};
use crate::report::{Points, Report};

/// The number of ticks of a vertical axis.
const STEPS: u32 = 5;

/// The maximum number of rows of a table of a plot over time.
const TABLE_ROWS_MAX: usize = 60;

/// A latency with its name in a plot.
#[derive(Debug, Clone)]
pub(super) struct NamedLatency<'r> {
    pub name: String,
    pub summary: Summary,
    pub points: &'r [(f64, f64)],
}

/// A report with its name in plots; that of a single report is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'r> {
    pub name: &'r str,
    pub report: &'r Report,
}

impl Source<'_> {
    /// Returns the name of a line that shows `what` of the report.
    fn line_name(self, what: &str) -> String {
        match self.name {
            "" => what.to_owned(),
            name => format!("{name}, {what}"),
        }
    }

    /// Returns the title of a table that shows `what` of the report over time.
    fn table_title(self, what: &str) -> String {
        match self.name {
            "" => format!("{what} over time as a table"),
            name => format!("{what} of {name} over time as a table"),
        }
    }
}

/// Returns the distribution of a latency; `None` if it has no values.
pub(super) fn distribution<'r>(
    report: &'r Report,
    key: &str,
    name: String,
) -> Option<NamedLatency<'r>> {
    let latencies = report.latencies();
    let (_, summary) = latencies.into_iter().find(|(row, _)| *row == key)?;
    let points = report.distributions.iter().find(|(row, _)| row == key);
    (summary.count > 0).then(|| NamedLatency {
        name,
        summary,
        points: points.map_or(&[], |(_, points)| points.as_slice()),
    })
}

/// Returns the percentiles of latencies as a plot, if there are enough values, and as a table.
pub(super) fn percentiles(id: &str, title: &str, latencies: &[NamedLatency<'_>]) -> String {
    let points = || latencies.iter().flat_map(|it| it.points);
    let nines = points().map(|point| point.0).fold(0.0, f64::max);
    let has_plot = nines >= std::f64::consts::LOG10_2;
    let ms = |us: f64| Unit::Latency.convert(us);
    let line = |(color, latency): (usize, &NamedLatency<'_>)| Line {
        name: latency.name.clone(),
        color,
        is_dashed: color % 2 == 1,
        points: latency.points.iter().map(|(x, us)| (*x, ms(*us))).collect(),
        markers: markers(latency),
    };
    let description: Vec<String> = latencies.iter().map(in_words).collect();
    let chart = Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        description: description.join(". "),
        x_title: "percentile",
        y_title: "milliseconds",
        x: Scale::Nines { max: nines },
        y: Scale::log(points().map(|(_, us)| ms(*us))),
        lines: latencies.iter().enumerate().map(line).collect(),
    };
    let plot = if has_plot {
        chart.html()
    } else {
        String::new()
    };
    plot + &percentile_table(latencies)
}

/// Returns the markers of a distribution: its percentiles as far as the plot extends.
fn markers(latency: &NamedLatency<'_>) -> Vec<(f64, f64, String)> {
    let Summary {
        p50,
        p90,
        p99,
        p999,
        ..
    } = latency.summary;
    let named = [
        (std::f64::consts::LOG10_2, "p50", p50),
        (1.0, "p90", p90),
        (2.0, "p99", p99),
        (3.0, "p99.9", p999),
    ];
    let last = latency.points.last().map_or(0.0, |point| point.0);
    let markers = named.into_iter().filter(|(nines, ..)| *nines <= last);
    markers
        .map(|(nines, percentile, us)| {
            let us = us as f64;
            let text = format!("{}: {percentile} {}", latency.name, Unit::Latency.text(us));
            (nines, Unit::Latency.convert(us), text)
        })
        .collect()
}

fn in_words(latency: &NamedLatency<'_>) -> String {
    let text = |us: u64| Unit::Latency.text(us as f64);
    let Summary {
        p50, p90, p99, max, ..
    } = latency.summary;
    format!(
        "{}: median {}, 90th percentile {}, 99th percentile {}, maximum {}",
        latency.name,
        text(p50),
        text(p90),
        text(p99),
        text(max)
    )
}

fn percentile_table(latencies: &[NamedLatency<'_>]) -> String {
    let row = |latency: &NamedLatency<'_>| {
        let summary = latency.summary;
        let values = [
            summary.p50 as f64,
            summary.p90 as f64,
            summary.p99 as f64,
            summary.p999 as f64,
            summary.max as f64,
            summary.mean,
        ];
        let ms = values.map(|us| Cell::number(number(Unit::Latency.convert(us))));
        let mut cells = vec![Cell::text(&latency.name)];
        cells.extend(ms);
        cells.push(Cell::number(number(summary.count as f64)));
        cells
    };
    let rows: Vec<_> = latencies.iter().map(row).collect();
    let header = [
        "milliseconds",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "maximum",
        "mean",
        "count",
    ];
    format!("<div class=\"figures\">\n{}</div>\n", table(&header, &rows))
}

/// Returns the latencies over time of the reports; `None` if no run was long enough. With two
/// reports the plot shows only the p99.
pub(super) fn latency_over_time(sources: &[Source<'_>], what: &str) -> Option<String> {
    let has_plot = |source: &&Source<'_>| intervals(source.report).len() > 1;
    let shown: Vec<_> = sources.iter().filter(has_plot).collect();
    let mut lines = Vec::new();
    let mut tables = String::new();
    for (number, source) in shown.iter().enumerate() {
        lines.extend(timeline_lines(**source, number, sources.len() == 1));
        let summary = source.table_title("Latency");
        tables += &details(&summary, &timeline_table(intervals(source.report)));
    }
    let values = lines.iter().flat_map(|line| line.points.iter());
    let end = values.clone().map(|point| point.0).fold(0.0, f64::max);
    let y = Scale::log(values.map(|point| point.1));
    let highest: Vec<String> = lines.iter().map(highest_in_words).collect();
    let chart = Chart {
        id: "latency-over-time".to_owned(),
        title: "Latency over time".to_owned(),
        description: format!("{what}, in milliseconds. {}", highest.join(". ")),
        x_title: "seconds",
        y_title: "milliseconds",
        x: Scale::linear(end, 10),
        y,
        lines,
    };
    (!shown.is_empty()).then(|| chart.html() + &tables)
}

fn intervals(report: &Report) -> &[LatencyInterval] {
    let timeline = report.latency_timeline.as_ref();
    timeline.map_or(&[], |timeline| timeline.intervals.as_slice())
}

/// Returns the lines of a report: p50, p99 and maximum of a single report, and only the p99 of one
/// of two.
fn timeline_lines(source: Source<'_>, number: usize, is_single: bool) -> Vec<Line> {
    type Value = fn(&LatencyInterval) -> f64;
    let values: [(&str, Value); 3] = [
        ("p50", |it| it.p50_us),
        ("p99", |it| it.p99_us),
        ("maximum", |it| it.max_us),
    ];
    let line = |(color, (name, value)): (usize, (&str, Value))| Line {
        name: source.line_name(name),
        color,
        is_dashed: color % 2 == 1,
        points: intervals(source.report)
            .iter()
            .map(|it| (it.seconds, Unit::Latency.convert(value(it))))
            .collect(),
        markers: Vec::new(),
    };
    if is_single {
        return values.into_iter().enumerate().map(line).collect();
    }
    vec![line((number, values[1]))]
}

fn highest_in_words(line: &Line) -> String {
    let highest = line.points.iter().map(|point| point.1).fold(0.0, f64::max);
    format!("{}: at most {}", line.name, number(highest))
}

fn timeline_table(intervals: &[LatencyInterval]) -> String {
    let row = |it: &LatencyInterval| {
        let ms = |us: f64| Cell::number(number(Unit::Latency.convert(us)));
        vec![
            Cell::number(number(it.seconds)),
            ms(it.p50_us),
            ms(it.p99_us),
            ms(it.max_us),
        ]
    };
    let rows: Vec<_> = intervals.iter().map(row).collect();
    let header = ["until second", "p50, ms", "p99, ms", "maximum, ms"];
    table(&header, &rows)
}

/// Returns the throughput over time of the reports; `None` if no run was long enough.
pub(super) fn throughput(sources: &[Source<'_>], what: &'static str) -> Option<String> {
    let has_plot = |source: &&Source<'_>| source.report.throughput.len() > 1;
    let shown: Vec<_> = sources.iter().filter(has_plot).collect();
    let line = |(color, source): (usize, &&Source<'_>)| Line {
        name: source.line_name(what),
        color,
        is_dashed: color % 2 == 1,
        points: source.report.throughput.clone(),
        markers: Vec::new(),
    };
    let lines: Vec<Line> = shown.iter().enumerate().map(line).collect();
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let highest = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(0.0, f64::max);
    let in_words: Vec<String> = lines.iter().map(highest_in_words).collect();
    let chart = Chart {
        id: "throughput".to_owned(),
        title: "Throughput over time".to_owned(),
        description: format!("{what}. {}", in_words.join(". ")),
        x_title: "seconds",
        y_title: what,
        x: Scale::linear(highest(|point| point.0), 10),
        y: Scale::linear(highest(|point| point.1), STEPS),
        lines: lines.clone(),
    };
    let tables = shown.iter().map(|source| {
        let summary = source.table_title("Throughput");
        details(&summary, &throughput_table(&source.report.throughput, what))
    });
    (!shown.is_empty()).then(|| chart.html() + &tables.collect::<String>())
}

/// Returns the points as a table. If there are more than [`TABLE_ROWS_MAX`], each row is an
/// average.
fn throughput_table(points: &Points, what: &str) -> String {
    let per_row = points.len().div_ceil(TABLE_ROWS_MAX).max(1);
    let row = |part: &[(f64, f64)]| {
        let sum: f64 = part.iter().map(|point| point.1).sum();
        let end = part.last().map_or(0.0, |point| point.0);
        vec![
            Cell::number(number((end * 1e2).round() / 1e2)),
            Cell::number(number(sum / part.len() as f64)),
        ]
    };
    let rows: Vec<_> = points.chunks(per_row).map(row).collect();
    table(&["until second", what], &rows)
}
