//! The report of a failed expectation: the script with the line marked, and the difference.

use std::fmt;

use super::item::Item;
use super::script::{Script, Step};

/// A step that failed.
#[derive(Debug, Clone)]
pub struct Failure(Box<Report>);

#[derive(Debug, Clone)]
struct Report {
    script: String,
    driver: String,
    line: usize,
    message: String,
    /// The lines of the script, and whether each is marked.
    lines: Vec<(String, bool)>,
    difference: String,
    versions: String,
}

impl Failure {
    pub(super) fn new(script: &Script, step: &Step, message: String) -> Self {
        let marked = step.line..=step.last_line;
        let lines = script.lines.iter().enumerate();
        let lines = lines.map(|(index, line)| (line.clone(), marked.contains(&(index + 1))));
        Self(Box::new(Report {
            script: script.name.clone(),
            driver: String::new(),
            line: step.line,
            message,
            lines: lines.collect(),
            difference: String::new(),
            versions: String::new(),
        }))
    }

    pub(super) fn with_difference(mut self, expected: &[Item], received: &[Item]) -> Self {
        self.0.difference = difference(&texts(expected), &texts(received));
        self
    }

    pub(super) fn with_context(mut self, driver: String, versions: String) -> Self {
        (self.0.driver, self.0.versions) = (driver, versions);
        self
    }
}

fn texts(items: &[Item]) -> Vec<String> {
    match items {
        [] => vec!["nothing".to_owned()],
        items => items.iter().map(ToString::to_string).collect(),
    }
}

/// Returns a diff of both; lines of the common beginning and end appear once.
fn difference(expected: &[String], received: &[String]) -> String {
    let pairs = expected.iter().zip(received);
    let begin = pairs.take_while(|(a, b)| a == b).count();
    let (left, right) = (&expected[begin..], &received[begin..]);
    let pairs = left.iter().rev().zip(right.iter().rev());
    let end = pairs.take_while(|(a, b)| a == b).count();
    let (left, common) = left.split_at(left.len() - end);
    let right = &right[..right.len() - end];
    let sections = [
        (' ', &expected[..begin]),
        ('-', left),
        ('+', right),
        (' ', common),
    ];
    let lines = sections
        .into_iter()
        .flat_map(|(mark, items)| items.iter().map(move |item| format!("  {mark} {item}\n")));
    lines.collect()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}\n", self.script, self.line, self.message)?;
        let width = self.lines.len().to_string().len();
        for (index, (line, is_marked)) in self.lines.iter().enumerate() {
            let mark = if *is_marked { '>' } else { ' ' };
            let text = format!("{mark} {:>width$} | {line}", index + 1);
            writeln!(f, "{}", text.trim_end())?;
            if *is_marked
                && !self.lines.get(index + 1).is_some_and(|(_, next)| *next)
                && !self.difference.is_empty()
            {
                write!(f, "\n  (- expected, + received)\n{}\n", self.difference)?;
            }
        }
        writeln!(
            f,
            "\ndriver:   {}\nversions: {}",
            self.driver, self.versions
        )
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn common_items_are_not_marked() {
        let items = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let found = difference(&items("a b c d"), &items("a x d"));
        assert_eq!(found, "    a\n  - b\n  - c\n  + x\n    d\n");
    }
}
