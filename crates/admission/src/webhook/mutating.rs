//! Mutating webhooks: called one after the other; in the second round only those that must be reinvoked.

use std::borrow::Cow;

use super::super::error::AdmissionError;
use super::super::matching::Matcher;
use super::super::reinvocation::{Calls, Reinvocation};
use super::super::request::AdmissionRequest;
use super::call_context::{CallContext, MatchedHook};
use super::hooks::Hook;

/// Calls each of `hooks` that matches `write` and that this round must call. Applies their patches to the object. The
/// index in the list identifies a webhook.
pub(crate) async fn mutate(
    context: &CallContext<'_>,
    hooks: &[Hook],
    write: &mut AdmissionRequest<'_>,
    (reinvocation, calls): (&mut Reinvocation, &mut Calls<usize>),
) -> Result<(), AdmissionError> {
    calls.begin(&write.object);
    let mut matcher = Matcher::new();
    for (index, hook) in hooks.iter().enumerate() {
        if !calls.should_call(reinvocation, &index) {
            continue;
        }
        let Some(matched) = context.match_hook(hook, &mut matcher, write).await? else {
            continue;
        };
        if call(context, &matched, write).await? {
            calls.changed();
            reinvocation.require();
        }
        if hook.is_reinvocable {
            calls.called(index);
        }
    }
    calls.end(&write.object);
    Ok(())
}

/// Calls a webhook and applies its patch. Returns true if the object has changed.
async fn call(
    context: &CallContext<'_>,
    matched: &MatchedHook<'_>,
    write: &mut AdmissionRequest<'_>,
) -> Result<bool, AdmissionError> {
    let internal = |why: String| AdmissionError::Internal(why);
    let object = context
        .converted(&matched.matched, write, &write.object)
        .await;
    let object = object.map_err(internal)?;
    let Some(verified) = context.call(matched, write, &object, true).await? else {
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
            matched.hook.name
        )));
    }
    let kind = &matched.matched.kind;
    let patched = context.cluster.patched(write, kind, object, patch).await;
    let mut patched = patched.map_err(internal)?;
    if *kind != write.kind {
        let back = context.cluster.convert(patched, &write.kind).await;
        patched = back.map_err(internal)?;
    }
    let changed = patched != *write.object;
    write.object = Cow::Owned(patched);
    Ok(changed)
}
