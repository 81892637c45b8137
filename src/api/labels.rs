//! `Labels`: the labels of one object, and marks that tell at a glance that a selector does not match
//! them. What selectors mean is told in `label_selector`.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;

/// An object's labels, sorted by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Labels {
    marks: Marks,
    pairs: Box<[(Box<str>, Box<str>)]>,
}

impl Labels {
    pub(super) fn new(labels: BTreeMap<Box<str>, Box<str>>) -> Self {
        let pairs: Box<[_]> = labels.into_iter().collect();
        let marks = pairs.iter().fold(Marks::NONE, |marks, (key, value)| {
            marks.with(Marks::of_key(key)).with(Marks::of(key, value))
        });
        Self { marks, pairs }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .binary_search_by(|(k, _)| (**k).cmp(key))
            .ok()
            .map(|at| &*self.pairs[at].1)
    }

    /// Whether there may be the labels of which these are marks. Looks at nothing but the object
    /// itself, where to read the labels costs a cache miss for each step of the way.
    pub(super) fn may_have(&self, wanted: Marks) -> bool {
        self.marks.0 & wanted.0 == wanted.0
    }

    /// How much memory they take beside the object, in bytes.
    pub(super) fn memory(&self) -> usize {
        let pair = |(key, value): &(Box<str>, Box<str>)| key.len() + value.len() + 32;
        self.pairs.iter().map(pair).sum()
    }
}

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
    use proptest::prelude::*;

    use super::*;
    use crate::api::LabelSelector;

    fn label() -> impl Strategy<Value = (String, String)> {
        ("[a-d]", "[x-z]")
    }

    proptest! {
        /// Marks never hide a match: with them a selector says what it says without.
        #[test]
        fn marks_change_no_verdict(
            labels in prop::collection::vec(label(), 0..4),
            selector in prop::sample::select(vec![
                "", "a", "!a", "a=x", "a!=x", "a in (x,y)", "a notin (x,y)", "a=x,b=y", "a in (x),b",
                "a>1", "a in (x,y),b in (z),!c", "d in (x,y,z)",
            ]),
        ) {
            let labels = labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
            let labels = Labels::new(labels);
            let selector: LabelSelector = selector.parse().unwrap();
            let plain = selector.matches(|key| labels.get(key));
            prop_assert_eq!(selector.selects(&labels), plain);
        }
    }

    #[test]
    fn most_of_what_is_not_there_is_told_by_the_marks() {
        let labels = (0..5)
            .map(|n| (format!("k{n}").into(), format!("v{n}").into()))
            .collect();
        let labels = Labels::new(labels);
        let others = (0..1000).filter(|n| labels.may_have(Marks::of("k1", &format!("other{n}"))));
        let passed = others.count();
        assert!(passed < 300, "{passed} of 1,000");
    }
}
