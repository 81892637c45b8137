//! Data types of the API: objects, keys, resourceVersions, watch events, selectors, request options
//! and `Status`. Plain data and parsing, without storage, cache or HTTP.
//!
//! ```
//! use watchet_api::{ColumnSet, EventType, LabelSelector, Object, ObjectKey, ResourceVersion};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stored = br#"{"kind":"Pod","metadata":{"name":"web-0","labels":{"app":"web"}}}"#;
//! let (key, version) = (ObjectKey::new(Some("shop"), "web-0"), ResourceVersion::new(7));
//! let pod = Object::decode(key, version, EventType::Added, stored, &ColumnSet::default())?;
//!
//! let selector: LabelSelector = "app in (web, api)".parse()?;
//! assert!(pod.is_selected_by(&selector));
//! assert!(pod.json_frame(EventType::Modified).starts_with(br#"{"type":"MODIFIED","object":{"#));
//! # Ok(())
//! # }
//! ```

mod audit;
mod columns;
mod continue_token;
mod encoding_cache;
mod event;
mod event_type;
mod field_errors;
mod field_selector;
mod go_duration;
mod json_writer;
mod key;
mod label_selector;
mod labels;
#[cfg(feature = "k8s-openapi")]
mod meta_selector;
pub mod names;
mod object;
mod options;
#[cfg(feature = "planted-bugs")]
pub mod planted_bug;
mod predicate;
mod resource_version;
mod scan;
mod server_memory;
mod shard_selector;
mod status;
mod user;
mod warnings;

pub use audit::AuditAnnotations;
pub use columns::{ColumnSet, FieldColumn, FieldRef, UnknownField};
pub use continue_token::{ContinueToken, InvalidContinueToken};
pub use encoding_cache::{EncodingCache, EncodingCacheStats, EncodingsSize, KindEncodings};
pub use event::WatchEvent;
pub use event_type::EventType;
pub use field_errors::FieldErrors;
pub use field_selector::{FieldOperator, FieldSelector, FieldTerm, InvalidFieldSelector};
pub use go_duration::{is_go_duration, parse_go_duration};
pub use json_writer::{write_json, write_json_string};
pub use key::{InvalidKey, ObjectKey, StorageKey};
pub use label_selector::{InvalidLabelSelector, LabelRequirement, LabelSelector};
pub use object::{DecodeError, EncodedObject, Object};
pub use options::{
    DeleteOptions, FieldValidation, GetOptions, ListOptions, Preconditions, PropagationPolicy,
    ResourceVersionMatch, WriteOptions,
};
pub use predicate::{ResolvedFieldSelector, Scope, SelectionPredicate};
pub use resource_version::{InvalidResourceVersion, ResourceVersion};
pub use server_memory::{
    MemoryPressure, MemoryRefusal, MemoryReservation, MemoryUse, ServerMemory, ServerMemoryStats,
};
pub use shard_selector::{InvalidShardSelector, ShardSelector};
pub use status::{Status, StatusCause, StatusDetails};
pub use user::{
    SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_MASTERS, SYSTEM_UNAUTHENTICATED,
    SYSTEM_UNSECURED, UserInfo,
};
pub use warnings::Warnings;
