//! Ratcheting: an update is not rejected for a problem that the stored object has already and that the update does not
//! change. Validation becomes stricter over time, and other programs write to the same storage; without ratcheting a
//! client could not remove a finalizer or change a label of such an object, nor delete it.
//!
//! # The rule
//!
//! A problem is *old* if the stored object, validated today as an update of itself, has a problem with the same reason and
//! message, and the value of its field is unchanged. If the field has no value, the list item that lacks it must be
//! unchanged. In metadata only the message counts, without the index of the field: the message has the finalizer, and the
//! list of finalizers gets shorter. The message about a label has its value but not its key, so a problem of a label that
//! this write sets is new.

use serde_json::Value;

use super::causes::Causes;
use super::{metadata, names};
use watchet_api::StatusCause;

/// Returns the `causes` of `object` that are not old; `before` has the causes of `stored`.
pub(crate) fn without_old(
    causes: Causes,
    stored: &Value,
    object: &Value,
    before: Causes,
) -> Vec<StatusCause> {
    // The list is truncated: a new cause may be among those that are missing.
    let is_truncated = causes.is_full() && !differs_in_metadata_only(stored, object);
    let mut causes = causes.into_vec();
    if is_truncated {
        return causes;
    }
    let mut before = before.into_vec();
    let of_new_labels = of_new_labels(stored, object);
    causes.retain(|cause| {
        if of_new_labels.contains(cause) {
            return true;
        }
        let old = before.iter().position(|old| is_same(old, cause));
        match old {
            // The cause that there are more has no field.
            Some(old)
                if *cause == StatusCause::too_many()
                    || is_unchanged(&cause.field, stored, object) =>
            {
                // Each old cause matches one new cause.
                before.swap_remove(old);
                false
            }
            _ => true,
        }
    });
    causes
}

/// Returns the problems of labels that changed.
fn of_new_labels(stored: &Value, object: &Value) -> Vec<StatusCause> {
    let labels = |object: &Value| metadata::of(object)["labels"].as_object().cloned();
    let (old, mut new) = (
        labels(stored).unwrap_or_default(),
        labels(object).unwrap_or_default(),
    );
    new.retain(|key, value| old.get(key) != Some(value));
    let mut causes = Causes::default();
    names::label_problems(&new, &mut causes);
    causes.into_vec()
}

fn differs_in_metadata_only(stored: &Value, object: &Value) -> bool {
    let rest = |object: &Value| {
        let members = object.as_object().into_iter().flatten();
        let members = members.filter(|(member, _)| *member != "metadata");
        members.map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let (stored, object): (Vec<_>, Vec<_>) = (rest(stored), rest(object));
    stored == object
}

fn is_in_metadata(field: &str) -> bool {
    field.starts_with("metadata.")
}

fn is_same(old: &StatusCause, new: &StatusCause) -> bool {
    let place = |cause: &StatusCause| match is_in_metadata(&cause.field) {
        true => cause.field.split('[').next().map(str::to_owned),
        false => Some(cause.field.clone()),
    };
    old.reason == new.reason && old.message == new.message && place(old) == place(new)
}

/// Returns true if `field` has the same value in both objects.
fn is_unchanged(field: &str, stored: &Value, object: &Value) -> bool {
    if is_in_metadata(field) {
        return true;
    }
    let (old, new) = (Part::at(field, stored), Part::at(field, object));
    old.value == new.value && (!old.value.is_null() || old.item == new.item)
}

/// The value of a field.
struct Part<'a> {
    /// Null if the field is absent.
    value: &'a Value,
    /// The innermost list item that contains the field.
    item: Option<&'a Value>,
}

impl<'a> Part<'a> {
    /// Returns the value at `a.b[0].c` or `a.b[key].c`.
    fn at(field: &str, object: &'a Value) -> Self {
        const ABSENT: &Value = &Value::Null;
        let mut part = Self {
            value: object,
            item: None,
        };
        let mut rest = field;
        while !rest.is_empty() {
            let (segment, after) = match rest.strip_prefix('[') {
                Some(bracketed) => bracketed.split_once(']').unwrap_or((bracketed, "")),
                None => {
                    let plain = rest.trim_start_matches('.');
                    plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
                }
            };
            part.value = match part.value {
                Value::Array(items) => {
                    let item = segment.parse().ok().and_then(|at: usize| items.get(at));
                    part.item = Some(item.unwrap_or(ABSENT));
                    item
                }
                other => other.get(segment),
            }
            .unwrap_or(ABSENT);
            rest = after;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn causes(of: &[(&str, &str)]) -> Causes {
        let mut causes = Causes::default();
        for (field, value) in of {
            causes.push(StatusCause::invalid(field, value, "no"));
        }
        causes
    }

    fn remaining(
        old: &[(&str, &str)],
        new: &[(&str, &str)],
        stored: &Value,
        object: &Value,
    ) -> usize {
        without_old(causes(new), stored, object, causes(old)).len()
    }

    #[test]
    fn part_at_returns_value_of_field() {
        let object = json!({"spec": {"list": [{"a": 1}], "map": {"x.y/z": 2}}});
        for (field, expect) in [
            ("spec.list[0].a", json!(1)),
            ("spec.map[x.y/z]", json!(2)),
            ("spec.list[1].a", Value::Null),
            ("spec.list[0", json!({"a": 1})),
            ("none.of[it]", Value::Null),
            ("", object.clone()),
        ] {
            assert_eq!(*Part::at(field, &object).value, expect, "{field}");
        }
    }

    #[test]
    fn unchanged_problem_is_old() {
        let stored = json!({"spec": {"a": {"x": 1}, "b": 2}});
        let same = json!({"metadata": {"labels": {}}, "spec": {"a": {"x": 1}, "b": 3}});
        let changed = json!({"spec": {"a": {"x": 2}, "b": 2}});
        let old = [("spec.a", "x"), ("spec.c", "")];
        assert_eq!(remaining(&old, &old, &stored, &same), 0);
        assert_eq!(
            remaining(&old, &old, &stored, &changed),
            1,
            "the value changed"
        );
        assert_eq!(remaining(&old, &[("spec.a", "y")], &stored, &same), 1);
        assert_eq!(remaining(&old, &[("spec.b", "x")], &stored, &same), 1);
        let twice = [("spec.a", "x"), ("spec.a", "x")];
        assert_eq!(
            remaining(&old, &twice, &stored, &same),
            1,
            "each old cause matches one"
        );
    }

    /// The message has only the value of a label: a second label with an invalid value was accepted.
    #[test]
    fn problem_of_new_label_is_new() {
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
        let causes_of = |object: &Value| {
            let mut causes = Causes::default();
            let labels = object["metadata"]["labels"].as_object().unwrap();
            names::label_problems(labels, &mut causes);
            causes
        };
        let stored = labelled(json!({"a": "not good"}));
        let remaining = |labels: Value| {
            let object = labelled(labels);
            without_old(causes_of(&object), &stored, &object, causes_of(&stored)).len()
        };
        assert_eq!(remaining(json!({"a": "not good", "b": "fine"})), 0);
        assert_eq!(remaining(json!({"b": "not good"})), 1);
        assert_eq!(remaining(json!({"a": "not good at all"})), 1);
        assert_eq!(remaining(json!({"b": "fine"})), 0);
    }

    /// A required field is absent in both objects, in different items.
    #[test]
    fn absent_field_of_changed_item_is_new() {
        let stored = json!({"spec": {"list": [{"name": "a"}, {"image": "x"}]}});
        let lacks = [("spec.list[1].name", "")];
        let of = |items: Value| json!({"spec": {"list": items, "other": 1}});
        let same = of(json!([{"name": "a"}, {"image": "x"}]));
        assert_eq!(remaining(&lacks, &lacks, &stored, &same), 0);
        let another = of(json!([{"name": "a"}, {"image": "y"}]));
        assert_eq!(remaining(&lacks, &lacks, &stored, &another), 1);
        // Outside of lists the surrounding object does not matter.
        let stored = json!({"spec": {"replicas": 1}});
        let scaled = json!({"spec": {"replicas": 2}});
        let selector = [("spec.selector", "")];
        assert_eq!(remaining(&selector, &selector, &stored, &scaled), 0);
    }

    #[test]
    fn problem_of_finalizer_is_old_at_another_index() {
        let stored = json!({"metadata": {"finalizers": ["a/b", "bad"]}});
        let object = json!({"metadata": {"finalizers": ["bad"]}});
        let old = [("metadata.finalizers[1]", "bad")];
        let new = [("metadata.finalizers[0]", "bad")];
        assert_eq!(remaining(&old, &new, &stored, &object), 0);
        assert_eq!(
            remaining(
                &old,
                &[("metadata.finalizers[0]", "worse")],
                &stored,
                &object
            ),
            1
        );
    }

    #[test]
    fn truncated_list_is_not_ratcheted() {
        let many: Vec<_> = (0..=Causes::MAX + 1).map(|_| ("spec.a", "x")).collect();
        let stored = json!({"spec": {"a": 1, "b": 2}});
        let object = json!({"spec": {"a": 1, "b": 3}});
        assert!(remaining(&many, &many, &stored, &object) > 0);
        let labelled = json!({"metadata": {"labels": {}}, "spec": {"a": 1, "b": 2}});
        assert_eq!(remaining(&many, &many, &stored, &labelled), 0);
    }
}
