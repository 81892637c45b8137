//! Validating webhooks: all that are about a write are asked at the same time, and all are waited for.

use futures_util::future::join_all;

use super::super::error::AdmissionError;
use super::super::matching::Matcher;
use super::super::request::AdmissionRequest;
use super::{Calling, Due, Hook};

/// Asks each of `hooks` that is about `write`.
///
/// # Errors
/// The first refusal, in the order of the hooks.
pub(crate) async fn validate(
    calling: &Calling<'_>,
    hooks: &[Hook],
    write: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let mut matcher = Matcher::new();
    let mut due = Vec::new();
    for hook in hooks {
        due.extend(calling.due(hook, &mut matcher, write).await?);
    }
    let answers = join_all(due.iter().map(|due| ask(calling, due, write))).await;
    answers.into_iter().collect()
}

async fn ask(
    calling: &Calling<'_>,
    due: &Due<'_>,
    write: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let seen = calling.seen(&due.matched, write, &write.object).await;
    let seen = seen.map_err(AdmissionError::Internal)?;
    calling.ask(due, write, &seen, false).await.map(drop)
}
