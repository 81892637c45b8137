//! The verbs on resources: create, update, patch, apply and delete over storage, and get, list and watch over the cache
//! of each resource. [`Strategy`] is the interface for the differences between resources; other crates implement it.
//! This crate does not depend on HTTP: bodies are JSON values, and errors are [`ApiError`]s.
//!
//! # Definitions
//!
//! - *Stored form*: an object's JSON as it is in storage: with `apiVersion` and `kind`, without
//!   `metadata.resourceVersion`. The events of both groups are stored in the form of the core group. Custom resources
//!   are written in the version that the client uses; reads and writes of storage convert them.
//! - *Suggestion*: the object as a cache has it, perhaps stale. A write starts from it without a read of storage, as the
//!   suggestion of etcd3's `GuaranteedUpdate` upstream.
//!
//! # Invariants
//!
//! 1. The response to a write has the bytes and the revision that were stored, never the state of a cache.
//! 2. No write fails because of a suggestion alone: it is decided again with the object in storage.
//! 3. The last finalizer of a namespace is removed only after a pass has found no object in it. As upstream, a create that
//!    was admitted just before the deletion may be stored after that pass; its object then belongs to the next namespace
//!    of that name.

mod admission_adapter;
pub mod age;
mod allocator;
mod apply;
mod caches;
mod causes;
mod connect;
mod construction;
mod conversion;
mod create;
mod create_authorization;
mod delete;
mod deleted_namespaces;
mod error;
mod field_managers;
pub mod field_path;
mod field_validation;
pub mod fields;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guaranteed_update;
mod history;
mod json_patch;
mod location;
pub mod metadata;
pub mod names;
mod namespaces;
mod open_watches;
mod other_kind;
mod partial_edit;
mod patch;
mod patched;
mod pipeline;
mod preconditions;
mod printed_fields;
mod ratchet;
mod read;
mod registry;
mod reservations;
mod resource;
mod resource_errors;
pub mod response;
mod rules;
pub mod scale;
mod scale_paths;
mod schema_validator;
pub mod stored_form;
mod stored_version;
mod strategic;
mod subresource;
mod table;
pub mod table_columns;
mod target;
mod unsafe_delete_authorization;
mod update;
mod verbs;
mod version_converter;
mod watch;

pub use allocator::{Allocator, ObjectIdentity, WriteId};
pub use caches::StartedCache;
pub use causes::Causes;
pub use delete::decide as decide_delete;
pub use error::ApiError;
pub use field_validation::{StrictDecodingError, judge};
pub use fields::put;
pub use guaranteed_update::{Change, Decide, WRITE_DEADLINE, WriteOutcome};
pub use location::ObjectLocation;
pub use names::path_segment_problems;
pub use open_watches::{OpenWatch, OpenWatches, WatchOrigin, WatchRecord};
pub use other_kind::refusal as other_kind_error;
pub use partial_edit::Edited;
pub use printed_fields::PrintedFields;
pub use read::{StoredName, predicate};
pub use registry::{Parts, PostHandler, Registry, ResourceProvider};
pub use resource::{Plain, Resource, Strategy, VirtualObjects};
pub use rules::{Grace, Rules};
pub use scale_paths::ScalePaths;
pub use schema_validator::SchemaValidator;
pub use stored_form::Current;
pub use subresource::{BodyKind, CHANGED, Posted, Subresource, part};
pub use table_columns::TableColumn;
pub use target::{Deleted, Patch, Target};
pub use version_converter::{ConversionError, VersionConverter, has_api_version};
pub use watch::Watch;

pub use watchet_admission::plugins::protection_finalizer;
// The types of arguments and results of the verbs, so that callers need not name the crates below.
pub use watchet_cacher::{
    CacheWatcher, CacherConfig, CorruptObjects, ObjectList, ReadError, ReceivedEvents,
    StorageHistory, WatchItem, WatchPhase,
};
pub use watchet_storage::{RevisionSample, RevisionTimes, StorageError};
