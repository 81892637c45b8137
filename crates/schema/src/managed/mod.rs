//! Field management (`metadata.managedFields`) and server-side apply (KEP-555), with the rules of
//! upstream's [structured-merge-diff](https://github.com/kubernetes-sigs/structured-merge-diff) and
//! field managers. Objects are JSON values; types come from `schema`.
//!
//! # Definitions
//!
//! - *Field*: a path from the root of an object. List items are identified by keys or values if the
//!   list type allows; atomic lists, atomic maps and scalars are leaves.
//! - *Manager*: the owner of fields: a name, an operation, a subresource, and for updates a
//!   version.
//! - *Applier*: a manager that applies its complete configuration each time. It releases the fields
//!   that it omits, and fields without any manager are removed from the object.
//! - *Version*: the fields of an entry belong to one version of the object. Objects are compared in
//!   each version that has entries.
//! - *Conflict*: an applier sets a field that another manager owns to another value.
//!
//! # Invariants
//!
//! 1. A manager owns a field at most once, and a manager without fields has no entry.
//! 2. An update that changes a field makes its manager the only owner; an apply of an unchanged
//!    value adds an owner.
//! 3. A write that changes no field changes no entry, regardless of the time.

mod apply;
mod compare;
mod entries;
mod field_set;
mod fields_of;
mod last_applied;
mod merge;
mod mutation;
mod path_element;
mod prune;
mod reconcile;
mod remove;
mod typed;
mod update;
mod validate;
mod zero_object;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use crate::TypeRef;

pub use apply::{ApplyError, Conflict, apply};
pub use mutation::mutated;
pub use update::{decode_error, restore_unchanged_times, update};

/// The manager of a write, and the written part of the object.
#[derive(Debug, Clone, Copy)]
pub struct WriteContext<'a> {
    /// The manager's name; upstream uses `unknown` if the client sends none.
    pub name: &'a str,
    /// The version of the written object, `apps/v1`.
    pub api_version: &'a str,
    /// The subresource, such as `status`; `None` for the main resource.
    pub subresource: Option<&'a str>,
    /// The fields that the write can change.
    pub scope: Scope,
    /// The time of the write.
    pub now: Timestamp,
}

/// The fields that a write can change; the others are reset before storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All fields.
    All,
    /// All fields except the status.
    NoStatus,
    /// The status and these members of the metadata.
    Status(&'static [&'static str]),
}

/// The served versions of an object.
pub trait Versions<'a> {
    /// Returns the type in this version; `None` if it is not served. Entries of such a version are
    /// dropped.
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'a>>;

    /// Converts states of the object to a served version. Returns objects that are equal in all
    /// versions unchanged.
    ///
    /// # Errors
    /// Returns the reason why they cannot be converted.
    fn convert<'o>(
        &self,
        objects: &[&'o Value],
        _api_version: &str,
    ) -> Result<Vec<Cow<'o, Value>>, String> {
        Ok(objects.iter().copied().map(Cow::Borrowed).collect())
    }
}

/// The versions of an object that is equal in all of them.
impl<'a, F: Fn(&str) -> Option<TypeRef<'a>>> Versions<'a> for F {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'a>> {
        self(api_version)
    }
}

/// See [`Versions`].
pub type Types<'a> = dyn Versions<'a> + 'a;
