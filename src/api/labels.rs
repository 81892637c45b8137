//! `Marks`: what tells at a glance that a selector does not match an object's labels. What selectors
//! mean is told in `label_selector`, where the labels are in `object`.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;

/// A set of labels in 64 bits: each key and each pair sets one. What is in the set has its bits set;
/// bits alone prove nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks(u64);

impl Marks {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(u64::MAX);

    pub(super) fn of_key(key: &str) -> Self {
        Self::bit(&key)
    }

    pub(super) fn of(key: &str, value: &str) -> Self {
        Self::bit(&(key, value))
    }

    /// Those of both.
    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether there may be the labels of which `wanted` are marks. They are in the object itself, where
    /// to read the labels costs a cache miss for each step of the way.
    pub(super) fn may_have(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Those that both have.
    pub(super) fn shared(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn bit(of: &impl std::hash::Hash) -> Self {
        // Never stored and never sent: the same within the process is enough.
        Self(1 << (FixedState::default().hash_one(of) >> 58))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::api::LabelSelector;

    fn marks(labels: &BTreeMap<String, String>) -> Marks {
        labels.iter().fold(Marks::NONE, |marks, (key, value)| {
            marks.with(Marks::of_key(key)).with(Marks::of(key, value))
        })
    }

    proptest! {
        /// Marks never hide a match: with them a selector says what it says without.
        #[test]
        fn marks_change_no_verdict(
            labels in prop::collection::btree_map("[a-d]", "[x-z]", 0..4),
            selector in prop::sample::select(vec![
                "", "a", "!a", "a=x", "a!=x", "a in (x,y)", "a notin (x,y)", "a=x,b=y", "a in (x),b",
                "a>1", "a in (x,y),b in (z),!c", "d in (x,y,z)",
            ]),
        ) {
            let selector: LabelSelector = selector.parse().unwrap();
            let value_of = |key: &str| labels.get(key).map(String::as_str);
            let plain = selector.matches(value_of);
            prop_assert_eq!(selector.selects(marks(&labels), value_of), plain);
        }
    }

    #[test]
    fn most_of_what_is_not_there_is_told_by_the_marks() {
        let labels = (0..5).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        let marks = marks(&labels);
        let others = (0..1000).filter(|n| marks.may_have(Marks::of("k1", &format!("other{n}"))));
        let passed = others.count();
        assert!(passed < 300, "{passed} of 1,000");
    }
}
