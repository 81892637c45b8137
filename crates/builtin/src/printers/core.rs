//! Printers of nodes, services, config maps, secrets, namespaces and events. Workloads are in `workloads`.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{
    at, balancer_addresses, condition, created, items, joined, label_map, members, name, number,
    text, text_or,
};
use super::printer::{Fields, Printer};
use watchet_registry::age::{age, time};
use watchet_registry::table_columns::{AGE, NAME, NAME_DESCRIPTION, TableColumn};

pub(super) const NODES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Status", "Whether it is ready, and takes new pods."),
        TableColumn::text("Roles", "From its node-role labels."),
        AGE,
        TableColumn::text("Version", "Of its kubelet."),
        TableColumn::wide("Internal-IP", "Its first internal address."),
        TableColumn::wide("External-IP", "Its first external address."),
        TableColumn::wide("OS-Image", "Its operating system."),
        TableColumn::wide("Kernel-Version", "Its kernel."),
        TableColumn::wide(
            "Container-Runtime",
            "Its container runtime and that one's version.",
        ),
    ],
    fields: Fields::AllButManaged,
    cells: node,
};

pub(super) const SERVICES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Type", "How it is exposed."),
        TableColumn::text("Cluster-IP", "Its address inside the cluster."),
        TableColumn::text("External-IP", "Its addresses outside of it."),
        TableColumn::text("Port(s)", "Ports, with the node port if there is one."),
        AGE,
        TableColumn::wide("Selector", "Which pods it sends to, by their labels."),
    ],
    fields: Fields::AllButManaged,
    cells: service,
};

pub(super) const COMPONENT_STATUSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Status", "Status of the component conditions"),
        TableColumn::text("Message", "Message of the component conditions"),
        TableColumn::text("Error", "Error of the component conditions"),
    ],
    fields: Fields::AllButManaged,
    cells: |object, _| {
        let mut conditions = items(object, "conditions").iter();
        let healthy = conditions.find(|condition| condition["type"] == "Healthy");
        let status = match healthy {
            None => "Unknown",
            Some(condition) if condition["status"] == "True" => "Healthy",
            Some(_) => "Unhealthy",
        };
        let detail = |member| healthy.map_or("", |condition| text(condition, member));
        vec![
            name(object),
            status.into(),
            detail("message").into(),
            detail("error").into(),
        ]
    },
};

pub(super) const CONFIG_MAPS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Data", "How many entries it has."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let entries = members(object, "data") + members(object, "binaryData");
        vec![name(object), entries.into(), created(object, now)]
    },
};

pub(super) const SECRETS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Type", "What the data is meant for."),
        TableColumn::text("Data", "How many entries it has."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            text(object, "type").into(),
            members(object, "data").into(),
            created(object, now),
        ]
    },
};

pub(super) const NAMESPACES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Status", "Active, or Terminating."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            text(object, "status.phase").into(),
            created(object, now),
        ]
    },
};

pub(super) const EVENTS: Printer = Printer {
    columns: &[
        TableColumn::text("Last Seen", "When it was last seen."),
        TableColumn::text("Type", "Normal, or Warning."),
        TableColumn::text("Reason", "Why, in a word for programs."),
        TableColumn::text("Object", "What it is about."),
        TableColumn::wide("Subobject", "Which part of that."),
        TableColumn::wide("Source", "Who reports it."),
        TableColumn::text("Message", "What happened, for people."),
        TableColumn::wide("First Seen", "When it was first seen."),
        TableColumn::wide("Count", "How often it was seen."),
        TableColumn::column("Name", "string", "name", NAME_DESCRIPTION, 1),
    ],
    fields: Fields::AllButManaged,
    cells: event,
};

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match condition(object, "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(object, "spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        items(object, "status.addresses")
            .iter()
            .find(|a| a["type"] == kind)
            .map_or("<none>", |a| text_or(a, "address", "<none>"))
    };
    vec![
        name(object),
        status.into(),
        roles(object).into(),
        created(object, now),
        text(object, "status.nodeInfo.kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        text_or(object, "status.nodeInfo.osImage", "<unknown>").into(),
        kernel(object).into(),
        text_or(
            object,
            "status.nodeInfo.containerRuntimeVersion",
            "<unknown>",
        )
        .into(),
    ]
}

/// Returns the version of a node's kernel, with the architecture if it is known.
fn kernel(node: &Value) -> String {
    let version = text_or(node, "status.nodeInfo.kernelVersion", "<unknown>");
    match text(node, "status.nodeInfo.architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

fn roles(object: &Value) -> String {
    let labels = object["metadata"]["labels"].as_object();
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    joined(roles)
}

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(object, "spec.ports")
        .iter()
        .map(|port| {
            let protocol = text_or(port, "protocol", "TCP");
            match (number(port, "port"), number(port, "nodePort")) {
                (number, 0) => format!("{number}/{protocol}"),
                (number, node) => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    vec![
        name(object),
        service_type(object).into(),
        text_or(object, "spec.clusterIP", "<none>").into(),
        external_ips(object).into(),
        joined(ports.iter().map(String::as_str)).into(),
        created(object, now),
        label_map(at(object, "spec.selector")).into(),
    ]
}

fn service_type(object: &Value) -> &str {
    text_or(object, "spec.type", "ClusterIP")
}

fn external_ips(object: &Value) -> String {
    let own = items(object, "spec.externalIPs")
        .iter()
        .filter_map(Value::as_str);
    match service_type(object) {
        "ClusterIP" | "NodePort" => joined(own),
        "LoadBalancer" => {
            let balanced = balancer_addresses(object);
            let balanced = Some(&*balanced).filter(|b| !b.is_empty());
            match joined(balanced.into_iter().chain(own)) {
                none if none == "<none>" => "<pending>".to_owned(),
                some => some,
            }
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Prints an event in the representation of either group: each field is read under both of its names.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |core: &str, newer: &str| match at(object, core) {
        Value::Null => at(object, newer).clone(),
        value => value.clone(),
    };
    let string = |value: Value| value.as_str().unwrap_or_default().to_owned();
    let about = either("involvedObject", "regarding");
    let source = either("source", "deprecatedSource");

    let first = time(&either("firstTimestamp", "deprecatedFirstTimestamp"))
        .or_else(|| time(at(object, "eventTime")));
    let mut last = time(&either("lastTimestamp", "deprecatedLastTimestamp")).or(first);
    let mut count = either("count", "deprecatedCount").as_i64().unwrap_or(0);
    if object["series"].is_object() {
        last = time(at(object, "series.lastObservedTime"));
        count = number(object, "series.count");
    } else if count == 0 {
        count = 1;
    }
    let kind = text(&about, "kind").to_lowercase();
    let target = match text(&about, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        age(last, now).into(),
        text(object, "type").into(),
        text(object, "reason").into(),
        target.into(),
        text(&about, "fieldPath").into(),
        event_source(
            &source,
            &string(either("reportingComponent", "reportingController")),
            text(object, "reportingInstance"),
        )
        .into(),
        string(either("message", "note")).trim().into(),
        age(first, now).into(),
        count.into(),
        name(object),
    ]
}

fn event_source(source: &Value, controller: &str, instance: &str) -> String {
    let component = text_or(source, "component", controller);
    match text_or(source, "host", instance) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}
