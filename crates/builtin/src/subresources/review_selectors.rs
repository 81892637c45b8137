//! The selectors of `resourceAttributes` in reviews. A requirement that is not valid is dropped, as upstream:
//! the check is then for a broader set of objects.

use k8s_openapi::api::authorization::v1::{FieldSelectorAttributes, LabelSelectorAttributes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector as MetaSelector, LabelSelectorRequirement,
};

use watchet_api::{FieldOperator, FieldSelector, FieldTerm, LabelSelector};

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
