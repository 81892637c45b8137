//! Reads a policy from YAML or JSON. Unknown fields are errors; upstream ignores them with a warning.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Policy;
use super::rule::{GroupResources, PolicyRule};
use super::stage::{Level, Stage, Stages};

const API_VERSION: &str = "audit.k8s.io/v1";

/// The error of an invalid policy. The message names the field and its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPolicy(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: IgnoredAny,
    #[serde(default)]
    rules: Vec<Value>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

impl FromStr for Policy {
    type Err = InvalidPolicy;

    /// Reads a policy.
    ///
    /// # Errors
    /// The first problem: the text is not YAML or has another kind, a field, level or stage is unknown, a rule can
    /// match no request, or there is no rule.
    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        let document: Document =
            serde_saphyr::from_str(text).map_err(|error| InvalidPolicy(error.to_string()))?;
        if document.kind != "Policy" || document.api_version != API_VERSION {
            let (given, kind) = (&document.api_version, &document.kind);
            return Err(InvalidPolicy(format!(
                "apiVersion is {given:?} and kind is {kind:?}: must be {API_VERSION:?} and \"Policy\""
            )));
        }
        if document.rules.is_empty() {
            return Err(InvalidPolicy(
                "rules: must have at least one rule".to_owned(),
            ));
        }
        let rules = document.rules.into_iter().enumerate();
        let rules = rules.map(|(index, rule)| policy_rule(&format!("rules[{index}]"), rule));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            omit_stages: stages("omitStages", &document.omit_stages)?,
            omit_managed_fields: document.omit_managed_fields,
        })
    }
}

fn policy_rule(at: &str, rule: Value) -> Result<PolicyRule, InvalidPolicy> {
    let rule: Rule =
        Rule::deserialize(rule).map_err(|error| InvalidPolicy(format!("{at}: {error}")))?;
    check_urls(at, &rule)?;
    for (index, group) in rule.resources.iter().enumerate() {
        check_resources(&format!("{at}.resources[{index}]"), group)?;
    }
    Ok(PolicyRule {
        level: level(at, &rule.level)?,
        users: rule.users,
        user_groups: rule.user_groups,
        verbs: rule.verbs,
        resources: rule.resources,
        namespaces: rule.namespaces,
        non_resource_urls: rule.non_resource_urls,
        omit_stages: stages(&format!("{at}.omitStages"), &rule.omit_stages)?,
        omit_managed_fields: rule.omit_managed_fields,
    })
}

fn level(at: &str, text: &str) -> Result<Level, InvalidPolicy> {
    let level = Level::ALL.into_iter().find(|level| level.as_str() == text);
    level.ok_or_else(|| unsupported(&format!("{at}.level"), text, &Level::ALL.map(Level::as_str)))
}

fn stages(at: &str, names: &[String]) -> Result<Stages, InvalidPolicy> {
    let mut stages = Stages::default();
    for (index, name) in names.iter().enumerate() {
        let stage = Stage::ALL.into_iter().find(|stage| stage.as_str() == name);
        let supported = Stage::ALL.map(Stage::as_str);
        let stage =
            stage.ok_or_else(|| unsupported(&format!("{at}[{index}]"), name, &supported))?;
        stages.insert(stage);
    }
    Ok(stages)
}

fn unsupported(at: &str, given: &str, supported: &[&str]) -> InvalidPolicy {
    InvalidPolicy(format!(
        "{at}: unsupported value {given:?}: must be one of {}",
        supported.join(", ")
    ))
}

fn check_urls(at: &str, rule: &Rule) -> Result<(), InvalidPolicy> {
    let urls = &rule.non_resource_urls;
    let selects_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if selects_resources && !urls.is_empty() {
        return Err(InvalidPolicy(format!(
            "{at}.nonResourceURLs: {urls:?}: a rule cannot have both nonResourceURLs and resources or namespaces: \
             make two rules"
        )));
    }
    for (index, url) in urls.iter().enumerate() {
        let problem = match url.as_str() {
            "*" => continue,
            _ if !url.starts_with('/') => "must begin with '/', or be \"*\"",
            _ if url[..url.len() - 1].contains('*') => "may have '*' only as the last character",
            _ => continue,
        };
        return Err(InvalidPolicy(format!(
            "{at}.nonResourceURLs[{index}]: {url:?} {problem}"
        )));
    }
    Ok(())
}

fn check_resources(at: &str, group: &GroupResources) -> Result<(), InvalidPolicy> {
    let name = &group.group;
    if name.contains(['/', '*']) {
        return Err(InvalidPolicy(format!(
            "{at}.group: {name:?} must be the name of an API group, without a version or wildcards"
        )));
    }
    if !group.resource_names.is_empty() && group.resources.is_empty() {
        let names = &group.resource_names;
        return Err(InvalidPolicy(format!(
            "{at}.resourceNames: {names:?} have no effect without resources: list resources too"
        )));
    }
    Ok(())
}
