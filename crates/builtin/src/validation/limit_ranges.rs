//! Validates LimitRanges.

use std::collections::{BTreeSet, HashSet};

use super::members::objects;
use super::resources;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};
use watchet_schema::Quantity;

const TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];

/// Members that only limits of containers and claims have.
const DEFAULTS: [&str; 2] = ["default", "defaultRequest"];

/// A comparison of two members with quantities of the same resource.
struct Order {
    lower: &'static str,
    upper: &'static str,
    /// The member that the error is about, and the one whose value it shows.
    field: &'static str,
    shown: &'static str,
    /// The names of both in the message.
    names: [&'static str; 2],
}

const fn order(
    [lower, upper]: [&'static str; 2],
    [field, shown]: [&'static str; 2],
    names: [&'static str; 2],
) -> Order {
    Order {
        lower,
        upper,
        field,
        shown,
        names,
    }
}

/// The comparisons in upstream's order, with the members and values that its errors have.
const ORDERS: [Order; 6] = [
    order(["min", "max"], ["min", "min"], ["min", "max"]),
    order(
        ["min", "defaultRequest"],
        ["defaultRequest", "defaultRequest"],
        ["min", "default request"],
    ),
    order(
        ["defaultRequest", "max"],
        ["defaultRequest", "defaultRequest"],
        ["default request", "max"],
    ),
    order(
        ["defaultRequest", "default"],
        ["defaultRequest", "defaultRequest"],
        ["default request", "default limit"],
    ),
    order(["min", "default"], ["default", "min"], ["min", "default"]),
    order(["default", "max"], ["default", "max"], ["default", "max"]),
];

pub(super) fn limit_range(range: &Fields, causes: &mut Causes) {
    let at = Path::Top("spec");
    let at = at.member("limits");
    let Some(spec) = object(range, "spec") else {
        return;
    };
    let mut types = HashSet::new();
    for (index, limit) in objects(list(spec, "limits")) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let kind = text(limit, "type");
        let problems = rules::qualified(kind);
        if problems.is_empty() && !kind.contains('/') && !TYPES.contains(&kind) {
            let why = "must be a standard limit type or fully qualified";
            causes.invalid(&at.member("type"), kind, why);
        }
        causes.invalid_each(&at.member("type"), kind, problems);
        if !types.insert(kind) {
            causes.duplicate(&at.member("type"), kind);
        }
        let compared = names(limit, kind, &at, causes);
        for name in compared {
            quantities(limit, kind, name, &at, causes);
        }
    }
}

/// Validates the names of the resources of a limit, and returns them.
fn names<'l>(
    limit: &'l Fields,
    kind: &str,
    at: &Path<'_>,
    causes: &mut Causes,
) -> BTreeSet<&'l str> {
    let mut all = BTreeSet::new();
    for member in ["max", "min", "default", "defaultRequest"] {
        let amounts = object(limit, member).filter(|amounts| !amounts.is_empty());
        if kind == "Pod" && DEFAULTS.contains(&member) {
            if amounts.is_some() {
                let why = "may not be specified when `type` is 'Pod'";
                causes.forbidden(&at.member(member), why);
            }
            continue;
        }
        all.extend(names_of(amounts, kind, &at.member(member), causes));
    }
    let has_storage =
        |member: &&str| object(limit, member).is_some_and(|m| m.contains_key("storage"));
    if kind == "PersistentVolumeClaim" && !["min", "max"].iter().any(has_storage) {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        // Upstream's path.
        causes.required(&at.member("limits"), why);
    }
    let member = "maxLimitRequestRatio";
    let ratios = object(limit, member);
    all.extend(names_of(ratios, kind, &at.member(member), causes));
    all
}

/// Validates the names of resources in one member of a limit, and returns them.
fn names_of<'l>(
    amounts: Option<&'l Fields>,
    kind: &str,
    at: &Path<'_>,
    causes: &mut Causes,
) -> impl Iterator<Item = &'l str> {
    for name in amounts.into_iter().flat_map(Fields::keys) {
        let at = at.key(name);
        match kind {
            "Container" | "Pod" => resources::container_resource(name, &at, causes),
            _ => resources::resource(name, &at, causes),
        }
    }
    amounts
        .into_iter()
        .flat_map(|amounts| amounts.keys().map(String::as_str))
}

/// Validates the quantities of one resource against each other.
fn quantities(limit: &Fields, kind: &str, name: &str, at: &Path<'_>, causes: &mut Causes) {
    let value = |member: &str| -> Option<Quantity> {
        let is_ignored = kind == "Pod" && DEFAULTS.contains(&member);
        let amounts = object(limit, member).filter(|_| !is_ignored)?;
        resources::quantity(amounts, name)
    };
    for order in &ORDERS {
        let (Some(less), Some(more)) = (value(order.lower), value(order.upper)) else {
            continue;
        };
        if less > more {
            let [lower, upper] = order.names;
            let why = format!("{lower} value {less} is greater than {upper} value {more}");
            let shown = if order.shown == order.lower {
                less
            } else {
                more
            };
            let at = at.member(order.field);
            causes.invalid(&at.key(name), shown.to_string(), &why);
        }
    }
    let at_ratio = at.member("maxLimitRequestRatio");
    if let Some(ratio) = value("maxLimitRequestRatio") {
        let bounds = value("min").zip(value("max"));
        max_ratio(&ratio, bounds, &at_ratio.key(name), causes);
    }
    if let (false, Some(limit), Some(request)) = (
        resources::is_overcommit_allowed(name),
        value("default"),
        value("defaultRequest"),
    ) && limit != request
    {
        let why =
            format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        let at = at.member("defaultRequest");
        causes.invalid(&at.key(name), request.to_string(), &why);
    }
}

/// Validates the maximum ratio of limit to request, which no pair of allowed values exceeds.
fn max_ratio(
    ratio: &Quantity,
    bounds: Option<(Quantity, Quantity)>,
    at: &Path<'_>,
    causes: &mut Causes,
) {
    // The greatest value whose thousandths are 64-bit.
    const EXACT_MAX: i64 = i64::MAX / 1000;
    let shown = ratio.to_string();
    if *ratio < Quantity::of_count(1) {
        let why = format!("ratio {shown} is less than 1");
        causes.invalid(at, &*shown, &why);
    }
    let Some((min, max)) = bounds else {
        return;
    };
    let all = [ratio, &min, &max];
    let is_exact = all.iter().all(|value| value.value() < EXACT_MAX);
    let number = |value: &Quantity| match is_exact {
        true => value.milli_value() as f64,
        false => value.value() as f64,
    };
    let [given, min, max] = all.map(number);
    let given = if is_exact { given / 1000.0 } else { given };
    let ratio_max = max / min;
    if given > ratio_max {
        let why = format!("ratio {shown} is greater than max/min = {ratio_max:.6}");
        causes.invalid(at, &*shown, &why);
    }
}
