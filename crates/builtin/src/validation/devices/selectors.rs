//! Validates the CEL expressions that select devices. Schedulers evaluate them; here they are compiled only.

use std::sync::LazyLock;

use super::{ITEMS_MAX, limited};
use watchet_cel::{CompileError, Environment, Field, Program};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, object, text};

/// The maximum length of an expression.
const EXPRESSION_BYTES_MAX: usize = 10 << 10;
/// The maximum size of the expressions of an object that are compiled, and the minimum size that each counts as. More
/// expressions are not checked.
const COMPILED_BYTES_MAX: usize = 256 << 10;
const COMPILED_BYTES_MIN: usize = 256;

const DEVICE: &str = "device";
static DEVICE_FIELDS: LazyLock<[Field; 4]> = LazyLock::new(|| {
    let fields = [
        ("allowMultipleAllocations", Some("bool")),
        ("attributes", None),
        ("capacity", None),
        ("driver", Some("string")),
    ];
    fields.map(|(name, output_type)| Field {
        name: name.to_owned(),
        output_type: output_type.map(str::to_owned),
    })
});

/// The functions and macros that the compiler does not know: those of types and of optional values, `cel.bind`, `sortBy`, and macros
/// with two variables. Of an expression that uses one, no problem is reported.
const UNSUPPORTED: [&str; 16] = [
    "all",
    "bind",
    "bool",
    "dyn",
    "exists",
    "existsOne",
    "exists_one",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "type",
    "unwrap",
    "unwrapOpt",
];

/// The validation of the selectors of an object.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    /// The size of the expressions that are compiled so far.
    compiled_bytes: usize,
}

impl Selectors {
    /// Validates `selectors`, a member of the object at `at`.
    pub(super) fn validate(&mut self, fields: &Fields, at: &Path<'_>, causes: &mut Causes) {
        let at = at.member("selectors");
        for (index, selector) in limited(fields, "selectors", ITEMS_MAX, &at, causes) {
            let at = at.item(index);
            let at = at.member("cel");
            match object(selector, "cel").map(|cel| text(cel, "expression")) {
                None => causes.required(&at, ""),
                Some(long) if long.len() > EXPRESSION_BYTES_MAX => {
                    causes.too_long(&at.member("expression"), EXPRESSION_BYTES_MAX);
                }
                Some(expression) => self.compile(expression, &at.member("expression"), causes),
            }
        }
    }

    fn compile(&mut self, expression: &str, at: &Path<'_>, causes: &mut Causes) {
        self.compiled_bytes += expression.len().max(COMPILED_BYTES_MIN);
        if self.compiled_bytes > COMPILED_BYTES_MAX || causes.is_full() {
            return;
        }
        if let Err(why) = compile(expression) {
            causes.invalid(at, expression, &why);
        }
    }
}

/// Returns what is wrong with an expression, in upstream's words. Types are not checked, except that of the result if the
/// syntax determines it.
fn compile(expression: &str) -> Result<(), String> {
    let environment = Environment {
        variables: &[DEVICE],
        fields: &[(DEVICE, &*DEVICE_FIELDS)],
        ..Environment::default()
    };
    let program = match Program::compile(expression, &environment) {
        Ok(program) => program,
        Err(CompileError::Check(problems)) if has_unsupported(&problems) => return Ok(()),
        Err(error) => return Err(format!("compilation failed: {error}")),
    };
    match program.output_type() {
        None | Some("bool" | "dyn") => Ok(()),
        Some(other) => Err(format!(
            "must evaluate to bool or the unknown type, not {other}"
        )),
    }
}

/// Returns true if one of the problems of an expression is a function that cel-go has and the compiler has not.
fn has_unsupported(problems: &str) -> bool {
    let mut all = UNSUPPORTED.iter();
    all.any(|name| problems.contains(&format!("undeclared reference to '{name}'")))
}
