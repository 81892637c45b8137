//! Validates the CEL expressions that select devices. Schedulers evaluate them; here they are compiled only.

use super::{ITEMS_MAX, limited};
use std::sync::LazyLock;

use watchet_cel::{Environment, Field, Program, Syntax, parse};
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
    // The compiler does not know the variables that this macro declares.
    if expression.contains("cel.bind") {
        let parsed = parse(expression, &Syntax::default());
        return parsed
            .map(|_| ())
            .map_err(|error| format!("compilation failed: {error}"));
    }
    let environment = Environment {
        variables: &[DEVICE],
        fields: &[(DEVICE, &*DEVICE_FIELDS)],
        ..Environment::default()
    };
    let program = Program::compile(expression, &environment);
    let program = program.map_err(|error| format!("compilation failed: {error}"))?;
    match program.output_type() {
        None | Some("bool" | "dyn") => Ok(()),
        Some(other) => Err(format!(
            "must evaluate to bool or the unknown type, not {other}"
        )),
    }
}
