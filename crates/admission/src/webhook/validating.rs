//! Validating webhooks: all that match a write are called concurrently.

use futures_util::future::join_all;

use super::super::error::AdmissionError;
use super::super::matching::Matcher;
use super::super::request::AdmissionRequest;
use super::call_context::{CallContext, MatchedHook};
use super::hooks::Hook;

/// Calls each of `hooks` that matches `write`.
///
/// # Errors
/// The first denial, in the order of the hooks.
pub(crate) async fn validate(
    context: &CallContext<'_>,
    hooks: &[Hook],
    write: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let mut matcher = Matcher::new();
    let mut matched = Vec::new();
    for hook in hooks {
        matched.extend(context.match_hook(hook, &mut matcher, write).await?);
    }
    let results = join_all(matched.iter().map(|matched| call(context, matched, write))).await;
    results.into_iter().collect()
}

async fn call(
    context: &CallContext<'_>,
    matched: &MatchedHook<'_>,
    write: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let object = context
        .converted(&matched.matched, write, &write.object)
        .await;
    let object = object.map_err(AdmissionError::Internal)?;
    context.call(matched, write, &object, false).await.map(drop)
}
