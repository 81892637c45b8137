//! Tests of rules in CEL: messages, when rules are evaluated, and limits of cost.

use serde_json::{Value, json};

use super::rule::{OPERATORS_MAX, RuleError, compile};
use super::tests::{messages, version};
use super::*;
use watchet_cel::{EXPRESSION_BYTES_MAX, ParseError};

/// Returns the messages of rules for `spec`.
fn rules(rules: Value, spec: Value, old: Option<Value>) -> Vec<String> {
    let schema = version(
        json!({"spec": {"type": "object", "x-kubernetes-validations": rules,
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "ratio": {"type": "number"},
            "namespace": {"type": "string"}, "dash-ed": {"type": "string"},
            "at": {"type": "string", "format": "date-time"},
            "list": {"type": "array", "items": {"type": "string"}},
        }}}),
    );
    let old = old.map(|old| json!({"spec": old}));
    messages(&schema, &json!({"spec": spec}), old.as_ref())
}

#[test]
fn rules_pass_or_return_messages() {
    let ordered = json!([{"rule": "self.min <= self.max", "message": "min is above max"}]);
    assert_eq!(
        rules(ordered.clone(), json!({"min": 1, "max": 2}), None),
        [""; 0]
    );
    let expected = [r#"spec: Invalid value: "object": min is above max"#];
    assert_eq!(
        rules(ordered.clone(), json!({"min": 3, "max": 2}), None),
        expected
    );
    let same = json!({"min": 3, "max": 2});
    assert_eq!(
        rules(ordered.clone(), same.clone(), Some(same)),
        [""; 0],
        "ratcheting"
    );
    let found = rules(ordered, json!({"min": 3}), None);
    assert!(found[0].contains("no such key: max"), "{found:?}");
    let expression = json!([{"rule": "self.min <= self.max", "fieldPath": ".min",
        "messageExpression": "'min ' + string(self.min) + ' is above'",
        "reason": "FieldValueForbidden"}]);
    let found = rules(expression, json!({"min": 3, "max": 2}), None);
    assert_eq!(found, ["spec.min: Forbidden: min 3 is above"]);
    let plain = json!([{"rule": "self.list.all(x, x.startsWith('a'))"}]);
    let found = rules(plain, json!({"list": ["ab", "b"]}), None);
    let expected =
        r#"spec: Invalid value: "object": failed rule: self.list.all(x, x.startsWith('a'))"#;
    assert_eq!(found, [expected]);
    for rule in [
        "self.ratio > 0.5",
        "self.__namespace__ == 'n' && self.dash__dash__ed == 'd'",
        "self.namespace == 'n' && has(self.namespace) && has(self.__namespace__)",
        "self.at < timestamp('2030-01-01T00:00:00Z')",
        "has(self.list) && !has(self.min)",
        "self.list.exists_one(x, x == 'q') && size(self.list) == 1",
    ] {
        let spec = json!({"ratio": 1, "namespace": "n", "dash-ed": "d",
            "at": "2026-01-01T00:00:00Z", "list": ["q"]});
        assert_eq!(
            rules(json!([{"rule": rule}]), spec, None),
            [""; 0],
            "{rule}"
        );
    }
}

#[test]
fn transition_rules_are_evaluated_on_updates() {
    let immutable = json!([{"rule": "self.min == oldSelf.min", "message": "min is immutable"}]);
    assert_eq!(rules(immutable.clone(), json!({"min": 1}), None), [""; 0]);
    assert_eq!(
        rules(
            immutable.clone(),
            json!({"min": 1}),
            Some(json!({"min": 1}))
        ),
        [""; 0]
    );
    let found = rules(immutable, json!({"min": 2}), Some(json!({"min": 1})));
    assert_eq!(
        found,
        [r#"spec: Invalid value: "object": min is immutable"#]
    );
    let optional = json!([{"rule": "oldSelf.hasValue() || self.min == 1", "optionalOldSelf": true,
        "message": "it begins with 1"}]);
    assert_eq!(rules(optional.clone(), json!({"min": 1}), None), [""; 0]);
    assert_eq!(
        rules(optional.clone(), json!({"min": 5}), Some(json!({"min": 1}))),
        [""; 0]
    );
    let found = rules(optional, json!({"min": 2}), None);
    assert_eq!(
        found,
        [r#"spec: Invalid value: "object": it begins with 1"#]
    );
}

#[test]
fn rules_are_not_evaluated_on_object_with_type_errors() {
    let rule = json!([{"rule": "self.min > 0"}]);
    let found = rules(rule, json!({"min": "x"}), None);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].starts_with(r#"<nil>: Invalid value: "null": some validation rules were not"#)
    );
}

/// A small rule over a large list could run for hours or exhaust the memory.
#[test]
fn costly_rules_are_rejected() {
    let list: Vec<String> = (0..3_000).map(|n| n.to_string()).collect();
    let spec = json!({"list": list});
    for rule in [
        "self.list.all(a, self.list.all(b, self.list.all(c, a != '' || b != c)))",
        "self.list.map(a, self.list.map(b, a + b)).size() >= 0",
        "lists.range(1000000000).size() > 0",
        "lists.range(self.list.size() * 1000000).size() > 0",
    ] {
        let found = rules(json!([{"rule": rule}]), spec.clone(), None);
        assert!(
            found[0].contains("cost limit exceeded"),
            "{rule}: {found:?}"
        );
    }
    let fair = "self.list.all(a, a.size() < 10) && self.list.exists(b, b == '2999')";
    assert_eq!(rules(json!([{"rule": fair}]), spec, None), [""; 0]);
}

/// The cost of messages was not counted: one with three replacements in a short text exhausted the memory.
#[test]
fn costly_messages_are_left_out() {
    let text = json!({"namespace": "x".repeat(3_000)});
    let of = |expression: &str| {
        let rule = json!([{"rule": "self.__namespace__ == 'y'", "messageExpression": expression,
            "message": "it is no y"}]);
        rules(rule, text.clone(), None)
    };
    let expected = |message: &str| [format!(r#"spec: Invalid value: "object": {message}"#)];
    let grown = |times| format!("'a'{}", ".replace('', self.__namespace__)".repeat(times));
    assert_eq!(of(&grown(3)), expected("it is no y"));
    assert_eq!(of(&grown(1)).join("").matches('x').count(), 6_000);
    assert_eq!(of("string(size(self.__namespace__))"), expected("3000"));
}

/// Checks that the deepest expressions do not overflow the stack of a thread.
#[test]
fn deep_rules_do_not_overflow() {
    let on_a_small_stack = || {
        for text in [
            format!("0{} > 0", "+1".repeat(480)),
            format!("{}true", "!".repeat(480)),
            format!("{}true{}", "(".repeat(240), ")".repeat(240)),
            format!("self{} == 1", ".a".repeat(480)),
            format!("self{} == 1", "[0]".repeat(240)),
            "true ? ".repeat(240) + "true" + &" : false".repeat(240),
        ] {
            let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": text}]});
            let _messages = messages(
                &Compiler::default().version(&schema),
                &json!({"a": 1}),
                None,
            );
        }
        let too_long = format!("0{} > 0", "+1".repeat(500));
        let expected = RuleError(ParseError::TooManyOperators(OPERATORS_MAX));
        assert_eq!(compile(&too_long).unwrap_err(), expected);
        // Operators that are words nest as well.
        let words = format!("1{}", " in x".repeat(3_000));
        assert_eq!(compile(&words).unwrap_err(), expected);
        let long = "x".repeat(EXPRESSION_BYTES_MAX + 1);
        assert_eq!(compile(&long).unwrap_err(), RuleError(ParseError::TooLong));
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(on_a_small_stack).unwrap().join().unwrap();
}
