//! What expressions come to, and what they may not cost.

use std::time::Duration;

use serde_json::json;

use super::*;

fn compile(text: &str) -> Result<Expression, CompileError> {
    Expression::compile(text, &["object", "variables"])
}

fn check(text: &str, expect: Result<Outcome, &str>) {
    let mut scope = Scope::new(Instant::now() + Duration::from_secs(60));
    let object = json!({
        "metadata": {"namespace": "ns", "labels": {"a.b/c-d": "x"}},
        "spec": {"replicas": 3, "names": ["a", "b"], "none": null},
        "many": (0..1000).collect::<Vec<_>>(),
        "long": "x".repeat(1000),
    });
    scope.set("object", &object);
    scope.set("variables", &json!({"twice": 6}));
    let outcome = scope.evaluate(&compile(text).unwrap());
    match (outcome, expect) {
        (Ok(outcome), Ok(expect)) => assert_eq!(outcome, expect, "{text}"),
        (Err(error), Err(words)) => assert!(error.0.contains(words), "{text}: {error}"),
        (outcome, expect) => panic!("{text}: {outcome:?}, not {expect:?}"),
    }
}

fn yes(text: &str) {
    check(text, Ok(Outcome::Bool(true)));
}

#[test]
fn objects_are_what_upstream_binds() {
    yes("object.spec.replicas <= 5");
    yes("object.metadata.namespace == 'ns' && has(object.metadata.namespace)");
    yes("object.?metadata.namespace.orValue('') == 'ns' && !has(object.spec.package)");
    yes("object.metadata.labels['a.b/c-d'] == 'x'");
    yes("!has(object.spec.absent) && has(object.spec.names)");
    yes("object.spec.names.all(n, n in ['a', 'b', 'c'])");
    yes("object.spec.names.map(n, n + '!') == ['a!', 'b!']");
    yes("object.?spec.?absent.orValue(7) == 7");
    yes("object.?spec.replicas.orValue(7) == 3 && !object[?'gone'].hasValue()");
    yes("object.?metadata.labels['a.b/c-d'].orValue('') == 'x'");
    yes("quantity('1Gi').isGreaterThan(quantity('1Mi'))");
    yes("object.spec.names.exists_one(n, n == 'a') ? true : false");
    yes("variables.twice == object.spec.replicas * 2");
    yes("'a,b'.split(',').join('-').replace('-', '+') == 'a+b'");
    yes("sets.contains(object.spec.names, ['a'])");
    check(
        "'%d of %s'.format([3, 'x'])",
        Ok(Outcome::Text("3 of x".into())),
    );
    check("object.spec.replicas", Ok(Outcome::Other("int")));
    check("object.spec.absent == 1", Err("no such key: absent"));
}

#[test]
fn what_is_no_expression_is_refused() {
    for (text, words) in [
        ("object.", "ERROR: <input>:1:"),
        ("objekt.spec == 1", "undeclared reference to 'objekt'"),
        (
            "object.spec.frobnicate()",
            "undeclared reference to 'frobnicate'",
        ),
        (
            "v1.Pod{name: 'x'}.name == 'x'",
            "undeclared reference to 'v1.Pod'",
        ),
        (&"x".repeat(20_000), "longer than"),
        (&format!("1{}==1", "+1".repeat(500)), "deeper than"),
    ] {
        let error = compile(text).unwrap_err();
        assert!(error.0.contains(words), "{text}: {error}");
    }
    // As deep as it may be, on a thread like those that evaluate.
    yes(&format!("1{}>1", "+1".repeat(90)));
}

#[test]
fn the_names_of_composed_variables_are_known() {
    let expression = compile("variables.a + variables.b.c > 1 && has(variables.d)").unwrap();
    let names: Vec<_> = expression.composed().iter().map(String::as_str).collect();
    assert_eq!(names, ["a", "b", "d"]);
}

/// Hundreds of bytes that would take hours, or all memory.
#[test]
fn evaluations_are_bounded() {
    let words = "cost budget";
    let nested = "object.many.all(a, object.many.all(b, object.many.all(c, a + b + c >= 0)))";
    check(nested, Err(words));
    let mut doubled = "object.long".to_owned();
    for level in 0..20 {
        doubled = format!("[{doubled}].map(x{level}, x{level} + x{level})[0]");
    }
    check(&format!("{doubled}.size() > 0"), Err(words));
    let mut listed = "object.long".to_owned();
    for level in 0..20 {
        listed = format!("[{listed}].map(x{level}, [x{level}, x{level}])[0]");
    }
    check(&format!("{listed}.size() > 0"), Err(words));
    check(
        "object.many.map(x, object.many).map(x, object.many).size() > 0",
        Err(words),
    );
    let replaced = "object.long.replace('x', object.long).replace('x', object.long) == ''";
    check(replaced, Err(words));
}

/// Each parameter of a policy had a second of its own, and there can be thousands of them.
#[test]
fn nothing_is_evaluated_after_the_end() {
    let expression = Expression::compile("true", &[]).unwrap();
    let scope = Scope::new(Instant::now());
    assert!(scope.problem().is_some());
    let inner = scope.inner();
    let error = inner.evaluate(&expression).unwrap_err();
    assert!(error.0.contains("takes too long"), "{error}");
}
