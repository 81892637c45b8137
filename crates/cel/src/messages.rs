//! Messages: `Object{...}`, `Object.spec{...}`, `JSONPatch{...}`. The evaluator has no messages, so a message
//! literal is compiled to a map with its fields and one more entry, which has the type name. Its key is a
//! bool, which no JSON object has.

use std::sync::Arc;

use kube_cel::cel::common::ast::{
    EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr, StructExpr,
};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

/// The key of the entry that has the type name.
pub(crate) const TYPE: Key = Key::Bool(true);

/// Returns true if `key` is the key of the entry that has a message's type name.
pub fn is_message_type_key(key: &Key) -> bool {
    *key == TYPE
}

/// Returns the name of the type of `value` if it is a message.
pub fn message_type(value: &CelValue) -> Option<&str> {
    match value {
        CelValue::Map(map) => match map.map.get(&TYPE) {
            Some(CelValue::String(name)) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the map for a message literal.
///
/// # Errors
/// An entry of the literal is not a field.
pub(crate) fn map_of(message: StructExpr) -> Result<Expr, String> {
    let name = message.type_name;
    let literal = |text: &str| Expr::Literal(LiteralValue::String(text.into()));
    let plain = |expr| IdedExpr { id: 0, expr };
    let mut entries = Vec::with_capacity(message.entries.len() + 1);
    for entry in message.entries {
        let EntryExpr::StructField(field) = entry.expr else {
            return Err(format!("ERROR: unsupported field of '{name}'"));
        };
        entries.push(MapEntryExpr {
            key: plain(literal(&field.field)),
            value: field.value,
            optional: field.optional,
        });
    }
    entries.push(MapEntryExpr {
        key: plain(Expr::Literal(LiteralValue::Boolean(true.into()))),
        value: plain(literal(&name)),
        optional: false,
    });
    let entries = entries.into_iter().map(|entry| IdedEntryExpr {
        id: 0,
        expr: EntryExpr::MapEntry(entry),
    });
    Ok(Expr::Map(MapExpr {
        entries: entries.collect(),
    }))
}

/// Replaces the evaluator's `optional.ofNonZeroValue`, which does not treat a message without fields as zero.
pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function(
        "optional.ofNonZeroValue",
        |value: CelValue| -> Result<CelValue, ExecutionError> {
            let is_empty = |map: &Map| map.map.keys().all(is_message_type_key);
            let is_zero = match &value {
                CelValue::Map(map) => is_empty(map),
                other => other.is_zero(),
            };
            Ok(CelValue::Opaque(Arc::new(match is_zero {
                true => OptionalValue::none(),
                false => OptionalValue::of(value),
            })))
        },
    );
}
