//! Compiles JSON to a [`Schema`]. One compiler compiles all schemas of a definition, so that an expression or pattern that
//! occurs in several versions is compiled once, and the memory of all patterns together is bounded.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::node::{Additional, Constraints, Kind, Lengths, ListType, NumberLimit, Pattern, Schema};
use super::rule::{Rule, RuleError, compile};
use watchet_cel::Program;

/// The memory limit of one pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The memory limit of all patterns of a definition. Large definitions have some hundred different patterns of a few
/// kilobytes.
const PATTERNS_BYTES_MAX: usize = 16 << 20;

/// The size that the smallest pattern counts as. The regex compiler does not report the size of a pattern, only whether
/// it is within a limit, so the limit is doubled until the pattern is.
const PATTERN_BYTES_MIN: usize = 16 << 10;

const _: () = assert!(PATTERN_BYTES_MIN < PATTERN_BYTES_MAX);
const _: () = assert!(PATTERN_BYTES_MAX < PATTERNS_BYTES_MAX);

/// The error of a pattern that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    /// The pattern is not valid, or needs too much memory.
    #[error("{0}")]
    Invalid(String),
    /// The patterns of the definition together need too much memory.
    #[error("the patterns of the definition take more than {PATTERNS_BYTES_MAX} bytes together")]
    TooMany,
}

/// Compiles the schemas of one definition.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    patterns: HashMap<String, Result<Regex, PatternError>>,
    pattern_bytes: usize,
    programs: HashMap<String, Result<Arc<Program>, RuleError>>,
}

impl Compiler {
    /// Compiles the schema of a version; without a schema every member is preserved.
    pub(crate) fn version(&mut self, schema: &Value) -> Schema {
        let mut schema = match schema.is_object() {
            true => self.schema(schema),
            false => Schema {
                preserve: true,
                ..Schema::default()
            },
        };
        // Every object has a type and metadata, which its schema need not declare.
        schema.embedded = true;
        schema
    }

    /// Compiles a node of a schema and all below it.
    pub(crate) fn schema(&mut self, schema: &Value) -> Schema {
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
            number(name).map(|at| NumberLimit { at, exclusive })
        };
        let list = |name: &str| schema.get(name).and_then(Value::as_array);
        let mut schemas = |name: &str| -> Vec<Schema> {
            let all = list(name).into_iter().flatten();
            all.map(|schema| self.schema(schema)).collect()
        };
        let (all_of, any_of, one_of) = (schemas("allOf"), schemas("anyOf"), schemas("oneOf"));
        let mut boxed = |name: &str| {
            let inner = schema.get(name).filter(|inner| inner.is_object());
            inner.map(|inner| Box::new(self.schema(inner)))
        };
        let (items, not) = (boxed("items"), boxed("not"));
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(Value::Object(_)) => boxed("additionalProperties").map(Additional::Of),
            _ => None,
        };
        let properties = properties.into_iter().flatten();
        let properties = properties
            .map(|(name, schema)| (name.as_str().into(), self.schema(schema)))
            .collect();
        let rules = list("x-kubernetes-validations").into_iter().flatten();
        let rules = rules.filter_map(|rule| self.rule(rule)).collect();
        let pattern = Some(text("pattern")).filter(|pattern| !pattern.is_empty());
        let pattern = pattern.map(|text| Pattern {
            text: text.to_owned(),
            regex: self.pattern(text).ok(),
        });
        let constraints = Constraints {
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(texts(list("x-kubernetes-list-map-keys"))),
                _ => ListType::Atomic,
            },
            required: texts(list("required")),
            choices: list("enum").cloned().unwrap_or_default(),
            pattern,
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            lengths: Lengths {
                length: (count("minLength"), count("maxLength")),
                items: (count("minItems"), count("maxItems")),
                properties: (count("minProperties"), count("maxProperties")),
            },
            unique_items: flag("uniqueItems"),
            all_of,
            any_of,
            one_of,
            not,
            rules,
        };
        let default = schema.get("default").filter(|d| !d.is_null());
        let mut read = Schema {
            kind: Kind::parse(text("type")),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional,
            items,
            default: default.cloned().map(Box::new),
            format: text("format").into(),
            constraints: (!constraints.is_empty()).then(|| Box::new(constraints)),
            has_rules: false,
            preserves_all: false,
        };
        let below = read.properties.iter().any(|(_, schema)| schema.has_rules)
            || read.items.as_ref().is_some_and(|schema| schema.has_rules)
            || matches!(&read.additional, Some(Additional::Of(schema)) if schema.has_rules);
        read.has_rules = below || !read.constraints().rules.is_empty();
        read
    }

    /// Compiles an entry of `x-kubernetes-validations`; `None` if it has no rule.
    fn rule(&mut self, entry: &Value) -> Option<Rule> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().trim().to_owned();
        let rule = entry["rule"].as_str()?.trim().to_owned();
        let program = self.program(&rule);
        let is_transition = program
            .as_ref()
            .is_ok_and(|program| program.refers_to("oldSelf"));
        Some(Rule {
            is_transition,
            program,
            message: text("message"),
            message_program: Some(text("messageExpression"))
                .filter(|expression| !expression.is_empty())
                .and_then(|expression| self.program(&expression).ok()),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: entry["optionalOldSelf"] == true,
            text: rule,
        })
    }

    /// Compiles a `pattern`.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub(crate) fn pattern(&mut self, text: &str) -> Result<Regex, PatternError> {
        if let Some(compiled) = self.patterns.get(text) {
            return compiled.clone();
        }
        let compiled = self.compile_pattern(text);
        self.patterns.insert(text.to_owned(), compiled.clone());
        compiled
    }

    fn compile_pattern(&mut self, text: &str) -> Result<Regex, PatternError> {
        let mut limit = PATTERN_BYTES_MIN;
        loop {
            if self.pattern_bytes + limit > PATTERNS_BYTES_MAX {
                return Err(PatternError::TooMany);
            }
            // A match builds tables lazily, which have the same limit.
            let compiled = RegexBuilder::new(text)
                .size_limit(limit)
                .dfa_size_limit(limit)
                .build();
            match compiled {
                Ok(regex) => {
                    self.pattern_bytes += limit;
                    return Ok(regex);
                }
                Err(regex::Error::CompiledTooBig(_)) if limit < PATTERN_BYTES_MAX => limit *= 2,
                Err(error) => return Err(PatternError::Invalid(error.to_string())),
            }
        }
    }

    /// Compiles an expression in CEL.
    ///
    /// # Errors
    /// See [`RuleError`].
    pub(crate) fn program(&mut self, text: &str) -> Result<Arc<Program>, RuleError> {
        if let Some(compiled) = self.programs.get(text) {
            return compiled.clone();
        }
        let compiled = compile(text).map(Arc::new);
        self.programs.insert(text.to_owned(), compiled.clone());
        compiled
    }
}

fn texts(list: Option<&Vec<Value>>) -> Vec<String> {
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern of a few bytes took some ten megabytes, and a definition can have thousands of patterns.
    #[test]
    fn memory_of_patterns_is_limited() {
        let mut compiler = Compiler::default();
        let large = compiler.pattern(r"^\w{200}N$").unwrap_err();
        assert!(matches!(large, PatternError::Invalid(_)), "{large}");
        for usual in [
            r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
            r"^.{1,253}$",
            r"^\d+(\.\d+){0,2}$",
        ] {
            assert!(compiler.pattern(usual).is_ok(), "{usual}");
        }
        let mut refused = None;
        for n in 0..2 * PATTERNS_BYTES_MAX / PATTERN_BYTES_MIN {
            refused = compiler.pattern(&format!("^x{n}$")).err();
            if refused.is_some() {
                break;
            }
        }
        assert_eq!(refused, Some(PatternError::TooMany));
        assert!(compiler.pattern_bytes <= PATTERNS_BYTES_MAX);
        assert!(
            compiler.pattern("^x1$").is_ok(),
            "a compiled pattern is reused"
        );
    }
}
