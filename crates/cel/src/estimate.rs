//! Computes an upper bound of the cost of an expression on a given object before the evaluation, which cannot be
//! interrupted. For a loop over a part of the object, the bound uses the number of items of that part; for a computed
//! value, its largest possible size.

use std::collections::HashMap;

use kube_cel::cel::common::ast::{Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use crate::escaping::escape;
use crate::program::Program;

/// The maximum cost of one evaluation, and of all evaluations for an object together. These are upstream's limits,
/// raised because the estimate can be too high.
pub const EXPRESSION_COST_MAX: f64 = 10e6;
/// See [`EXPRESSION_COST_MAX`].
pub const OBJECT_COST_MAX: f64 = 100e6;

/// The maximum number of object parts that an estimate distinguishes. If there are more, it uses their largest size.
const PARTS_MAX: usize = 1_000;

/// The number of list items that are copied in the time of one step.
const COPIES_PER_STEP: f64 = 40.0;

/// The cost and the largest possible size of a value.
#[derive(Debug, Clone, Default)]
struct Estimate<'a> {
    cost: f64,
    /// The bytes of the value's strings, items and members, including nested ones.
    bytes: f64,
    items: f64,
    /// The parts of the object that the value can be; empty for a computed value.
    parts: Vec<&'a Value>,
}

/// Returns an upper bound of the cost of an evaluation of `program` with these values of the variables. The program
/// must be [parsed](Program::parse): a [compiled](Program::compile) one contains calls of counting functions.
pub fn estimate_cost(program: &Program, variables: &[(&str, &Value)]) -> f64 {
    let variables = variables.iter();
    let scope: Scope<'_> = variables
        .map(|&(name, value)| (name.to_owned(), Estimate::of_parts(vec![value])))
        .collect();
    estimate(program.expression(), &scope).cost
}

type Scope<'a> = HashMap<String, Estimate<'a>>;

impl<'a> Estimate<'a> {
    fn of_parts(mut parts: Vec<&'a Value>) -> Self {
        let most = |size: fn(&Value) -> usize| parts.iter().map(|p| size(p)).max().unwrap_or(0);
        let (bytes, items) = (most(bytes_of) as f64, most(items_of) as f64);
        if parts.len() > PARTS_MAX {
            parts.clear();
        }
        Self {
            cost: 0.0,
            bytes,
            items,
            parts,
        }
    }

    /// Returns the estimate of a value that is computed from `all`.
    fn computed_from(all: &[Self]) -> Self {
        Self {
            cost: all.iter().map(|one| one.cost).sum(),
            bytes: all.iter().map(|one| one.bytes).sum(),
            items: all.iter().map(|one| one.items).sum(),
            parts: Vec::new(),
        }
    }

    /// Returns an estimate that is valid for each item of a list, or each key and value of a map.
    fn item(&self) -> Self {
        if self.parts.is_empty() {
            // An item is not larger than its container.
            return Self {
                cost: 0.0,
                items: self.bytes,
                ..self.clone()
            };
        }
        let mut contents = Vec::new();
        for part in &self.parts {
            match part {
                Value::Array(items) => contents.extend(items),
                Value::Object(members) => contents.extend(members.values()),
                _ => {}
            }
        }
        let mut item = Self::of_parts(contents);
        if self.parts.iter().any(|part| part.is_object()) {
            item.bytes = self.bytes;
            item.items = self.bytes;
            item.parts.clear();
        }
        item
    }
}

/// Returns an upper bound of the number of all contained items and characters.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len(),
        Value::Array(items) => 1 + items.iter().map(bytes_of).sum::<usize>(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| 1 + name.len() + bytes_of(value);
            1 + members.iter().map(member).sum::<usize>()
        }
        _ => 8,
    }
}

fn items_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}

fn estimate<'a>(expression: &IdedExpr, scope: &Scope<'a>) -> Estimate<'a> {
    match &expression.expr {
        Expr::Ident(name) => {
            let mut found = scope.get(name).cloned().unwrap_or_default();
            found.cost = 1.0;
            found
        }
        Expr::Literal(LiteralValue::String(text)) => literal(text.inner().len()),
        Expr::Literal(LiteralValue::Bytes(bytes)) => literal(bytes.inner().len()),
        Expr::Literal(_) | Expr::Unspecified => literal(8),
        Expr::Select(select) => {
            let operand = estimate(&select.operand, scope);
            member(operand, &select.field)
        }
        Expr::List(list) => {
            let elements: Vec<_> = list.elements.iter().map(|e| estimate(e, scope)).collect();
            let mut result = Estimate::computed_from(&elements);
            result.items += elements.len() as f64;
            result.cost += 1.0;
            result
        }
        Expr::Map(_) | Expr::Struct(_) => Estimate {
            // Rules rarely contain maps and messages, so their contents are not estimated.
            cost: f64::INFINITY,
            ..Estimate::default()
        },
        Expr::Call(call) => {
            let operands = call.target.iter().map(|target| &**target).chain(&call.args);
            let operands: Vec<_> = operands.map(|operand| estimate(operand, scope)).collect();
            let is_set = matches!(
                call.target.as_deref().map(|target| &target.expr),
                Some(Expr::Ident(name)) if name == "sets"
            );
            let compares_pairs = is_set || matches!(&*call.func_name, "distinct" | "sum");
            let mut result = called(&call.func_name, &operands, &call.args);
            if compares_pairs {
                // Each element with each element of both lists.
                let items: f64 = operands.iter().map(|one| one.items).sum();
                let bytes: f64 = operands.iter().map(|one| one.bytes).sum();
                result.cost += items * bytes / 10.0;
            }
            result
        }
        Expr::Comprehension(looped) => {
            let range = estimate(&looped.iter_range, scope);
            let init = estimate(&looped.accu_init, scope);
            let mut inner = scope.clone();
            inner.insert(looped.iter_var.clone(), range.item());
            if let Some(second) = &looped.iter_var2 {
                inner.insert(second.clone(), range.item());
            }
            let times = range.items.max(1.0);
            let builds_list = matches!(looped.accu_init.expr, Expr::List(_));
            // A growing list may be copied in each step, which costs far less than the step.
            let growing = Estimate {
                items: if builds_list {
                    times / COPIES_PER_STEP
                } else {
                    0.0
                },
                ..Estimate::default()
            };
            inner.insert(looped.accu_var.clone(), growing);
            let condition = estimate(&looped.loop_cond, &inner);
            let step = estimate(&looped.loop_step, &inner);
            let built = Estimate {
                cost: 0.0,
                bytes: init.bytes + times * step.bytes,
                items: init.items + times * step.items.max(1.0),
                parts: Vec::new(),
            };
            inner.insert(looped.accu_var.clone(), built);
            let result = estimate(&looped.result, &inner);
            let each = condition.cost + step.cost;
            Estimate {
                cost: range.cost + init.cost + times * each + result.cost,
                ..result
            }
        }
    }
}

fn literal<'a>(bytes: usize) -> Estimate<'a> {
    Estimate {
        cost: 1.0,
        bytes: bytes as f64,
        items: 0.0,
        parts: Vec::new(),
    }
}

fn member<'a>(operand: Estimate<'a>, field: &str) -> Estimate<'a> {
    let cost = operand.cost + 1.0;
    if operand.parts.is_empty() {
        return Estimate {
            cost,
            items: operand.bytes,
            ..operand
        };
    }
    let named = |part: &&'a Value| -> Option<&'a Value> {
        let members = part.as_object()?;
        let found = members.get(field);
        found.or_else(|| {
            members
                .iter()
                .find(|(name, _)| escape(name) == field)
                .map(|(_, v)| v)
        })
    };
    let found: Vec<&Value> = operand.parts.iter().filter_map(named).collect();
    Estimate {
        cost,
        ..Estimate::of_parts(found)
    }
}

fn called<'a>(name: &str, operands: &[Estimate<'a>], args: &[IdedExpr]) -> Estimate<'a> {
    let mut result = Estimate::computed_from(operands);
    // Functions read strings and lists; ten bytes cost one step.
    result.cost += 1.0 + result.bytes / 10.0 + result.items;
    match name {
        "_[_]" => {
            let item = operands.first().map(Estimate::item).unwrap_or_default();
            return Estimate {
                cost: result.cost,
                ..item
            };
        }
        "range" | "lists.range" => {
            result.items = match args.last().map(|arg| &arg.expr) {
                Some(Expr::Literal(LiteralValue::Int(count))) => *count.inner() as f64,
                _ => f64::INFINITY,
            };
            result.cost += result.items;
        }
        "replace" | "join" | "format" => {
            // The empty string occurs between any two characters, and at both ends.
            result.bytes = operands.iter().map(|one| one.bytes + 1.0).product();
            result.cost += result.bytes / 10.0;
        }
        "split" | "findAll" => result.items = result.bytes,
        _ => {}
    }
    result
}
