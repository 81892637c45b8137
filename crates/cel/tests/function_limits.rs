//! Memory and time of every function on hostile operands. The binary has one test, because the allocator counts what all
//! threads allocate. It prints the figures of `docs/security.md`:
//! `cargo test --release -p watchet-cel --test function_limits -- --nocapture`.

use std::time::Duration;

use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tokio::time::Instant;
use watchet_cel::{
    EXPRESSION_COST_MAX, Environment, FUNCTIONS, Program, Scope, Syntax, estimate_cost,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The memory that a call may use in addition to its operands.
const CALL_BYTES_MAX: usize = 32 << 20;

/// Returns the values that calls are made with. Each is the largest of its kind that a limit admits, or above it.
fn operands() -> Vec<(&'static str, Value)> {
    let distinct_texts: Vec<String> = (0..1_200).map(|at| format!("{at:0>900}")).collect();
    let nested = (0..90).fold(json!(vec![0; 10_000]), |inner, _| json!([inner]));
    let map = (0..20_000).map(|at| (at.to_string(), json!(at)));
    let address = format!(
        "https://{}/?{}",
        "a.".repeat(100_000),
        "b=c&".repeat(100_000)
    );
    vec![
        ("text", json!("a".repeat(2_000_000))),
        ("small_text", json!("ab".repeat(20_000))),
        ("label", json!("a".repeat(63))),
        ("address", json!(address)),
        ("numbers", json!((0..60_000).collect::<Vec<_>>())),
        ("few_numbers", json!((0..2_000).rev().collect::<Vec<_>>())),
        ("many_numbers", json!((0..200_000).collect::<Vec<_>>())),
        ("distinct_texts", json!(distinct_texts)),
        ("maps", json!(vec![json!({"a": {"b": 1}}); 1_000])),
        ("nested", nested),
        ("map", map.collect::<serde_json::Map<_, _>>().into()),
        // Regular expressions and formats.
        ("exponential", json!("(a|b)*a(a|b){14}c")),
        ("repeated", json!("((a{0,100}){0,100}){0,100}")),
        ("words", json!(r"(\w{1,10}){1,4}c")),
        ("classes", json!(r"\pL".repeat(2_700))),
        ("sequence", json!("[^c]{1000}c")),
        ("brackets", json!("(".repeat(3_000))),
        ("empty", json!("")),
        ("exponents", json!("%.65000e".repeat(1_000))),
        ("decimals", json!("%d".repeat(5_000))),
    ]
}

/// The operands that are tried with every function, as the target and as an argument.
const EVERYWHERE: [&str; 4] = ["text", "numbers", "many_numbers", "map"];

/// Returns expressions that call `function` with hostile operands.
fn calls(function: &str) -> Vec<String> {
    let mut calls: Vec<String> = match function {
        "lists.range" => [1, 40_000, 100_000_000_000, i64::MAX]
            .map(|count| format!("lists.range({count})"))
            .into(),
        "format" => [
            "'%.60000f'.format([1.0])",
            "'%.1000000000f'.format([1.0])",
            "exponents.format(numbers)",
            "decimals.format(numbers)",
            "'%s%s'.format([text, text])",
            "'%s'.format([map])",
        ]
        .map(str::to_owned)
        .into(),
        "matches" | "find" | "findAll" => [
            "exponential",
            "repeated",
            "words",
            "classes",
            "sequence",
            "brackets",
            "empty",
        ]
        .iter()
        .flat_map(|regex| {
            ["text", "small_text", "label"].map(|on| format!("{on}.{function}({regex})"))
        })
        .collect(),
        "distinct" | "sum" | "sort" => ["few_numbers", "distinct_texts", "maps"]
            .map(|on| format!("{on}.{function}()"))
            .into(),
        "sets.contains" | "sets.equivalent" | "sets.intersects" => ["few_numbers", "maps"]
            .map(|list| format!("{function}({list}, {list})"))
            .into(),
        "flatten" => vec!["nested.flatten(1000000000)".to_owned()],
        "join" => vec!["numbers.join(label)".to_owned()],
        "replace" | "split" => ["text", "small_text", "label"]
            .iter()
            .flat_map(|on| {
                ["''", "'a'"].map(|old| match function {
                    "split" => format!("{on}.split({old})"),
                    _ => format!("{on}.replace({old}, {on})"),
                })
            })
            .collect(),
        "validate" => ["dns1123Label", "qualifiedName", "uri", "byte", "labelValue"]
            .iter()
            .flat_map(|format| {
                ["text", "address"].map(|on| format!("format.{format}().validate({on})"))
            })
            .collect(),
        _ => Vec::new(),
    };
    calls.push(format!("{function}(few_numbers, label)"));
    if !function.contains('.') {
        calls.push(format!("numbers.{function}(label)"));
    }
    for name in EVERYWHERE {
        calls.push(format!("{function}({name})"));
        calls.push(format!("{function}({name}, {name})"));
        if !function.contains('.') {
            calls.push(format!("{name}.{function}()"));
            calls.push(format!("{name}.{function}(label)"));
            calls.push(format!("{name}.{function}({name})"));
        }
    }
    calls
}

#[test]
fn every_function_is_bounded_in_memory() {
    let operands = operands();
    let names: Vec<&str> = operands.iter().map(|(name, _)| *name).collect();
    let environment = Environment {
        variables: &names,
        ..Environment::default()
    };
    let far = Instant::now() + Duration::from_secs(3_600);
    let mut counted = Scope::counted(far);
    let mut uncounted = Scope::uncounted();
    for (name, value) in &operands {
        counted.set(name, value);
        uncounted.set(name, value);
    }
    let variables: Vec<(&str, &Value)> = operands
        .iter()
        .map(|(name, value)| (*name, value))
        .collect();
    let mut too_large = Vec::new();
    for function in FUNCTIONS {
        let (mut most, mut longest) = ((0, String::new()), (Duration::ZERO, String::new()));
        for text in calls(function) {
            let mut evaluate = |scope: &Scope<'_>, program: &Program| {
                let scope = scope.inner();
                let (before, start) = (ALLOCATOR.current_usage(), Instant::now());
                ALLOCATOR.reset_peak_usage();
                // Most calls are errors, of the function or of a limit.
                let result = scope.resolve(program);
                let used = ALLOCATOR.peak_usage().saturating_sub(before);
                drop(result);
                let took = start.elapsed();
                if used > most.0 {
                    most = (used, text.clone());
                }
                if took > longest.0 {
                    longest = (took, text.clone());
                }
            };
            evaluate(&counted, &Program::compile(&text, &environment).unwrap());
            // As for the rules of custom resources.
            let rule = Program::parse(&text, &Syntax::default()).unwrap();
            if estimate_cost(&rule, &variables) <= EXPRESSION_COST_MAX {
                evaluate(&uncounted, &rule);
            }
        }
        println!(
            "{function}: {} KiB {:.50}; {} ms {:.50}",
            most.0 >> 10,
            most.1,
            longest.0.as_millis(),
            longest.1
        );
        if most.0 > CALL_BYTES_MAX {
            too_large.push(format!("{function}: {} bytes: {:.200}", most.0, most.1));
        }
    }
    assert!(too_large.is_empty(), "{too_large:#?}");
}
