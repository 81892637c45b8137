//! PodSecurityConfiguration, the configuration of the PodSecurity plugin: the policy of namespaces without labels, and
//! the requests that are exempt.

use serde::Deserialize;
use serde_json::Value;

use super::level::{Level, LevelVersion, Policy, Version};
use watchet_api::StatusCause;
use watchet_api::names::{
    LABEL_LENGTH_MAX, SUBDOMAIN_LENGTH_MAX, SUBDOMAIN_RULE, is_dns_label, is_dns_subdomain,
};

/// The configuration of the PodSecurity plugin. The default is upstream's: every level is privileged, and nothing is
/// exempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::plugins) struct PodSecurityConfiguration {
    /// The levels that apply to a namespace without the label for them.
    pub(super) defaults: Policy,
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

/// The configuration file as parsed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plugins) struct PodSecurityConfigurationFile {
    defaults: Option<Defaults>,
    exemptions: Option<Exemptions>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Defaults {
    enforce: Option<String>,
    enforce_version: Option<String>,
    audit: Option<String>,
    audit_version: Option<String>,
    warn: Option<String>,
    warn_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Exemptions {
    usernames: Option<Vec<String>>,
    namespaces: Option<Vec<String>>,
    runtime_classes: Option<Vec<String>>,
}

impl PodSecurityConfiguration {
    /// Checks a configuration.
    ///
    /// # Errors
    /// The problems of all values that cannot be used, in upstream's words.
    pub(in crate::plugins) fn check(file: PodSecurityConfigurationFile) -> Result<Self, String> {
        let mut problems = Vec::new();
        let defaults = file.defaults.unwrap_or_default();
        let mut mode = |name: &str, level: Option<String>, version: Option<String>| LevelVersion {
            level: value(&mut problems, name, level, Level::parse).unwrap_or(Level::Privileged),
            version: value(
                &mut problems,
                &format!("{name}-version"),
                version,
                Version::parse,
            )
            .unwrap_or(Version::Latest),
        };
        let defaults = Policy {
            enforce: mode("enforce", defaults.enforce, defaults.enforce_version),
            warn: mode("warn", defaults.warn, defaults.warn_version),
            audit: mode("audit", defaults.audit, defaults.audit_version),
        };
        let exemptions = file.exemptions.unwrap_or_default();
        let mut list = |name: &str, values: Option<Vec<String>>, problem: NameProblem| {
            let values = values.unwrap_or_default();
            check_names(&mut problems, name, &values, problem);
            values
        };
        let configuration = Self {
            defaults,
            namespaces: list("namespaces", exemptions.namespaces, label_problem),
            runtime_classes: list(
                "runtimeClasses",
                exemptions.runtime_classes,
                subdomain_problem,
            ),
            usernames: list("usernames", exemptions.usernames, username_problem),
        };
        match problems.is_empty() {
            true => Ok(configuration),
            false => {
                let problems = problems.iter();
                let texts = problems.map(|cause| format!("{}: {}", cause.field, cause.message));
                Err(texts.collect::<Vec<_>>().join("; "))
            }
        }
    }

    /// Returns true if no pod of this namespace is checked.
    pub(super) fn exempts_namespace(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|exempt| exempt == namespace)
    }

    /// Returns true if no request of this user is checked.
    pub(super) fn exempts_user(&self, user: &str) -> bool {
        self.usernames.iter().any(|exempt| exempt == user)
    }

    /// Returns true if no pod of the runtime class of this pod is checked.
    pub(super) fn exempts_runtime_class_of(&self, spec: &Value) -> bool {
        let class = spec["runtimeClassName"].as_str();
        class.is_some_and(|class| self.runtime_classes.iter().any(|exempt| exempt == class))
    }
}

/// Returns the value of a member of `defaults`, unless it is empty or cannot be used.
fn value<T>(
    problems: &mut Vec<StatusCause>,
    name: &str,
    file: Option<String>,
    parse: fn(&str) -> Result<T, &'static str>,
) -> Option<T> {
    let text = file.filter(|text| !text.is_empty())?;
    let parsed = parse(&text).map_err(|why| {
        problems.push(StatusCause::invalid(
            &format!("defaults.{name}"),
            &text,
            why,
        ));
    });
    parsed.ok()
}

/// Returns the problem of a name.
type NameProblem = fn(&str) -> Option<&'static str>;

fn check_names(
    problems: &mut Vec<StatusCause>,
    list: &str,
    values: &[String],
    problem: NameProblem,
) {
    for (index, value) in values.iter().enumerate() {
        let field = format!("exemptions.{list}[{index}]");
        if let Some(why) = problem(value) {
            problems.push(StatusCause::invalid(&field, value, why));
        } else if values[..index].contains(value) {
            problems.push(StatusCause::duplicate(&field, value));
        }
    }
}

fn label_problem(name: &str) -> Option<&'static str> {
    let is_valid = name.len() <= LABEL_LENGTH_MAX && is_dns_label(name);
    (!is_valid).then_some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
         start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
}

fn subdomain_problem(name: &str) -> Option<&'static str> {
    let is_valid = name.len() <= SUBDOMAIN_LENGTH_MAX && is_dns_subdomain(name);
    (!is_valid).then_some(SUBDOMAIN_RULE)
}

fn username_problem(name: &str) -> Option<&'static str> {
    name.is_empty().then_some("username must not be empty")
}
