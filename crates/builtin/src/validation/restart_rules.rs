//! Validates the restart policy and the restart rules of a container (KEP-5307, KEP-5532).

use super::members::one_of;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, object, text};

const POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const ACTIONS: &[&str] = &["Restart", "RestartAllContainers"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Reports what is wrong with `restartPolicy` and `restartPolicyRules` of the container at `at`.
pub(super) fn check(container: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let rules = list(container, "restartPolicyRules");
    if is_unset(container, "restartPolicy") && !rules.is_empty() {
        let why = "must specify restartPolicy when restart rules are used";
        causes.required(&at.member("restartPolicy"), why);
    }
    one_of(container, "restartPolicy", POLICIES, at, causes);
    let at = at.member("restartPolicyRules");
    if rules.len() > RULES_MAX {
        causes.too_many_items(&at, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        if causes.is_full() {
            return;
        }
        let Some(rule) = rule.as_object() else {
            continue;
        };
        let at = at.item(index);
        let action = text(rule, "action");
        if !ACTIONS.contains(&action) {
            causes.not_supported(&at.member("action"), action, ACTIONS);
        }
        let at = at.member("exitCodes");
        let Some(codes) = object(rule, "exitCodes") else {
            causes.required(&at, "must be specified");
            continue;
        };
        let operator = text(codes, "operator");
        if !OPERATORS.contains(&operator) {
            causes.not_supported(&at.member("operator"), operator, OPERATORS);
        }
        let values = list(codes, "values").len();
        if values > EXIT_CODES_MAX {
            causes.too_many_items(&at.member("values"), values, EXIT_CODES_MAX);
        }
    }
}
