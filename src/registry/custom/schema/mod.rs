//! Structural schemas: the `openAPIV3Schema` of a version, read once into what pruning, defaulting and
//! validation walk beside an object. Whether a schema is one that upstream takes is told by
//! `custom::checks`; here everything is read as far as it makes sense, so that what storage has can be
//! served whoever wrote it.
//!
//! # Invariants
//!
//! 1. Pruning and defaulting are idempotent, and neither undoes the other: what a schema made of an object
//!    it leaves as it is.
//! 2. Nothing here takes longer than a bounded number of steps for an object, whatever the schema.

mod cost;
mod fill;
mod formats;
mod rules;
mod validate;

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use self::rules::Rule;
pub(super) use self::rules::compile;
pub(super) use self::validate::validate;

/// One node of a schema.
#[derive(Debug, Default)]
pub(in crate::registry) struct Schema {
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
    /// None for what is no regular expression: it matches nothing, and is refused when it is written.
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
    /// Reads the schema of a version; without one every member is kept.
    pub(super) fn of_version(schema: Option<&Value>) -> Self {
        let mut schema = match schema.filter(|schema| schema.is_object()) {
            Some(schema) => Self::read(schema),
            None => Self {
                preserve: true,
                ..Self::default()
            },
        };
        // Every object has a type and metadata, whatever its schema says.
        schema.embedded = true;
        schema
    }

    pub(super) fn read(schema: &Value) -> Self {
        let empty = Map::new();
        let schema = schema.as_object().unwrap_or(&empty);
        let flag = |name: &str| {
            schema
                .get(name)
                .and_then(Value::as_bool)
                .unwrap_or_default()
        };
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let bound = |name: &str, exclusive: &str| {
            let exclusive = flag(exclusive);
            number(name).map(|at| Bound { at, exclusive })
        };
        let list = |name: &str| schema.get(name).and_then(Value::as_array);
        let schemas = |name: &str| list(name).into_iter().flatten().map(Self::read).collect();
        let boxed = |name: &str| {
            let inner = schema.get(name).filter(|inner| inner.is_object());
            inner.map(|inner| Box::new(Self::read(inner)))
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(Value::Object(_)) => boxed("additionalProperties").map(Additional::Of),
            _ => None,
        };
        let mut read = Self {
            kind: Kind::parse(text("type")),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Self::read(schema)))
                .collect(),
            additional,
            items: boxed("items"),
            default: schema.get("default").filter(|d| !d.is_null()).cloned(),
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(texts(list("x-kubernetes-list-map-keys"))),
                _ => ListType::Atomic,
            },
            required: texts(list("required")),
            choices: list("enum").cloned().unwrap_or_default(),
            format: text("format").to_owned(),
            pattern: Some(text("pattern"))
                .filter(|p| !p.is_empty())
                .map(Pattern::new),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            lengths: Lengths {
                length: (count("minLength"), count("maxLength")),
                items: (count("minItems"), count("maxItems")),
                properties: (count("minProperties"), count("maxProperties")),
            },
            unique_items: flag("uniqueItems"),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: boxed("not"),
            rules: list("x-kubernetes-validations")
                .into_iter()
                .flatten()
                .filter_map(Rule::read)
                .collect(),
            has_rules: false,
        };
        let below = read.properties.values().any(|schema| schema.has_rules)
            || read.items.as_ref().is_some_and(|schema| schema.has_rules)
            || matches!(&read.additional, Some(Additional::Of(schema)) if schema.has_rules);
        read.has_rules = below || !read.rules.is_empty();
        read
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

/// How much memory one pattern may take, in bytes; a definition can have thousands.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The expression of a `pattern`.
///
/// # Errors
/// It is none, or one that takes too much memory.
pub(super) fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            regex: compiled(text).ok(),
        }
    }
}

fn texts(list: Option<&Vec<Value>>) -> Vec<String> {
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
