//! Printers of ingresses, ingress classes, endpoints, network policies and addresses. Services are in `core`.

use serde_json::Value;

use super::cells::{
    at, balancer_addresses, created, items, joined, name, number, selector, text, text_or,
};
use super::printer::{Fields, Printer};
use watchet_registry::table_columns::{AGE, NAME, TableColumn};

/// The maximum number of addresses, hosts or ports in a cell.
const SHOWN_MAX: usize = 3;

pub(super) const INGRESSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Class", "Which controller is to serve it."),
        TableColumn::text("Hosts", "For which hosts it is."),
        TableColumn::text("Address", "Where it is reached."),
        TableColumn::text("Ports", "On which ports it is reached."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let tls = !items(object, "spec.tls").is_empty();
        vec![
            name(object),
            text_or(object, "spec.ingressClassName", "<none>").into(),
            hosts(object).into(),
            balancer_addresses(object).into(),
            if tls { "80, 443" } else { "80" }.into(),
            created(object, now),
        ]
    },
};

/// A rule without a host counts among the hosts that are not shown, as upstream.
fn hosts(object: &Value) -> String {
    let rules = items(object, "spec.rules");
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN_MAX;
        let host = text(rule, "host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => {
            format!("{} + {} more...", shown.join(","), rules.len() - SHOWN_MAX)
        }
    }
}

pub(super) const INGRESS_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Controller", "Which controller serves the class."),
        TableColumn::text("Parameters", "Where that finds more settings."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let parameters = at(object, "spec.parameters");
        let (kind, of) = (text(parameters, "kind"), text(parameters, "name"));
        let shown = match (parameters.is_null(), text(parameters, "apiGroup")) {
            (true, _) => "<none>".to_owned(),
            (false, "") => format!("{kind}/{of}"),
            (false, group) => format!("{kind}.{group}/{of}"),
        };
        let default =
            &object["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"];
        let mark = if default == "true" { " (default)" } else { "" };
        vec![
            format!("{}{mark}", text(object, "metadata.name")).into(),
            text(object, "spec.controller").into(),
            shown.into(),
            created(object, now),
        ]
    },
};

pub(super) const ENDPOINTS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Endpoints", "Addresses with ports."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let subsets = items(object, "subsets");
        let all = subsets.iter().flat_map(|subset| {
            let addresses = items(subset, "addresses").iter().map(|a| text(a, "ip"));
            let ports = items(subset, "ports");
            let with = |port: &'_ Value| {
                let port = number(port, "port");
                let joined = addresses.clone().map(move |ip| host_port(ip, port));
                joined.collect::<Vec<_>>()
            };
            match ports.is_empty() {
                true => addresses.clone().map(str::to_owned).collect(),
                false => ports.iter().flat_map(with).collect::<Vec<_>>(),
            }
        });
        let shown = match subsets.is_empty() {
            true => "<none>".to_owned(),
            false => some(all, ""),
        };
        vec![name(object), shown.into(), created(object, now)]
    },
};

fn host_port(host: &str, port: i64) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Returns the first few items and the number of the others; `none` if there are no items.
fn some(all: impl Iterator<Item = String>, none: &str) -> String {
    let mut all = all.peekable();
    let mut shown = Vec::new();
    while shown.len() < SHOWN_MAX
        && let Some(one) = all.next()
    {
        shown.push(one);
    }
    match (shown.is_empty(), all.count()) {
        (true, _) => none.to_owned(),
        (false, 0) => shown.join(","),
        (false, more) => format!("{} + {more} more...", shown.join(",")),
    }
}

pub(super) const ENDPOINT_SLICES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("AddressType", "Of which kind the addresses are."),
        TableColumn::text("Ports", "Of each address."),
        TableColumn::text("Endpoints", "The addresses."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let port = |port: &Value| match port["port"].as_i64() {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        };
        let endpoints = items(object, "endpoints").iter();
        let addresses = endpoints.flat_map(|endpoint| items(endpoint, "addresses"));
        let addresses = addresses.map(|address| address.as_str().unwrap_or_default().to_owned());
        vec![
            name(object),
            text(object, "addressType").into(),
            some(items(object, "ports").iter().map(port), "<unset>").into(),
            some(addresses, "<unset>").into(),
            created(object, now),
        ]
    },
};

pub(super) const NETWORK_POLICIES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Pod-Selector", "For which pods it is, by their labels."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let pods = selector(at(object, "spec.podSelector")).into();
        vec![name(object), pods, created(object, now)]
    },
};

pub(super) const SERVICE_CIDRS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("CIDRs", "From which services get addresses."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let cidrs = items(object, "spec.cidrs").iter();
        let cidrs: Vec<&str> = cidrs.filter_map(Value::as_str).collect();
        vec![name(object), cidrs.join(",").into(), created(object, now)]
    },
};

pub(super) const IP_ADDRESSES: Printer = Printer {
    columns: &[NAME, TableColumn::text("ParentRef", "Whose address it is.")],
    fields: Fields::AllButManaged,
    cells: |object, _| {
        let parent = at(object, "spec.parentRef");
        let resource = [text(parent, "resource"), text(parent, "group")];
        let resource = resource.into_iter().filter(|part| !part.is_empty());
        let resource = resource.collect::<Vec<_>>().join(".").to_lowercase();
        let parts = [&*resource, text(parent, "namespace"), text(parent, "name")];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let shown = parts.collect::<Vec<_>>().join("/");
        vec![name(object), joined([&*shown]).into()]
    },
};
