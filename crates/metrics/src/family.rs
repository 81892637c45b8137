//! Tables of metric families: name, type and help text of each, and how to write the samples of one item,
//! such as a resource, a work queue or an informer.

use std::fmt::Display;

use super::exposition::{Exposition, Family, Kind, Label};
use super::value::Histogram;

/// A row of a table: one metric, which every item has.
#[derive(Debug)]
pub struct ItemFamily<T> {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    write: WriteSamples<T>,
}

/// Writes the samples of one item; nothing if it has none.
pub type WriteSamples<T> = fn(&T, &mut Samples<'_, '_>);

/// An item with a series in each family of a table.
pub trait MetricItem {
    /// Returns the labels that distinguish this item, in the order in which they are written.
    fn labels(&self) -> Vec<Label<'_>>;
}

/// The samples of one item in one family.
#[derive(Debug)]
pub struct Samples<'a, 'f> {
    family: &'a mut Family<'f>,
    item: &'a [Label<'a>],
}

impl<T> ItemFamily<T> {
    /// Creates a counter; its name ends with `_total`.
    pub const fn counter(name: &'static str, help: &'static str, write: WriteSamples<T>) -> Self {
        Self::new(name, Kind::Counter, help, write)
    }

    /// Creates a gauge.
    pub const fn gauge(name: &'static str, help: &'static str, write: WriteSamples<T>) -> Self {
        Self::new(name, Kind::Gauge, help, write)
    }

    /// Creates a histogram.
    pub const fn histogram(name: &'static str, help: &'static str, write: WriteSamples<T>) -> Self {
        Self::new(name, Kind::Histogram, help, write)
    }

    const fn new(
        name: &'static str,
        kind: Kind,
        help: &'static str,
        write: WriteSamples<T>,
    ) -> Self {
        Self {
            name,
            kind,
            help,
            write,
        }
    }

    /// Returns the name of the metric.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl Samples<'_, '_> {
    /// Writes the item's value.
    pub fn value(&mut self, value: impl Display) {
        self.family.value(&[self.item], value);
    }

    /// Writes one of several values of the item, which `labels` distinguish.
    pub fn labelled_value(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.family.value(&[self.item, labels], value);
    }

    /// Writes a value with `labels` instead of the item's.
    pub fn value_with_labels(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.family.value(&[labels], value);
    }

    /// Writes the item's histogram, unless it is empty.
    pub fn histogram(&mut self, histogram: &Histogram) {
        self.family.histogram(&[self.item], histogram);
    }

    /// Writes one of several histograms of the item, which `labels` distinguish, unless it is empty.
    pub fn labelled_histogram(&mut self, labels: &[Label<'_>], histogram: &Histogram) {
        self.family.histogram(&[self.item, labels], histogram);
    }
}

/// Writes the families of a table, each with the samples of all items.
pub fn write_table<T: MetricItem>(table: &[ItemFamily<T>], items: &[T], out: &mut Exposition) {
    let items: Vec<_> = items.iter().map(|item| (item.labels(), item)).collect();
    for row in table {
        let mut family = out.family(row.name, row.kind, row.help);
        for (labels, item) in &items {
            let mut samples = Samples {
                family: &mut family,
                item: labels,
            };
            (row.write)(item, &mut samples);
        }
    }
}
