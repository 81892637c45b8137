//! The CEL expressions of webhooks and policies: their environment, which adds the variable `authorizer` and the
//! message types of mutations to that of [`cel`](watchet_cel).

mod authorizer;
mod messages;

use std::sync::LazyLock;

use tokio::time::Instant;

use watchet_cel::{CompileError, Environment, FunctionSet, Library, Program, Scope};

use authorizer::AuthorizerLibrary;
pub(super) use authorizer::AuthorizerVariable;
use messages::MutationTypes;
pub(super) use messages::{MutationType, configuration, operations};

const LIBRARIES: [&dyn Library; 1] = [&AuthorizerLibrary];

static FUNCTIONS: LazyLock<FunctionSet> = LazyLock::new(|| FunctionSet::new(&LIBRARIES));

/// Compiles an expression with these variables.
///
/// # Errors
/// See [`Program::compile`].
pub(super) fn compile(text: &str, variables: &[&str]) -> Result<Program, CompileError> {
    let environment = Environment {
        variables,
        libraries: &LIBRARIES,
        ..Environment::default()
    };
    Program::compile(text, &environment)
}

/// Compiles the expression of a mutation.
///
/// # Errors
/// The expression cannot be compiled, or evaluates to another type; in upstream's words.
pub(super) fn compile_mutation(
    text: &str,
    variables: &[&str],
    mutation: MutationType,
) -> Result<Program, String> {
    let environment = Environment {
        variables,
        libraries: &LIBRARIES,
        messages: Some(&MutationTypes),
        ..Environment::default()
    };
    let program = Program::compile(text, &environment)
        .map_err(|error| format!("compilation failed: {error}"))?;
    let expected = mutation.cel_type();
    match program.output_type() {
        Some(output) if output != expected => {
            Err(format!("must evaluate to {expected} but got {output}"))
        }
        _ => Ok(program),
    }
}

/// Creates a scope for such expressions. No evaluation in it begins after `deadline`.
pub(super) fn new_scope(deadline: Instant) -> Scope<'static> {
    Scope::with_functions(&FUNCTIONS, deadline)
}
