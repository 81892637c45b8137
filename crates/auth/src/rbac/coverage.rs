//! Checks that the rules of a user cover the rules that it grants. A user may grant only permissions that it has.

use super::policy_rule::{PolicyRule, covers_path};

/// Returns the parts of `granted` that `owned` does not cover: each has one verb, one group, one resource and at most
/// one name, or one verb and one path. The result is empty if everything is covered, as upstream's `Covers`.
pub fn missing_rules(owned: &[PolicyRule], granted: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    for rule in granted {
        for part in single_rules(rule) {
            if !owned.iter().any(|own| covers(own, &part)) && !missing.contains(&part) {
                missing.push(part);
            }
        }
    }
    missing
}

/// Splits a rule into rules with one value for each member.
fn single_rules(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |value: &String| vec![value.clone()];
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        for url in &rule.non_resource_urls {
            parts.push(PolicyRule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..PolicyRule::default()
            });
        }
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let part = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    parts.push(part.clone());
                }
                parts.extend(rule.resource_names.iter().map(|name| PolicyRule {
                    resource_names: one(name),
                    ..part.clone()
                }));
            }
        }
    }
    parts
}

/// Returns true if `own` covers `part`, which has one value for each member.
fn covers(own: &PolicyRule, part: &PolicyRule) -> bool {
    let has = |own: &[String], part: &[String]| {
        own.iter().any(|value| value == "*") || part.iter().all(|value| own.contains(value))
    };
    let has_resource = |resource: &String| {
        own.resources.iter().any(|one| {
            one == "*"
                || one == resource
                || one
                    .strip_prefix("*/")
                    .is_some_and(|sub| resource.split_once('/').is_some_and(|(_, of)| of == sub))
        })
    };
    // A name cannot be `*`, and a rule for some names does not cover a rule for all names.
    let is_own_name = |name: &String| own.resource_names.contains(name);
    let has_name = own.resource_names.is_empty()
        || !part.resource_names.is_empty() && part.resource_names.iter().all(is_own_name);
    let has_path = |path: &String| {
        own.non_resource_urls
            .iter()
            .any(|one| covers_path(one, path))
    };
    has(&own.verbs, &part.verbs)
        && has(&own.api_groups, &part.api_groups)
        && part.resources.iter().all(has_resource)
        && has_name
        && part.non_resource_urls.iter().all(has_path)
}
