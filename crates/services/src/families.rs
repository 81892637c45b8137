//! The IP families of a service, from its specification, its stored state and the ranges of the cluster (upstream's
//! `initIPFamilyFields`).

use serde_json::{Map, Value, json};

use super::ranges::{Family, ServiceRanges};
use super::spec::{has_cluster_ip, is_headless_without_selector};
use watchet_api::StatusCause;

const POLICY: &str = "spec.ipFamilyPolicy";
const SINGLE: &str = "SingleStack";
const PREFERRED: &str = "PreferDualStack";
const REQUIRED: &str = "RequireDualStack";

/// Returns the strings in a list of the spec.
fn texts<'a>(service: &'a Value, member: &str) -> Vec<&'a str> {
    let list = service["spec"][member].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

fn policy(service: &Value) -> &str {
    service["spec"]["ipFamilyPolicy"]
        .as_str()
        .unwrap_or_default()
}

fn spec(service: &Value) -> Option<&Map<String, Value>> {
    service["spec"].as_object()
}

/// Sets the families and the policy of `service`, whose addresses are well-formed. `old` is the stored service.
///
/// # Errors
/// The service requires families that the cluster does not have, or its fields contradict each other.
pub(super) fn fill(
    ranges: &ServiceRanges,
    old: Option<&Value>,
    service: &mut Value,
) -> Result<(), Vec<StatusCause>> {
    if !spec(service).is_some_and(has_cluster_ip)
        || old.is_some_and(|old| is_unchanged(old, service))
    {
        return Ok(());
    }
    let headless = spec(service).is_some_and(is_headless_without_selector);
    if policy(service).is_empty() {
        let before = old.map(policy).filter(|policy| !policy.is_empty());
        let chosen = match before {
            Some(before) => before.to_owned(),
            None if headless => REQUIRED.to_owned(),
            None => SINGLE.to_owned(),
        };
        service["spec"]["ipFamilyPolicy"] = chosen.into();
    }
    let mut causes = Vec::new();
    if let Some(old) = old {
        release(old, service, &mut causes);
    }
    check_single_stack(service, &mut causes);
    infer(ranges, service, &mut causes);
    if !causes.is_empty() {
        return Err(causes);
    }
    if !headless {
        causes = unknown(ranges, service);
        if !causes.is_empty() {
            return Err(causes);
        }
    }
    let families = texts(service, "ipFamilies");
    let mut families: Vec<String> = families.into_iter().map(str::to_owned).collect();
    if families.is_empty() {
        families.push(ranges.default_family().as_str().to_owned());
    }
    let is_dual_stack = policy(service) != SINGLE && (headless || ranges.is_dual());
    if let ([only], true) = (&families[..], is_dual_stack) {
        let other = match &**only {
            "IPv4" => Family::V6,
            _ => Family::V4,
        };
        families.push(other.as_str().to_owned());
    }
    service["spec"]["ipFamilies"] = json!(families);
    Ok(())
}

/// Returns true if the service prefers dual stack and is unchanged: its families remain as they are when the cluster
/// gains or loses a family.
fn is_unchanged(old: &Value, service: &Value) -> bool {
    policy(service) == PREFERRED
        && policy(old) == PREFERRED
        && old["spec"]["type"] == service["spec"]["type"]
        && ["clusterIPs", "ipFamilies"]
            .iter()
            .all(|member| texts(old, member) == texts(service, member))
}

/// Removes the second family and address of a service that changes to `SingleStack`. Reports a service that omits them
/// but has another policy.
fn release(old: &Value, service: &mut Value, causes: &mut Vec<StatusCause>) {
    for (member, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (before, now) = (texts(old, member), texts(service, member));
        if policy(service) == SINGLE {
            if before == now && now.len() > 1 {
                service["spec"][member] = json!([now[0]]);
            }
        } else if before.len() > now.len() && !now.is_empty() {
            let why = format!("must be 'SingleStack' to release the secondary {what}");
            causes.push(StatusCause::invalid(POLICY, policy(service), &why));
        }
    }
}

/// Reports several addresses or families of a service with the policy `SingleStack`.
fn check_single_stack(service: &Value, causes: &mut Vec<StatusCause>) {
    for (member, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if policy(service) == SINGLE && texts(service, member).len() == 2 {
            let why = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            );
            causes.push(StatusCause::invalid(POLICY, SINGLE, &why));
        }
    }
}

/// Adds to `ipFamilies` the families of the requested addresses.
fn infer(ranges: &ServiceRanges, service: &mut Value, causes: &mut Vec<StatusCause>) {
    let addresses = texts(service, "clusterIPs").into_iter().map(str::parse);
    let given: Vec<Family> = addresses.filter_map(Result::ok).map(Family::of).collect();
    let mut families: Vec<Value> = match service["spec"]["ipFamilies"].as_array() {
        Some(families) => families.clone(),
        None => Vec::new(),
    };
    for (index, family) in given.into_iter().enumerate().skip(families.len()) {
        if ranges.of(family).is_some() {
            families.push(family.as_str().into());
            continue;
        }
        let shown = service["spec"]["clusterIPs"].to_string();
        let why = format!("{} is not configured on this cluster", family.as_str());
        causes.push(StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: format!("Invalid value: {shown}: {why}"),
            field: format!("spec.clusterIPs[{index}]"),
        });
    }
    if !families.is_empty() {
        service["spec"]["ipFamilies"] = families.into();
    }
}

/// Returns a cause for each family that the cluster does not have.
fn unknown(ranges: &ServiceRanges, service: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if policy(service) == REQUIRED && !ranges.is_dual() {
        let why = "this cluster is not configured for dual-stack services";
        causes.push(StatusCause::invalid(POLICY, REQUIRED, why));
    }
    for (index, name) in texts(service, "ipFamilies").into_iter().enumerate() {
        let family = match name {
            "IPv4" => Family::V4,
            _ => Family::V6,
        };
        if ranges.of(family).is_none() {
            let field = format!("spec.ipFamilies[{index}]");
            let why = "not configured on this cluster";
            causes.push(StatusCause::invalid(&field, name, why));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "10.96.0.0/16";
    const BOTH: &str = "10.96.0.0/16,fd00::/108";

    fn filled(
        ranges: &str,
        old: Option<Value>,
        spec: Value,
    ) -> Result<(Value, Value, Value), Vec<String>> {
        let ranges = ServiceRanges::parse(ranges).unwrap();
        let wrap = |mut spec: Value| {
            spec["type"] = "ClusterIP".into();
            spec["selector"] = spec.get("selector").cloned().unwrap_or(json!({"a": "b"}));
            json!({ "spec": spec })
        };
        let mut service = wrap(spec);
        match fill(&ranges, old.map(wrap).as_ref(), &mut service) {
            Ok(()) => {
                let mut take = |member: &str| service["spec"][member].take();
                Ok((
                    take("ipFamilies"),
                    take("ipFamilyPolicy"),
                    take("clusterIPs"),
                ))
            }
            Err(causes) => {
                let texts = causes.into_iter();
                Err(texts
                    .map(|c| format!("{}: {}", c.field, c.message))
                    .collect())
            }
        }
    }

    #[test]
    fn unset_families_and_policy_follow_the_cluster() {
        let filled_in = |ranges, spec| {
            let (families, policy, _) = filled(ranges, None, spec).unwrap();
            (families, policy.as_str().unwrap().to_owned())
        };
        let of = |families: &[&str], policy: &str| (json!(families), policy.to_owned());
        assert_eq!(filled_in(V4, json!({})), of(&["IPv4"], SINGLE));
        assert_eq!(filled_in("fd00::/108", json!({})), of(&["IPv6"], SINGLE));
        assert_eq!(filled_in(BOTH, json!({})), of(&["IPv4"], SINGLE));
        let prefers = json!({"ipFamilyPolicy": PREFERRED});
        assert_eq!(filled_in(V4, prefers.clone()), of(&["IPv4"], PREFERRED));
        assert_eq!(filled_in(BOTH, prefers), of(&["IPv4", "IPv6"], PREFERRED));
        let second = json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": REQUIRED});
        assert_eq!(filled_in(BOTH, second), of(&["IPv6", "IPv4"], REQUIRED));
        let chosen = json!({"clusterIP": "fd00::7", "clusterIPs": ["fd00::7"]});
        assert_eq!(filled_in(BOTH, chosen), of(&["IPv6"], SINGLE));
        let without_selector = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {}});
        assert_eq!(
            filled_in(V4, without_selector),
            of(&["IPv4", "IPv6"], REQUIRED)
        );
        let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        assert_eq!(filled_in(BOTH, headless), of(&["IPv4"], SINGLE));
    }

    #[test]
    fn families_outside_of_the_cluster_are_rejected() {
        let refusals = |ranges, spec| filled(ranges, None, spec).unwrap_err();
        assert_eq!(
            refusals(V4, json!({"ipFamilyPolicy": REQUIRED})),
            [
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not \
              configured for dual-stack services"
            ]
        );
        assert_eq!(
            refusals(V4, json!({"ipFamilies": ["IPv6"]})),
            ["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"]
        );
        assert_eq!(
            refusals(
                V4,
                json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]})
            ),
            [
                "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this \
              cluster"
            ]
        );
        let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
        assert_eq!(
            refusals(BOTH, both),
            [
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
              'PreferDualStack' when multiple IP families are specified"
            ]
        );
    }

    #[test]
    fn a_service_can_add_and_remove_the_second_family() {
        let single = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": SINGLE});
        let mut wider = single.clone();
        wider["ipFamilyPolicy"] = json!(REQUIRED);
        let (families, ..) = filled(BOTH, Some(single), wider).unwrap();
        assert_eq!(families, json!(["IPv4", "IPv6"]));
        let both = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": REQUIRED});
        let mut narrower = both.clone();
        narrower["ipFamilyPolicy"] = json!(SINGLE);
        let (families, _, addresses) = filled(BOTH, Some(both.clone()), narrower).unwrap();
        assert_eq!(
            (families, addresses),
            (json!(["IPv4"]), json!(["10.96.0.9"]))
        );
        let mut fewer = both.clone();
        fewer["clusterIPs"] = json!(["10.96.0.9"]);
        let refusals = filled(BOTH, Some(both), fewer).unwrap_err();
        let why = "must be 'SingleStack' to release the secondary cluster IP";
        assert!(refusals[0].ends_with(why), "{refusals:?}");
    }

    /// As upstream, a service that requires a family which the cluster no longer has is rejected until it changes to single
    /// stack; one that prefers dual stack is unchanged.
    #[test]
    fn dual_stack_service_in_single_stack_cluster() {
        let of = |policy: &str| {
            json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"],
                "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": policy})
        };
        assert_eq!(
            filled(V4, Some(of(REQUIRED)), of(REQUIRED)).unwrap_err(),
            [
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not \
                 configured for dual-stack services",
                "spec.ipFamilies[1]: Invalid value: \"IPv6\": not configured on this cluster",
            ]
        );
        let (families, _, addresses) = filled(V4, Some(of(REQUIRED)), of(SINGLE)).unwrap();
        assert_eq!(
            (families, addresses),
            (json!(["IPv4"]), json!(["10.96.0.9"]))
        );
        let (families, _, addresses) = filled(V4, Some(of(PREFERRED)), of(PREFERRED)).unwrap();
        assert_eq!(
            (families, addresses),
            (json!(["IPv4", "IPv6"]), json!(["10.96.0.9", "fd00::9"]))
        );
    }
}
