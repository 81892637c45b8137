//! The allocated fields of a service, by its type, and how an update retains them: addresses and node ports. `claims`
//! allocates them.

use serde_json::{Value, json};

use watchet_registry::fields::{Fields, is_unset, items, list, number, object, text};

/// Returns true if services of this type have cluster IPs, or are headless.
pub fn has_cluster_ip(spec: &Fields) -> bool {
    matches!(
        text(spec, "type"),
        "ClusterIP" | "NodePort" | "LoadBalancer" | ""
    )
}

/// Returns true if the ports of the service have node ports.
pub(crate) fn has_node_ports(spec: &Fields) -> bool {
    let allocated = spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => allocated,
        _ => false,
    }
}

/// Returns true if the service has a health check node port.
pub(crate) fn has_health_port(spec: &Fields) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Returns true if the service is reachable from outside of the cluster.
pub fn is_external(spec: &Fields) -> bool {
    match text(spec, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !list(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

/// Sets the absent one of `clusterIP` and `clusterIPs` from the other.
pub fn pair_addresses(spec: &mut Fields) {
    let first = list(spec, "clusterIPs").first().and_then(Value::as_str);
    match (text(spec, "clusterIP"), first) {
        ("", Some(first)) => {
            let first = first.to_owned();
            spec.insert("clusterIP".to_owned(), first.into());
        }
        ("", None) => {}
        (single, None) => {
            let ips = json!([single]);
            spec.insert("clusterIPs".to_owned(), ips);
        }
        _ => {}
    }
}

/// Returns true for a service without a selector whose cluster IP is `None`: a user writes its endpoints.
pub(crate) fn is_headless_without_selector(spec: &Fields) -> bool {
    text(spec, "clusterIP") == "None" && object(spec, "selector").is_none_or(Fields::is_empty)
}

/// Copies the allocated fields of `old` that `new` does not have, and removes those that the type of `new` does not use.
pub fn patch_allocated_values(old: &Fields, new: &mut Fields) {
    let (Some(old), Some(new)) = (
        object(old, "spec"),
        new.get_mut("spec").and_then(Value::as_object_mut),
    ) else {
        return;
    };
    sync_cluster_ips(old, new);
    drop_type_dependent_fields(old, new);
    if has_cluster_ip(old) && has_cluster_ip(new) {
        if is_unset(new, "clusterIP") && list(new, "clusterIPs").is_empty() {
            for member in ["clusterIP", "clusterIPs"] {
                old.get(member)
                    .cloned()
                    .map(|value| new.insert(member.to_owned(), value));
            }
        }
        // A client that omits `clusterIPs` and sends the present `clusterIP` means the present `clusterIPs`.
        if text(old, "clusterIP") == text(new, "clusterIP")
            && list(new, "clusterIPs").is_empty()
            && let Some(addresses) = old.get("clusterIPs").cloned()
        {
            new.insert("clusterIPs".to_owned(), addresses);
        }
    }
    if has_node_ports(old) && has_node_ports(new) {
        let key = |port: &Fields| (text(port, "protocol").to_owned(), number(port, "port"));
        for port in items(new, "ports") {
            let mut known = list(old, "ports").iter().filter_map(Value::as_object);
            let same = known.find(|known| key(known) == key(port));
            let given = same.and_then(|same| number(same, "nodePort"));
            if let Some(given) = given.filter(|_| number(port, "nodePort").unwrap_or(0) == 0) {
                port.insert("nodePort".to_owned(), given.into());
            }
        }
    }
    if has_health_port(old)
        && has_health_port(new)
        && number(new, "healthCheckNodePort").unwrap_or(0) == 0
        && let Some(port) = old.get("healthCheckNodePort").cloned()
    {
        new.insert("healthCheckNodePort".to_owned(), port);
    }
    pair_addresses(new);
}

/// Updates `clusterIPs` if a client has changed only `clusterIP`, as upstream.
fn sync_cluster_ips(old: &Fields, new: &mut Fields) {
    let single = (text(old, "clusterIP"), text(new, "clusterIP"));
    let same_list = list(old, "clusterIPs") == list(new, "clusterIPs");
    if single.0 == single.1 || !same_list || list(old, "clusterIPs").is_empty() {
        return;
    }
    match single.1 {
        "" => drop(new.remove("clusterIPs")),
        changed => {
            let ips = json!([changed]);
            new.insert("clusterIPs".to_owned(), ips);
        }
    }
}

/// Removes the fields that the new type does not use and that the client has left unchanged.
fn drop_type_dependent_fields(old: &Fields, new: &mut Fields) {
    let same = |member: &str, new: &Fields| old.get(member) == new.get(member);
    if has_cluster_ip(old) && !has_cluster_ip(new) && same("clusterIP", new) {
        for member in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            new.remove(member);
        }
    }
    if has_node_ports(old) && !has_node_ports(new) {
        let given: Vec<Option<i64>> = list(old, "ports")
            .iter()
            .filter_map(|port| Some(number(port.as_object()?, "nodePort")))
            .collect();
        for port in items(new, "ports") {
            if given.contains(&number(port, "nodePort")) {
                port.remove("nodePort");
            }
        }
    }
    if has_health_port(old) && !has_health_port(new) && same("healthCheckNodePort", new) {
        new.remove("healthCheckNodePort");
    }
    let is_load_balancer = |spec: &Fields| text(spec, "type") == "LoadBalancer";
    if is_load_balancer(old) && !is_load_balancer(new) {
        for member in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(member, new) {
                new.remove(member);
            }
        }
    }
    if is_external(old) && !is_external(new) && same("externalTrafficPolicy", new) {
        new.remove("externalTrafficPolicy");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(old: Value, new: Value) -> Value {
        let old = json!({ "spec": old });
        let mut new = json!({ "spec": new });
        patch_allocated_values(old.as_object().unwrap(), new.as_object_mut().unwrap());
        new["spec"].take()
    }

    #[test]
    fn update_retains_allocated_values_that_it_omits() {
        let old = json!({
            "type": "NodePort", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}],
        });
        let bare = json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]});
        let mut all = carried(old.clone(), bare);
        // `families` sets the families, because it has the ranges of the cluster.
        for member in ["ipFamilies", "ipFamilyPolicy"] {
            all[member] = old[member].clone();
        }
        assert_eq!(all, old);
        let changed =
            json!({"type": "NodePort", "clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.7"]});
        assert_eq!(
            carried(old.clone(), changed)["clusterIPs"],
            json!(["10.96.0.8"])
        );
        let mut inner = old.clone();
        inner["type"] = json!("ClusterIP");
        let inner = carried(old.clone(), inner);
        assert_eq!(inner["ports"], json!([{"port": 80, "protocol": "TCP"}]));
        assert_eq!(inner["clusterIP"], "10.96.0.7");
        let mut outside = old.clone();
        outside["type"] = json!("ExternalName");
        let outside = carried(old, outside);
        assert!(outside.get("clusterIP").is_none() && outside.get("ipFamilies").is_none());
    }
}
