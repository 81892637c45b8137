//! What the crate `watchet-fuzz` calls: the responses of webhooks without a webhook.

use watchet_api::Status;

use crate::webhook::Review;

/// Reads the response of an admission webhook to a request with the uid `uid`. Returns the denial, if any, and the patch.
///
/// # Errors
/// The response is invalid.
pub fn read_review(response: &[u8], mutating: bool) -> Result<(Option<Status>, Vec<u8>), String> {
    let verified = Review::with_uid("uid").verify(response, mutating)?;
    Ok((verified.denied, verified.patch))
}
