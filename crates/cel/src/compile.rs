//! Compiling: what the parser does not check (names, what the evaluator cannot do), and the rewriting that
//! makes an expression count what it costs.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::operators::{ADD, INDEX, OPT_INDEX, OPT_SELECT};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr,
};
use kube_cel::cel::{Context, ExecutionError};
use tokio::time::Instant;

use super::CompileError;
use super::authorizer::{self, AUTHORIZER, OF_REQUEST, REQUEST_RESOURCE};
use super::budget::{Budget, FACTOR, SIZED, SMALL, STEP};
use super::objects;
use super::optional::OPTIONAL;
use super::parse::{parse, shortened};

/// How many problems of an expression are told.
const PROBLEMS_MAX: usize = 10;

/// The variable whose fields are the composed variables.
pub(super) const VARIABLES: &str = "variables";

pub(super) fn compile(
    text: &str,
    variables: &[&str],
) -> Result<(IdedExpr, BTreeSet<String>), CompileError> {
    let parsed = parse(text).map_err(|error| CompileError(error.to_string()))?;
    compile_parsed(parsed, variables, false)
}

/// Compiles an expression that has been parsed; `has_messages` if there are the types of mutations.
pub(super) fn compile_parsed(
    mut parsed: IdedExpr,
    variables: &[&str],
    has_messages: bool,
) -> Result<(IdedExpr, BTreeSet<String>), CompileError> {
    let mut pass = Pass {
        functions: functions(),
        has_messages,
        bound: variables.iter().map(|name| (*name).to_owned()).collect(),
        composed: BTreeSet::new(),
        problems: Vec::new(),
    };
    pass.walk(&mut parsed);
    match pass.problems.is_empty() {
        true => Ok((parsed, pass.composed)),
        false => Err(CompileError(shortened(&pass.problems.join("\n")))),
    }
}

fn functions() -> Context<'static> {
    let mut functions = Context::default().with_all();
    let budget = Arc::new(Budget::new(Instant::now()));
    authorizer::register(&mut functions, &budget);
    functions
}

struct Pass {
    functions: Context<'static>,
    /// Whether there are the types of mutations.
    has_messages: bool,
    /// Which names have a value here.
    bound: Vec<String>,
    composed: BTreeSet<String>,
    problems: Vec<String>,
}

impl Pass {
    fn walk(&mut self, expression: &mut IdedExpr) {
        if let Expr::Struct(message) = &mut expression.expr
            && self.has_messages
        {
            match objects::map_of(std::mem::take(message)) {
                Ok(map) => expression.expr = map,
                Err(problem) => return self.problem(problem),
            }
        }
        match &mut expression.expr {
            Expr::Unspecified => self.problem("ERROR: it is incomplete".to_owned()),
            Expr::Struct(made) => {
                let problem = format!("ERROR: undeclared reference to '{}'", made.type_name);
                self.problem(problem);
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
        name_request_resource(expression);
        make_optional(expression);
        if makes_much(&expression.expr) {
            wrap(expression, SIZED);
        }
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
        if matches!(&select.operand.expr, Expr::Ident(name) if name == VARIABLES) {
            self.composed.insert(select.field.clone());
        }
        self.walk(&mut select.operand);
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
                wrap(target, FACTOR);
            }
            call.args
                .iter_mut()
                .for_each(|argument| wrap(argument, SMALL));
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
        wrap(&mut folded.loop_cond, STEP);
    }

    /// Whether there is such a function: calling it without arguments fails in another way then.
    fn is_function(&self, name: &str) -> bool {
        let call = plain(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args: Vec::new(),
        }));
        let called = self.functions.resolve(&call);
        !matches!(called, Err(ExecutionError::UndeclaredReference(missing)) if *missing == name)
    }
}

/// `authorizer.requestResource` is a variable of its own.
fn name_request_resource(expression: &mut IdedExpr) {
    if let Expr::Select(select) = &expression.expr
        && select.field == REQUEST_RESOURCE
        && matches!(&select.operand.expr, Expr::Ident(name) if name == AUTHORIZER)
    {
        *expression = plain(Expr::Ident(OF_REQUEST.to_owned()));
    }
}

/// Has an optional selection, and whatever is selected from what it found, done by our function.
fn make_optional(expression: &mut IdedExpr) {
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

/// Whether evaluating it can make a value larger than those that it is made of.
fn makes_much(expression: &Expr) -> bool {
    match expression {
        Expr::List(list) => {
            list.elements.len() > 1 && list.elements.iter().any(|item| !is_literal(item))
        }
        Expr::Map(map) => !map.entries.is_empty(),
        Expr::Call(call) if call.func_name == ADD => match call.args.first().map(|a| &a.expr) {
            // A macro adds one element to its result: what counts is the element.
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

/// Makes `expression` the argument of `function`.
fn wrap(expression: &mut IdedExpr, function: &str) {
    let inner = std::mem::take(expression);
    *expression = plain(Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args: vec![inner],
    }));
}
