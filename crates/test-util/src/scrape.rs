//! Parses a scrape in Prometheus text format, for tests of this crate and of the binary. It panics
//! on invalid input.

use std::collections::{BTreeMap, BTreeSet};

/// A family: its type and label names, without `le`.
pub type Family = (String, BTreeSet<String>);

/// A parsed scrape.
#[derive(Debug)]
pub struct Scrape {
    samples: BTreeMap<String, f64>,
    families: BTreeMap<String, Family>,
}

impl Scrape {
    /// Parses the text of a scrape.
    ///
    /// # Panics
    /// If the text is not in the format.
    pub fn parse(text: &str) -> Self {
        let mut scrape = Self {
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
                let previous = scrape.families.insert(name.to_owned(), new);
                assert_eq!(previous, None, "{name} comes twice");
            } else {
                scrape.sample(&family, line);
            }
        }
        scrape
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
        let previous = self.samples.insert(series.to_owned(), value);
        assert_eq!(previous, None, "{series} comes twice");
    }

    /// Returns the value of a series, given as in the scrape: `name{label="value"}`.
    pub fn get(&self, series: &str) -> Option<f64> {
        self.samples.get(series).copied()
    }

    /// Returns the sum of the series of this name (including suffixes such as `_count`) that have
    /// all of `labels`, each given as `label="value"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
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

    /// Returns every family by name.
    pub fn families(&self) -> &BTreeMap<String, Family> {
        &self.families
    }
}
