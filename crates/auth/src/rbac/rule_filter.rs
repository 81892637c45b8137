//! `RuleFilter`: excludes most rules that do not allow a request with two comparisons of bits.

use super::policy_rule::{ALL, PolicyRule};
use crate::attributes::Attributes;

/// The bit of rules for paths, which no resource has.
const PATHS: u64 = 1 << 63;

/// The verbs and resources of rules, each a bit of its hash. A rule that allows a request has all bits of the request, so
/// a rule without one of them need not be compared. Different texts may have the same bit: a rule that has all bits may
/// still not allow the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RuleFilter {
    verbs: u64,
    resources: u64,
}

impl RuleFilter {
    /// The filter of rules that must be compared with each request.
    pub(super) const EVERYTHING: Self = Self {
        verbs: u64::MAX,
        resources: u64::MAX,
    };

    /// Returns the filter of a rule.
    pub(super) fn of_rule(rule: &PolicyRule) -> Self {
        let bits = |texts: &[String], bit: fn(&str) -> u64| {
            texts.iter().fold(0, |bits, text| bits | bit(text))
        };
        let mut resources = bits(&rule.resources, resource_bits);
        if !rule.non_resource_urls.is_empty() {
            resources |= PATHS;
        }
        Self {
            verbs: bits(&rule.verbs, verb_bits),
            resources,
        }
    }

    /// Returns the bits that a rule must have to allow `request`.
    pub(super) fn of_request(request: &Attributes) -> Self {
        let resources = match (request.is_resource_request, &*request.subresource) {
            (false, _) => PATHS,
            (true, "") => bit(&request.resource),
            (true, subresource) => bit(subresource),
        };
        Self {
            verbs: bit(&request.verb),
            resources,
        }
    }

    /// Returns the filter of the rules of both.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            verbs: self.verbs | other.verbs,
            resources: self.resources | other.resources,
        }
    }

    /// Returns false if no rule of this filter allows a request with the bits `request`.
    pub(super) fn may_allow(self, request: Self) -> bool {
        self.verbs & request.verbs != 0 && self.resources & request.resources != 0
    }
}

fn verb_bits(verb: &str) -> u64 {
    match verb {
        ALL => u64::MAX,
        verb => bit(verb),
    }
}

/// Returns the bits of a resource in a rule; of a subresource, whatever the resource, those of its name.
fn resource_bits(resource: &str) -> u64 {
    match resource.split_once('/') {
        Some((_, subresource)) => bit(subresource),
        None if resource == ALL => !PATHS,
        None => bit(resource),
    }
}

/// Returns one of the lower 63 bits. The names of verbs and resources are short, and clients cannot choose those of rules.
fn bit(text: &str) -> u64 {
    let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = text.as_bytes().iter().fold(0x811c_9dc5, add);
    1 << ((hash ^ (hash >> 15)) % 63)
}
