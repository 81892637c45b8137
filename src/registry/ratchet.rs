//! Ratcheting: what was wrong with an object as it is stored is not held against a write that leaves it
//! so. Rules grow stricter, and others write into the same storage; whoever takes a finalizer away, or
//! changes a label, is not to blame, and could not delete the object otherwise.
//!
//! # The rule
//!
//! A problem is *old* when the stored object, validated today as its own successor, has the same one, of
//! the same reason and in the same words, and what is at its field has not changed. In metadata the words
//! alone count, and not at which index: they tell the finalizer or the label that is meant, and lists of
//! them get shorter.

use serde_json::Value;

use super::error::Causes;
use crate::api::StatusCause;

/// Those of the `causes` against `object` that are not old; `before` is what was wrong with `stored`.
pub(super) fn without_old(
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
    causes.retain(|cause| {
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
    is_in_metadata(field) || part(field, stored) == part(field, object)
}

/// What is at `a.b[0].c`, or `a.b[key].c`; null if there is nothing.
fn part<'a>(field: &str, object: &'a Value) -> &'a Value {
    const NOTHING: &Value = &Value::Null;
    let mut at = object;
    let mut rest = field;
    while !rest.is_empty() {
        let (segment, after) = match rest.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').unwrap_or((bracketed, "")),
            None => {
                let plain = rest.trim_start_matches('.');
                plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
            }
        };
        at = match at {
            Value::Array(items) => segment.parse().ok().and_then(|i: usize| items.get(i)),
            other => other.get(segment),
        }
        .unwrap_or(NOTHING);
        rest = after;
    }
    at
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
            assert_eq!(*part(field, &object), expect, "{field}");
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
