//! The evaluation of the rules of a schema on an object. The cost of a rule is estimated before it runs.

use serde_json::Value;

use super::causes::{cause, invalid};
use super::node::{Kind, Schema};
use super::old_items::OldItems;
use super::rule::Rule;
use watchet_api::StatusCause;
use watchet_cel::{
    EXPRESSION_COST_MAX, EvalError, OBJECT_COST_MAX, Outcome, Program, Scope, TypeDeclaration,
    estimate_cost, from_json_with_type, optional,
};
use watchet_registry::Causes;

/// The evaluation of the rules of one object.
#[derive(Default)]
pub(super) struct Evaluation {
    /// The scope with all functions, created for the first rule.
    functions: Option<Scope<'static>>,
    /// The remaining cost of all rules together.
    budget: Option<f64>,
}

impl Evaluation {
    /// Evaluates the rules at `value` and below.
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
        for rule in &schema.constraints().rules {
            let applies = match (rule.is_transition, old) {
                (true, None) => rule.optional_old_self,
                (true, Some(_)) => true,
                // Ratcheting: unchanged values are not evaluated.
                (false, old) => old != Some(value),
            };
            if applies {
                let result = self.evaluate(schema, rule, value, old);
                if let Err(failure) = result {
                    causes.push(failure.cause(rule, schema, path));
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
    ) -> Result<(), Failure> {
        let program = rule
            .program
            .as_ref()
            .map_err(|e| Failure::Error(e.to_string()))?;
        let mut variables = vec![("self", value)];
        variables.extend(old.map(|old| ("oldSelf", old)));
        let budget = self.budget.get_or_insert(OBJECT_COST_MAX);
        let mut is_affordable = |program: &Program| {
            let cost = estimate_cost(program, &variables);
            *budget -= cost;
            cost <= EXPRESSION_COST_MAX && *budget >= 0.0
        };
        if !is_affordable(program) {
            return Err(Failure::TooCostly);
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
                // A message can cost as much as a rule. As upstream, a message that fails is omitted.
                let message = message.filter(|program| is_affordable(program));
                let message = message.and_then(|program| scope.evaluate(program).ok());
                let message = match message {
                    // An empty message, or one of several lines, is ignored.
                    Some(Outcome::Text(text))
                        if !text.trim().is_empty() && !text.contains('\n') =>
                    {
                        text.trim().to_owned()
                    }
                    _ if rule.message.is_empty() => format!("failed rule: {}", rule.text),
                    _ => rule.message.clone(),
                };
                Err(Failure::False(message))
            }
            Ok(_) => Err(Failure::Error(
                "cel expression evaluated to no bool".to_owned(),
            )),
            Err(EvalError::NoSuchOverload) => Err(Failure::NoOverload),
            Err(EvalError::Execution(error)) => Err(Failure::Error(error.to_string())),
            Err(error) => Err(Failure::Error(error.to_string())),
        }
    }
}

/// Why a rule failed.
enum Failure {
    /// The rule is false, with this message.
    False(String),
    NoOverload,
    TooCostly,
    Error(String),
}

impl Failure {
    fn cause(self, rule: &Rule, schema: &Schema, path: &str) -> StatusCause {
        let mut field = format!("{path}{}", rule.field_path);
        if path.is_empty() {
            field = rule.field_path.trim_start_matches('.').to_owned();
        }
        if field.is_empty() {
            "<nil>".clone_into(&mut field);
        }
        let shown = Value::from(schema.kind.map_or("object", Kind::name));
        let rule_text = rule.failure_text();
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
                     function or macro signature for rule: {rule_text}"
                );
                invalid(&field, &shown, &why)
            }
            Self::TooCostly => {
                let why = format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation \
                     rules will be run due to call cost exceeds limit for rule: {rule_text}"
                );
                invalid(&field, &shown, &why)
            }
            Self::Error(error) => invalid(
                &field,
                &shown,
                &format!("{error} evaluating rule: {rule_text}"),
            ),
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
