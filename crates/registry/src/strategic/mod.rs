//! Strategic merge patch: a merge patch that merges lists by a key, as the type of the object declares.
//!
//! # Definitions
//!
//! - *Merge key*: the member that identifies the objects of a list.
//! - *Directive*: a member of a patch that is an instruction and not a value: `$patch`,
//!   `$retainKeys`, `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`.

mod directives;
mod format;
mod merge;
mod order;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use directives::StrategicError;
pub(crate) use format::GoFormat;
pub(crate) use merge::merge;
