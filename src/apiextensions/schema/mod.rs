//! Structural schemas: the `openAPIV3Schema` of a version, read once (`compiler`) into what pruning,
//! defaulting and validation walk beside an object. Whether a schema is one that upstream takes is told by
//! `custom::checks`; here everything is read as far as it makes sense, so that what storage has can be
//! served whoever wrote it.
//!
//! # Invariants
//!
//! 1. Pruning and defaulting are idempotent, and neither undoes the other: what a schema made of an object
//!    it leaves as it is.
//! 2. Nothing here takes longer than a bounded number of steps for an object, whatever the schema.

mod compiler;
mod fill;
mod formats;
mod rules;
mod typing;
mod validate;

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

pub(super) use self::compiler::Compiler;
use self::rules::Rule;
pub(super) use self::typing::{problems as rule_problems, unknown_names};
pub(super) use self::validate::validate;

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    kind: Option<Kind>,
    nullable: bool,
    /// `x-kubernetes-int-or-string`
    int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    preserve: bool,
    /// `x-kubernetes-embedded-resource`
    embedded: bool,
    properties: BTreeMap<String, Schema>,
    additional: Option<Additional>,
    items: Option<Box<Schema>>,
    default: Option<Value>,
    list: ListType,
    required: Vec<String>,
    choices: Vec<Value>,
    format: String,
    pattern: Option<Pattern>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    lengths: Lengths,
    unique_items: bool,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    rules: Vec<Rule>,
    /// Whether a rule is here or below: where none is nobody looks for one.
    has_rules: bool,
    /// What it does not know stays, here and below: the `preserveUnknownFields` of old definitions, which only
    /// somebody else can have stored.
    keeps_all: bool,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// What members may have that are not among the properties.
#[derive(Debug)]
enum Additional {
    /// `true`
    Any,
    Of(Box<Schema>),
}

/// What counts as the same item of a list.
#[derive(Debug, Default, PartialEq, Eq)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A pattern and how it was written.
#[derive(Debug)]
struct Pattern {
    text: String,
    /// None for what cannot be compiled: it matches nothing, and is refused when it is written.
    regex: Option<Regex>,
}

/// A limit of a number.
#[derive(Debug, Clone, Copy)]
struct Bound {
    at: f64,
    /// The limit itself is outside.
    exclusive: bool,
}

/// How long, or how many.
#[derive(Debug, Default)]
struct Lengths {
    length: (Option<u64>, Option<u64>),
    items: (Option<u64>, Option<u64>),
    properties: (Option<u64>, Option<u64>),
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Schema {
    /// The same as definitions had it before they had to say what there is.
    pub(in crate::apiextensions) fn that_keeps_all(self) -> Self {
        Self {
            keeps_all: true,
            ..self
        }
    }

    /// Whether a rule is here or below.
    pub(in crate::apiextensions) fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// The schema of a member of an object.
    fn member(&self, name: &str) -> Option<&Self> {
        let additional = || match &self.additional {
            Some(Additional::Of(schema)) => Some(&**schema),
            _ => None,
        };
        self.properties.get(name).or_else(additional)
    }

    /// Whether `name` is a member that a whole object has besides what its schema says.
    fn is_common(&self, name: &str) -> bool {
        self.embedded && matches!(name, "apiVersion" | "kind" | "metadata")
    }
}
