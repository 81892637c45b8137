//! The scopes of a quota: to which objects it applies.

use std::fmt;

use serde_json::Value;

/// The operator that compares the value of an object in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
}

/// One scope of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(super) name: String,
    operator: Operator,
}

impl Scope {
    /// Returns the scopes of a quota's spec. The quota applies to objects that are in all of them.
    pub(crate) fn all(spec: &Value) -> Vec<Self> {
        let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let plain = items(&spec["scopes"]).into_iter().map(|name| Self {
            name: name.as_str().unwrap_or_default().to_owned(),
            operator: Operator::Exists,
        });
        let selected = items(&spec["scopeSelector"]["matchExpressions"]);
        let selected = selected.into_iter().map(|expression| {
            let values = items(&expression["values"]).into_iter();
            let values = values.filter_map(|value| value.as_str().map(str::to_owned));
            Self {
                name: expression["scopeName"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                operator: match expression["operator"].as_str() {
                    Some("In") => Operator::In(values.collect()),
                    Some("NotIn") => Operator::NotIn(values.collect()),
                    Some("DoesNotExist") => Operator::DoesNotExist,
                    _ => Operator::Exists,
                },
            }
        });
        plain.chain(selected).collect()
    }

    /// Returns true if the scope selects an object with this value, as a label selector would.
    pub(super) fn selects(&self, value: Option<&str>) -> bool {
        let is_among = |values: &[String]| {
            value.is_some_and(|value| values.iter().any(|other| other == value))
        };
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => is_among(values),
            Operator::NotIn(values) => !is_among(values),
        }
    }
}

impl fmt::Display for Scope {
    /// Formats the scope as Go prints a ScopedResourceSelectorRequirement.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, values): (_, &[String]) = match &self.operator {
            Operator::Exists => ("Exists", &[]),
            Operator::DoesNotExist => ("DoesNotExist", &[]),
            Operator::In(values) => ("In", values),
            Operator::NotIn(values) => ("NotIn", values),
        };
        write!(f, "{{{} {operator} [{}]}}", self.name, values.join(" "))
    }
}
