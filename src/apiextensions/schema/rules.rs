//! Rules in CEL (`x-kubernetes-validations`): read and compiled once with their schema, and evaluated on
//! the values that they stand at. What one may cost is bounded in `cost`, before it runs.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;

use super::validate::{OldItems, cause, invalid};
use super::{Additional, Compiler, Kind, Schema, cost};
use crate::admission::cel::parse::{ParseError, parse_with};
use crate::api::StatusCause;
use crate::registry::error::Causes;

/// How many operators and brackets a rule may have: expressions nest no deeper than that, and what
/// evaluates them does so by recursion.
pub(super) const MARKS_MAX: usize = 500;

/// A rule is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compilation failed: {0}")]
pub(in crate::apiextensions) struct RuleError(pub(crate) ParseError);

/// A rule of a schema.
#[derive(Debug)]
pub(in crate::apiextensions) struct Rule {
    text: String,
    program: Result<Arc<Program>, RuleError>,
    message: String,
    message_program: Option<Arc<Program>>,
    reason: String,
    field_path: String,
    optional_old_self: bool,
    /// It speaks of `oldSelf`.
    is_transition: bool,
}

/// Compiles an expression.
pub(super) fn compile(text: &str) -> Result<Program, RuleError> {
    parse_with(text, MARKS_MAX, Program::compile).map_err(RuleError)
}

impl Rule {
    /// Reads an entry of `x-kubernetes-validations`.
    pub(super) fn read(entry: &Value, compiler: &mut Compiler) -> Option<Self> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().trim().to_owned();
        let rule = entry["rule"].as_str()?.trim().to_owned();
        let program = compiler.program(&rule);
        let is_transition = program
            .as_ref()
            .is_ok_and(|program| program.references().has_variable("oldSelf"));
        Some(Self {
            is_transition,
            program,
            message: text("message"),
            message_program: Some(text("messageExpression"))
                .filter(|expression| !expression.is_empty())
                .and_then(|expression| compiler.program(&expression).ok()),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: entry["optionalOldSelf"] == true,
            text: rule,
        })
    }

    /// The rule as messages name it.
    fn told(&self) -> &str {
        match self.message.as_str() {
            "" => &self.text,
            message => message,
        }
    }
}

/// The evaluation of an object's rules.
#[derive(Default)]
pub(super) struct Evaluation {
    /// Made when the first rule is met: it knows some hundred functions.
    functions: Option<Context<'static>>,
    /// Steps that all rules together may still take.
    budget: Option<f64>,
}

impl Evaluation {
    /// Evaluates what stands at `value` and below.
    pub(super) fn walk(
        &mut self,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        path: &mut String,
        causes: &mut Causes,
    ) {
        if !schema.has_rules || causes.is_full() || (value.is_null() && schema.nullable) {
            return;
        }
        for rule in &schema.rules {
            let applies = match (rule.is_transition, old) {
                (true, None) => rule.optional_old_self,
                (true, Some(_)) => true,
                // What a write leaves as it was is not judged again.
                (false, old) => old != Some(value),
            };
            if applies {
                let verdict = self.evaluate(schema, rule, value, old);
                if let Err(fault) = verdict {
                    causes.push(fault.cause(rule, schema, path));
                }
            }
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    if let Some(schema) = schema.member(name) {
                        let old = old.and_then(|old| old.get(name));
                        let dot = if path.is_empty() { "" } else { "." };
                        self.below(&format!("{dot}{name}"), schema, value, old, path, causes);
                    }
                }
            }
            Value::Array(items) => {
                let Some(of_items) = &schema.items else {
                    return;
                };
                let old = OldItems::new(schema, old.and_then(Value::as_array));
                for (index, item) in items.iter().enumerate() {
                    let old = old.find(item);
                    self.below(&format!("[{index}]"), of_items, item, old, path, causes);
                }
            }
            _ => {}
        }
    }

    fn below(
        &mut self,
        below: &str,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        path: &mut String,
        causes: &mut Causes,
    ) {
        let length = path.len();
        path.push_str(below);
        self.walk(schema, value, old, path, causes);
        path.truncate(length);
    }

    fn evaluate(
        &mut self,
        schema: &Schema,
        rule: &Rule,
        value: &Value,
        old: Option<&Value>,
    ) -> Result<(), Fault> {
        let program = rule
            .program
            .as_ref()
            .map_err(|e| Fault::Error(e.to_string()))?;
        let budget = self.budget.get_or_insert(cost::OBJECT_MAX);
        let mut is_afforded = |program: &Program| {
            let cost = cost::bound(program.expression(), value, old);
            *budget -= cost;
            cost <= cost::RULE_MAX && *budget >= 0.0
        };
        if !is_afforded(program) {
            return Err(Fault::TooCostly);
        }
        let functions = self
            .functions
            .get_or_insert_with(|| Context::default().with_all());
        let mut scope = functions.new_inner_scope();
        scope.add_variable_from_value("self", to_cel(schema, value));
        let old = old.map(|old| to_cel(schema, old));
        match (rule.optional_old_self, old) {
            (true, old) => {
                let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            }
            (false, Some(old)) => scope.add_variable_from_value("oldSelf", old),
            (false, None) => {}
        }
        match program.execute(&scope) {
            Ok(Cel::Bool(true)) => Ok(()),
            Ok(Cel::Bool(false)) => {
                let message = rule.message_program.as_ref();
                // A message can cost as much as a rule. What fails is left out, as upstream.
                let message = message.filter(|program| is_afforded(program));
                let message = message.and_then(|program| program.execute(&scope).ok());
                let message = match message {
                    // One that says nothing, or several lines, is none.
                    Some(Cel::String(text)) if !text.trim().is_empty() && !text.contains('\n') => {
                        text.trim().to_owned()
                    }
                    _ if rule.message.is_empty() => format!("failed rule: {}", rule.text),
                    _ => rule.message.clone(),
                };
                Err(Fault::False(message))
            }
            Ok(_) => Err(Fault::Error(
                "cel expression evaluated to no bool".to_owned(),
            )),
            Err(ExecutionError::NoSuchOverload) => Err(Fault::NoOverload),
            Err(ExecutionError::NoSuchKey(key)) => Err(Fault::Error(format!("no such key: {key}"))),
            Err(error) => Err(Fault::Error(error.to_string())),
        }
    }
}

/// Why a rule does not hold.
enum Fault {
    /// It is false, and says this.
    False(String),
    NoOverload,
    TooCostly,
    Error(String),
}

impl Fault {
    fn cause(self, rule: &Rule, schema: &Schema, path: &str) -> StatusCause {
        let mut field = format!("{path}{}", rule.field_path);
        if path.is_empty() {
            field = rule.field_path.trim_start_matches('.').to_owned();
        }
        if field.is_empty() {
            "<nil>".clone_into(&mut field);
        }
        let shown = Value::from(schema.kind.map_or("object", Kind::name));
        let told = rule.told();
        match self {
            Self::False(message) => match rule.reason.as_str() {
                "FieldValueRequired" => StatusCause::required(&field, &message),
                "FieldValueForbidden" => StatusCause::forbidden(&field, &message),
                "FieldValueDuplicate" => {
                    let message = format!("Duplicate value: {shown}");
                    cause("FieldValueDuplicate", &field, message)
                }
                _ => invalid(&field, &shown, &message),
            },
            Self::NoOverload => {
                let why = format!(
                    "'no such overload': call arguments did not match a supported operator, \
                     function or macro signature for rule: {told}"
                );
                invalid(&field, &shown, &why)
            }
            Self::TooCostly => {
                let why = format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation \
                     rules will be run due to call cost exceeds limit for rule: {told}"
                );
                invalid(&field, &shown, &why)
            }
            Self::Error(error) => {
                invalid(&field, &shown, &format!("{error} evaluating rule: {told}"))
            }
        }
    }
}

/// A value as rules see it: by its schema, with members under names that CEL can write.
fn to_cel(schema: &Schema, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (schema.kind, number.as_i64()) {
            (Some(Kind::Number), _) | (_, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            (_, Some(whole)) => Cel::Int(whole),
        },
        Value::String(text) => string(schema, text),
        Value::Array(items) => {
            let unknown = Schema::default();
            let of_items = schema.items.as_deref().unwrap_or(&unknown);
            let items = items.iter().map(|item| to_cel(of_items, item));
            Cel::List(Arc::new(items.collect()))
        }
        Value::Object(members) => {
            let is_map = schema.additional.is_some();
            let unknown = Schema::default();
            let mut map = HashMap::with_capacity(members.len());
            for (name, value) in members {
                let of_member = match (schema.properties.get(name), &schema.additional) {
                    (Some(schema), _) => schema,
                    (None, Some(Additional::Of(schema))) => schema,
                    _ => &unknown,
                };
                let value = to_cel(of_member, value);
                // The keys of a map are data, and a reserved word is selected plain or escaped.
                if is_map || is_reserved(name) {
                    map.insert(Key::String(Arc::new(name.clone())), value.clone());
                }
                if !is_map {
                    map.insert(Key::String(Arc::new(escaped(name))), value);
                }
            }
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

/// A text, or what it stands for by its format.
fn string(schema: &Schema, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    let parser = match schema.format.as_str() {
        "date-time" => "timestamp(text)",
        "duration" => "duration(text)",
        _ => return plain(),
    };
    let parsed = Program::compile(parser).ok().and_then(|program| {
        let mut context = Context::default();
        context.add_variable_from_value("text", plain());
        program.execute(&context).ok()
    });
    parsed.unwrap_or_else(plain)
}

/// Words that CEL keeps for itself.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns true if a rule can select the member `name` as `selected`: reserved words can be written as they are.
pub(super) fn is_accessed_as(name: &str, selected: &str) -> bool {
    escaped(name) == selected || name == selected && is_reserved(name)
}

/// The name by which a rule calls a member.
pub(super) fn escaped(name: &str) -> String {
    if is_reserved(name) {
        return format!("__{name}__");
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let (replacement, length) = match first {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            other => {
                out.push(other);
                rest = &rest[other.len_utf8()..];
                continue;
            }
        };
        out.push_str(replacement);
        rest = &rest[length..];
    }
    out
}
