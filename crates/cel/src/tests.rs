//! Tests of compiled programs: their values, errors and bounds.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::*;

fn compile(text: &str) -> Result<Program, CompileError> {
    let environment = Environment {
        variables: &["object", "variables"],
        ..Environment::default()
    };
    Program::compile(text, &environment)
}

fn check(text: &str, expect: Result<Outcome, &str>) {
    let mut scope = Scope::counted(Instant::now() + Duration::from_secs(60));
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
        (Err(error), Err(expect)) => {
            assert!(error.to_string().contains(expect), "{text}: {error}");
        }
        (outcome, expect) => panic!("{text}: {outcome:?}, not {expect:?}"),
    }
}

fn check_true(text: &str) {
    check(text, Ok(Outcome::Bool(true)));
}

#[test]
fn objects_are_bound_as_upstream() {
    check_true("object.spec.replicas <= 5");
    check_true("object.metadata.namespace == 'ns' && has(object.metadata.namespace)");
    check_true("object.?metadata.namespace.orValue('') == 'ns' && !has(object.spec.package)");
    check_true("object.metadata.labels['a.b/c-d'] == 'x'");
    check_true("!has(object.spec.absent) && has(object.spec.names)");
    check_true("object.spec.names.all(n, n in ['a', 'b', 'c'])");
    check_true("object.spec.names.map(n, n + '!') == ['a!', 'b!']");
    check_true("object.?spec.?absent.orValue(7) == 7");
    check_true("object.?spec.replicas.orValue(7) == 3 && !object[?'gone'].hasValue()");
    check_true("object.?metadata.labels['a.b/c-d'].orValue('') == 'x'");
    check_true("quantity('1Gi').isGreaterThan(quantity('1Mi'))");
    check_true("object.spec.names.exists_one(n, n == 'a') ? true : false");
    check_true("variables.twice == object.spec.replicas * 2");
    check_true("'a,b'.split(',').join('-').replace('-', '+') == 'a+b'");
    check_true("sets.contains(object.spec.names, ['a'])");
    check(
        "'%d of %s'.format([3, 'x'])",
        Ok(Outcome::Text("3 of x".into())),
    );
    check("object.spec.replicas", Ok(Outcome::Other("int")));
    check("object.spec.absent == 1", Err("no such key: absent"));
}

#[test]
fn invalid_expressions_are_errors() {
    for (text, expect) in [
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
        assert!(error.to_string().contains(expect), "{text}: {error}");
    }
    // The maximal depth.
    check_true(&format!("1{}>1", "+1".repeat(90)));
}

#[test]
fn composed_variables_are_listed() {
    let program = compile("variables.a + variables.b.c > 1 && has(variables.d)").unwrap();
    let names: Vec<_> = program
        .composed_variables()
        .iter()
        .map(String::as_str)
        .collect();
    assert_eq!(names, ["a", "b", "d"]);
}

/// Checks expressions of some hundred bytes that would run for hours or exhaust memory.
#[test]
fn evaluations_are_bounded() {
    let exceeded = "cost budget";
    let nested = "object.many.all(a, object.many.all(b, object.many.all(c, a + b + c >= 0)))";
    check(nested, Err(exceeded));
    let mut doubled = "object.long".to_owned();
    for level in 0..20 {
        doubled = format!("[{doubled}].map(x{level}, x{level} + x{level})[0]");
    }
    check(&format!("{doubled}.size() > 0"), Err(exceeded));
    let mut listed = "object.long".to_owned();
    for level in 0..20 {
        listed = format!("[{listed}].map(x{level}, [x{level}, x{level}])[0]");
    }
    check(&format!("{listed}.size() > 0"), Err(exceeded));
    check(
        "object.many.map(x, object.many).map(x, object.many).size() > 0",
        Err(exceeded),
    );
    // This expression allocated terabytes, which ended the process.
    check("lists.range(100000000000).size() > 0", Err(exceeded));
    check(
        "lists.range(1000).distinct().size() == 1000",
        Ok(Outcome::Bool(true)),
    );
    check(
        "lists.range(20000).distinct().size() == 20000",
        Err(exceeded),
    );
    let both = "sets.contains(lists.range(20000), lists.range(20000))";
    check(both, Err(exceeded));
    check(
        "'%.60000f'.format([1.0]).size() > 60000",
        Ok(Outcome::Bool(true)),
    );
    check("'%.3000000f'.format([1.0]).size() > 0", Err(exceeded));
    check("object.long.matches('(a{0,100}){0,1000}')", Err(exceeded));
    let replaced = "object.long.replace('x', object.long).replace('x', object.long) == ''";
    check(replaced, Err(exceeded));
}

/// The evaluation for each parameter of a policy may take a second, and there can be thousands of parameters.
#[test]
fn evaluation_after_the_deadline_is_an_error() {
    let program = Program::compile("true", &Environment::default()).unwrap();
    let scope = Scope::counted(Instant::now());
    assert!(scope.check_deadline().is_err());
    let inner = scope.inner();
    let error = inner.evaluate(&program).unwrap_err();
    assert!(error.to_string().contains("takes too long"), "{error}");
}

/// The conversion uses the declared type of a value, if there is one.
#[test]
fn values_are_converted_by_their_declared_type() {
    enum Type {
        Map,
        Object,
        Time,
    }
    impl TypeDeclaration for Type {
        fn is_number(&self) -> bool {
            false
        }
        fn format(&self) -> &str {
            match self {
                Self::Time => "date-time",
                _ => "",
            }
        }
        fn items(&self) -> Option<&Self> {
            None
        }
        fn property(&self, name: &str) -> Option<&Self> {
            (name == "at").then_some(&Self::Time)
        }
        fn is_map(&self) -> bool {
            matches!(self, Self::Map)
        }
    }
    let value = json!({"a-b": 1, "in": 2, "at": "2026-01-01T00:00:00Z", "off": "x"});
    let mut scope = Scope::uncounted();
    scope.set_value("map", from_json_with_type(&value, Some(&Type::Map)));
    scope.set_value("object", from_json_with_type(&value, Some(&Type::Object)));
    scope.set_value("unknown", from_json_with_type::<Type>(&value, None));
    for text in [
        "map['a-b'] == 1 && map['in'] == 2 && !('a__dash__b' in map)",
        "object.a__dash__b == 1 && object.__in__ == 2 && !('a-b' in object)",
        "object.at < timestamp('2030-01-01T00:00:00Z') && object.off == 'x'",
        "unknown.a__dash__b == 1 && unknown.at == '2026-01-01T00:00:00Z'",
    ] {
        let program = Program::parse(text, &Syntax::default()).unwrap();
        assert_eq!(scope.evaluate(&program), Ok(Outcome::Bool(true)), "{text}");
    }
}

/// The estimate increases with the number of items in the object.
#[test]
fn cost_is_estimated_from_the_object() {
    let cost = |items: usize| {
        let syntax = Syntax::default();
        let program = Program::parse("self.all(a, self.all(b, a != b))", &syntax).unwrap();
        estimate_cost(&program, &[("self", &json!(vec!["x"; items]))])
    };
    assert!(cost(10) < EXPRESSION_COST_MAX);
    assert!(cost(10_000) > EXPRESSION_COST_MAX);
}

#[test]
fn undeclared_field_of_a_variable_is_an_error() {
    let field = |output_type: Option<&str>| Field {
        name: "a".to_owned(),
        output_type: output_type.map(str::to_owned),
    };
    let fields = [field(None), field(Some("dyn"))];
    let environment = Environment {
        variables: &["object", "variables"],
        fields: &[("variables", &fields)],
        ..Environment::default()
    };
    let program = Program::compile("[variables.a.b]", &environment).unwrap();
    assert_eq!(program.output_type(), Some("list(dyn)"));
    for text in [
        "variables.a.b == 1 && has(variables.a)",
        "[object].all(variables, variables.b == 1)",
    ] {
        assert!(Program::compile(text, &environment).is_ok(), "{text}");
    }
    let error = |text: &str| {
        let compiled = Program::compile(text, &environment);
        compiled.unwrap_err().to_string()
    };
    assert_eq!(
        error("variables.a == 1 &&\n variables.ab == 2"),
        "ERROR: <input>:2:11: undefined field 'ab'\n |  variables.ab == 2\n | ..........^"
    );
    // Neither a field of another variable nor a text is the position.
    for text in [
        "object.b == 1 && variables.b == 1",
        "'variables.b' == '' || variables.b == 1",
    ] {
        let column = text.rfind(".b").unwrap() + 1;
        let start = format!("ERROR: <input>:1:{column}: undefined field 'b'");
        assert!(error(text).starts_with(&start), "{}", error(text));
    }
}

#[test]
fn output_types_of_functions_are_inferred() {
    for (text, expected) in [
        ("string(object.a)", Some("string")),
        ("size(object.a)", Some("int")),
        ("object.a.size()", Some("int")),
        ("object.a.startsWith('a')", Some("bool")),
        ("object.a", Some("dyn")),
        ("object.a[0].b", Some("dyn")),
        ("object.a ? object.b : true", Some("dyn")),
        ("variables.a", None),
    ] {
        assert_eq!(compile(text).unwrap().output_type(), expected, "{text}");
    }
}
