//! The types of objects: their members, merge rules of lists and maps, and their OpenAPI documents.
//! Validation beyond types is in `registry`.
//!
//! # Definitions
//!
//! - *Type*: the possible values: a scalar, a list, a map, an object with members, or anything.
//! - *List type*, *map type*: what counts as one field in field management
//!   (`x-kubernetes-list-type`, `x-kubernetes-map-type`).
//! - *Merge rule*: how a strategic merge patch treats a member (`x-kubernetes-patch-strategy`,
//!   `x-kubernetes-patch-merge-key`); independent of the list type.
//!
//! # The tables
//!
//! `scripts/type-tables` generates the tables from Kubernetes' Go types.
//!
//! `types.txt` has a line for each message of the built-in types: its name, then `number=name:type`
//! for each field, with the JSON names. Types are `s`tring, `b`oolean, `i`nteger of 32 bits,
//! `l`ong, `d`ouble, `B`ytes, another message, or a special form (`!time`, `!raw`, …); `*` makes a
//! list and `%` a map from strings. A name after `^` is an inlined member, whose own members are
//! part of the outer object in JSON. A type after `&` is a pointer: Go encodes other scalars and
//! messages in protobuf also if they have the zero value. A trailing `?` means that the zero value
//! of a scalar is unset: Go never encodes it in JSON. Empty lists and maps are unset,
//! too, unless a trailing `!` says that Go encodes them. `zeros.txt`, the data of a test, has for
//! each message the fields whose zero values Go retains.
//!
//! `facts.txt` has further properties: of a message `!kind` (it has `apiVersion` and `kind`) and
//! `!atomic`; of a field `set`, `map=<keys>`, `atomic`, strategic merge rules (`merge=<key>`,
//! `retainKeys`, `replace`) and its `default`. `openapi/kinds.in` lists the kinds.

mod builtins;
mod custom;
mod decode;
pub mod managed;
pub mod openapi;
mod quantity;
mod types;

#[cfg(test)]
mod tests;

pub use decode::{Decoded, KindType, decode_untyped};
pub use decode::{
    MemoryBudget, MemoryExceeded, OBJECT_BYTES_MAX, PATCH_BYTES_MAX, ValueCounts, memory_of,
    memory_of_json,
};
pub use quantity::Quantity;
pub use types::{Field, Node, ObjectId};
pub use types::{Fields, ListKind, MergeRule, Scalar, Shape, TypeRef, Types};
