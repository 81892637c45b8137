//! Checks what the parser does not check (names, constructs that the evaluator does not support), and
//! instruments an expression so that its evaluation counts its cost.

use std::collections::BTreeSet;

use kube_cel::cel::ExecutionError;
use kube_cel::cel::common::ast::operators::{ADD, INDEX, OPT_INDEX, OPT_SELECT};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr,
    StructExpr,
};

use crate::budget::{COUNT_BYTES, COUNT_STEP, LIMIT_FACTOR, LIMIT_REPLACED};
use crate::environment::Environment;
use crate::error::CompileError;
use crate::functions::FunctionSet;
use crate::messages;
use crate::optional::OPTIONAL;
use crate::parse::truncated;
use crate::positions::undefined_field_error;

/// The maximum number of reported problems of an expression.
const PROBLEMS_MAX: usize = 10;

/// The variable whose fields are the composed variables.
pub const COMPOSED_VARIABLES: &str = "variables";

/// The result of [`compile`].
pub(crate) struct Compiled {
    /// The instrumented expression.
    pub(crate) expression: IdedExpr,
    pub(crate) composed_variables: BTreeSet<String>,
}

/// Compiles `parsed`, the expression of `text`.
pub(crate) fn compile(
    text: &str,
    mut parsed: IdedExpr,
    environment: &Environment<'_>,
) -> Result<Compiled, CompileError> {
    let mut pass = Pass {
        text,
        environment,
        bound: environment
            .variables
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        composed_variables: BTreeSet::new(),
        problems: Vec::new(),
    };
    pass.walk(&mut parsed);
    match pass.problems.is_empty() {
        true => Ok(Compiled {
            expression: parsed,
            composed_variables: pass.composed_variables,
        }),
        false => Err(CompileError::Check(truncated(&pass.problems.join("\n")))),
    }
}

struct Pass<'a> {
    text: &'a str,
    environment: &'a Environment<'a>,
    /// The variables in scope.
    bound: Vec<String>,
    composed_variables: BTreeSet<String>,
    problems: Vec<String>,
}

impl Pass<'_> {
    fn walk(&mut self, expression: &mut IdedExpr) {
        if let Expr::Struct(message) = &mut expression.expr {
            match self.message(std::mem::take(message)) {
                Ok(map) => expression.expr = map,
                Err(problem) => return self.problem(problem),
            }
        }
        match &mut expression.expr {
            // `message` has replaced every message by a map.
            Expr::Unspecified | Expr::Struct(_) => {
                self.problem("ERROR: it is incomplete".to_owned());
            }
            Expr::Literal(_) => {}
            Expr::Ident(name) => self.name(&name.clone()),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(ListExpr { elements, .. }) => {
                elements.iter_mut().for_each(|element| self.walk(element));
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    match &mut entry.expr {
                        EntryExpr::MapEntry(entry) => {
                            self.walk(&mut entry.key);
                            self.walk(&mut entry.value);
                        }
                        EntryExpr::StructField(_) => {
                            self.problem("ERROR: unsupported entry of a map".to_owned());
                        }
                    }
                }
            }
            Expr::Comprehension(folded) => self.comprehension(folded),
        }
        for library in self.environment.libraries {
            library.rewrite(expression);
        }
        rewrite_optional_selection(expression);
        if can_grow(&expression.expr) {
            wrap(expression, COUNT_BYTES);
        }
    }

    /// Returns the map for a message literal.
    fn message(&self, message: StructExpr) -> Result<Expr, String> {
        let Some(messages) = self.environment.messages else {
            return Err(format!(
                "ERROR: undeclared reference to '{}'",
                message.type_name
            ));
        };
        messages.check(&message)?;
        messages::map_of(message)
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    fn name(&mut self, name: &str) {
        if !self.bound.iter().any(|bound| bound == name) {
            let problem = format!("ERROR: undeclared reference to '{name}' (in container '')");
            self.problem(problem);
        }
    }

    fn select(&mut self, select: &mut SelectExpr) {
        if let Expr::Ident(name) = &select.operand.expr {
            if name == COMPOSED_VARIABLES {
                self.composed_variables.insert(select.field.clone());
            }
            if !self.has_field(name, &select.field) {
                self.problem(undefined_field_error(self.text, Some(name), &select.field));
            }
        }
        self.walk(&mut select.operand);
    }

    /// Returns false if the fields of the variable `name` are declared and `field` is not one of them.
    fn has_field(&self, name: &str, field: &str) -> bool {
        let is_local = || {
            let mut locals = self.bound.iter().skip(self.environment.variables.len());
            locals.any(|local| local == name)
        };
        let fields = self.environment.declared_fields(name);
        fields.is_none_or(|fields| fields.iter().any(|declared| declared.name == field))
            || is_local()
    }

    fn call(&mut self, call: &mut CallExpr) {
        let qualified = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(prefix)) => Some(format!("{prefix}.{}", call.func_name)),
            _ => None,
        };
        let is_qualified = qualified.is_some_and(|name| self.is_function(&name));
        if !is_qualified {
            if let Some(target) = call.target.as_deref_mut() {
                self.walk(target);
            }
            let is_operator = call
                .func_name
                .contains(|c: char| !c.is_alphanumeric() && c != '_')
                || call.func_name.starts_with("_") && call.func_name.ends_with("_");
            if !is_operator && !self.is_function(&call.func_name) {
                let problem = format!(
                    "ERROR: undeclared reference to '{}' (in container '')",
                    call.func_name
                );
                self.problem(problem);
            }
        }
        call.args
            .iter_mut()
            .for_each(|argument| self.walk(argument));
        if matches!(&*call.func_name, "replace" | "join") {
            if let Some(target) = call.target.as_deref_mut() {
                wrap(target, LIMIT_FACTOR);
            }
            call.args
                .iter_mut()
                .for_each(|argument| wrap(argument, LIMIT_REPLACED));
        }
    }

    fn comprehension(&mut self, folded: &mut ComprehensionExpr) {
        self.walk(&mut folded.iter_range);
        self.walk(&mut folded.accu_init);
        let outer = self.bound.len();
        self.bound.push(folded.iter_var.clone());
        self.bound.extend(folded.iter_var2.clone());
        self.bound.push(folded.accu_var.clone());
        self.walk(&mut folded.loop_cond);
        self.walk(&mut folded.loop_step);
        self.walk(&mut folded.result);
        self.bound.truncate(outer);
        wrap(&mut folded.loop_cond, COUNT_STEP);
    }

    /// Returns true if the function exists. A call without arguments then fails, but not as an undeclared reference.
    fn is_function(&self, name: &str) -> bool {
        let call = plain(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args: Vec::new(),
        }));
        let mut libraries = self.environment.libraries.iter();
        if libraries.any(|library| library.functions().contains(&name)) {
            return true;
        }
        // There is no evaluation and so no budget: a function that exists fails before it does anything.
        let called = FunctionSet::uncounted().context().resolve(&call);
        !matches!(called, Err(ExecutionError::UndeclaredReference(missing)) if *missing == name)
    }
}

/// Replaces optional selections, and selections from their results, by calls of [`OPTIONAL`].
fn rewrite_optional_selection(expression: &mut IdedExpr) {
    let of_optional = |container: &IdedExpr| matches!(&container.expr, Expr::Call(call) if call.func_name == OPTIONAL);
    match &mut expression.expr {
        Expr::Call(call) => {
            let name = &*call.func_name;
            let selects = name == OPT_SELECT || name == OPT_INDEX;
            if selects || (name == INDEX && call.args.first().is_some_and(of_optional)) {
                call.func_name = OPTIONAL.to_owned();
            }
        }
        Expr::Select(select) if of_optional(&select.operand) && !select.test => {
            let field = std::mem::take(&mut select.field);
            let field = plain(Expr::Literal(LiteralValue::String(field.as_str().into())));
            let operand = std::mem::take(&mut *select.operand);
            *expression = plain(Expr::Call(CallExpr {
                func_name: OPTIONAL.to_owned(),
                target: None,
                args: vec![operand, field],
            }));
        }
        _ => {}
    }
}

/// Returns true if the value of the expression can be larger than its operands.
fn can_grow(expression: &Expr) -> bool {
    match expression {
        Expr::List(list) => {
            list.elements.len() > 1 && list.elements.iter().any(|item| !is_literal(item))
        }
        Expr::Map(map) => !map.entries.is_empty(),
        Expr::Call(call) if call.func_name == ADD => match call.args.first().map(|a| &a.expr) {
            // Each step of a macro adds one element to its result, so only the element counts.
            Some(Expr::Ident(name)) => !name.starts_with('@'),
            Some(Expr::Literal(_)) => call.args.iter().any(|a| !is_literal(a)),
            _ => true,
        },
        Expr::Call(call) => matches!(&*call.func_name, "replace" | "join" | "format"),
        _ => false,
    }
}

fn is_literal(expression: &IdedExpr) -> bool {
    matches!(expression.expr, Expr::Literal(_))
}

fn plain(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

/// Replaces `expression` by a call of `function` with it as the argument.
fn wrap(expression: &mut IdedExpr, function: &str) {
    let inner = std::mem::take(expression);
    *expression = plain(Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args: vec![inner],
    }));
}
