//! Matches a write against the constraints of a webhook or a policy: rules (also for equivalent resources), and the
//! labels of the namespace and the object. Match conditions are evaluated later.

use serde_json::Value;

use super::cluster::{Cluster, Equivalent};
use super::error::AdmissionError;
use super::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource};
use super::rules::Rule;
use super::selector;
use watchet_api::LabelSelector;

/// The writes that a webhook or a policy applies to.
#[derive(Debug, Clone, Default)]
pub(super) struct Constraints {
    pub(super) rules: Vec<Rule>,
    /// Exclude matches of `rules`.
    pub(super) excluded: Vec<Rule>,
    /// True if rules for other versions of the same resource match too.
    pub(super) equivalent: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
}

/// The resource and the kind in which a write matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) resource: GroupVersionResource,
    pub(super) kind: GroupVersionKind,
}

/// Matches one write against the constraints of several webhooks or policies, and caches what it reads.
#[derive(Debug)]
pub(super) struct Matcher {
    /// The namespace of the write; set when a selector first needs its labels.
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

    /// Returns the resource and kind in which `write` matches `constraints`; `None` if it does not.
    ///
    /// # Errors
    /// The result depends on the labels of the namespace, which does not exist or cannot be read.
    pub(super) async fn matches(
        &mut self,
        constraints: &Constraints,
        write: &AdmissionRequest<'_>,
        cluster: &dyn Cluster,
    ) -> Result<Option<Matched>, AdmissionError> {
        // Rules first: they need no reads, and a write that they do not match must not fail for its namespace.
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

    /// Returns the namespace of `write`, whose object is namespaced.
    pub(super) async fn namespace(
        &mut self,
        write: &AdmissionRequest<'_>,
        cluster: &dyn Cluster,
    ) -> Result<&Value, AdmissionError> {
        if self.namespace.is_none() {
            let found = cluster.namespace(write.namespace).await?;
            self.namespace = Some(found.ok_or_else(|| AdmissionError::NotFound {
                resource: "namespaces",
                name: write.namespace.to_owned(),
            })?);
        }
        Ok(self.namespace.as_ref().expect("it was found just now"))
    }
}

/// Returns true if the selector selects the object or the old object: an update can move the object into or out of the
/// selection.
fn by_object(selector: &LabelSelector, write: &AdmissionRequest<'_>) -> bool {
    let selected = |object: &Value| object.is_object() && selector::selects(selector, object);
    selector.is_empty() || selected(&write.object) || selected(&write.old_object)
}
