//! The text of a scrape, in Prometheus format 0.0.4 or OpenMetrics 1.0.0.

use std::fmt::{Display, Write as _};

use super::value::Histogram;

/// The two text formats. They differ in the headers of counters, in bucket bounds and at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Prometheus 0.0.4, the format of Kubernetes' servers.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only increases.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations by upper bound.
    Histogram,
}

impl Kind {
    /// Returns the name in a `# TYPE` line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A label name and its value.
pub type Label<'a> = (&'static str, &'a str);

/// The text of a scrape, as it is written.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

/// A metric family, as it is written. It writes its header before its first sample, and nothing if it has
/// none.
#[derive(Debug)]
pub struct Family<'a> {
    exposition: &'a mut Exposition,
    name: &'a str,
    kind: Kind,
    help: &'a str,
    begun: bool,
}

impl Exposition {
    /// Returns an empty text in `format`.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
        }
    }

    /// Begins the family `name`.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &'a str) -> Family<'a> {
        // OpenMetrics requires this suffix of counters. (One of upstream's gauges has it too.)
        debug_assert!(kind != Kind::Counter || name.ends_with("_total"), "{name}");
        Family {
            exposition: self,
            name,
            kind,
            help,
            begun: false,
        }
    }

    /// Returns the text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn push(&mut self, part: impl Display) {
        write!(self.text, "{part}").expect("writing to a String cannot fail");
    }
}

impl Family<'_> {
    /// Writes the value of a counter or gauge.
    pub fn value(&mut self, labels: &[&[Label<'_>]], value: impl Display) {
        self.begin();
        self.sample("", labels, None, value);
    }

    /// Writes a histogram; nothing without observations, to save some twenty lines per scrape.
    pub fn histogram(&mut self, labels: &[&[Label<'_>]], histogram: &Histogram) {
        if histogram.count() == 0 {
            return;
        }
        self.begin();
        let mut count = 0;
        for (bound, cumulative) in histogram.cumulative() {
            count = cumulative;
            let bound = match (bound == f64::INFINITY, self.exposition.format) {
                (true, _) => "+Inf".to_owned(),
                (false, Format::Prometheus) => bound.to_string(),
                (false, Format::OpenMetrics) if bound.fract() == 0.0 => format!("{bound:.1}"),
                (false, Format::OpenMetrics) => bound.to_string(),
            };
            self.sample("_bucket", labels, Some(&bound), cumulative);
        }
        self.sample("_sum", labels, None, histogram.sum());
        self.sample("_count", labels, None, count);
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let (kind, help) = (self.kind.as_str(), self.help);
        let name = match (self.exposition.format, self.kind) {
            (Format::OpenMetrics, Kind::Counter) => self.name.trim_end_matches("_total"),
            _ => self.name,
        };
        self.exposition
            .push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(
        &mut self,
        suffix: &str,
        labels: &[&[Label<'_>]],
        bound: Option<&str>,
        value: impl Display,
    ) {
        let out = &mut *self.exposition;
        out.push(self.name);
        out.push(suffix);
        let mut opened = false;
        let bound = bound.map(|bound| ("le", bound));
        for (label, value) in labels.iter().copied().flatten().chain(&bound) {
            out.push(if opened { "," } else { "{" });
            opened = true;
            out.push(format_args!("{label}=\"{}\"", Escaped(value)));
        }
        if opened {
            out.push("}");
        }
        out.push(format_args!(" {value}\n"));
    }
}

/// A label value, escaped for quotation marks.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(format: Format) -> String {
        let mut out = Exposition::new(format);
        let labels: &[Label<'_>] = &[("group", ""), ("resource", "a\"b\\c\nd")];
        let mut counted = out.family("done_total", Kind::Counter, "Done.");
        counted.value(&[labels, &[("more", "x")]], 3);
        counted.value(&[], 4);
        out.family("silent", Kind::Gauge, "Empty.");
        let histogram = Histogram::new(&[0.5, 1.0]);
        let mut family = out.family("took_seconds", Kind::Histogram, "How long.");
        family.histogram(&[], &Histogram::new(&[1.0]));
        histogram.observe(0.75);
        family.histogram(&[&labels[..1]], &histogram);
        out.finish()
    }

    #[test]
    fn metrics_are_encoded_as_prometheus_text() {
        let expected = r#"# HELP done_total Done.
# TYPE done_total counter
done_total{group="",resource="a\"b\\c\nd",more="x"} 3
done_total 4
# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{group="",le="0.5"} 0
took_seconds_bucket{group="",le="1"} 1
took_seconds_bucket{group="",le="+Inf"} 1
took_seconds_sum{group=""} 0.75
took_seconds_count{group=""} 1
"#;
        assert_eq!(render(Format::Prometheus), expected);
    }

    #[test]
    fn metrics_are_encoded_as_open_metrics() {
        let expected = r#"# HELP done Done.
# TYPE done counter
done_total{group="",resource="a\"b\\c\nd",more="x"} 3
done_total 4
# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{group="",le="0.5"} 0
took_seconds_bucket{group="",le="1.0"} 1
took_seconds_bucket{group="",le="+Inf"} 1
took_seconds_sum{group=""} 0.75
took_seconds_count{group=""} 1
# EOF
"#;
        assert_eq!(render(Format::OpenMetrics), expected);
    }
}
