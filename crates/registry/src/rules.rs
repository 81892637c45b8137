//! The rules for writing and deleting objects of a resource.

use std::time::Duration;

use super::names::NameRule;

/// The rules for writing and deleting objects of a resource.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Which names objects can have.
    pub name_rule: NameRule,
    /// Objects count the changes of their desired state.
    pub has_generation: bool,
    /// A PUT creates an object that does not exist.
    pub allows_create_on_update: bool,
    /// A PUT needs no resourceVersion.
    pub allows_unconditional_update: bool,
    /// Storage deletes objects after this time.
    pub ttl: Option<Duration>,
    /// A finished delete returns the last state of the object instead of a Status.
    pub returns_deleted_object: bool,
    /// A delete without a propagation policy orphans the dependents.
    pub orphans_by_default: bool,
    /// Objects can have dependents, which the garbage collector deletes or orphans.
    pub is_garbage_collected: bool,
    /// The members of metadata that a write to the status changes too.
    pub metadata_written_with_status: &'static [&'static str],
    /// Finalizers need no domain.
    pub allows_unqualified_finalizers: bool,
    /// Readiness waits for the cache, because every write or the table of resources depends on it.
    pub is_cache_required: bool,
    /// The objects are the namespaces.
    pub is_namespaces: bool,
}

impl Rules {
    /// The rules of most built-in resources.
    pub const DEFAULT: Self = Self {
        name_rule: NameRule::Subdomain,
        has_generation: false,
        allows_create_on_update: false,
        allows_unconditional_update: true,
        ttl: None,
        returns_deleted_object: false,
        orphans_by_default: false,
        is_garbage_collected: true,
        metadata_written_with_status: &["annotations", "labels"],
        allows_unqualified_finalizers: false,
        is_cache_required: false,
        is_namespaces: false,
    };
}

/// The longest time that the deletion of an object takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// The object is being deleted, and this delete does not shorten its grace period.
    Pending,
    /// This number of seconds from the first delete.
    Seconds(i64),
}
