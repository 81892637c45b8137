//! Plots as SVG. Each is drawn twice, for wide and for narrow screens, because text in an SVG
//! scales with the drawing; the style sheet shows the one that fits.

use std::fmt::Write as _;

use super::html::escape;
use super::scale::Scale;

/// A line of a plot.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub name: String,
    /// The number of its colour in the style sheet.
    pub color: usize,
    pub is_dashed: bool,
    pub points: Vec<(f64, f64)>,
    /// Points with a marker, and the tooltip of each.
    pub markers: Vec<(f64, f64, String)>,
}

/// A plot of lines.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    /// Unique in the page.
    pub id: String,
    pub title: String,
    /// The content in words, for screen readers.
    pub description: String,
    pub x_title: &'static str,
    pub y_title: &'static str,
    pub x: Scale,
    pub y: Scale,
    pub lines: Vec<Line>,
}

/// The number of colours in the style sheet.
pub(super) const COLORS: usize = 8;

/// The size of a drawing.
struct Layout {
    class: &'static str,
    width: f64,
    height: f64,
    x_ticks: u32,
    y_ticks: u32,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        class: "wide",
        width: 800.0,
        height: 320.0,
        x_ticks: 10,
        y_ticks: 5,
    },
    Layout {
        class: "narrow",
        width: 340.0,
        height: 270.0,
        x_ticks: 5,
        y_ticks: 5,
    },
];

/// The margins around the plot, for the labels.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 46.0;
/// The width of a character of a label, to avoid overlaps.
const CHARACTER: f64 = 7.0;

impl Chart {
    /// Returns the legend and the drawings as HTML.
    pub(super) fn html(&self) -> String {
        let mut html = "<figure>\n".to_owned();
        if self.lines.len() > 1 {
            html += &self.legend();
        }
        for layout in &LAYOUTS {
            html += &self.svg(layout);
        }
        html + "</figure>\n"
    }

    fn legend(&self) -> String {
        let item = |line: &Line| {
            format!(
                "<li><svg class=\"key\" viewBox=\"0 0 28 10\" aria-hidden=\"true\">\
                 <path class=\"{}\" d=\"M0 5H28\"/></svg>{}</li>\n",
                line.class(),
                escape(&line.name)
            )
        };
        let items: String = self.lines.iter().map(item).collect();
        format!("<ul class=\"legend\">\n{items}</ul>\n")
    }

    fn svg(&self, layout: &Layout) -> String {
        let Layout {
            class,
            width,
            height,
            ..
        } = layout;
        // Can have a key of a report that another program has written.
        let id = escape(&format!("{}-{class}", self.id));
        let mut svg = format!(
            "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n\
             <desc id=\"{id}-desc\">{}</desc>\n",
            escape(&self.title),
            escape(&self.description)
        );
        self.draw_axes(&mut svg, layout);
        for line in &self.lines {
            self.draw_line(&mut svg, layout, line);
        }
        svg + "</svg>\n"
    }

    fn draw_axes(&self, svg: &mut String, layout: &Layout) {
        let (bottom, right) = (layout.height - BOTTOM, layout.width - RIGHT);
        for (value, label) in self.y.ticks(layout.y_ticks) {
            let y = layout.y(self.y, value);
            add(
                svg,
                format_args!(
                    "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                     <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                    LEFT - 7.0,
                    y + 4.0
                ),
            );
        }
        let mut free_from = 0.0;
        for (value, label) in self.x.ticks(layout.x_ticks) {
            let x = layout.x(self.x, value);
            add(
                svg,
                format_args!("<path class=\"tick\" d=\"M{x:.1} {bottom}v5\"/>"),
            );
            let half = label.len() as f64 * CHARACTER / 2.0;
            if x - half < free_from || x + half > layout.width {
                continue;
            }
            free_from = x + half + CHARACTER;
            let y = bottom + 18.0;
            add(
                svg,
                format_args!("<text class=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>"),
            );
        }
        add(
            svg,
            format_args!(
                "<path class=\"tick\" d=\"M{LEFT} {bottom}H{right}\"/>\
                 <text class=\"axis\" x=\"4\" y=\"14\">{}</text>\
                 <text class=\"axis end\" x=\"{right}\" y=\"{:.1}\">{}</text>",
                escape(self.y_title),
                layout.height - 8.0,
                escape(self.x_title)
            ),
        );
    }

    fn draw_line(&self, svg: &mut String, layout: &Layout, line: &Line) {
        let at = |x: f64, y: f64| (layout.x(self.x, x), layout.y(self.y, y));
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(x, y)| at(*x, *y))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        add(
            svg,
            format_args!(
                "<polyline class=\"{}\" points=\"{}\"/>",
                line.class(),
                points.join(" ")
            ),
        );
        for (x, y, text) in &line.markers {
            let (x, y) = at(*x, *y);
            let (color, text) = (line.color % COLORS, escape(text));
            add(
                svg,
                format_args!(
                    "<circle class=\"c{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">\
                     <title>{text}</title></circle>"
                ),
            );
        }
    }
}

impl Line {
    fn class(&self) -> String {
        let dashed = if self.is_dashed { " dashed" } else { "" };
        format!("line c{}{dashed}", self.color % COLORS)
    }
}

impl Layout {
    fn x(&self, scale: Scale, value: f64) -> f64 {
        LEFT + scale.position(value) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, scale: Scale, value: f64) -> f64 {
        self.height - BOTTOM - scale.position(value) * (self.height - TOP - BOTTOM)
    }
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(svg, "{element}").expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(max: f64) -> Chart {
        let line = |name: &str, color| Line {
            name: name.to_owned(),
            color,
            is_dashed: color == 1,
            points: vec![(0.0, 0.0), (max, 10.0)],
            markers: vec![(max, 10.0, "p99: <10 ms>".to_owned())],
        };
        Chart {
            id: "one".to_owned(),
            title: "A & B".to_owned(),
            description: "they grow".to_owned(),
            x_title: "seconds",
            y_title: "per second",
            x: Scale::linear(max, 5),
            y: Scale::linear(10.0, 5),
            lines: vec![line("<a>", 0), line("b", 1)],
        }
    }

    #[test]
    fn a_plot_is_drawn_in_two_sizes_with_names() {
        let html = chart(5.0).html();
        assert_eq!(html.matches("<svg class=\"plot").count(), 2);
        assert_eq!(html.matches("<polyline").count(), 4);
        assert_eq!(html.matches("dashed").count(), 3, "the legend too: {html}");
        for part in [
            "role=\"img\" aria-labelledby=\"one-wide-title one-wide-desc\"",
            "<title id=\"one-narrow-title\">A &amp; B</title>",
            "<desc id=\"one-narrow-desc\">they grow</desc>",
            "</svg>&lt;a&gt;</li>",
            "<title>p99: &lt;10 ms&gt;</title>",
            // The corners of the wide drawing.
            "points=\"58.0,274.0 776.0,28.0\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut chart = chart(5.0);
        chart.x = Scale::Nines { max: 7.0 };
        let html = chart.html();
        let (wide, narrow) = html.split_once("plot narrow").unwrap();
        for label in ["p50", "p90", "p99", "p99.9", "p99.999"] {
            assert!(wide.contains(&format!(">{label}</text>")), "{label}");
        }
        assert!(!narrow.contains(">p99.9999</text>"), "{narrow}");
    }
}
