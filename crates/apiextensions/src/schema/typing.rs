//! The type check of rules: finds members that the schema does not declare, undeclared variables, and rules that are not a
//! bool. Expressions of unknown type have no problems.

use std::collections::HashMap;

use super::node::{Additional, Kind, Schema};
use watchet_cel::ast::{Expr, IdedExpr, LiteralValue};
use watchet_cel::is_selected_as;

/// The type of an expression.
#[derive(Debug, Clone, Copy)]
enum Type<'a> {
    /// A value that this schema describes.
    Of(&'a Schema),
    /// The metadata of an object. Rules can select only the names in it.
    Metadata,
    Bool,
    /// A type that is not a bool and has no schema.
    Other,
    Unknown,
}

/// The variables in scope.
type Scope<'e, 's> = HashMap<&'e str, Type<'s>>;

/// The names of types and libraries.
const NAMES: [&str; 26] = [
    "base64",
    "bool",
    "bytes",
    "cel",
    "cidr",
    "double",
    "duration",
    "dyn",
    "format",
    "google",
    "int",
    "ip",
    "list",
    "lists",
    "map",
    "math",
    "null_type",
    "optional",
    "regex",
    "semver",
    "sets",
    "string",
    "strings",
    "timestamp",
    "type",
    "uint",
];

/// Returns the problems of `rule` at a value that `schema` describes, with upstream's messages. The old value may be an
/// optional, which has no members.
pub(crate) fn problems(rule: &IdedExpr, schema: &Schema, optional_old_self: bool) -> Vec<String> {
    let (is, mut problems) = examine(rule, schema, optional_old_self);
    if problems.is_empty() && matches!(is, Type::Other) {
        problems.push("cel expression must evaluate to a bool".to_owned());
    }
    problems
}

/// Returns the problems of the names in an expression.
pub(crate) fn unknown_names(
    expression: &IdedExpr,
    schema: &Schema,
    optional_old_self: bool,
) -> Vec<String> {
    examine(expression, schema, optional_old_self).1
}

fn examine<'s>(
    expression: &IdedExpr,
    schema: &'s Schema,
    optional_old_self: bool,
) -> (Type<'s>, Vec<String>) {
    let of = Type::Of(schema);
    let old = if optional_old_self { Type::Unknown } else { of };
    let scope = Scope::from([("self", of), ("oldSelf", old)]);
    let mut problems = Vec::new();
    let is = type_of(expression, &scope, &mut problems).resolved();
    problems.sort_unstable();
    problems.dedup();
    (is, problems)
}

impl<'a> Type<'a> {
    /// Returns the type without its schema.
    fn resolved(self) -> Self {
        match self {
            Self::Of(schema) if schema.int_or_string => Self::Unknown,
            Self::Of(schema) => match schema.kind {
                Some(Kind::Boolean) => Self::Bool,
                Some(_) => Self::Other,
                None => Self::Unknown,
            },
            Self::Metadata => Self::Other,
            known => known,
        }
    }

    /// Returns the type of a member.
    ///
    /// # Errors
    /// The type has no such member.
    fn member(self, name: &str) -> Result<Self, String> {
        let undefined = || Err(format!("compilation failed: undefined field '{name}'"));
        let scalar = |kind: &str| {
            Err(format!(
                "compilation failed: type '{kind}' does not support field selection"
            ))
        };
        match self {
            Self::Metadata if matches!(name, "name" | "generateName") => Ok(Self::Other),
            Self::Metadata => undefined(),
            Self::Of(schema) if schema.int_or_string || !schema.format.is_empty() => {
                Ok(Self::Unknown)
            }
            Self::Of(schema) => match schema.kind {
                Some(Kind::Object) => schema.visible(name).map_or_else(undefined, Ok),
                Some(Kind::String) => scalar("string"),
                Some(Kind::Integer) => scalar("int"),
                Some(Kind::Number) => scalar("double"),
                Some(Kind::Boolean) => scalar("bool"),
                Some(Kind::Array) | None => Ok(Self::Unknown),
            },
            Self::Bool | Self::Other | Self::Unknown => Ok(Self::Unknown),
        }
    }

    /// Returns the type of the items or values of a container.
    fn values(self) -> Self {
        match self {
            Self::Of(schema) => match (schema.kind, &schema.items, &schema.additional) {
                (Some(Kind::Array), Some(items), _) => Self::Of(items),
                (Some(Kind::Object), _, Some(Additional::Of(values))) => Self::Of(values),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    fn is_list(self) -> bool {
        matches!(self, Self::Of(schema) if schema.kind == Some(Kind::Array))
    }
}

impl Schema {
    /// Returns the type of the member that rules select by this name.
    fn visible(&self, name: &str) -> Option<Type<'_>> {
        let is_implicit = self.embedded && !self.declares_object_meta();
        match name {
            "metadata" if is_implicit => return Some(Type::Metadata),
            "apiVersion" | "kind" if is_implicit => return Some(Type::Other),
            _ => {}
        }
        match &self.additional {
            Some(Additional::Of(values)) => return Some(Type::Of(values)),
            Some(Additional::Any) => return Some(Type::Unknown),
            None => {}
        }
        let mut properties = self.properties.iter();
        let found = properties.find(|(property, _)| is_selected_as(property, name));
        found.map(|(_, schema)| Type::Of(schema))
    }

    /// Returns true if the schema of an embedded resource declares all members of an object that rules can always
    /// select. Rules can then also select everything else that the schema declares of the metadata, as upstream.
    fn declares_object_meta(&self) -> bool {
        let has = |of: &Self, name: &str, kind: Kind| {
            let property = of.properties.get(name);
            property.is_some_and(|property| property.kind == Some(kind))
        };
        let metadata = self.properties.get("metadata").filter(|metadata| {
            metadata.kind == Some(Kind::Object)
                && has(metadata, "name", Kind::String)
                && has(metadata, "generateName", Kind::String)
        });
        metadata.is_some()
            && has(self, "kind", Kind::String)
            && has(self, "apiVersion", Kind::String)
    }
}

fn type_of<'e, 's>(
    expression: &'e IdedExpr,
    scope: &Scope<'e, 's>,
    problems: &mut Vec<String>,
) -> Type<'s> {
    match &expression.expr {
        Expr::Ident(name) => match scope.get(name.as_str()) {
            Some(known) => *known,
            None if NAMES.contains(&name.as_str()) => Type::Unknown,
            None => {
                let why = format!("undeclared reference to '{name}' (in container '')");
                problems.push(format!("compilation failed: {why}"));
                Type::Unknown
            }
        },
        Expr::Literal(LiteralValue::Boolean(_)) => Type::Bool,
        Expr::Literal(_) => Type::Other,
        Expr::Select(select) => {
            let member = type_of(&select.operand, scope, problems).member(&select.field);
            let member = member.unwrap_or_else(|problem| {
                problems.push(problem);
                Type::Unknown
            });
            if select.test { Type::Bool } else { member }
        }
        Expr::List(list) => {
            for element in &list.elements {
                type_of(element, scope, problems);
            }
            Type::Other
        }
        Expr::Call(call) => {
            let operands = call.target.iter().map(|target| &**target).chain(&call.args);
            let operands: Vec<_> = operands.map(|one| type_of(one, scope, problems)).collect();
            called(&call.func_name, &operands)
        }
        Expr::Comprehension(looped) => {
            let range = type_of(&looped.iter_range, scope, problems);
            type_of(&looped.accu_init, scope, problems);
            let mut inner = scope.clone();
            let of_first = match (&looped.iter_var2, range.is_list()) {
                // The second variable is the value, and the first one its index or key.
                (Some(second), _) => {
                    inner.insert(second, range.values());
                    Type::Unknown
                }
                (None, true) => range.values(),
                (None, false) => Type::Unknown,
            };
            inner.insert(&looped.iter_var, of_first);
            inner.insert(&looped.accu_var, Type::Unknown);
            for part in [&looped.loop_cond, &looped.loop_step, &looped.result] {
                type_of(part, &inner, problems);
            }
            Type::Unknown
        }
        Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => Type::Unknown,
    }
}

fn called<'s>(name: &str, operands: &[Type<'s>]) -> Type<'s> {
    match (name, operands) {
        ("_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in", _) => {
            Type::Bool
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "-_" | "size", _) => Type::Other,
        ("_[_]", [of, ..]) => of.values(),
        ("_?_:_", [_, one, other]) => match (one.resolved(), other.resolved()) {
            (Type::Bool, Type::Bool) => Type::Bool,
            (Type::Other, Type::Other) => Type::Other,
            _ => Type::Unknown,
        },
        _ => Type::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Compiler;
    use super::super::rule::compile;
    use super::*;

    fn check(rule: &str, expected: &[&str]) {
        let schema: Value = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer"}, "on": {"type": "boolean"}, "dash-ed": {"type": "string"},
                "namespace": {"type": "string"}, "at": {"type": "string", "format": "date-time"},
                "port": {"x-kubernetes-int-or-string": true},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "items": {"type": "object",
                    "properties": {"name": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object",
                    "properties": {"name": {"type": "string"}}}},
            }},
        }});
        let schema = Compiler::default().version(&schema);
        let program = compile(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
        let found = problems(program.expression(), &schema, false);
        let found: Vec<&str> = found
            .iter()
            .map(|p| p.trim_start_matches("compilation failed: "))
            .collect();
        assert_eq!(found, expected, "{rule}");
    }

    #[test]
    fn undefined_members_are_problems() {
        check("self.spec.size > 1", &[]);
        check("self.spec.siez > 1", &["undefined field 'siez'"]);
        check(
            "self.status.x == self.spec.y",
            &["undefined field 'status'", "undefined field 'y'"],
        );
        check("has(self.spec.gone)", &["undefined field 'gone'"]);
        check("self.spec.list.all(i, i.name != '')", &[]);
        check(
            "self.spec.list.all(i, i.nmae != '')",
            &["undefined field 'nmae'"],
        );
        check("self.spec.list[0].nmae == ''", &["undefined field 'nmae'"]);
        check("self.spec.map['a'].nmae == ''", &["undefined field 'nmae'"]);
        check("self.spec.map.a.nmae == ''", &["undefined field 'nmae'"]);
        check("self.spec.map.all(k, self.spec.map[k].name != '')", &[]);
        check("oldSelf.spec.gone == 1", &["undefined field 'gone'"]);
        check(
            "self.spec.size.x == 1",
            &["type 'int' does not support field selection"],
        );
        check(
            "self.spec.__namespace__ == 'a' && self.spec.dash__dash__ed == 'b'",
            &[],
        );
        check("self.spec.any.x.y == 1 && self.spec.port == 1", &[]);
        check("self.spec.at.x == 1", &[]);
    }

    #[test]
    fn undeclared_variables_are_problems() {
        let undeclared = ["undeclared reference to 'x' (in container '')"];
        check("x == 1", &undeclared);
        check("self.spec.list.all(y, y.name == x)", &undeclared);
        check("self.spec.list.all(y, true) && x", &undeclared);
        check("self.spec.list.map(x, x.name).exists(y, y == 'a')", &[]);
        check("self.spec.list.filter(x, x.name == 'a').size() == 1", &[]);
        check("sets.contains(self.spec.list.map(x, x.name), ['a'])", &[]);
        check("type(self.spec.size) == int && !has(self.spec.on)", &[]);
    }

    #[test]
    fn rules_see_only_names_of_metadata() {
        check("self.metadata.name == 'a' && self.kind == 'Foo'", &[]);
        check(
            "self.metadata.labels['a'] == 'b'",
            &["undefined field 'labels'"],
        );
    }

    /// A rule that selected a field with the name of a reserved word of CEL was rejected unless the name was escaped.
    /// Upstream accepts both since 1.32.
    #[test]
    fn reserved_words_are_field_names() {
        check("self.spec.namespace == 'a'", &[]);
        check("has(self.spec.namespace)", &[]);
        check("has(self.spec.__namespace__)", &[]);
        check(
            "self.spec.namespaces == 'a'",
            &["undefined field 'namespaces'"],
        );
        check("self.spec.package == 'a'", &["undefined field 'package'"]);
        check(
            "self.metadata.namespace == 'a'",
            &["undefined field 'namespace'"],
        );
    }

    /// The metadata of an embedded resource had no members but the two names, whatever its schema declared.
    #[test]
    fn an_embedded_resource_can_declare_more_of_its_metadata() {
        let text = json!({"type": "string"});
        let mut schema = json!({"type": "object", "properties": {"embedded": {"type": "object",
            "x-kubernetes-embedded-resource": true,
            "properties": {"apiVersion": text, "kind": text, "metadata": {"type": "object",
                "properties": {"name": text, "generateName": text, "namespace": text}}}}}});
        let problems_of = |schema: &Value, rule: &str| {
            let schema = Compiler::default().version(schema);
            problems(compile(rule).unwrap().expression(), &schema, false)
        };
        for rule in [
            "self.embedded.metadata.namespace == 'a'",
            "self.embedded.metadata.__namespace__ == 'a'",
        ] {
            assert_eq!(problems_of(&schema, rule), [""; 0], "{rule}");
        }
        let metadata = &mut schema["properties"]["embedded"]["properties"]["metadata"];
        metadata["properties"]
            .as_object_mut()
            .unwrap()
            .remove("generateName");
        assert_eq!(
            problems_of(&schema, "self.embedded.metadata.namespace == 'a'"),
            ["compilation failed: undefined field 'namespace'"]
        );
    }

    #[test]
    fn rule_must_be_a_bool() {
        let no_bool = ["cel expression must evaluate to a bool"];
        for rule in [
            "self.spec.size",
            "'text'",
            "1 + 2",
            "size(self.spec.list)",
            "self.spec",
        ] {
            check(rule, &no_bool);
        }
        check("self.spec.on ? 1 : 2", &no_bool);
        check("self.metadata.name", &no_bool);
        for rule in [
            "self.spec.on",
            "true",
            "!self.spec.on",
            "self.spec.on ? true : self.spec.size == 1",
            "self.spec.list.exists(i, i.name == 'a')",
            "self.spec.any",
            "'a' in ['a']",
            "self.spec.__namespace__.startsWith('a')",
        ] {
            check(rule, &[]);
        }
    }

    #[test]
    fn an_optional_old_value_has_no_members() {
        let schema = Compiler::default().version(&json!({"type": "object"}));
        let program = compile("oldSelf.hasValue() || oldSelf.x == 1").unwrap();
        assert!(problems(program.expression(), &schema, true).is_empty());
    }
}
