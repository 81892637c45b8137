//! The selectors of `resourceAttributes` in reviews. A requirement with an unknown operator is valid, and is dropped, as
//! upstream: the check is then for a broader set of objects.

use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, ResourceAttributes,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector as MetaSelector, LabelSelectorRequirement,
};

use watchet_api::{FieldOperator, FieldSelector, FieldTerm, LabelSelector, StatusCause};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::names::{label_value_problems, qualified_name_problems};

/// Returns the problems of the selectors of `attributes`.
pub(super) fn selector_problems(attributes: &ResourceAttributes) -> Vec<StatusCause> {
    let mut causes = Causes::default();
    let at = Path::Top("spec.resourceAttributes");
    if let Some(selector) = &attributes.field_selector {
        let at = at.member("fieldSelector");
        let requirements = selector.requirements.as_deref().unwrap_or_default();
        check_exclusive(&selector.raw_selector, requirements, &at, &mut causes);
        let at = at.member("requirements");
        for (index, requirement) in requirements.iter().enumerate() {
            let at = at.item(index);
            if requirement.key.is_empty() {
                causes.required(&at.member("key"), "must be specified");
            }
            let values = requirement.values.as_deref().unwrap_or_default();
            check_values(&requirement.operator, values, &at, &mut causes);
        }
    }
    if let Some(selector) = &attributes.label_selector {
        let at = at.member("labelSelector");
        let requirements = selector.requirements.as_deref().unwrap_or_default();
        check_exclusive(&selector.raw_selector, requirements, &at, &mut causes);
        let at = at.member("requirements");
        for (index, requirement) in requirements.iter().enumerate() {
            label_requirement(requirement, &at.item(index), &mut causes);
        }
    }
    causes.into_vec()
}

fn label_requirement(requirement: &LabelSelectorRequirement, at: &Path<'_>, causes: &mut Causes) {
    let values = requirement.values.as_deref().unwrap_or_default();
    check_values(&requirement.operator, values, at, causes);
    let key = &requirement.key;
    causes.invalid_each(&at.member("key"), key, qualified_name_problems(key));
    let at = at.member("values");
    for (index, value) in values.iter().enumerate() {
        causes.invalid_each(&at.item(index), value, label_value_problems(value));
    }
}

/// Checks that a selector has either a text or requirements.
fn check_exclusive<T>(
    text: &Option<String>,
    requirements: &[T],
    at: &Path<'_>,
    causes: &mut Causes,
) {
    let text = text.as_deref().unwrap_or_default();
    match (text.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let why = "may not specified at the same time as requirements";
            causes.invalid(&at.member("rawSelector"), text, why);
        }
        (true, true) => {
            let why = format!("when {at} is specified, requirements or rawSelector is required");
            causes.required(&at.member("requirements"), &why);
        }
        _ => {}
    }
}

/// Checks that a requirement has the values that its operator needs.
fn check_values(operator: &str, values: &[String], at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            causes.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            causes.forbidden(&at, why);
        }
        _ => {}
    }
}

/// Returns the field selector of `attributes`; its requirements take precedence over its text.
pub(super) fn field_selector(attributes: Option<&FieldSelectorAttributes>) -> FieldSelector {
    let Some(attributes) = attributes else {
        return FieldSelector::default();
    };
    let requirements = attributes.requirements.as_deref().unwrap_or_default();
    if requirements.is_empty() {
        let text = attributes.raw_selector.as_deref().unwrap_or_default();
        return text.parse().unwrap_or_default();
    }
    let terms = requirements.iter().filter_map(|requirement| {
        let operator = match &*requirement.operator {
            "In" => FieldOperator::Equals,
            "NotIn" => FieldOperator::NotEquals,
            _ => return None,
        };
        match requirement.values.as_deref() {
            Some([value]) => Some(FieldTerm {
                field: requirement.key.as_str().into(),
                operator,
                value: value.as_str().into(),
            }),
            _ => None,
        }
    });
    FieldSelector {
        terms: terms.collect(),
    }
}

/// Returns the label selector of `attributes`; its requirements take precedence over its text.
pub(super) fn label_selector(attributes: Option<&LabelSelectorAttributes>) -> LabelSelector {
    let Some(attributes) = attributes else {
        return LabelSelector::default();
    };
    let requirements = attributes.requirements.as_deref().unwrap_or_default();
    if requirements.is_empty() {
        let text = attributes.raw_selector.as_deref().unwrap_or_default();
        return text.parse().unwrap_or_default();
    }
    let selector = |requirements: Vec<LabelSelectorRequirement>| {
        LabelSelector::from_meta(&MetaSelector {
            match_expressions: Some(requirements),
            match_labels: None,
        })
    };
    let is_valid = |one: &&LabelSelectorRequirement| selector(vec![(*one).clone()]).is_ok();
    let valid = requirements.iter().filter(is_valid).cloned().collect();
    selector(valid).unwrap_or_default()
}
