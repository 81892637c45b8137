//! Who manages which fields of an object (`metadata.managedFields`), and server-side apply: KEP-555,
//! with the rules of upstream's structured merge and of its field managers. It knows no resource, no
//! storage and no request: types come from `schema`, objects as JSON values.
//!
//! # Definitions
//!
//! - *Field*: a path from the top of an object. Items of lists are named by their keys or values where
//!   the list's type tells them apart; atomic lists and maps, and scalars, are leaves.
//! - *Manager*: who wrote a field last, or wants it: a name, an operation, and a subresource if the
//!   write was to one. An update belongs to a version too.
//! - *Applier*: a manager that says all that it wants each time it applies. What it leaves out it gives
//!   up, and what nobody else has then is removed.
//! - *Version*: each entry has the names of the fields in one version of the object. Objects are compared in
//!   each version in which there are entries.
//! - *Conflict*: an applier wants another value for a field that somebody else has.
//!
//! # Invariants
//!
//! 1. A field has each manager at most once, and a manager that has no field has no entry.
//! 2. Whoever changes a field by an update has it alone, forced or not; whoever applies the value that is
//!    there shares it.
//! 3. A write that changes no field changes no entry, whatever the time is.

mod apply;
mod blank;
mod compare;
mod element;
mod entries;
mod fields_of;
mod last_applied;
mod merge;
mod prune;
mod reconcile;
mod remove;
mod set;
mod typed;
mod update;
mod validate;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use crate::schema::TypeRef;

pub use apply::{ApplyError, Conflict, apply};
pub use update::{keep_times, problem, update};

/// Who writes, and to what.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The name of the manager; upstream's is `unknown` where a client says none.
    pub name: &'a str,
    /// The version of the object that is written, `apps/v1`.
    pub api_version: &'a str,
    /// `status`; `None` is the object itself.
    pub subresource: Option<&'a str>,
    /// What of the object is not theirs to write, whatever they say.
    pub scope: Scope,
    /// When.
    pub now: Timestamp,
}

/// The fields that a write can change; the others are put back before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// All but the status.
    NoStatus,
    /// The status, and these members of the metadata.
    Status(&'static [&'static str]),
}

/// The versions in which an object is served.
pub trait Versions<'a> {
    /// The type of the object in this version; `None` if it is not served. Entries of such a version are
    /// dropped.
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'a>>;

    /// Returns these states of the object in this version, which is served. Objects that are the same in all
    /// versions are returned as they are.
    ///
    /// # Errors
    /// Why they cannot be converted.
    fn convert<'o>(
        &self,
        objects: &[&'o Value],
        _api_version: &str,
    ) -> Result<Vec<Cow<'o, Value>>, String> {
        Ok(objects.iter().copied().map(Cow::Borrowed).collect())
    }
}

/// Versions of an object that is the same in all of them.
impl<'a, F: Fn(&str) -> Option<TypeRef<'a>>> Versions<'a> for F {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'a>> {
        self(api_version)
    }
}

/// See [`Versions`].
pub type Types<'a> = dyn Versions<'a> + 'a;
