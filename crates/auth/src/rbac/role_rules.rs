//! `RoleRules`: the rules of a role with their filters.

use super::policy_rule::PolicyRule;
use super::rule_filter::RuleFilter;
use crate::attributes::Attributes;

/// The rules of a role.
#[derive(Debug)]
pub(super) struct RoleRules {
    rules: Box<[PolicyRule]>,
    /// The filter of each rule, in the order of the rules.
    filters: Box<[RuleFilter]>,
    /// The union of the filters of all rules.
    filter: RuleFilter,
}

impl RoleRules {
    pub(super) fn new(rules: Vec<PolicyRule>) -> Self {
        let filters: Box<[_]> = rules.iter().map(RuleFilter::of_rule).collect();
        let filter = filters.iter().copied().reduce(RuleFilter::or);
        Self {
            rules: rules.into(),
            filters,
            filter: filter.unwrap_or_default(),
        }
    }

    /// Returns the rules.
    pub(super) fn all(&self) -> &[PolicyRule] {
        &self.rules
    }

    /// Returns the filter of all rules.
    pub(super) fn filter(&self) -> RuleFilter {
        self.filter
    }

    /// Returns true if a rule allows the request, whose filter is `filter`.
    pub(super) fn allow(&self, request: &Attributes, filter: RuleFilter) -> bool {
        let mut rules = self.filters.iter().zip(&self.rules);
        rules.any(|(rule_filter, rule)| rule_filter.may_allow(filter) && rule.allows(request))
    }
}
