//! Whether a webhook or a policy is about a write, as far as that can be told without CEL: exempt
//! resources, the namespace's labels, rules (also for equivalent resources), the object's labels.

use serde_json::Value;

use super::cluster::{Cluster, Equivalent};
use super::error::AdmissionError;
use super::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource};
use super::rules::Rule;
use super::selector;
use watchet_api::LabelSelector;

/// What a webhook or a policy is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Constraints {
    pub(super) rules: Vec<Rule>,
    /// What is left out although a rule is about it.
    pub(super) excluded: Vec<Rule>,
    /// Whether a rule about another version of the same resource counts.
    pub(super) equivalent: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
}

/// As what a write is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) resource: GroupVersionResource,
    pub(super) kind: GroupVersionKind,
}

/// A write, and what was found out about it so far, for all who are asked whether it is theirs.
#[derive(Debug)]
pub(super) struct Matcher {
    /// Of the write's namespace, once somebody selects by them.
    namespace: Option<Value>,
    equivalents: Option<Vec<Equivalent>>,
}

impl Matcher {
    pub(super) fn new() -> Self {
        Self {
            namespace: None,
            equivalents: None,
        }
    }

    /// As what `write` is to be looked at by who has these constraints; `None`: it is not.
    ///
    /// # Errors
    /// The namespace is gone or cannot be read, and its labels would decide.
    pub(super) async fn matches(
        &mut self,
        constraints: &Constraints,
        write: &AdmissionRequest<'_>,
        cluster: &dyn Cluster,
    ) -> Result<Option<Matched>, AdmissionError> {
        // Rules first: they cost nothing, and what they do not name must not fail for its namespace.
        let Some(matched) = self.by_rules(constraints, write, cluster) else {
            return Ok(None);
        };
        if !self.by_namespace(constraints, write, cluster).await? {
            return Ok(None);
        }
        Ok(by_object(&constraints.objects, write).then_some(matched))
    }

    fn by_rules(
        &mut self,
        constraints: &Constraints,
        write: &AdmissionRequest<'_>,
        cluster: &dyn Cluster,
    ) -> Option<Matched> {
        let own = &write.resource;
        let mut others: &[Equivalent] = &[];
        if constraints.equivalent {
            let found = || cluster.equivalents(own);
            others = self.equivalents.get_or_insert_with(found);
        }
        let any = |rules: &[Rule]| {
            let exact = rules.iter().any(|rule| rule.matches(write, own));
            let exact = exact.then(|| Matched {
                resource: own.clone(),
                kind: write.kind.clone(),
            });
            exact.or_else(|| {
                let pairs = rules
                    .iter()
                    .flat_map(|rule| others.iter().map(move |o| (rule, o)));
                let found = |(rule, other): &(&Rule, &Equivalent)| {
                    other.resource != *own && rule.matches(write, &other.resource)
                };
                let (_, other) = pairs.into_iter().find(found)?;
                Some(Matched {
                    resource: other.resource.clone(),
                    // A subresource's own kind has no other version.
                    kind: match write.subresource {
                        "" | "status" => other.kind.clone(),
                        _ => write.kind.clone(),
                    },
                })
            })
        };
        any(&constraints.rules).filter(|_| any(&constraints.excluded).is_none())
    }

    async fn by_namespace(
        &mut self,
        constraints: &Constraints,
        write: &AdmissionRequest<'_>,
        cluster: &dyn Cluster,
    ) -> Result<bool, AdmissionError> {
        if constraints.namespaces.is_empty() {
            return Ok(true);
        }
        if write.is_of_namespaces() && write.object.is_object() {
            return Ok(selector::selects(&constraints.namespaces, &write.object));
        }
        if write.namespace.is_empty() {
            return Ok(true);
        }
        let namespace = self.namespace(write, cluster).await?;
        Ok(selector::selects(&constraints.namespaces, namespace))
    }

    /// The namespace of `write`, which is in one.
    pub(super) async fn namespace(
        &mut self,
        write: &AdmissionRequest<'_>,
        cluster: &dyn Cluster,
    ) -> Result<&Value, AdmissionError> {
        if self.namespace.is_none() {
            let found = cluster.namespace(write.namespace).await?;
            self.namespace = Some(found.ok_or_else(|| AdmissionError::NoNamespace {
                namespace: write.namespace.to_owned(),
            })?);
        }
        Ok(self.namespace.as_ref().expect("it was found just now"))
    }
}

/// An object that has left the selector is still of concern, and so is one that enters it.
fn by_object(selector: &LabelSelector, write: &AdmissionRequest<'_>) -> bool {
    let selected = |object: &Value| object.is_object() && selector::selects(selector, object);
    selector.is_empty() || selected(&write.object) || selected(&write.old_object)
}
