//! Reports and comparisons as self-contained HTML pages: the result first, then what ran, key
//! figures, plots as SVG, and tables of all values. No scripts, no external resources.

mod chart;
mod comparison;
mod html;
mod plots;
mod scale;
mod sections;
mod verdict;

use self::html::{Cell, details, escape, page, paragraphs, section, table};
use self::plots::Source;
use self::sections::Card;
use self::verdict::Verdict;
use super::metric::{self, Category};
use super::report::{Report, Value};

pub(super) use comparison::render as render_comparison;

/// Returns the page of a report.
pub(super) fn render(report: &Report) -> String {
    let verdict = Verdict::of(report);
    let title = format!("{}: watchet bench {}", verdict.word(), report.load());
    let source = [Source { name: "", report }];
    let over_time = plots::latency_over_time(&source, &sections::timeline_title(report));
    let throughput = plots::throughput(&source, sections::throughput_unit(report));
    let optional = |title: &str, content: Option<String>| {
        content.map_or_else(String::new, |content| section(title, &content))
    };
    let over_time_title = format!("Latency over time: {}", sections::timeline_title(report));
    let content = [
        header(report, &verdict),
        sections::cards(&cards(report)),
        optional("Latency percentiles", percentiles(report)),
        optional(&over_time_title, over_time),
        optional("Throughput over time", throughput),
        sections::columns(&[
            section("CPU and memory of the server", &server(report)),
            optional("Faults", faults(report)),
        ]),
        section("What ran", &what_ran(report)),
        all_values(report),
    ];
    page(&title, &content.concat())
}

fn header(report: &Report, verdict: &Verdict) -> String {
    let class = if verdict.has_passed {
        "passed"
    } else {
        "failed"
    };
    let loss = match &verdict.loss {
        Some(loss) => format!("<p class=\"loss\">{}</p>\n", escape(loss)),
        None => String::new(),
    };
    format!(
        "<header class=\"verdict {class}\">\n<p class=\"label\">watchet bench {}</p>\n<h1>{}</h1>\n\
         {loss}{}<p>{}</p>\n{}</header>\n",
        escape(report.load()),
        verdict.word(),
        paragraphs("fault", &verdict.faults),
        escape(&verdict.work),
        paragraphs("warning", &verdict.warnings),
    )
}

fn cards(report: &Report) -> Vec<Card> {
    let figures = sections::key_figures(report).into_iter();
    figures
        .map(|figure| Card {
            values: vec![(String::new(), figure.metric.unit.text(figure.number))],
            note: match figure.metric.unit {
                metric::Unit::Latency => figure.metric.title.to_owned(),
                _ => String::new(),
            },
            title: figure.title,
            class: "",
        })
        .collect()
}

fn percentiles(report: &Report) -> Option<String> {
    let latencies: Vec<_> = report
        .latencies()
        .into_iter()
        .filter_map(|(key, _)| plots::distribution(report, key, metric::title(key)))
        .collect();
    let title = "Latency percentiles";
    (!latencies.is_empty()).then(|| plots::percentiles("percentiles", title, &latencies))
}

fn server(report: &Report) -> String {
    let mut rows = sections::values(report, Category::Server);
    if rows.is_empty() {
        return "<p>Not measured: the run had no --pid.</p>\n".to_owned();
    }
    let times = report
        .get_number("cpu_ms")
        .zip(report.get_number("elapsed_ms"));
    if let Some((cpu_ms, elapsed_ms)) = times.filter(|(_, elapsed_ms)| *elapsed_ms > 0.0) {
        let cores = metric::number(cpu_ms / elapsed_ms);
        rows.push(vec![
            Cell::text("Cores used on average"),
            Cell::number(cores),
        ]);
    }
    table(&[], &rows)
}

fn faults(report: &Report) -> Option<String> {
    let rows: Vec<_> = report
        .rows()
        .filter_map(|(key, value)| {
            let metric = metric::find(key).filter(|it| it.category == Category::Fault)?;
            let Value::Count(count) = value else {
                return None;
            };
            let (word, class) = match count {
                0 => ("passed", "good"),
                _ => ("failed", "bad"),
            };
            Some(vec![
                Cell::text(metric.title),
                Cell::number(metric::number(*count as f64)),
                Cell::with_class(word, class),
            ])
        })
        .collect();
    (!rows.is_empty()).then(|| table(&["checked", "count", "result"], &rows))
}

fn what_ran(report: &Report) -> String {
    let environment = sections::environment(report).into_iter();
    let environment: Vec<_> = environment
        .map(|(name, value)| vec![Cell::text(name), Cell::text(value)])
        .collect();
    let tables = [
        table(&[], &environment),
        table(&["parameter", "value"], &sections::parameters(report)),
    ];
    sections::command(report, "Command to repeat it") + &sections::columns(&tables)
}

/// Returns all values with the keys of the JSON report and of `--print`.
fn all_values(report: &Report) -> String {
    let rows: Vec<_> = report
        .rows()
        .map(|(key, value)| vec![Cell::text(key), Cell::text(value.to_string())])
        .collect();
    details(
        "All values of the report, with their keys and units in JSON",
        &table(&[], &rows),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::latency::Latencies;
    use super::super::latency_timeline::LatencyTimeline;
    use super::super::metadata::Metadata;
    use super::super::server_info::ServerInfo;
    use super::*;

    fn report() -> Report {
        let mut latencies = Latencies::default();
        let mut timeline = LatencyTimeline::default();
        for us in 1..=1_000 {
            latencies.record(Duration::from_micros(us));
            timeline.record(Duration::from_millis(us), Duration::from_micros(us));
        }
        let mut report = Report::default();
        report.text("load", "watch");
        report.text("target", "https://a/?<b>&c");
        report.count("events_delivered", 997_u32);
        report.count("events_lost", 3_u32);
        report.latency("latency_us_last", &latencies);
        report.latency("latency_us_each", &latencies);
        report.timeline("latency_us_last", &timeline);
        report.throughput = vec![(0.1, 500.0), (0.2, 700.0)];
        report
    }

    #[test]
    fn the_page_begins_with_the_result_and_has_all_values() {
        let mut report = report();
        report.fault(3, "events were <lost>");
        report.metadata = Some(Metadata {
            command: "watchet bench watch --server '<x>'".to_owned(),
            ..Metadata::default()
        });
        report.server = Some(ServerInfo {
            version: Some("v1 <script>".to_owned()),
            storage: None,
        });
        let page = render(&report);
        // Two drawings of each plot: two distributions, three percentiles, one throughput.
        assert_eq!(page.matches("<polyline").count(), 2 * (2 + 3 + 1));
        for part in [
            "<title>Failed: watchet bench watch</title>",
            "<h1>Failed</h1>\n<p class=\"loss\">3 of 1,000 events lost</p>",
            "<p class=\"fault\">3 events were &lt;lost&gt;.</p>",
            "https://a/?&lt;b&gt;&amp;c",
            "v1 &lt;script&gt;",
            "watchet bench watch --server &#39;&lt;x&gt;&#39;",
            "<h2>Latency percentiles</h2>",
            ">milliseconds</text>",
            ">p99.9</text>",
            "<th scope=\"row\">latency_us_last</th>",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let result = page.find("<h1>").unwrap();
        assert!(result < page.find("<svg").unwrap());
        for outside in ["src=", "href=", "url(", "<script", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_parsed_report_has_the_same_page() {
        let report = report();
        let parsed = Report::parse(&report.json()).unwrap();
        assert_eq!(render(&parsed), render(&report));
    }

    #[test]
    fn a_report_without_plots_has_a_page() {
        let page = render(&Report::default());
        assert!(page.contains("<h1>Passed</h1>"), "{page}");
        assert_eq!(page.matches("<polyline").count(), 0, "{page}");
    }
}
