//! Structural schemas and CEL expressions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use watchet_apiextensions::fuzzing::StructuralSchema;
use watchet_cel::{
    EXPRESSION_COST_MAX, Environment, Program, Scope, Syntax, estimate_cost, to_json,
};
use watchet_schema::{KindType, Types};

use super::objects::PROTOBUF;
use super::{json_parts, parts};

pub(super) const SCHEMA_WORDS: &[&str] = &[
    "type",
    "object",
    "array",
    "string",
    "integer",
    "number",
    "boolean",
    "properties",
    "additionalProperties",
    "items",
    "default",
    "nullable",
    "required",
    "enum",
    "pattern",
    "^a+$",
    "(a|b)*",
    "format",
    "date-time",
    "int32",
    "byte",
    "duration",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "multipleOf",
    "minProperties",
    "maxProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "map",
    "set",
    "atomic",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "granular",
    "x-kubernetes-validations",
    "rule",
    "message",
    "messageExpression",
    "reason",
    "fieldPath",
    "optionalOldSelf",
    "self",
    "oldSelf",
    "self.size() > 0",
    "metadata",
    "spec",
    "status",
    "versions",
    "names",
    "plural",
    "kind",
    "served",
    "storage",
    "subresources",
    "scale",
    "specReplicasPath",
    ".spec.replicas",
    "additionalPrinterColumns",
    "jsonPath",
    "selectableFields",
    "conversion",
    "strategy",
    "None",
    "Webhook",
    "scope",
    "Namespaced",
    "Cluster",
];

pub(super) const CEL_WORDS: &[&str] = &[
    "self",
    "oldSelf",
    "object",
    "variables",
    "has(",
    ".all(",
    ".exists(",
    ".exists_one(",
    ".map(",
    ".filter(",
    "x, ",
    "x",
    "in",
    "&&",
    "||",
    "!",
    "?",
    ":",
    "==",
    "!=",
    "<=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"a\"",
    "b\"a\"",
    "r\"a\"",
    "1",
    "1u",
    "1.5",
    "-9223372036854775808",
    "9223372036854775807",
    "18446744073709551615u",
    "1e308",
    ".size()",
    "size(",
    "type(",
    "int(",
    "uint(",
    "double(",
    "string(",
    "bytes(",
    "dyn(",
    "duration(\"1h\")",
    "timestamp(\"2026-01-01T00:00:00Z\")",
    ".matches(\"",
    ".contains(",
    ".startsWith(",
    ".split(\",\")",
    ".join(",
    ".replace(",
    ".lowerAscii()",
    ".find(",
    ".findAll(",
    "url(",
    "ip(",
    "cidr(",
    "quantity(\"1Gi\")",
    ".isLessThan(",
    "semver(\"1.2.3\")",
    "format.named(\"dns1123Label\")",
    ".validate(",
    ".sum()",
    ".isSorted()",
    ".indexOf(",
    ".charAt(",
    ".substring(",
    ".trim()",
    ".reverse()",
    "optional.of(",
    "optional.none()",
    ".?a",
    "[?0]",
    ".orValue(",
    "sets.contains(",
    "lists.range(",
    ".transformList(",
    "cel.bind(",
    "base64.encode(",
    "math.greatest(",
    "\"%s\".format([",
    ".getFullYear()",
];

/// Setting the defaults twice is the same as once, also after the validation of the object, and the types of a schema decode
/// what the schema has filled.
pub(super) fn structural(input: &[u8]) {
    let Some([schema, object, old]) = json_parts::<3>(input) else {
        return;
    };
    let Ok(compiled) = StructuralSchema::compile(&schema) else {
        return;
    };
    let mut filled = object;
    if compiled.fill(&mut filled).is_err() {
        return;
    }
    let mut again = filled.clone();
    assert_eq!(compiled.fill(&mut again), Ok(()));
    assert_eq!(again, filled, "the second time changes {filled}");
    let (alone, changed) = (
        compiled.validate(&filled, None),
        compiled.validate(&filled, Some(&old)),
    );
    assert_eq!(compiled.validate(&filled, None).len(), alone.len());
    drop(changed);
    let types = Types::from_schema(&schema, &PROTOBUF.0);
    let kind = KindType::custom(Arc::new(types));
    let decoded = kind.conform(&filled);
    let twice = kind.conform(&decoded.value);
    assert_eq!(
        twice.value, decoded.value,
        "the second decoding changes {filled}"
    );
}

/// An expression is evaluated within its cost, in both ways, and its value can be read as JSON.
pub(super) fn cel(input: &[u8]) {
    let [text, variables] = parts(input);
    let Ok(text) = str::from_utf8(text) else {
        return;
    };
    let variables: Value =
        serde_json::from_slice(variables).unwrap_or(json!({"a": [1, 2], "b": "text"}));
    let names = ["self", "oldSelf", "object", "oldObject", "variables"];
    let environment = Environment {
        variables: &names,
        ..Environment::default()
    };
    if let Ok(program) = Program::compile(text, &environment) {
        let mut scope = Scope::counted(Instant::now() + Duration::from_secs(2));
        names.iter().for_each(|name| scope.set(name, &variables));
        if let Ok(value) = scope.inner().resolve(&program) {
            drop(to_json(&value));
        }
        drop(scope.inner().evaluate(&program));
    }
    let syntax = Syntax::default();
    if let Ok(program) = Program::parse(text, &syntax) {
        let values: Vec<_> = names.iter().map(|name| (*name, &variables)).collect();
        let cost = estimate_cost(&program, &values);
        assert!(!cost.is_nan() && cost >= 0.0, "the cost is {cost}");
        if cost <= EXPRESSION_COST_MAX {
            let mut scope = Scope::uncounted();
            names.iter().for_each(|name| scope.set(name, &variables));
            drop(scope.evaluate(&program));
        }
    }
}
