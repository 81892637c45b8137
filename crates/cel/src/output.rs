//! Infers the type of an expression from its syntax.

use std::borrow::Cow;

use kube_cel::cel::common::ast::operators::{
    ADD, CONDITIONAL, EQUALS, GREATER, GREATER_EQUALS, IN, INDEX, LESS, LESS_EQUALS, LOGICAL_AND,
    LOGICAL_NOT, LOGICAL_OR, NOT_EQUALS,
};
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr};

use crate::environment::Environment;

/// The name of a type in CEL.
type Name = Cow<'static, str>;

const DYN: &str = "dyn";

/// Returns the type of `expression`; `None` if its syntax does not determine the type.
pub fn output_type(expression: &IdedExpr) -> Option<Name> {
    output_type_in(expression, &Environment::default())
}

/// Returns the type of `expression`; `environment` declares fields and their types.
pub(crate) fn output_type_in(expression: &IdedExpr, environment: &Environment<'_>) -> Option<Name> {
    let output_type = |part: &IdedExpr| output_type_in(part, environment);
    match &expression.expr {
        Expr::Literal(literal) => Some(of_literal(literal).into()),
        Expr::Struct(message) => Some(message.type_name.clone().into()),
        Expr::Ident(name) => match &**name {
            "object" | "oldObject" | "params" => Some(DYN.into()),
            _ => None,
        },
        Expr::Select(select) if select.test => Some("bool".into()),
        Expr::Select(select) => {
            let fields = match &select.operand.expr {
                Expr::Ident(name) => environment.declared_fields(name),
                _ => None,
            };
            match fields {
                Some(fields) => {
                    let field = fields.iter().rfind(|field| field.name == select.field)?;
                    field.output_type.clone().map(Name::from)
                }
                None => output_type(&select.operand).filter(|operand| *operand == DYN),
            }
        }
        Expr::List(list) => {
            let item = common(list.elements.iter().map(output_type))?;
            Some(format!("list({item})").into())
        }
        Expr::Map(map) => Some(of_map(map, &output_type)),
        Expr::Call(call) => of_call(call, &output_type),
        Expr::Comprehension(_) | Expr::Unspecified => None,
    }
}

fn of_literal(literal: &LiteralValue) -> &'static str {
    match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::Null => "null_type",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
    }
}

/// Returns the common type of `types`; `None` if there are none, or they differ, or one is unknown.
fn common(mut types: impl Iterator<Item = Option<Name>>) -> Option<Name> {
    let first = types.next()??;
    types
        .all(|next| next.as_ref() == Some(&first))
        .then_some(first)
}

fn of_map(map: &MapExpr, output_type: &dyn Fn(&IdedExpr) -> Option<Name>) -> Name {
    let parts = |key: bool| {
        let each = map.entries.iter().map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) if key => output_type(&entry.key),
            EntryExpr::MapEntry(entry) => output_type(&entry.value),
            EntryExpr::StructField(_) => None,
        });
        common(each).unwrap_or(DYN.into())
    };
    format!("map({}, {})", parts(true), parts(false)).into()
}

fn of_call(call: &CallExpr, output_type: &dyn Fn(&IdedExpr) -> Option<Name>) -> Option<Name> {
    let arguments = call.args.as_slice();
    match (&*call.func_name, arguments) {
        (
            EQUALS | NOT_EQUALS | LESS | LESS_EQUALS | GREATER | GREATER_EQUALS | IN | LOGICAL_AND
            | LOGICAL_OR | LOGICAL_NOT,
            _,
        ) => Some("bool".into()),
        ("string", [_]) if call.target.is_none() => Some("string".into()),
        ("int" | "size", [_]) if call.target.is_none() => Some("int".into()),
        ("size", []) => Some("int".into()),
        ("startsWith" | "endsWith" | "contains" | "matches", [_]) => Some("bool".into()),
        (CONDITIONAL, [_, either, or]) => match [either, or].map(output_type) {
            types if types.iter().flatten().any(|name| name == DYN) => Some(DYN.into()),
            types => common(types.into_iter()),
        },
        (INDEX, [container, _]) => output_type(container).filter(|name| name == DYN),
        (ADD, [left, right]) => common([left, right].map(output_type).into_iter()),
        _ => None,
    }
}
