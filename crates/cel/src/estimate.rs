//! What a rule may cost on a value at most, worked out before it runs: the interpreter of CEL cannot be
//! stopped. Loops over members of the value count as often as those really have items; what is computed
//! counts as large as it can be.

use std::collections::HashMap;

use kube_cel::cel::common::ast::{Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use super::rules::escaped;

/// What one rule may cost, and all rules of an object together; upstream's limits, with room for what is
/// counted too high here.
pub(super) const RULE_MAX: f64 = 10e6;
pub(super) const OBJECT_MAX: f64 = 100e6;

/// How many values are told apart before their sizes are taken together.
const TOLD_APART_MAX: usize = 1_000;

/// How many items of a list are copied in the time of one step.
const COPIES_IN_A_STEP: f64 = 40.0;

/// What an expression can be, and what it costs to know.
#[derive(Debug, Clone, Default)]
struct Estimate<'a> {
    cost: f64,
    /// Bytes of its text, items of its list, members of its map, at most, with all that is within.
    bytes: f64,
    items: f64,
    /// The values that it is one of, when it is a part of the object.
    parts: Vec<&'a Value>,
}

/// A bound of the cost of `rule` on `value`.
pub(super) fn bound(rule: &IdedExpr, value: &Value, old: Option<&Value>) -> f64 {
    let mut scope = HashMap::new();
    scope.insert("self".to_owned(), Estimate::of_parts(vec![value]));
    let old = old.map(|old| vec![old]).unwrap_or_default();
    scope.insert("oldSelf".to_owned(), Estimate::of_parts(old));
    estimate(rule, &scope).cost
}

type Scope<'a> = HashMap<String, Estimate<'a>>;

impl<'a> Estimate<'a> {
    fn of_parts(mut parts: Vec<&'a Value>) -> Self {
        let most = |size: fn(&Value) -> usize| parts.iter().map(|p| size(p)).max().unwrap_or(0);
        let (bytes, items) = (most(bytes_of) as f64, most(items_of) as f64);
        if parts.len() > TOLD_APART_MAX {
            parts.clear();
        }
        Self {
            cost: 0.0,
            bytes,
            items,
            parts,
        }
    }

    /// Something that was made of these.
    fn made_of(all: &[Self]) -> Self {
        Self {
            cost: all.iter().map(|one| one.cost).sum(),
            bytes: all.iter().map(|one| one.bytes).sum(),
            items: all.iter().map(|one| one.items).sum(),
            parts: Vec::new(),
        }
    }

    /// One of its items; of a map, one of its keys or values.
    fn item(&self) -> Self {
        if self.parts.is_empty() {
            // Whatever it is, it is within.
            return Self {
                cost: 0.0,
                items: self.bytes,
                ..self.clone()
            };
        }
        let mut within = Vec::new();
        for part in &self.parts {
            match part {
                Value::Array(items) => within.extend(items),
                Value::Object(members) => within.extend(members.values()),
                _ => {}
            }
        }
        let mut item = Self::of_parts(within);
        if self.parts.iter().any(|part| part.is_object()) {
            item.bytes = self.bytes;
            item.items = self.bytes;
            item.parts.clear();
        }
        item
    }
}

/// Nothing is smaller than what it counts.
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
            let mut made = Estimate::made_of(&elements);
            made.items += elements.len() as f64;
            made.cost += 1.0;
            made
        }
        Expr::Map(_) | Expr::Struct(_) => Estimate {
            // Rules have little use for them; what is in one is not looked into.
            cost: f64::INFINITY,
            ..Estimate::default()
        },
        Expr::Call(call) => {
            let operands = call.target.iter().map(|target| &**target).chain(&call.args);
            let operands: Vec<_> = operands.map(|operand| estimate(operand, scope)).collect();
            called(&call.func_name, &operands, &call.args)
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
            let gathers = matches!(looped.accu_init.expr, Expr::List(_));
            // A list that grows may be copied each time, which is far cheaper than a step.
            let growing = Estimate {
                items: if gathers {
                    times / COPIES_IN_A_STEP
                } else {
                    0.0
                },
                ..Estimate::default()
            };
            inner.insert(looped.accu_var.clone(), growing);
            let condition = estimate(&looped.loop_cond, &inner);
            let step = estimate(&looped.loop_step, &inner);
            let gathered = Estimate {
                cost: 0.0,
                bytes: init.bytes + times * step.bytes,
                items: init.items + times * step.items.max(1.0),
                parts: Vec::new(),
            };
            inner.insert(looped.accu_var.clone(), gathered);
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
                .find(|(name, _)| escaped(name) == field)
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
    let mut made = Estimate::made_of(operands);
    // Texts and lists are looked through, ten bytes a step.
    made.cost += 1.0 + made.bytes / 10.0 + made.items;
    match name {
        "_[_]" => {
            let item = operands.first().map(Estimate::item).unwrap_or_default();
            return Estimate {
                cost: made.cost,
                ..item
            };
        }
        "range" | "lists.range" => {
            made.items = match args.last().map(|arg| &arg.expr) {
                Some(Expr::Literal(LiteralValue::Int(count))) => *count.inner() as f64,
                _ => f64::INFINITY,
            };
            made.cost += made.items;
        }
        "replace" | "join" | "format" => {
            // Nothing is between each two letters too, and at the ends.
            made.bytes = operands.iter().map(|one| one.bytes + 1.0).product();
            made.cost += made.bytes / 10.0;
        }
        "split" | "findAll" => made.items = made.bytes,
        _ => {}
    }
    made
}
