//! Printers of the resources that manage sets of pods: replica sets, replication controllers, stateful sets, daemon
//! sets, cron jobs, pod templates, revisions, autoscalers, disruption budgets. Deployments and jobs are in `workloads`.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{
    at, count, created, flag, items, joined, label_map, name, number, quantity, selector, text,
    text_or,
};
use super::printer::{Fields, Printer};
use watchet_registry::age::{age, time};
use watchet_registry::table_columns::{AGE, NAME, TableColumn};

pub(super) const CONTAINERS: TableColumn =
    TableColumn::wide("Containers", "Names of the containers.");
pub(super) const IMAGES: TableColumn = TableColumn::wide("Images", "Images of the containers.");
pub(super) const SELECTOR: TableColumn =
    TableColumn::wide("Selector", "Which pods it owns, by their labels.");
const DESIRED: TableColumn = TableColumn::integer("Desired", "Desired number of pods.");
const CURRENT: TableColumn = TableColumn::integer("Current", "Pods that there are.");
const READY: TableColumn = TableColumn::integer("Ready", "Pods that are ready.");

/// The maximum number of metrics of an autoscaler in a cell.
const METRICS_SHOWN: usize = 2;

/// Returns the names and images of the containers of the pod template at a dotted path.
pub(super) fn template(object: &Value, path: &str) -> (Value, Value) {
    let containers = items(at(object, path), "spec.containers");
    let of = |member| joined(containers.iter().map(|c| text(c, member))).into();
    (of("name"), of("image"))
}

const REPLICA_COLUMNS: &[TableColumn] = &[
    NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR,
];

fn replicas(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let (names, images) = template(object, "spec.template");
    vec![
        name(object),
        number(object, "spec.replicas").into(),
        number(object, "status.replicas").into(),
        number(object, "status.readyReplicas").into(),
        created(object, now),
        names,
        images,
        selector.into(),
    ]
}

pub(super) const REPLICA_SETS: Printer = Printer {
    columns: REPLICA_COLUMNS,
    fields: Fields::AllButManaged,
    cells: |object, now| replicas(object, now, selector(at(object, "spec.selector"))),
};

pub(super) const REPLICATION_CONTROLLERS: Printer = Printer {
    columns: REPLICA_COLUMNS,
    fields: Fields::AllButManaged,
    cells: |object, now| replicas(object, now, label_map(at(object, "spec.selector"))),
};

pub(super) const STATEFUL_SETS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Ready", "Ready pods of the desired number."),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let (names, images) = template(object, "spec.template");
        let ready = number(object, "status.readyReplicas");
        let desired = number(object, "spec.replicas");
        let ready = format!("{ready}/{desired}").into();
        vec![name(object), ready, created(object, now), names, images]
    },
};

pub(super) const DAEMON_SETS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::integer("Desired", "Nodes that should run its pod."),
        TableColumn::integer("Current", "Nodes of those that do."),
        READY,
        TableColumn::integer("Up-to-date", "Nodes with a pod of the current template."),
        TableColumn::integer("Available", "Nodes with an available pod."),
        TableColumn::text(
            "Node Selector",
            "On which nodes it may run, by their labels.",
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let (names, images) = template(object, "spec.template");
        vec![
            name(object),
            number(object, "status.desiredNumberScheduled").into(),
            number(object, "status.currentNumberScheduled").into(),
            number(object, "status.numberReady").into(),
            number(object, "status.updatedNumberScheduled").into(),
            number(object, "status.numberAvailable").into(),
            label_map(at(object, "spec.template.spec.nodeSelector")).into(),
            created(object, now),
            names,
            images,
            selector(at(object, "spec.selector")).into(),
        ]
    },
};

pub(super) const CRON_JOBS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Schedule", "When it runs, as cron has it."),
        TableColumn::text("Timezone", "In which time zone that is."),
        TableColumn::boolean("Suspend", "Whether it does not run for now."),
        TableColumn::integer("Active", "Jobs that run."),
        TableColumn::text("Last Schedule", "How long ago it last ran."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let (names, images) = template(object, "spec.jobTemplate.spec.template");
        let last = time(at(object, "status.lastScheduleTime"));
        let last = last.map_or_else(|| "<none>".to_owned(), |last| age(Some(last), now));
        vec![
            name(object),
            text(object, "spec.schedule").into(),
            text_or(object, "spec.timeZone", "<none>").into(),
            flag(object, "spec.suspend", "<unset>"),
            count(object, "status.active"),
            last.into(),
            created(object, now),
            names,
            images,
            selector(at(object, "spec.jobTemplate.spec.selector")).into(),
        ]
    },
};

pub(super) const POD_TEMPLATES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Containers", "Names of the containers."),
        TableColumn::text("Images", "Images of the containers."),
        TableColumn::text("Pod Labels", "Labels of pods made of it."),
    ],
    fields: Fields::AllButManaged,
    cells: |object, _| {
        let (names, images) = template(object, "template");
        let labels = label_map(at(object, "template.metadata.labels")).into();
        vec![name(object), names, images, labels]
    },
};

pub(super) const CONTROLLER_REVISIONS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Controller", "Whose revision it is."),
        TableColumn::text("Revision", "Its number."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            controller(object).into(),
            number(object, "revision").into(),
            created(object, now),
        ]
    },
};

/// `daemonset.apps/name`
fn controller(object: &Value) -> String {
    let mut owners = items(object, "metadata.ownerReferences").iter();
    let Some(owner) = owners.find(|owner| owner["controller"] == true) else {
        return "<none>".to_owned();
    };
    let kind = text(owner, "kind").to_lowercase();
    let name = text(owner, "name");
    match text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

pub(super) const DISRUPTION_BUDGETS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Min Available", "How many pods must stay."),
        TableColumn::text("Max Unavailable", "How many pods may be away."),
        TableColumn::integer("Allowed Disruptions", "How many may be evicted now."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            quantity(object, "spec.minAvailable", "N/A"),
            quantity(object, "spec.maxUnavailable", "N/A"),
            number(object, "status.disruptionsAllowed").into(),
            created(object, now),
        ]
    },
};

pub(super) const AUTOSCALERS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Reference", "What it scales."),
        TableColumn::text("Targets", "What is measured, and what it should be."),
        TableColumn::text("MinPods", "The least number of pods."),
        TableColumn::text("MaxPods", "The greatest number of pods."),
        TableColumn::text("Replicas", "How many pods there are."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let target = at(object, "spec.scaleTargetRef");
        vec![
            name(object),
            format!("{}/{}", text(target, "kind"), text(target, "name")).into(),
            metrics(object).into(),
            quantity(object, "spec.minReplicas", "<unset>"),
            number(object, "spec.maxReplicas").into(),
            number(object, "status.currentReplicas").into(),
            created(object, now),
        ]
    },
};

fn metrics(object: &Value) -> String {
    let (specs, current) = (
        items(object, "spec.metrics"),
        items(object, "status.currentMetrics"),
    );
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown = specs.iter().enumerate().take(METRICS_SHOWN);
    let shown: Vec<String> = shown
        .map(|(index, spec)| metric(spec, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    let shown = shown.join(", ");
    match specs.len().checked_sub(METRICS_SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} + {more} more..."),
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let (member, of_resource) = match text(spec, "type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (source, current) = (&spec[member], &status[member]["current"]);
    let target = &source["target"];
    let shown = |value: &Value, unit: &str, otherwise: &str| match value {
        Value::String(text) => format!("{text}{unit}"),
        Value::Number(number) => format!("{number}{unit}"),
        _ => otherwise.to_owned(),
    };
    let (member, unit) = match (of_resource, target["averageValue"].is_null()) {
        (_, false) => ("averageValue", ""),
        (true, true) => ("averageUtilization", "%"),
        (false, true) => ("value", ""),
    };
    let measured = shown(&current[member], unit, "<unknown>");
    let desired = shown(&target[member], unit, "<auto>");
    match text(spec, "type") {
        _ if of_resource => format!("{}: {measured}/{desired}", text(source, "name")),
        "External" | "Object" if member == "averageValue" => format!("{measured}/{desired} (avg)"),
        _ => format!("{measured}/{desired}"),
    }
}
