//! The types of objects: which members they have, how lists and maps are merged, what clients are told of
//! them. It knows no resource, no storage and no request; what an object must fulfil besides its type is
//! told where it is written.
//!
//! # Definitions
//!
//! - *Type*: what a value may be: a scalar, a list, a map, an object with members, or anything.
//! - *List type*, *map type*: what counts as one field for its managers (`x-kubernetes-list-type`,
//!   `x-kubernetes-map-type`).
//! - *Merge rule*: how a strategic merge patch treats a member (`x-kubernetes-patch-strategy`,
//!   `x-kubernetes-patch-merge-key`); it need not agree with the list type.
//!
//! # The tables
//!
//! `types.txt` has a line for each message of the built-in types: its name, then `number=name:type` for
//! each field, with the names of JSON. Types are `s`tring, `b`oolean, `i`nteger of 32 bits, `l`ong,
//! `d`ouble, `B`ytes, another message, or a special form (`!time`, `!raw`, …); `*` makes a list of it and
//! `%` a map from strings. A name after `^` stands for members that are the outer object's own in JSON. A
//! trailing `?` says that the zero value of a scalar means "not given": Go always writes such a field to
//! protobuf, and its JSON never has it. Empty lists and maps mean that too, unless a trailing `!` says that
//! Go writes them. `scripts/type-facts --zeros` sets both marks, and writes what a test compares them with to
//! `zeros.txt`.
//!
//! `facts.txt`, which `scripts/type-facts` writes, has what else is known: of a message `!kind` (it has
//! `apiVersion` and `kind`) and `!atomic`; of a field `set`, `map=<keys>`, `atomic`, the rules of
//! strategic merges (`merge=<key>`, `retainKeys`, `replace`) and its `default`.

mod builtins;
mod custom;
mod decode;
pub mod openapi;
mod quantity;
mod types;

#[cfg(test)]
mod tests;

pub use decode::{Decoded, KindType, decode_untyped};
pub(crate) use quantity::Quantity;
pub(crate) use types::{Field, Node, ObjectId};
pub use types::{Fields, ListKind, MergeRule, Scalar, Shape, TypeRef, Types};
