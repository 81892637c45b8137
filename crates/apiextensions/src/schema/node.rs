//! A compiled structural schema: a tree of nodes, one for each value that the schema describes.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::rule::Rule;

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(super) kind: Option<Kind>,
    pub(super) nullable: bool,
    /// `x-kubernetes-int-or-string`
    pub(super) int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub(super) preserve: bool,
    /// `x-kubernetes-embedded-resource`
    pub(super) embedded: bool,
    pub(super) properties: BTreeMap<String, Schema>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) default: Option<Value>,
    pub(super) list: ListType,
    pub(super) required: Vec<String>,
    pub(super) choices: Vec<Value>,
    pub(super) format: String,
    pub(super) pattern: Option<Pattern>,
    pub(super) minimum: Option<NumberLimit>,
    pub(super) maximum: Option<NumberLimit>,
    pub(super) multiple_of: Option<f64>,
    pub(super) lengths: Lengths,
    pub(super) unique_items: bool,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
    pub(super) rules: Vec<Rule>,
    /// True if this node or a node below has a rule.
    pub(super) has_rules: bool,
    /// True if unknown members are preserved here and below: `preserveUnknownFields` of old definitions, which only
    /// other programs can have stored.
    pub(super) preserves_all: bool,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The schema of members that are not listed in the properties.
#[derive(Debug)]
pub(super) enum Additional {
    /// `true`
    Any,
    Of(Box<Schema>),
}

/// The type of a list, which determines how its items are identified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A compiled pattern and its text.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    /// `None` for an invalid pattern, which matches nothing. Validation rejects definitions with invalid patterns.
    pub(super) regex: Option<Regex>,
}

/// A limit of a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberLimit {
    pub(super) at: f64,
    /// True if the limit itself is not allowed.
    pub(super) exclusive: bool,
}

/// The minimum and maximum lengths.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    pub(super) length: (Option<u64>, Option<u64>),
    pub(super) items: (Option<u64>, Option<u64>),
    pub(super) properties: (Option<u64>, Option<u64>),
}

impl Kind {
    pub(super) fn parse(text: &str) -> Option<Self> {
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

    pub(super) fn name(self) -> &'static str {
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
    /// Returns the schema with `preserveUnknownFields`.
    pub(crate) fn preserving_unknown_fields(self) -> Self {
        Self {
            preserves_all: true,
            ..self
        }
    }

    /// Returns true if this node or a node below has a rule.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Returns the schema of a member of an object.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let additional = || match &self.additional {
            Some(Additional::Of(schema)) => Some(&**schema),
            _ => None,
        };
        self.properties.get(name).or_else(additional)
    }

    /// Returns true if `name` is a member of every object (`apiVersion`, `kind`, `metadata`) and the value is one.
    pub(super) fn is_common(&self, name: &str) -> bool {
        self.embedded && matches!(name, "apiVersion" | "kind" | "metadata")
    }

    /// Returns the identity of an item of this list; `None` for an atomic list.
    pub(super) fn key(&self, item: &Value) -> Option<Value> {
        match &self.list {
            ListType::Atomic => None,
            ListType::Set => Some(item.clone()),
            ListType::Map(keys) => {
                let key = |name: &String| Some((name.clone(), item.get(name)?.clone()));
                Some(keys.iter().filter_map(key).collect())
            }
        }
    }
}
