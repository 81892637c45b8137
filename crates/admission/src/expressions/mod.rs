//! The CEL expressions of webhooks and policies: their environment, which adds the variable `authorizer` and the
//! message types of mutations to that of [`cel`](watchet_cel).

mod authorizer;
mod messages;

use std::sync::LazyLock;

use tokio::time::Instant;

use watchet_cel::{
    COMPOSED_VARIABLES, CompileError, Environment, Field, FunctionSet, Library, MessageTypes,
    Program, Scope,
};

use authorizer::AuthorizerLibrary;
pub(super) use authorizer::AuthorizerVariable;
use messages::MutationTypes;
pub(super) use messages::{MutationType, configuration, operations};

const LIBRARIES: [&dyn Library; 1] = [&AuthorizerLibrary];

static FUNCTIONS: LazyLock<FunctionSet> = LazyLock::new(|| FunctionSet::new(&LIBRARIES));

/// The names that an expression can use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) variables: &'a [&'a str],
    /// The composed variables (`variables.x`); `None` if any name is allowed.
    pub(super) composed: Option<&'a [Field]>,
}

impl<'a> Names<'a> {
    /// Returns these variables, with composed variables of any name.
    pub(super) fn of(variables: &'a [&'a str]) -> Self {
        Self {
            variables,
            composed: None,
        }
    }
}

/// Compiles an expression with these variables.
///
/// # Errors
/// See [`Program::compile`].
pub(super) fn compile(text: &str, variables: &[&str]) -> Result<Program, CompileError> {
    compile_with(text, Names::of(variables), None)
}

/// Compiles an expression of one of these types.
///
/// # Errors
/// The expression cannot be compiled, or its syntax determines another type; in upstream's words.
pub(super) fn compile_typed(
    text: &str,
    names: Names<'_>,
    types: &[&str],
) -> Result<Program, String> {
    let program = compile_with(text, names, None);
    let program = program.map_err(|error| format!("compilation failed: {error}"))?;
    match (program.output_type(), types) {
        (None, _) | (_, []) => Ok(program),
        (Some(output), types) if types.contains(&output) => Ok(program),
        (Some(output), [expected]) => Err(format!("must evaluate to {expected} but got {output}")),
        (Some(output), types) => Err(format!(
            "must evaluate to one of [{}] but got {output}",
            types.join(" ")
        )),
    }
}

fn compile_with(
    text: &str,
    names: Names<'_>,
    messages: Option<&dyn MessageTypes>,
) -> Result<Program, CompileError> {
    let fields: Vec<(&str, &[Field])> = names
        .composed
        .map(|composed| (COMPOSED_VARIABLES, composed))
        .into_iter()
        .collect();
    let environment = Environment {
        variables: names.variables,
        fields: &fields,
        libraries: &LIBRARIES,
        messages,
    };
    Program::compile(text, &environment)
}

/// Compiles the expression of a mutation.
///
/// # Errors
/// The expression cannot be compiled, or evaluates to another type; in upstream's words.
pub(super) fn compile_mutation(
    text: &str,
    names: Names<'_>,
    mutation: MutationType,
) -> Result<Program, String> {
    let program = compile_with(text, names, Some(&MutationTypes))
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
