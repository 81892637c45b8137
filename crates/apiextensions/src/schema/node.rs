//! A compiled structural schema: a tree of nodes, one for each value that the schema describes.

use regex::Regex;
use serde_json::Value;

use super::rule::Rule;

/// One node of a schema. Definitions have tens of thousands of nodes, most of which only have a type: what is rare is
/// behind a pointer.
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
    /// True if this node or a node below has a rule.
    pub(super) has_rules: bool,
    /// True if unknown members are preserved here and below: `preserveUnknownFields` of old definitions, which only
    /// other programs can have stored.
    pub(super) preserves_all: bool,
    pub(super) properties: Properties,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) default: Option<Box<Value>>,
    pub(super) format: Box<str>,
    /// `None` if the node has no constraints.
    pub(super) constraints: Option<Box<Constraints>>,
}

/// The properties of a node, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Properties(Box<[(Box<str>, Schema)]>);

/// What a node requires of a value besides its type.
#[derive(Debug)]
pub(super) struct Constraints {
    pub(super) list: ListType,
    pub(super) required: Vec<String>,
    pub(super) choices: Vec<Value>,
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
}

/// The constraints of a node that has none.
static UNCONSTRAINED: Constraints = Constraints::NONE;

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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListType {
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
#[derive(Debug, PartialEq, Eq)]
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

impl FromIterator<(Box<str>, Schema)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Schema)>>(properties: I) -> Self {
        let mut all: Box<[_]> = properties.into_iter().collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(all)
    }
}

impl Properties {
    /// Returns the schema of a property.
    pub(super) fn get(&self, name: &str) -> Option<&Schema> {
        let found = self
            .0
            .binary_search_by(|(property, _)| (**property).cmp(name));
        found.ok().map(|at| &self.0[at].1)
    }

    /// Returns the properties in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.0.iter().map(|(name, schema)| (&**name, schema))
    }
}

impl Constraints {
    const NONE: Self = Self {
        list: ListType::Atomic,
        required: Vec::new(),
        choices: Vec::new(),
        pattern: None,
        minimum: None,
        maximum: None,
        multiple_of: None,
        lengths: Lengths::NONE,
        unique_items: false,
        all_of: Vec::new(),
        any_of: Vec::new(),
        one_of: Vec::new(),
        not: None,
        rules: Vec::new(),
    };

    /// Returns true if every value meets the constraints.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            list,
            required,
            choices,
            pattern,
            minimum,
            maximum,
            multiple_of,
            lengths,
            unique_items,
            all_of,
            any_of,
            one_of,
            not,
            rules,
        } = self;
        *list == ListType::Atomic
            && required.is_empty()
            && choices.is_empty()
            && pattern.is_none()
            && minimum.is_none()
            && maximum.is_none()
            && multiple_of.is_none()
            && *lengths == Lengths::NONE
            && !unique_items
            && [all_of, any_of, one_of]
                .iter()
                .all(|schemas| schemas.is_empty())
            && not.is_none()
            && rules.is_empty()
    }
}

impl Lengths {
    const NONE: Self = Self {
        length: (None, None),
        items: (None, None),
        properties: (None, None),
    };
}

impl Schema {
    /// Returns what the node requires of a value besides its type.
    pub(super) fn constraints(&self) -> &Constraints {
        self.constraints.as_deref().unwrap_or(&UNCONSTRAINED)
    }

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
        match &self.constraints().list {
            ListType::Atomic => None,
            ListType::Set => Some(item.clone()),
            ListType::Map(keys) => {
                let key = |name: &String| Some((name.clone(), item.get(name)?.clone()));
                Some(keys.iter().filter_map(key).collect())
            }
        }
    }
}
