//! The report as a self-contained HTML page: a table, and plots as SVG. No scripts, no external
//! resources.

use std::fmt::Write as _;

use super::report::Report;

/// The drawing area of a plot, and the margins for labels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 20.0;
const BELOW: f64 = 50.0;

/// Colours and dashes of the lines in a plot; the dashes distinguish them without colours.
const STROKES: [(&str, &str); 8] = [
    ("#1b5e9b", "none"),
    ("#b3541e", "none"),
    ("#3b7d3b", "6 3"),
    ("#7b3f8c", "2 3"),
    ("#1b5e9b", "8 4"),
    ("#b3541e", "4 4"),
    ("#3b7d3b", "1 2"),
    ("#555555", "none"),
];

/// A plot.
struct Plot<'r> {
    title: &'static str,
    x_name: &'static str,
    y_name: &'static str,
    lines: Vec<(&'static str, &'r [(f64, f64)])>,
    /// Positions and labels of the horizontal axis.
    x_ticks: Vec<(f64, String)>,
}

/// Returns the page.
pub(super) fn render(report: &Report) -> String {
    let mut rows = String::new();
    for (key, value) in report.rows() {
        let row = format!("<tr><th>{}</th><td>{}</td></tr>\n", text(key), text(&value));
        rows.push_str(&row);
    }
    let faults: String = report
        .faults
        .iter()
        .map(|fault| format!("<p class=\"fault\">{}</p>\n", text(fault)))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>watchet bench</title>\n\
         <style>\nbody {{ font: 15px sans-serif; margin: 2em auto; max-width: 60em }}\n\
         th {{ text-align: left; font-weight: normal; padding-right: 2em }}\n\
         td {{ font-family: monospace }}\n.fault {{ color: #a00 }}\n\
         svg text {{ font: 12px sans-serif }}\n</style>\n<h1>watchet bench</h1>\n\
         {faults}{}{}<table>\n{rows}</table>\n</html>\n",
        svg(&latencies(report)),
        svg(&throughput(report)),
    )
}

fn latencies(report: &Report) -> Plot<'_> {
    let lines = report.distributions.iter();
    let names = [
        "50 %",
        "90 %",
        "99 %",
        "99.9 %",
        "99.99 %",
        "99.999 %",
        "99.9999 %",
    ];
    let nines = |step: usize| {
        if step == 0 {
            2_f64.log10()
        } else {
            step as f64
        }
    };
    let ticks = names.iter().enumerate();
    Plot {
        title: "Latency by quantile",
        x_name: "quantile",
        y_name: "us",
        lines: lines
            .map(|(name, points)| (*name, points.as_slice()))
            .collect(),
        x_ticks: ticks
            .map(|(step, name)| (nines(step), (*name).to_owned()))
            .collect(),
    }
}

fn throughput(report: &Report) -> Plot<'_> {
    let end = report.throughput.last().map_or(0.0, |(second, _)| *second);
    let step = nice(end / 8.0);
    Plot {
        title: "Throughput",
        x_name: "seconds",
        y_name: "per second",
        lines: vec![("", report.throughput.as_slice())],
        x_ticks: (0..=8)
            .map(|n| f64::from(n) * step)
            .map(|x| (x, short(x)))
            .collect(),
    }
}

/// Returns the next of 1, 2, 5, 10, … that is at least `value`.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let found = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|step| step * power >= value);
    found.unwrap_or(10.0) * power
}

/// Returns a label without superfluous digits.
fn short(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    rounded.to_string()
}

/// Returns a plot, or a sentence if there is nothing to plot.
fn svg(plot: &Plot<'_>) -> String {
    let points = || plot.lines.iter().flat_map(|(_, points)| points.iter());
    let x_max = points().map(|point| point.0).fold(0.0, f64::max);
    let y_step = nice(points().map(|point| point.1).fold(0.0, f64::max) / 5.0);
    if points().count() < 2 || x_max <= 0.0 {
        return format!("<h2>{}</h2>\n<p>Too short to plot.</p>\n", text(plot.title));
    }
    let at_x = |x: f64| LEFT + x / x_max * WIDTH;
    let at_y = |y: f64| TOP + HEIGHT - y / (y_step * 5.0) * HEIGHT;
    let (width, height) = (LEFT + WIDTH + 160.0, TOP + HEIGHT + BELOW);
    let mut out = format!(
        "<h2>{}</h2>\n<svg viewBox=\"0 0 {width} {height}\" role=\"img\">\n",
        text(plot.title)
    );
    let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
    let mut add = |line: String| writeln!(out, "{line}").expect("writing to memory cannot fail");
    for step in 0..=5 {
        let value = f64::from(step) * y_step;
        let y = at_y(value);
        add(format!(
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(value)
        ));
    }
    for (value, name) in plot.x_ticks.iter().filter(|(value, _)| *value <= x_max) {
        let x = at_x(*value);
        add(format!(
            "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#333\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            text(name)
        ));
    }
    add(format!(
        "<text x=\"{LEFT}\" y=\"12\" text-anchor=\"end\">{}</text>\
         <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        text(plot.y_name),
        bottom + 36.0,
        text(plot.x_name)
    ));
    for (number, (name, points)) in plot.lines.iter().enumerate() {
        let (colour, dashes) = STROKES[number % STROKES.len()];
        let path = points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y)));
        let path: Vec<String> = path.collect();
        add(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            path.join(" "),
            right + 8.0,
            TOP + 16.0 * (number + 1) as f64,
            text(name)
        ));
    }
    out + "</svg>\n"
}

/// Escapes `raw` as text of a page.
fn text(raw: &str) -> String {
    raw.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::latency::Latencies;
    use super::*;

    #[test]
    fn the_page_has_all_rows_and_no_external_resources() {
        let mut latencies = Latencies::default();
        for us in 1..=1_000 {
            latencies.record(Duration::from_micros(us));
        }
        let mut report = Report::default();
        report.text("target", "https://a/?<b>&c");
        report.latency("latency_us_last", &latencies);
        report.latency("latency_us_each", &latencies);
        report.throughput = vec![(0.1, 500.0), (0.2, 700.0)];
        report.fault(3, "events were lost");
        let page = render(&report);
        assert_eq!(page.matches("<polyline").count(), 3);
        assert!(page.contains("https://a/?&lt;b&gt;&amp;c"), "{page}");
        assert!(page.contains("3 events were lost"), "{page}");
        assert!(
            page.contains(">99.9 %<") && !page.contains(">99.99 %<"),
            "{page}"
        );
        // The last point of a distribution is at the right border; 999 of 1000 us are near the top.
        assert!(page.contains("810.0,20.3\""), "{page}");
        for outside in ["src=", "href=", "url(", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn an_empty_report_has_a_page() {
        let page = render(&Report::default());
        assert_eq!(page.matches("Too short to plot").count(), 2);
    }

    #[test]
    fn axes_have_round_numbers() {
        for (value, expected) in [
            (0.0, 1.0),
            (0.3, 0.5),
            (1.0, 1.0),
            (7.0, 10.0),
            (120.0, 200.0),
        ] {
            assert_eq!(short(nice(value)), short(expected), "{value}");
        }
    }
}
