//! `bench compare`: reads two reports and compares their values.

mod parameters;
mod values;

use std::path::{Path, PathBuf};

use super::args::CompareArgs;
use super::error::BenchError;
use super::report::Report;
use parameters::{Difference, differences};
use values::{SIMILAR, rows};

pub(super) use values::{Assessment, Row, ratio_text};

/// A report with its name in the comparison.
#[derive(Debug)]
pub(super) struct NamedReport {
    pub name: String,
    pub report: Report,
}

/// Two reports of the same load, and how their values differ.
#[derive(Debug)]
pub(super) struct Comparison {
    pub a: NamedReport,
    pub b: NamedReport,
    pub parameters: Vec<Difference>,
    pub rows: Vec<Row>,
}

/// Reads both reports and compares them.
///
/// # Errors
/// A file is not a report, or the reports are of different loads.
pub(super) fn read(args: &CompareArgs) -> Result<Comparison, BenchError> {
    let (name_a, name_b) = names(args);
    let (a, b) = (read_report(&args.a)?, read_report(&args.b)?);
    Comparison::new(
        NamedReport {
            name: name_a,
            report: a,
        },
        NamedReport {
            name: name_b,
            report: b,
        },
    )
}

/// Returns the names of the reports: the given ones, or those of the files without their extension
/// if these differ.
fn names(args: &CompareArgs) -> (String, String) {
    let stem = |path: &Path| {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        stem.to_string_lossy().into_owned()
    };
    let whole = |path: &PathBuf| path.display().to_string();
    let (mut a, mut b) = (stem(&args.a), stem(&args.b));
    if a == b {
        (a, b) = (whole(&args.a), whole(&args.b));
    }
    (
        args.name_a.clone().unwrap_or(a),
        args.name_b.clone().unwrap_or(b),
    )
}

fn read_report(path: &Path) -> Result<Report, BenchError> {
    let text = std::fs::read_to_string(path).map_err(|source| BenchError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    Report::parse(&text).map_err(|source| BenchError::NoReport {
        path: path.to_owned(),
        source,
    })
}

impl Comparison {
    /// Compares two reports.
    ///
    /// # Errors
    /// They are of different loads.
    pub(super) fn new(a: NamedReport, b: NamedReport) -> Result<Self, BenchError> {
        let load = |named: &NamedReport| named.report.load().to_owned();
        let (load_a, load_b) = (load(&a), load(&b));
        if load_a != load_b {
            return Err(BenchError::Usage(format!(
                "{} is a report of `bench {load_a}` and {} one of `bench {load_b}`: only reports of \
                 the same load can be compared",
                a.name, b.name
            )));
        }
        Ok(Self {
            parameters: differences(&a.report, &b.report),
            rows: rows(&a.report, &b.report),
            a,
            b,
        })
    }

    /// Returns the number of values of B with this assessment.
    pub(super) fn count(&self, assessment: Assessment) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.assessment == assessment).count()
    }

    /// Returns why the comparison may be invalid, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let (a, b) = (&self.a.name, &self.b.name);
        let mut warnings = Vec::new();
        for NamedReport { name, report } in [&self.a, &self.b] {
            if !report.faults.is_empty() {
                let faults = report.faults.join("; ");
                warnings.push(format!("{name} failed: {faults}"));
            } else if report.is_generator_bottleneck() {
                warnings.push(format!(
                    "in {name} the load generator was the bottleneck: its rates are lower bounds of the \
                     server's, and its latencies include the generator's queue"
                ));
            }
        }
        if !self.parameters.is_empty() {
            let named: Vec<String> = self.parameters.iter().map(|it| it.text(a, b)).collect();
            warnings.push(format!(
                "the runs have different parameters: {}",
                named.join("; ")
            ));
        }
        let machine = |named: &NamedReport| Some(named.report.metadata.as_ref()?.machine.text());
        if let (Some(machine_a), Some(machine_b)) = (machine(&self.a), machine(&self.b))
            && machine_a != machine_b
        {
            warnings.push(format!(
                "the runs are from different machines: {a} from {machine_a}; {b} from {machine_b}"
            ));
        }
        warnings
    }

    /// Returns the comparison as a text table.
    pub(super) fn table(&self) -> String {
        let header = [
            "value".to_owned(),
            self.a.name.clone(),
            self.b.name.clone(),
            "ratio".to_owned(),
            "result".to_owned(),
        ];
        let lines: Vec<[String; 5]> = self.rows.iter().map(Row::cells).collect();
        let width = |column: usize| {
            let cells = lines.iter().chain([&header]).map(|line| &line[column]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; 5] = std::array::from_fn(width);
        let mut table = String::new();
        for line in [&header].into_iter().chain(&lines) {
            let [title, a, b, ratio, assessment] = line;
            let text = format!(
                "{title:0$}  {a:>1$}  {b:>2$}  {ratio:>3$}  {assessment}",
                widths[0], widths[1], widths[2], widths[3]
            );
            table.push_str(text.trim_end());
            table.push('\n');
        }
        table + &self.summary() + "\n"
    }

    /// Returns the numbers of better, worse and similar values in a sentence.
    pub(super) fn summary(&self) -> String {
        let count = |assessment| self.count(assessment);
        let (better, worse) = (count(Assessment::Better), count(Assessment::Worse));
        let similar = count(Assessment::Similar);
        format!(
            "{} is better than {} in {better} of {} values and worse in {worse}; {similar} differ by at \
             most {:.0} %",
            self.b.name,
            self.a.name,
            better + worse + similar,
            SIMILAR * 1e2
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Machine, Metadata};

    fn report(load: &str, delivered_per_s: f64, p50_us: u64, lost: u32) -> Report {
        let text = serde_json::json!({
            "load": load, "watchers": 10, "target": "https://a", "events_lost": lost,
            "deliveries_per_s": delivered_per_s, "bytes": 2000,
            "latency_us_last": {"count": 9, "mean": 2.0, "p50": p50_us, "p90": 4000, "p99": 5000,
                "p999": 6000, "max": 7000},
            "generator_is_bottleneck": "false",
            "faults": if lost > 0 { vec!["1 events were lost"] } else { vec![] },
        });
        Report::parse(&text.to_string()).unwrap()
    }

    fn named(name: &str, report: Report) -> NamedReport {
        NamedReport {
            name: name.to_owned(),
            report,
        }
    }

    fn metadata(parameters: &[(&str, &str)], cores: usize) -> Option<Metadata> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Some(Metadata {
            parameters: parameters.iter().map(owned).collect(),
            machine: Machine {
                cores,
                ..Machine::default()
            },
            ..Metadata::default()
        })
    }

    #[test]
    fn each_value_is_assessed() {
        let (a, b) = (
            report("watch", 100.0, 2000, 0),
            report("watch", 80.0, 1000, 0),
        );
        let compared = Comparison::new(named("old", a), named("new", b)).unwrap();
        let table = compared.table();
        let find = |title: &str| {
            let line = table.lines().find(|line| line.starts_with(title));
            line.unwrap_or_else(|| panic!("{title}: {table}"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        let last = |title: &str, count: usize| {
            let words = find(title);
            words[words.len() - count..].join(" ")
        };
        assert_eq!(
            last("Acknowledgement to last watcher, p50", 6),
            "2 ms 1 ms 0.50 better"
        );
        assert_eq!(last("Deliveries", 6), "100 /s 80 /s 0.80 worse");
        assert_eq!(last("Events lost", 3), "0 0 -");
        // Neither more nor fewer bytes are better.
        assert_eq!(last("Size of all bodies", 5), "0.002 MB 0.002 MB 1.00");
        assert!(
            table.ends_with(
                "new is better than old in 1 of 7 values and worse in 1; 5 differ by at most 5 %\n"
            ),
            "{table}"
        );
        assert_eq!(compared.warnings(), [""; 0]);
    }

    #[test]
    fn different_loads_are_an_error() {
        let (a, b) = (report("watch", 1.0, 1, 0), report("write", 1.0, 1, 0));
        let error = Comparison::new(named("old", a), named("new", b)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert_eq!(
            error.to_string(),
            "old is a report of `bench watch` and new one of `bench write`: only reports of the same \
             load can be compared"
        );
    }

    #[test]
    fn different_parameters_machines_and_faults_are_warnings() {
        let (mut a, mut b) = (report("watch", 1.0, 1, 0), report("watch", 1.0, 1, 1));
        a.metadata = metadata(&[("events", "500"), ("rate", "50"), ("watchers", "10")], 2);
        b.metadata = metadata(&[("rate", "50.0"), ("writers", "2")], 4);
        let compared = Comparison::new(named("A", a), named("B", b)).unwrap();
        assert_eq!(
            compared.warnings(),
            [
                "B failed: 1 events were lost",
                "the runs have different parameters: events (A: 500, B: not set); \
                 writers (A: not set, B: 2)",
                "the runs are from different machines: A from 2 cores; B from 4 cores",
            ]
        );
    }

    #[test]
    fn rows_are_the_parameters_of_old_reports() {
        let mut a = report("watch", 1.0, 1, 0);
        a.metadata = metadata(&[("events", "500")], 2);
        let b = report("watch", 1.0, 1, 0);
        let compared = Comparison::new(named("A", a), named("B", b)).unwrap();
        assert_eq!(compared.parameters, []);
    }

    #[test]
    fn reports_are_named_after_their_files() {
        let args = |a: &str, b: &str, name_b: Option<&str>| CompareArgs {
            a: a.into(),
            b: b.into(),
            name_a: None,
            name_b: name_b.map(str::to_owned),
            html: None,
        };
        let check = |args: &CompareArgs, a: &str, b: &str| {
            assert_eq!(names(args), (a.to_owned(), b.to_owned()));
        };
        check(&args("x/old.json", "new.json", None), "old", "new");
        check(&args("x/r.json", "y/r.json", None), "x/r.json", "y/r.json");
        check(&args("old.json", "new.json", Some("B")), "old", "B");
    }
}
