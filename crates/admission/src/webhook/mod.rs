//! Admission webhooks: their configurations, and their calls for a write. The module `client` sends the requests.
//!
//! # Order
//!
//! Webhooks are in the order of the names of their configurations, and within one in the order of its list.
//! Mutating webhooks are called one after the other, each with the object as the previous ones changed it; in a
//! second round those with the reinvocation policy `IfNeeded` if the object has changed since their call.
//! Validating webhooks are called concurrently, and the write waits for all of them.

mod call_context;
mod conditions;
mod hooks;
mod mutating;
pub(super) mod review;
mod validating;

pub(super) use call_context::CallContext;
pub(super) use conditions::{CONDITION_VARIABLES, MatchConditions, MatchResult};
pub(super) use hooks::Hook;
pub(super) use mutating::mutate;
#[cfg(feature = "fuzzing")]
pub(crate) use review::Review;
pub(super) use validating::validate;
