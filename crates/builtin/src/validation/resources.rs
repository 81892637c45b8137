//! Validates the names and quantities of resources.

use super::text as rules;
use super::text::NOT_NEGATIVE;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object};
use watchet_schema::Quantity;

/// The limits of the number of objects.
pub(super) const COUNTS: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// The limits of compute resources, which most scopes of pods permit.
pub(super) const OF_PODS: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];

/// Other resources that a quota can limit.
const OTHERS: [&str; 4] = [
    "ephemeral-storage",
    "limits.ephemeral-storage",
    "requests.ephemeral-storage",
    "requests.storage",
];

/// Returns true if a quota can limit this resource by a name without a domain.
pub(super) fn is_standard(name: &str) -> bool {
    let unprefixed = name.strip_prefix("requests.").unwrap_or(name);
    let lists = [&COUNTS[..], &OF_PODS, &OTHERS];
    lists.iter().any(|names| names.contains(&name)) || unprefixed.starts_with("hugepages-")
}

/// Returns the quantity in a member, which is a string or a number.
pub(super) fn quantity(fields: &Fields, member: &str) -> Option<Quantity> {
    Quantity::read(fields.get(member)?)
}

/// Validates `limits` and `requests` of a container.
pub(super) fn requirements(given: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let limits = object(given, "limits");
    if let Some(limits) = limits {
        amounts(limits, &at.member("limits"), causes);
    }
    let Some(requests) = object(given, "requests") else {
        return;
    };
    let at = at.member("requests");
    amounts(requests, &at, causes);
    for name in requests.keys() {
        let limit = limits.and_then(|limits| quantity(limits, name));
        let (Some(request), Some(limit)) = (quantity(requests, name), limit) else {
            continue;
        };
        // Other resources cannot be overcommitted: the request must equal the limit.
        let shared = matches!(&**name, "cpu" | "memory" | "ephemeral-storage");
        if !shared && request != limit {
            let why = format!("must be equal to {name} limit of {limit}");
            causes.invalid(&at, request.to_string(), &why);
        } else if request > limit {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            causes.invalid(&at, request.to_string(), &why);
        }
    }
}

/// Validates pod-level `resources`: the requests of all containers together, and the limit of each container, must not
/// exceed them.
pub(super) fn pod_level_resources(
    spec: &Fields,
    given: &Fields,
    at: &Path<'_>,
    causes: &mut Causes,
) {
    requirements(given, at, causes);
    for kind in ["requests", "limits"] {
        let Some(amounts) = object(given, kind) else {
            continue;
        };
        let at = at.member(kind);
        for name in amounts.keys() {
            if !matches!(&**name, "cpu" | "memory") && !name.starts_with("hugepages-") {
                causes.not_supported(
                    &at.key(name),
                    name.as_str(),
                    &["cpu", "hugepages-", "memory"],
                );
                continue;
            }
            let Some(own) = quantity(amounts, name) else {
                continue;
            };
            let mut of_containers = list(spec, "containers").iter().filter_map(|container| {
                let amounts = container.get("resources")?.get(kind)?.as_object()?;
                quantity(amounts, name)
            });
            if kind == "requests" {
                let all = of_containers.reduce(|sum, one| sum + one);
                if let Some(all) = all.filter(|all| *all > own) {
                    let why = format!(
                        "must be greater than or equal to aggregate container requests of {all}"
                    );
                    causes.invalid(&at.key(name), own.to_string(), &why);
                }
            } else if let Some(more) = of_containers.find(|one| *one > own) {
                let why = format!("must be greater than or equal to container limits of {more}");
                causes.invalid(&at.key(name), own.to_string(), &why);
            }
        }
    }
}

fn amounts(amounts: &Fields, at: &Path<'_>, causes: &mut Causes) {
    for name in amounts.keys() {
        if causes.is_full() {
            return;
        }
        let at = at.key(name);
        container_resource(name, &at, causes);
        amount(amounts, name, &at, causes);
        let whole = quantity(amounts, name).is_none_or(|amount| amount.is_whole());
        if name.contains('/') && !whole {
            let shown = quantity(amounts, name).map_or(String::new(), |q| q.to_string());
            causes.invalid(&at, shown, "must be an integer");
        }
    }
}

/// Returns true if a resource belongs to Kubernetes; the name of any other has the domain of its vendor.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true if the name is that of a vendor's resource, which a quota can limit too.
pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && rules::qualified(&format!("requests.{name}")).is_empty()
}

/// Returns true if requests and limits of a resource may differ.
pub(super) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// Validates the name of a resource that a container can request.
pub(super) fn container_resource(name: &str, at: &Path<'_>, causes: &mut Causes) {
    resource(name, at, causes);
    let is_standard =
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !name.contains('/') && !is_standard {
        causes.invalid(at, name, "must be a standard resource for containers");
    } else if !is_native(name) && !is_extended(name) {
        let why = "doesn't follow extended resource name standard";
        causes.invalid(at, name, why);
    }
}

/// Validates the name of any resource, also of those that only a quota limits.
pub(super) fn resource(name: &str, at: &Path<'_>, causes: &mut Causes) {
    let problems = rules::qualified(name);
    let is_qualified = problems.is_empty();
    causes.invalid_each(at, name, problems);
    if is_qualified && !name.contains('/') && name != "storage" && !is_standard(name) {
        let why = "must be a standard resource type or fully qualified";
        causes.invalid(at, name, why);
    }
}

/// Validates a quantity that must be greater than zero.
pub(super) fn positive_amount(fields: &Fields, member: &str, at: &Path<'_>, causes: &mut Causes) {
    match quantity(fields, member) {
        None => amount(fields, member, at, causes),
        Some(amount) if amount.is_negative() || amount.is_zero() => {
            causes.invalid(at, amount.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
}

/// Validates a quantity; the error of an invalid one has the message of upstream's decoder.
pub(super) fn amount(fields: &Fields, member: &str, at: &Path<'_>, causes: &mut Causes) {
    match quantity(fields, member) {
        None => {
            let why = "quantities must match the regular expression \
                       '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
            causes.invalid(at, fields[member].clone(), why);
        }
        Some(amount) if amount.is_negative() => {
            causes.invalid(at, amount.to_string(), NOT_NEGATIVE);
        }
        Some(_) => {}
    }
}
