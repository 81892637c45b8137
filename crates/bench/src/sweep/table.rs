//! The table of a sweep: the rows with the lowest ratio first.

use std::fmt::Write as _;

use super::case::{Case, Measurement, description};
use crate::args::TableForm;

/// A measured row.
#[derive(Debug)]
pub(super) struct Row {
    pub case: Case,
    /// The value of each server, or why there is none.
    pub values: Vec<Result<Measurement, String>>,
}

impl Row {
    /// Returns how many times the CPU time of the first server the second one needs.
    fn ratio(&self) -> Option<f64> {
        match &self.values[..] {
            [Ok(first), Ok(second)] if first.cpu_us > 0.0 => Some(second.cpu_us / first.cpu_us),
            _ => None,
        }
    }

    fn cells(&self) -> Vec<String> {
        let case = &self.case;
        let mut cells = vec![
            case.operation.name().to_owned(),
            description(case.resource).to_owned(),
            case.accept.name().to_owned(),
        ];
        cells.extend(self.values.iter().map(|value| match value {
            Ok(measured) => significant(measured.cpu_us),
            Err(_) => "failed".to_owned(),
        }));
        if self.values.len() > 1 {
            let ratio = self.ratio();
            cells.push(ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}")));
        }
        cells
    }

    /// Returns the row as a line of text.
    pub(super) fn summary(&self) -> String {
        self.cells().join("  ")
    }

    /// Returns why values are missing.
    pub(super) fn faults(&self) -> Vec<String> {
        let case = &self.case;
        let name = format!(
            "{} of {} in {}",
            case.operation.name(),
            description(case.resource),
            case.accept.name()
        );
        let numbered = self.values.iter().enumerate();
        let failed = numbered.filter_map(|(number, value)| Some((number, value.as_ref().err()?)));
        failed
            .map(|(number, error)| match number {
                0 => format!("{name}: {error}"),
                _ => format!("{name}, on the other server: {error}"),
            })
            .collect()
    }
}

/// Returns a number with three significant digits.
fn significant(value: f64) -> String {
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Returns the table. With two servers the lowest ratio is first, then a list of the rows below
/// `goal`.
pub(super) fn render(mut rows: Vec<Row>, goal: f64, form: TableForm) -> String {
    // Rows without a ratio have failed, so they are first.
    let ratio = |row: &Row| row.ratio().unwrap_or(f64::NEG_INFINITY);
    rows.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let is_compared = rows.iter().any(|row| row.values.len() > 1);
    let mut head = vec!["verb", "resource", "response", "CPU us"];
    if is_compared {
        head.extend(["other's CPU us", "ratio"]);
    }
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let mut table = match form {
        TableForm::Text => text(&head, &cells),
        TableForm::Markdown => markdown(&head, &cells),
    };
    if is_compared {
        summarize(&mut table, &rows, goal);
    }
    table
}

fn summarize(table: &mut String, rows: &[Row], goal: f64) {
    let ratios: Vec<f64> = rows.iter().filter_map(Row::ratio).collect();
    let below = ratios.iter().filter(|ratio| **ratio < goal).count();
    let median = ratios.get(ratios.len() / 2).copied().unwrap_or(0.0);
    let mut add = |line: String| writeln!(table, "{line}").expect("writing to memory cannot fail");
    add(format!(
        "\n{below} of {} rows are below the goal of {goal} and are to be looked at; the median is {median:.1}.",
        ratios.len()
    ));
    for row in rows {
        if let Some(ratio) = row.ratio().filter(|ratio| *ratio < goal) {
            let case = &row.case;
            let (resource, accept) = (description(case.resource), case.accept.name());
            add(format!(
                "- {} of {resource} in {accept}: {ratio:.1}",
                case.operation.name()
            ));
        }
    }
}

fn text(head: &[String], rows: &[Vec<String>]) -> String {
    let lines = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let width = |column: usize| lines().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut table = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).enumerate();
        let padded = cells.map(|(column, (cell, width))| match column {
            0..=2 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let padded: Vec<String> = padded.collect();
        table += padded.join("  ").trim_end();
        table.push('\n');
    }
    table
}

fn markdown(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows = rows.iter().map(|row| line(row));
    line(head) + &rule + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::super::case::Operation;
    use super::*;
    use crate::args::{Encoding, Resource, WriteVerb};

    fn row(operation: Operation, cpu_us: &[Option<f64>]) -> Row {
        let value = |cpu_us: &Option<f64>| match cpu_us {
            Some(cpu_us) => Ok(Measurement {
                cpu_us: *cpu_us,
                count: 10.0,
            }),
            None => Err("no".to_owned()),
        };
        Row {
            case: Case {
                resource: Resource::Pods,
                operation,
                accept: Encoding::Json,
            },
            values: cpu_us.iter().map(value).collect(),
        }
    }

    #[test]
    fn the_lowest_ratio_is_first_and_rows_below_the_goal_are_listed() {
        let rows = vec![
            row(Operation::Get, &[Some(30.0), Some(300.0)]),
            row(Operation::Watch, &[Some(5.0), Some(10.0)]),
            row(Operation::Write(WriteVerb::Apply), &[Some(1_000.4), None]),
        ];
        let faults: Vec<_> = rows.iter().flat_map(Row::faults).collect();
        assert_eq!(faults, ["apply of pods in json, on the other server: no"]);
        assert_eq!(
            render(rows, 3.0, TableForm::Markdown),
            "| verb | resource | response | CPU us | other's CPU us | ratio |\n\
             |---|---|---|---|---|---|\n\
             | apply | pods | json | 1000 | failed | - |\n\
             | watch | pods | json | 5.00 | 10.0 | 2.0 |\n\
             | get | pods | json | 30.0 | 300 | 10.0 |\n\
             \n1 of 2 rows are below the goal of 3 and are to be looked at; the median is 10.0.\n\
             - watch of pods in json: 2.0\n"
        );
    }

    #[test]
    fn one_server_has_no_ratio() {
        let rows = vec![row(Operation::Get, &[Some(30.0)])];
        assert_eq!(
            render(rows, 3.0, TableForm::Text),
            "verb  resource  response  CPU us\nget   pods      json        30.0\n"
        );
    }
}
