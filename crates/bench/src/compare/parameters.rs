//! The parameters of two reports that differ.

use std::collections::BTreeSet;

use crate::metric;
use crate::report::Report;

/// A parameter with different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub name: String,
    /// `None` if it is not set.
    pub a: Option<String>,
    pub b: Option<String>,
}

impl Difference {
    pub(super) fn text(&self, name_a: &str, name_b: &str) -> String {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        format!(
            "{} ({name_a}: {}, {name_b}: {})",
            self.name,
            shown(&self.a),
            shown(&self.b)
        )
    }
}

/// Returns the parameters that differ. Of a report of an earlier version, which lacks the
/// command-line parameters, it compares the parameters among the rows.
pub(super) fn differences(a: &Report, b: &Report) -> Vec<Difference> {
    let has_all = a.metadata.is_some() && b.metadata.is_some();
    let names: BTreeSet<&str> = [a, b]
        .into_iter()
        .flat_map(|report| parameter_names(report, has_all))
        .collect();
    let pairs = names.into_iter().map(|name| Difference {
        name: name.to_owned(),
        a: a.parameter(name),
        b: b.parameter(name),
    });
    pairs.filter(|pair| !is_same(&pair.a, &pair.b)).collect()
}

/// Returns the names of the arguments, or of the rows with parameters.
fn parameter_names(report: &Report, use_arguments: bool) -> Vec<&str> {
    match &report.metadata {
        Some(metadata) if use_arguments => metadata.parameters.keys().map(String::as_str).collect(),
        // Other seeds and servers are not other loads.
        _ => {
            let names = metric::parameter_rows(report).map(|row| row.0);
            names.filter(|name| *name != "seed").collect()
        }
    }
}

fn is_same(a: &Option<String>, b: &Option<String>) -> bool {
    let number = |text: &Option<String>| text.as_ref()?.parse::<f64>().ok();
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

impl Report {
    /// Returns a parameter from the arguments, or from the row of this name.
    fn parameter(&self, name: &str) -> Option<String> {
        let argument = self
            .metadata
            .as_ref()
            .and_then(|it| it.parameters.get(name));
        argument
            .cloned()
            .or_else(|| self.get(name).map(ToString::to_string))
    }
}
