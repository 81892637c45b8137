//! The page of a comparison: both reports in each plot.

use super::html::{Cell, escape, page, paragraphs, section, table};
use super::plots::{self, Source};
use super::sections::{self, Card};
use super::verdict::Verdict;
use crate::compare::{Assessment, Comparison, NamedReport, Row, ratio_text};
use crate::metric;

/// Returns the page of a comparison.
pub(crate) fn render(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let title = format!(
        "{} and {}: watchet bench {}",
        a.name,
        b.name,
        a.report.load()
    );
    let sources = [a, b].map(|named| Source {
        name: &named.name,
        report: &named.report,
    });
    let over_time = plots::latency_over_time(&sources, &sections::timeline_title(&a.report));
    let throughput = plots::throughput(&sources, sections::throughput_unit(&a.report));
    let optional = |title: &str, content: Option<String>| {
        content.map_or_else(String::new, |content| section(title, &content))
    };
    let over_time_title = format!(
        "p99 latency over time: {}",
        sections::timeline_title(&a.report)
    );
    let content = [
        header(comparison),
        sections::cards(&cards(comparison)),
        percentiles(comparison),
        optional(&over_time_title, over_time),
        optional("Throughput over time", throughput),
        section("All values", &values(comparison)),
        section("What ran", &what_ran(comparison)),
    ];
    page(&title, &content.concat())
}

fn header(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let warnings = comparison.warnings();
    let warnings: Vec<String> = warnings
        .iter()
        .map(|it| format!("Warning: {it}."))
        .collect();
    format!(
        "<header class=\"verdict comparison\">\n<p class=\"label\">watchet bench {}</p>\n\
         <h1>{} compared with {}</h1>\n<p class=\"summary\">{}.</p>\n\
         <ul class=\"results\">\n{}{}</ul>\n{}</header>\n",
        escape(a.report.load()),
        escape(&b.name),
        escape(&a.name),
        escape(&comparison.summary()),
        result(a),
        result(b),
        paragraphs("warning", &warnings),
    )
}

/// Returns the result of one of the runs.
fn result(named: &NamedReport) -> String {
    let verdict = Verdict::of(&named.report);
    let class = if verdict.has_passed { "good" } else { "bad" };
    let loss = verdict
        .loss
        .map_or_else(String::new, |loss| format!(": {loss}"));
    format!(
        "<li><span class=\"name\">{}</span> <strong class=\"{class}\">{}</strong>{}</li>\n",
        escape(&named.name),
        if verdict.has_passed {
            "passed"
        } else {
            "failed"
        },
        escape(&loss)
    )
}

/// Returns the key figures that both runs have.
fn cards(comparison: &Comparison) -> Vec<Card> {
    let (name_a, name_b) = (&comparison.a.name, &comparison.b.name);
    let of_b = sections::key_figures(&comparison.b.report);
    let of_a = sections::key_figures(&comparison.a.report).into_iter();
    let pairs = of_a.filter_map(|a| {
        let b = of_b
            .iter()
            .find(|b| b.metric == a.metric && b.title == a.title)?;
        Some((a, b.number))
    });
    pairs
        .map(|(a, b)| {
            let unit = a.metric.unit;
            let assessment = Assessment::of(a.metric.better, a.number, b);
            let ratio = (a.number > 0.0).then(|| format!("ratio {}", ratio_text(b / a.number)));
            let note = [Some(assessment.text().to_owned()), ratio].into_iter();
            let note: Vec<String> = note.flatten().filter(|it| !it.is_empty()).collect();
            Card {
                title: a.title,
                values: vec![
                    (name_a.clone(), unit.text(a.number)),
                    (name_b.clone(), unit.text(b)),
                ],
                note: note.join(", "),
                class: class(assessment),
            }
        })
        .collect()
}

const fn class(assessment: Assessment) -> &'static str {
    match assessment {
        Assessment::Better => "good",
        Assessment::Worse => "bad",
        Assessment::Similar | Assessment::None => "",
    }
}

/// Returns the percentiles of each latency, those of the primary one larger.
fn percentiles(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let latencies = a.report.latencies();
    let primary = metric::primary_latency(&latencies).map(|(key, _)| key);
    let (mut first, mut others) = (String::new(), Vec::new());
    for (key, _) in latencies {
        let both: Vec<_> = [a, b]
            .into_iter()
            .filter_map(|it| plots::distribution(&it.report, key, it.name.clone()))
            .collect();
        if both.is_empty() {
            continue;
        }
        let title = format!("Latency percentiles: {}", metric::title(key));
        let content = plots::percentiles(&format!("percentiles-{key}"), &title, &both);
        let section = section(&title, &content);
        match primary == Some(key) {
            true => first = section,
            false => others.push(section),
        }
    }
    first + &sections::columns(&others)
}

fn values(comparison: &Comparison) -> String {
    let cell = |value: &Option<String>| Cell::number(value.as_deref().unwrap_or("-"));
    let row = |row: &Row| {
        vec![
            Cell::text(&row.title),
            cell(&row.a),
            cell(&row.b),
            Cell::number(row.ratio_text()),
            Cell::with_class(row.assessment.text(), class(row.assessment)),
        ]
    };
    let rows: Vec<_> = comparison.rows.iter().map(row).collect();
    let (a, b) = (&comparison.a.name, &comparison.b.name);
    table(&["value", a, b, "ratio", "result"], &rows)
}

fn what_ran(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let of = |named: &NamedReport| sections::environment(&named.report);
    let (of_a, of_b) = (of(a), of(b));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in of_a.iter().chain(&of_b) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let value = |pairs: &[(&str, String)], name: &str| {
        let pair = pairs.iter().find(|pair| pair.0 == name);
        Cell::text(pair.map_or("-", |pair| pair.1.as_str()))
    };
    let mut rows: Vec<_> = names
        .into_iter()
        .map(|name| vec![Cell::text(name), value(&of_a, name), value(&of_b, name)])
        .collect();
    rows.extend(comparison.parameters.iter().map(|parameter| {
        let shown = |value: &Option<String>| Cell::text(value.as_deref().unwrap_or("not set"));
        vec![
            Cell::text(&parameter.name),
            shown(&parameter.a),
            shown(&parameter.b),
        ]
    }));
    let commands = [a, b].map(|named| {
        let title = format!("Command to repeat {}", named.name);
        sections::command(&named.report, &title)
    });
    table(&["", &a.name, &b.name], &rows) + &commands.concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latency::Latencies;
    use crate::report::Report;

    fn named(name: &str, us: u64, rate: f64) -> NamedReport {
        let mut latencies = Latencies::default();
        for number in 1..=1_000 {
            latencies.record(Duration::from_micros(us + number));
        }
        let mut report = Report::default();
        report.text("load", "watch");
        report.count("events_delivered", 10_u32);
        report.count("events_lost", 0_u32);
        report.number("deliveries_per_s", rate);
        report.latency("latency_us_last", &latencies);
        report.throughput = vec![(0.1, rate), (0.2, rate)];
        NamedReport {
            name: name.to_owned(),
            report,
        }
    }

    #[test]
    fn both_reports_are_in_each_plot() {
        let (a, b) = (named("<old>", 9_000, 50.0), named("new", 100, 50.0));
        let page = render(&Comparison::new(a, b).unwrap());
        // Two drawings of two plots with two lines.
        assert_eq!(page.matches("<polyline").count(), 2 * 2 * 2, "{page}");
        for part in [
            "<h1>new compared with &lt;old&gt;</h1>",
            "<strong class=\"good\">passed</strong>: 0 of 10 events lost",
            "<span class=\"name\">new</span> <strong>50 /s</strong>",
            "<span class=\"note \">similar, ratio 1.00</span>",
            "<td class=\"good\">better</td>",
            "</svg>&lt;old&gt;</li>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
