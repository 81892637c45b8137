//! The findings of a pass over a namespace and their conditions in its status, with upstream's
//! reasons and messages.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use watchet_registry::ApiError;

/// The maximum number of failures in a message: a namespace can contain very many objects.
const FAILURE_MESSAGES_MAX: usize = 20;

/// A type of condition, with the reason and message of the status False, which means success.
struct Kind {
    name: &'static str,
    well: &'static str,
    message: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "NamespaceDeletionDiscoveryFailure",
        well: "ResourcesDiscovered",
        message: "All resources successfully discovered",
    },
    Kind {
        name: "NamespaceDeletionGroupVersionParsingFailure",
        well: "ParsedGroupVersions",
        message: "All legacy kube types successfully parsed",
    },
    Kind {
        name: CONTENT_FAILURE,
        well: "ContentDeleted",
        message: "All content successfully deleted, may be waiting on finalization",
    },
    Kind {
        name: CONTENT_REMAINING,
        well: "ContentRemoved",
        message: "All content successfully removed",
    },
    Kind {
        name: FINALIZERS_REMAINING,
        well: "ContentHasNoFinalizers",
        message: "All content-preserving finalizers finished",
    },
];

const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT_REMAINING: &str = "NamespaceContentRemaining";
const FINALIZERS_REMAINING: &str = "NamespaceFinalizersRemaining";

/// The findings of a pass.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The number of deleted objects.
    pub(super) deleted: usize,
    /// Objects whose deletion is in progress, by `plural.group`.
    remaining: BTreeMap<String, usize>,
    /// The number of these objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    failures: usize,
    /// The messages of the first failures.
    messages: Vec<String>,
    first: Option<ApiError>,
}

impl Findings {
    /// Records an object whose deletion is in progress.
    pub(super) fn pending(&mut self, plural: &str, group: &str, object: &Value) {
        // Upstream writes the dot also for the core group.
        let name = format!("{plural}.{group}");
        *self.remaining.entry(name).or_default() += 1;
        let finalizers = object["metadata"]["finalizers"].as_array();
        for finalizer in finalizers.into_iter().flatten().filter_map(Value::as_str) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, error: ApiError) {
        self.failures += 1;
        if self.messages.len() < FAILURE_MESSAGES_MAX {
            self.messages.push(error.to_string());
        }
        self.first.get_or_insert(error);
    }

    /// Adds the findings of another part of the pass.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.deleted += other.deleted;
        for (name, count) in other.remaining {
            *self.remaining.entry(name).or_default() += count;
        }
        for (finalizer, count) in other.finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
        self.failures += other.failures;
        let free = FAILURE_MESSAGES_MAX.saturating_sub(self.messages.len());
        self.messages.extend(other.messages.into_iter().take(free));
        self.first = self.first.or(other.first);
        self
    }

    /// Returns whether objects remain.
    pub(super) fn remains(&self) -> bool {
        !self.remaining.is_empty()
    }

    /// Returns whether nothing remains and nothing failed.
    pub(super) fn is_clean(&self) -> bool {
        !self.remains() && self.failures == 0
    }

    /// Returns whether nothing is left.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn into_result(self) -> Result<bool, ApiError> {
        match self.first {
            Some(error) => Err(error),
            None => Ok(self.remaining.is_empty()),
        }
    }

    /// Returns the conditions that follow `before`; `None` if they are unchanged.
    pub(super) fn conditions(&self, before: &Value) -> Option<Value> {
        let mut after = before.as_array().cloned().unwrap_or_default();
        for kind in &KINDS {
            let wrong = self.failure_of(kind.name);
            let status = if wrong.is_some() { "True" } else { "False" };
            let (reason, message) = wrong.unwrap_or((kind.well, kind.message.to_owned()));
            let condition = after
                .iter_mut()
                .find(|condition| condition["type"] == kind.name);
            match condition {
                Some(condition) => {
                    if condition["status"] != status {
                        condition["lastTransitionTime"] = now();
                    }
                    condition["status"] = status.into();
                    condition["reason"] = reason.into();
                    condition["message"] = message.into();
                }
                None => after.push(json!({
                    "type": kind.name,
                    "status": status,
                    "lastTransitionTime": now(),
                    "reason": reason,
                    "message": message,
                })),
            }
        }
        let after = Value::Array(after);
        (after != *before).then_some(after)
    }

    /// Returns the reason and message of a condition that is true.
    fn failure_of(&self, kind: &str) -> Option<(&'static str, String)> {
        let list = |counts: &BTreeMap<String, usize>, verb: &str| {
            let each = counts.iter();
            let each =
                each.map(|(name, count)| format!("{name} {verb} {count} resource instances"));
            each.collect::<Vec<_>>().join(", ")
        };
        match kind {
            CONTENT_FAILURE if self.failures > 0 => {
                let mut messages = self.messages.clone();
                messages.sort();
                let message = format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    self.failures,
                    messages.join(", ")
                );
                Some(("ContentDeletionFailed", message))
            }
            CONTENT_REMAINING if !self.remaining.is_empty() => {
                let list = list(&self.remaining, "has");
                let message = format!("Some resources are remaining: {list}");
                Some(("SomeResourcesRemain", message))
            }
            FINALIZERS_REMAINING if !self.finalizers.is_empty() => {
                let list = list(&self.finalizers, "in");
                let message =
                    format!("Some content in the namespace has finalizers remaining: {list}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

fn now() -> Value {
    let now = Timestamp::now().as_second();
    let now = Timestamp::from_second(now).expect("the current time is in range");
    now.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition<'a>(conditions: &'a Value, kind: &str) -> [&'a str; 3] {
        let all = conditions.as_array().unwrap();
        let one = all.iter().find(|c| c["type"] == kind).unwrap();
        ["status", "reason", "message"].map(|member| one[member].as_str().unwrap())
    }

    #[test]
    fn remaining_objects_are_reported_until_deleted() {
        let (mut findings, mut others) = (Findings::default(), Findings::default());
        let object = json!({"metadata": {"finalizers": ["a.b/c", "x.y/z"]}});
        others.pending("jobs", "batch", &object);
        let object = json!({"metadata": {"finalizers": ["x.y/z"]}});
        findings.pending("jobs", "batch", &object);
        let mut findings = findings.and(others);
        findings.failed(ApiError::Unprocessable("no".to_owned()));
        let conditions = findings.conditions(&Value::Null).unwrap();
        assert_eq!(conditions.as_array().unwrap().len(), 5);
        assert_eq!(
            condition(&conditions, CONTENT_REMAINING),
            [
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: jobs.batch has 2 resource instances"
            ]
        );
        assert_eq!(
            condition(&conditions, FINALIZERS_REMAINING),
            [
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: a.b/c in 1 resource \
                 instances, x.y/z in 2 resource instances"
            ]
        );
        assert_eq!(
            condition(&conditions, CONTENT_FAILURE)[2],
            "Failed to delete all resource types, 1 remaining: no"
        );
        assert_eq!(
            condition(&conditions, "NamespaceDeletionDiscoveryFailure")[..2],
            ["False", "ResourcesDiscovered"]
        );
        assert_eq!(findings.conditions(&conditions), None, "unchanged");

        let mut with_others = conditions.clone();
        let other = json!({"type": "Other", "status": "True"});
        with_others.as_array_mut().unwrap().insert(0, other.clone());
        let empty = Findings::default();
        let conditions = empty.conditions(&with_others).unwrap();
        assert_eq!(conditions[0], other);
        assert_eq!(
            condition(&conditions, CONTENT_REMAINING),
            [
                "False",
                "ContentRemoved",
                "All content successfully removed"
            ]
        );
        assert!(empty.into_result().unwrap());
    }
}
