//! Rules in CEL (`x-kubernetes-validations`): read and compiled once with their schema, and evaluated on
//! the values that they stand at. What one may cost is bounded in `cost`, before it runs.

use std::sync::Arc;

use serde_json::Value;

use super::validate::{OldItems, cause, invalid};
use super::{Compiler, Kind, Schema};
use crate::api::StatusCause;
use crate::cel::{
    EXPRESSION_COST_MAX, EvalError, OBJECT_COST_MAX, Outcome, ParseError, Program, Scope, Syntax,
    TypeDeclaration, estimate_cost, from_json_with_type, optional,
};
use crate::registry::Causes;

/// How many operators and brackets a rule may have: an expression nests no deeper than that, and its
/// evaluation recurses.
pub(super) const OPERATORS_MAX: usize = 500;

const SYNTAX: Syntax = Syntax {
    operators_max: OPERATORS_MAX,
    depth_max: None,
    has_optional_selection: false,
};

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
    Program::parse(text, &SYNTAX).map_err(RuleError)
}

impl Rule {
    /// Reads an entry of `x-kubernetes-validations`.
    pub(super) fn read(entry: &Value, compiler: &mut Compiler) -> Option<Self> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().trim().to_owned();
        let rule = entry["rule"].as_str()?.trim().to_owned();
        let program = compiler.program(&rule);
        let is_transition = program
            .as_ref()
            .is_ok_and(|program| program.refers_to("oldSelf"));
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
    /// The scope with all functions, created for the first rule.
    functions: Option<Scope<'static>>,
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
        let mut variables = vec![("self", value)];
        variables.extend(old.map(|old| ("oldSelf", old)));
        let budget = self.budget.get_or_insert(OBJECT_COST_MAX);
        let mut is_afforded = |program: &Program| {
            let cost = estimate_cost(program, &variables);
            *budget -= cost;
            cost <= EXPRESSION_COST_MAX && *budget >= 0.0
        };
        if !is_afforded(program) {
            return Err(Fault::TooCostly);
        }
        let functions = self.functions.get_or_insert_with(Scope::uncounted);
        let mut scope = functions.inner();
        scope.set_value("self", from_json_with_type(value, Some(schema)));
        let old = old.map(|old| from_json_with_type(old, Some(schema)));
        match (rule.optional_old_self, old) {
            (true, old) => scope.set_value("oldSelf", optional(old)),
            (false, Some(old)) => scope.set_value("oldSelf", old),
            (false, None) => {}
        }
        match scope.evaluate(program) {
            Ok(Outcome::Bool(true)) => Ok(()),
            Ok(Outcome::Bool(false)) => {
                let message = rule.message_program.as_ref();
                // A message can cost as much as a rule. What fails is left out, as upstream.
                let message = message.filter(|program| is_afforded(program));
                let message = message.and_then(|program| scope.evaluate(program).ok());
                let message = match message {
                    // One that says nothing, or several lines, is none.
                    Some(Outcome::Text(text))
                        if !text.trim().is_empty() && !text.contains('\n') =>
                    {
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
            Err(EvalError::NoSuchOverload) => Err(Fault::NoOverload),
            Err(EvalError::Execution(error)) => Err(Fault::Error(error.to_string())),
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

impl TypeDeclaration for Schema {
    fn is_number(&self) -> bool {
        self.kind == Some(Kind::Number)
    }

    fn format(&self) -> &str {
        &self.format
    }

    fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    fn property(&self, name: &str) -> Option<&Self> {
        self.member(name)
    }

    fn is_map(&self) -> bool {
        self.additional.is_some()
    }
}
