//! Structural schemas: compiles the `openAPIV3Schema` of a version once, for pruning, defaulting and validation of objects.
//! `structural` decides whether upstream accepts a schema. This module compiles any schema as far as possible, so that
//! definitions of other programs in storage can be served.
//!
//! # Invariants
//!
//! 1. Pruning and defaulting are idempotent, and neither undoes the other.
//! 2. Every operation on an object takes a bounded number of steps, whatever the schema.

mod causes;
mod compiler;
mod evaluation;
mod fill;
mod formats;
mod node;
mod old_items;
mod rule;
mod typing;
mod validate;

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;

pub(super) use compiler::Compiler;
pub(super) use node::Schema;
pub(super) use typing::{problems as rule_problems, unknown_names};
pub(super) use validate::validate;
