//! `LabelFilter`: a 64-bit Bloom filter of an object's labels. A selector compares it before it
//! reads labels.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;

/// A Bloom filter of a label set: each key and each key-value pair sets one bit. A missing bit
/// proves that a label is absent; a set bit proves nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct LabelFilter(u64);

impl LabelFilter {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(u64::MAX);

    pub(super) fn of_key(key: &str) -> Self {
        Self::bit(&key)
    }

    pub(super) fn of(key: &str, value: &str) -> Self {
        Self::bit(&(key, value))
    }

    /// Returns the union of both filters.
    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns false if a label of `required` is certainly absent. The bits are in the object
    /// itself, whereas each label lookup costs cache misses.
    pub(super) fn may_contain(self, required: Self) -> bool {
        self.0 & required.0 == required.0
    }

    /// Returns the intersection of both filters.
    pub(super) fn shared(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn bit(of: &impl std::hash::Hash) -> Self {
        // The hash need not be stable: it is neither stored nor sent.
        Self(1 << (FixedState::default().hash_one(of) >> 58))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::LabelSelector;

    fn filter(labels: &BTreeMap<String, String>) -> LabelFilter {
        labels
            .iter()
            .fold(LabelFilter::NONE, |filter, (key, value)| {
                filter
                    .with(LabelFilter::of_key(key))
                    .with(LabelFilter::of(key, value))
            })
    }

    proptest! {
        /// A selector returns the same result with and without the filter.
        #[test]
        fn filter_does_not_change_results(
            labels in prop::collection::btree_map("[a-d]", "[x-z]", 0..4),
            selector in prop::sample::select(vec![
                "", "a", "!a", "a=x", "a!=x", "a in (x,y)", "a notin (x,y)", "a=x,b=y", "a in (x),b",
                "a>1", "a in (x,y),b in (z),!c", "d in (x,y,z)",
            ]),
        ) {
            let selector: LabelSelector = selector.parse().unwrap();
            let value_of = |key: &str| labels.get(key).map(String::as_str);
            let plain = selector.matches(value_of);
            prop_assert_eq!(selector.selects(filter(&labels), value_of), plain);
        }
    }

    #[test]
    fn filter_rejects_most_absent_labels() {
        let labels = (0..5).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        let filter = filter(&labels);
        let others =
            (0..1000).filter(|n| filter.may_contain(LabelFilter::of("k1", &format!("other{n}"))));
        let passed = others.count();
        assert!(passed < 300, "{passed} of 1,000");
    }
}
