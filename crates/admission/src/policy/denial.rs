//! Denials of a write by a ValidatingAdmissionPolicy.

use super::super::error::{AdmissionError, about};
use super::super::request::AdmissionRequest;
use super::read::{Action, Binding, Policy};
use watchet_api::{Status, StatusCause};

/// A validation that is false or failed, for one binding and one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) policy: String,
    /// Empty if the policy failed before a binding was selected.
    pub(super) binding: String,
    pub(super) message: String,
    /// Empty for the default, `Invalid`.
    pub(super) reason: String,
    pub(super) deny: bool,
    pub(super) warn: bool,
}

impl Denial {
    pub(super) fn of(policy: &Policy, binding: &Binding, message: String, reason: &str) -> Self {
        let has = |action| binding.actions.contains(&action);
        Self {
            policy: policy.definition.name.clone(),
            binding: binding.name.clone(),
            message,
            reason: reason.to_owned(),
            deny: has(Action::Deny),
            warn: has(Action::Warn),
        }
    }

    /// Returns the error of a denied write.
    pub(super) fn refuse(self, write: &AdmissionRequest<'_>) -> AdmissionError {
        let binding = match &*self.binding {
            "" => String::new(),
            name => format!(" with binding '{name}'"),
        };
        let text = format!(
            "ValidatingAdmissionPolicy '{}'{binding} denied request: {}",
            self.policy, self.message
        );
        let resource = write.resource.qualified();
        let message = match write.name {
            "" => format!("{resource} is forbidden: {text}"),
            name => format!("{resource} {name:?} is forbidden: {text}"),
        };
        let reason = match &*self.reason {
            "" => "Invalid",
            reason => reason,
        };
        let code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        let mut details = about(&resource, write.name);
        details.causes.push(StatusCause {
            message: text,
            ..StatusCause::default()
        });
        let status = Status::failure(code, reason, message).with_details(details);
        AdmissionError::Denied(Box::new(status))
    }
}
