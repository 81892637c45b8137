//! Mutating webhooks: one after the other, and once more those that asked for it when others have changed
//! the object since.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::super::attributes::Attributes;
use super::super::error::AdmissionError;
use super::super::matching::Matcher;
use super::{Calling, Due, Hook};

/// Who is called again. A webhook is named by its place in the list.
#[derive(Debug, Default)]
struct Reinvocation {
    /// Called, reinvocable, and nobody has changed the object since.
    called: BTreeSet<usize>,
    /// Likewise, and somebody has.
    due: BTreeSet<usize>,
}

impl Reinvocation {
    fn called(&mut self, hook: usize, changed: bool, is_reinvocable: bool) {
        if changed {
            self.due.append(&mut self.called);
        }
        if is_reinvocable {
            self.called.insert(hook);
        }
    }
}

/// Asks each of `hooks` that is about `write`, whose object becomes what they make of it.
pub(in crate::admission) async fn mutate(
    calling: &Calling<'_>,
    hooks: &[Hook],
    write: &mut Attributes<'_>,
) -> Result<(), AdmissionError> {
    let mut reinvocation = Reinvocation::default();
    let mut matcher = Matcher::new();
    for (place, hook) in hooks.iter().enumerate() {
        let Some(due) = calling.due(hook, &mut matcher, write).await? else {
            continue;
        };
        let changed = ask(calling, &due, write).await?;
        reinvocation.called(place, changed, hook.is_reinvocable);
    }
    let again = std::mem::take(&mut reinvocation.due);
    for place in again {
        if let Some(due) = calling.due(&hooks[place], &mut matcher, write).await? {
            ask(calling, &due, write).await?;
        }
    }
    Ok(())
}

/// Whether the webhook has changed the object.
async fn ask(
    calling: &Calling<'_>,
    due: &Due<'_>,
    write: &mut Attributes<'_>,
) -> Result<bool, AdmissionError> {
    let internal = |why: String| AdmissionError::Internal(why);
    let seen = calling.seen(&due.matched, write, &write.object).await;
    let seen = seen.map_err(internal)?;
    let Some(verified) = calling.ask(due, write, &seen, true).await? else {
        return Ok(false);
    };
    if verified.patch.is_empty() {
        return Ok(false);
    }
    let patch: json_patch::Patch =
        serde_json::from_slice(&verified.patch).map_err(|error| internal(error.to_string()))?;
    if patch.is_empty() {
        return Ok(false);
    }
    if write.object.is_null() {
        return Err(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for \
             this operation",
            due.hook.name
        )));
    }
    let kind = &due.matched.kind;
    let patched = calling.cluster.patched(write, kind, seen, patch).await;
    let mut patched = patched.map_err(internal)?;
    if *kind != write.kind {
        let back = calling.cluster.convert(patched, &write.kind).await;
        patched = back.map_err(internal)?;
    }
    let changed = patched != *write.object;
    write.object = Cow::Owned(patched);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the webhooks 0.. are called again, given for each in turn whether it changes the object
    /// and whether it is reinvocable.
    fn check(calls: &[(bool, bool)], expect: &[usize]) {
        let mut reinvocation = Reinvocation::default();
        for (place, (changed, is_reinvocable)) in calls.iter().enumerate() {
            reinvocation.called(place, *changed, *is_reinvocable);
        }
        assert!(
            reinvocation.due.iter().eq(expect),
            "{calls:?}: {:?}",
            reinvocation.due
        );
    }

    #[test]
    fn only_what_others_changed_since_is_a_reason_to_ask_again() {
        check(&[(true, true)], &[]);
        check(&[(false, true), (true, true)], &[0]);
        check(&[(false, false), (true, true)], &[]);
        check(&[(false, true), (false, true)], &[]);
        check(&[(true, true), (true, true), (true, false)], &[0, 1]);
    }
}
