//! Ratcheting: what was wrong with an object as it is stored is not held against a write that leaves it
//! so. Rules grow stricter, and others write into the same storage; whoever takes a finalizer away, or
//! changes a label, is not to blame, and could not delete the object otherwise.
//!
//! # The rule
//!
//! A problem is *old* when the stored object, validated today as its own successor, has the same one, of
//! the same reason and in the same words, and what is at its field has not changed. Where nothing is, the
//! item of a list that lacks it must be the same. In metadata the words alone count, and not at which index:
//! they tell the finalizer that is meant, and lists of them get shorter. Of a label they tell the value and not
//! whose it is: a problem of a label that this write sets is new.

use serde_json::Value;

use super::error::Causes;
use super::{metadata, names};
use crate::api::StatusCause;

/// Those of the `causes` against `object` that are not old; `before` is what was wrong with `stored`.
pub(crate) fn without_old(
    causes: Causes,
    stored: &Value,
    object: &Value,
    before: Causes,
) -> Vec<StatusCause> {
    // Of so many not all are known: a new one may be among those that are not told.
    let untold = causes.is_full() && !differs_in_metadata_only(stored, object);
    let mut causes = causes.into_vec();
    if untold {
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
            // That there are more is about no field.
            Some(old)
                if *cause == StatusCause::too_many()
                    || is_unchanged(&cause.field, stored, object) =>
            {
                // One excuses one.
                before.swap_remove(old);
                false
            }
            _ => true,
        }
    });
    causes
}

/// What is wrong with the labels that are not as they were.
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

/// Whether `field` is the same in both, or in neither.
fn is_unchanged(field: &str, stored: &Value, object: &Value) -> bool {
    if is_in_metadata(field) {
        return true;
    }
    let (old, new) = (Part::at(field, stored), Part::at(field, object));
    old.value == new.value && (!old.value.is_null() || old.item == new.item)
}

/// What is in one place of an object.
struct Part<'a> {
    /// Null if nothing is there.
    value: &'a Value,
    /// The item of a list that it is in, of several the inmost.
    item: Option<&'a Value>,
}

impl<'a> Part<'a> {
    /// What is at `a.b[0].c`, or `a.b[key].c`.
    fn at(field: &str, object: &'a Value) -> Self {
        const NOTHING: &Value = &Value::Null;
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
                    part.item = Some(item.unwrap_or(NOTHING));
                    item
                }
                other => other.get(segment),
            }
            .unwrap_or(NOTHING);
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

    fn left(old: &[(&str, &str)], new: &[(&str, &str)], stored: &Value, object: &Value) -> usize {
        without_old(causes(new), stored, object, causes(old)).len()
    }

    #[test]
    fn parts_are_found_by_their_fields() {
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
    fn what_was_so_is_no_fault_of_who_leaves_it() {
        let stored = json!({"spec": {"a": {"x": 1}, "b": 2}});
        let same = json!({"metadata": {"labels": {}}, "spec": {"a": {"x": 1}, "b": 3}});
        let changed = json!({"spec": {"a": {"x": 2}, "b": 2}});
        let old = [("spec.a", "x"), ("spec.c", "")];
        assert_eq!(left(&old, &old, &stored, &same), 0);
        assert_eq!(
            left(&old, &old, &stored, &changed),
            1,
            "what is at it is another"
        );
        assert_eq!(left(&old, &[("spec.a", "y")], &stored, &same), 1);
        assert_eq!(left(&old, &[("spec.b", "x")], &stored, &same), 1);
        let twice = [("spec.a", "x"), ("spec.a", "x")];
        assert_eq!(left(&old, &twice, &stored, &same), 1, "one excuses one");
    }

    /// The words of a cause tell the value alone: another label with it was excused by the one that had it.
    #[test]
    fn a_new_label_is_not_excused_by_an_old_one() {
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
        let told = |object: &Value| {
            let mut causes = Causes::default();
            let labels = object["metadata"]["labels"].as_object().unwrap();
            names::label_problems(labels, &mut causes);
            causes
        };
        let stored = labelled(json!({"a": "not good"}));
        let left = |labels: Value| {
            let object = labelled(labels);
            without_old(told(&object), &stored, &object, told(&stored)).len()
        };
        assert_eq!(left(json!({"a": "not good", "b": "fine"})), 0);
        assert_eq!(left(json!({"b": "not good"})), 1);
        assert_eq!(left(json!({"a": "not good at all"})), 1);
        assert_eq!(left(json!({"b": "fine"})), 0);
    }

    /// Nothing is where something is required in both, and not of the same item.
    #[test]
    fn what_a_new_item_lacks_is_not_excused_by_what_an_old_one_lacked() {
        let stored = json!({"spec": {"list": [{"name": "a"}, {"image": "x"}]}});
        let lacks = [("spec.list[1].name", "")];
        let of = |items: Value| json!({"spec": {"list": items, "other": 1}});
        let same = of(json!([{"name": "a"}, {"image": "x"}]));
        assert_eq!(left(&lacks, &lacks, &stored, &same), 0);
        let another = of(json!([{"name": "a"}, {"image": "y"}]));
        assert_eq!(left(&lacks, &lacks, &stored, &another), 1);
        // Outside of lists it is what it was, whatever is around it.
        let stored = json!({"spec": {"replicas": 1}});
        let scaled = json!({"spec": {"replicas": 2}});
        let selector = [("spec.selector", "")];
        assert_eq!(left(&selector, &selector, &stored, &scaled), 0);
    }

    #[test]
    fn a_list_of_finalizers_may_get_shorter() {
        let stored = json!({"metadata": {"finalizers": ["a/b", "bad"]}});
        let object = json!({"metadata": {"finalizers": ["bad"]}});
        let old = [("metadata.finalizers[1]", "bad")];
        let new = [("metadata.finalizers[0]", "bad")];
        assert_eq!(left(&old, &new, &stored, &object), 0);
        assert_eq!(
            left(
                &old,
                &[("metadata.finalizers[0]", "worse")],
                &stored,
                &object
            ),
            1
        );
    }

    #[test]
    fn behind_too_many_problems_a_new_one_cannot_hide() {
        let many: Vec<_> = (0..=Causes::MAX + 1).map(|_| ("spec.a", "x")).collect();
        let stored = json!({"spec": {"a": 1, "b": 2}});
        let object = json!({"spec": {"a": 1, "b": 3}});
        assert!(left(&many, &many, &stored, &object) > 0);
        let labelled = json!({"metadata": {"labels": {}}, "spec": {"a": 1, "b": 2}});
        assert_eq!(left(&many, &many, &stored, &labelled), 0);
    }
}
