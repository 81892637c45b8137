//! The functions that expressions can call. Each is registered as a wrapper that evaluates the operands, checks the cost
//! of the call against its limits and the deadline, and only then calls the implementation, which cannot be interrupted.

use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};

use crate::budget::{self, Budget};
use crate::environment::Library;
use crate::function_cost::{Cost, OperandSizes};
use crate::{messages, optional};

type Resolved = Result<CelValue, ExecutionError>;
type Function = Box<dyn Fn(&mut FunctionContext<'_, '_>) -> Resolved + Send + Sync>;

/// The functions whose cost is not that of reading their operands once.
const COSTS: [(&str, Cost); 20] = [
    ("contains", Cost::Search),
    ("distinct", Cost::OwnPairs),
    ("find", Cost::Regex),
    ("findAll", Cost::FindAll),
    ("flatten", Cost::Flatten),
    ("format", Cost::Format),
    ("indexOf", Cost::Search),
    ("join", Cost::Join),
    ("lastIndexOf", Cost::Search),
    ("lists.range", Cost::Range),
    ("matches", Cost::Regex),
    ("max", Cost::Sort),
    ("min", Cost::Sort),
    ("replace", Cost::Replace),
    ("sets.contains", Cost::Pairs),
    ("sets.equivalent", Cost::Pairs),
    ("sets.intersects", Cost::Pairs),
    ("sort", Cost::Sort),
    ("split", Cost::Split),
    ("sum", Cost::OwnPairs),
];

/// The names of all functions besides those of a [`Library`]. A function that is not listed cannot be called.
#[rustfmt::skip]
pub const FUNCTIONS: &[&str] = &[
    // The standard library.
    "bytes", "contains", "double", "duration", "endsWith", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
    "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "int", "matches", "max", "min",
    "size", "startsWith", "string", "timestamp", "uint",
    // Optionals.
    "hasValue", "optional.none", "optional.of", "optional.ofNonZeroValue", "or", "orValue", "value",
    // Strings and regular expressions.
    "charAt", "find", "findAll", "format", "indexOf", "join", "lastIndexOf", "lowerAscii", "replace", "split",
    "strings.quote", "substring", "trim", "upperAscii",
    // Lists and sets.
    "distinct", "first", "flatten", "isSorted", "last", "lists.range", "reverse", "sets.contains", "sets.equivalent",
    "sets.intersects", "slice", "sort", "sum",
    // Numbers.
    "math.abs", "math.bitAnd", "math.bitNot", "math.bitOr", "math.bitShiftLeft", "math.bitShiftRight", "math.bitXor",
    "math.ceil", "math.floor", "math.greatest", "math.isFinite", "math.isInf", "math.isNaN", "math.least", "math.round",
    "math.sign", "math.sqrt", "math.trunc",
    // Quantities and versions.
    "add", "asApproximateFloat", "asInteger", "compareTo", "isGreaterThan", "isInteger", "isLessThan", "isQuantity",
    "isSemver", "major", "minor", "patch", "quantity", "semver", "sign", "sub",
    // URLs and IP addresses.
    "cidr", "containsCIDR", "containsIP", "family", "getEscapedPath", "getHost", "getHostname", "getPort", "getQuery",
    "getScheme", "ip", "ip.isCanonical", "isCIDR", "isCIDRv4", "isCIDRv6", "isGlobalUnicast", "isIP", "isIPv4", "isIPv6",
    "isLinkLocalMulticast", "isLinkLocalUnicast", "isLoopback", "isURL", "isUnspecified", "masked", "prefixLength", "url",
    // Encodings and formats.
    "base64.decode", "base64.encode", "format.byte", "format.date", "format.datetime", "format.dns1035Label",
    "format.dns1035LabelPrefix", "format.dns1123Label", "format.dns1123LabelPrefix", "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix", "format.labelValue", "format.named", "format.qualifiedName", "format.uri",
    "format.uuid", "jsonpatch.escapeKey", "validate",
];

/// The functions that the evaluations of a scope can call. They are built once, because that takes a hundred times as long as
/// a short evaluation; scopes share them.
pub struct FunctionSet(Context<'static>);

/// The functions of [`FUNCTIONS`] for uncounted scopes.
static UNCOUNTED: LazyLock<FunctionSet> = LazyLock::new(|| FunctionSet(context(&[])));

/// The functions of [`FUNCTIONS`] for counted scopes.
static COUNTED: LazyLock<FunctionSet> = LazyLock::new(|| FunctionSet::new(&[]));

impl FunctionSet {
    /// Returns the functions of [`FUNCTIONS`] and of `libraries`, for counted scopes.
    pub fn new(libraries: &[&dyn Library]) -> Self {
        let mut context = context(libraries);
        budget::register(&mut context);
        optional::register(&mut context);
        Self(context)
    }

    pub(crate) fn uncounted() -> &'static Self {
        &UNCOUNTED
    }

    pub(crate) fn counted() -> &'static Self {
        &COUNTED
    }

    /// Returns a context that has the functions and no variables.
    pub(crate) fn context(&self) -> Context<'_> {
        self.0.new_inner_scope()
    }
}

impl std::fmt::Debug for FunctionSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionSet").finish_non_exhaustive()
    }
}

/// Returns a context with the functions of [`FUNCTIONS`] and of `libraries`, which check the limits of the budget.
fn context(libraries: &[&dyn Library]) -> Context<'static> {
    let mut implementations = Context::default().with_all();
    messages::register(&mut implementations);
    for library in libraries {
        library.register(&mut implementations);
    }
    let implementations = Arc::new(implementations);
    let mut context = Context::empty();
    let of_libraries = libraries.iter().flat_map(|library| library.functions());
    for name in FUNCTIONS.iter().chain(of_libraries) {
        let implementations = implementations.clone();
        let function: Function = Box::new(move |called| call(name, called, &implementations));
        context.add_function(name, function);
    }
    context
}

/// Calls the function `name` with the operands of `called`.
fn call(
    name: &str,
    called: &mut FunctionContext<'_, '_>,
    implementations: &Context<'static>,
) -> Resolved {
    let mut sizes = OperandSizes::default();
    if let Some(this) = &called.this {
        sizes.add(this)?;
    }
    let mut arguments = Vec::with_capacity(called.args.len());
    for argument in called.args {
        let argument = called.ptx.resolve(argument)?;
        sizes.add(&argument)?;
        arguments.push(argument);
    }
    let operands: Vec<&CelValue> = called.this.iter().chain(&arguments).collect();
    let cost = COSTS.iter().find(|(costly, _)| *costly == name);
    let cost = cost.map_or(Cost::Linear, |(_, cost)| *cost);
    cost.check(&operands, &sizes)?;
    if called.this.is_none() && cost != Cost::Linear && !arguments.is_empty() {
        // Without a target some implementations use the first argument as the target and as the first argument.
        sizes.repeat_first();
        let operands: Vec<&CelValue> = arguments.iter().take(1).chain(&arguments).collect();
        cost.check(&operands, &sizes)?;
    }
    Budget::current()?.check_deadline()?;
    // The operands are evaluated, so the implementation receives them as variables.
    let mut scope = implementations.new_inner_scope();
    let mut pass = |name: String, value: CelValue| {
        scope.add_variable_from_value(name.clone(), value);
        IdedExpr {
            id: 0,
            expr: Expr::Ident(name),
        }
    };
    let target = called.this.take().map(|this| pass("this".to_owned(), this));
    let arguments = arguments.into_iter().enumerate();
    let args = arguments.map(|(at, value)| pass(format!("argument{at}"), value));
    let args = args.collect();
    let expression = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: target.map(Box::new),
            args,
        }),
    };
    scope.resolve(&expression)
}
