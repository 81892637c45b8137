//! Reads a scrape in Prometheus' text format, strictly, for tests: of this crate and, by path, of the
//! real binary. It panics where a scraper would complain.

use std::collections::{BTreeMap, BTreeSet};

/// A family: its kind and the names of its labels, `le` not among them.
pub(crate) type Family = (String, BTreeSet<String>);

/// What a scrape told.
#[derive(Debug)]
pub(crate) struct Scrape {
    samples: BTreeMap<String, f64>,
    families: BTreeMap<String, Family>,
}

impl Scrape {
    pub(crate) fn parse(text: &str) -> Self {
        let mut told = Self {
            samples: BTreeMap::new(),
            families: BTreeMap::new(),
        };
        let mut family = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a name and a help text");
                assert!(!help.contains('\\') && help.ends_with('.'), "{line}");
                family = name.to_owned();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and a kind");
                assert_eq!(name, family, "the type follows the help text");
                assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
                let new = (kind.to_owned(), BTreeSet::new());
                let known = told.families.insert(name.to_owned(), new);
                assert_eq!(known, None, "{name} comes twice");
            } else {
                told.sample(&family, line);
            }
        }
        told
    }

    fn sample(&mut self, family: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let value: f64 = value.parse().unwrap_or_else(|e| panic!("{e}: {line}"));
        let (kind, labels) = self.families.get_mut(family).expect("a family begun");
        let name = series.split('{').next().unwrap_or_default();
        let suffix = name.strip_prefix(family);
        match kind.as_str() {
            "histogram" => assert!(
                matches!(suffix, Some("_bucket" | "_sum" | "_count")),
                "{line}"
            ),
            _ => assert_eq!(suffix, Some(""), "{line} is not of {family}"),
        }
        if let Some(inner) = series.strip_prefix(name).filter(|inner| !inner.is_empty()) {
            let inner = inner.strip_prefix('{').and_then(|i| i.strip_suffix("\"}"));
            for label in inner.unwrap_or_else(|| panic!("{line}")).split("\",") {
                let (label, _) = label.split_once("=\"").expect("a label and its value");
                if label != "le" {
                    labels.insert(label.to_owned());
                }
            }
        }
        let known = self.samples.insert(series.to_owned(), value);
        assert_eq!(known, None, "{series} comes twice");
    }

    /// The value of one series, written as in the scrape: `name{label="value"}`.
    pub(crate) fn get(&self, series: &str) -> Option<f64> {
        self.samples.get(series).copied()
    }

    /// The sum of the series of this name (with `_count` and the like) that bear all of `labels`,
    /// each written as `label="value"`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let series = self.samples.iter().filter(|(series, _)| {
            let rest = series.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
                && labels.iter().all(|label| {
                    let at = |before| series.contains(&format!("{before}{label}"));
                    at('{') || at(',')
                })
        });
        series.map(|(_, value)| value).sum()
    }

    /// Every family, by name.
    pub(crate) fn families(&self) -> &BTreeMap<String, Family> {
        &self.families
    }
}
