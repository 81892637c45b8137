//! Mutating webhooks: one after the other, and in the second round those that are due again.

use std::borrow::Cow;

use super::super::error::AdmissionError;
use super::super::matching::Matcher;
use super::super::reinvocation::{Calls, Reinvocation};
use super::super::request::AdmissionRequest;
use super::{Calling, Due, Hook};

/// Asks each of `hooks` that is about `write` and due in this round. The object becomes what they make of it.
/// A webhook is known by its place in the list.
pub(crate) async fn mutate(
    calling: &Calling<'_>,
    hooks: &[Hook],
    write: &mut AdmissionRequest<'_>,
    (reinvocation, calls): (&mut Reinvocation, &mut Calls<usize>),
) -> Result<(), AdmissionError> {
    calls.begin(&write.object);
    let mut matcher = Matcher::new();
    for (place, hook) in hooks.iter().enumerate() {
        if !calls.is_due(reinvocation, &place) {
            continue;
        }
        let Some(due) = calling.due(hook, &mut matcher, write).await? else {
            continue;
        };
        if ask(calling, &due, write).await? {
            calls.changed();
            reinvocation.require();
        }
        if hook.is_reinvocable {
            calls.called(place);
        }
    }
    calls.end(&write.object);
    Ok(())
}

/// Whether the webhook has changed the object.
async fn ask(
    calling: &Calling<'_>,
    due: &Due<'_>,
    write: &mut AdmissionRequest<'_>,
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
