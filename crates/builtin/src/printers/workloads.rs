//! Printers of pods, deployments and jobs.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{at, condition, created, items, name, number, selector, text, text_or};
use super::printer::Fields;
use super::printer::Printer;
use super::replicas::{CONTAINERS, IMAGES, SELECTOR, template};
use watchet_registry::age::{age, between, human_duration, time};
use watchet_registry::table_columns::{AGE, NAME, TableColumn};

pub(super) const PODS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Ready", "Containers that are ready, of all of them."),
        TableColumn::text("Status", "The phase, or a more specific reason."),
        TableColumn::text(
            "Restarts",
            "Restarts of all containers, and when the last one was.",
        ),
        AGE,
        TableColumn::wide("IP", "The first address of the pod."),
        TableColumn::wide("Node", "Where it is scheduled."),
        TableColumn::wide(
            "Nominated Node",
            "Where it may go once others are preempted.",
        ),
        TableColumn::wide("Readiness Gates", "Gates that are true, of all of them."),
    ],
    fields: Fields::Paths(&[
        "metadata.name",
        "metadata.creationTimestamp",
        "metadata.deletionTimestamp",
        "spec.containers.name",
        "spec.initContainers.name",
        "spec.initContainers.restartPolicy",
        "spec.nodeName",
        "spec.readinessGates",
        "status.conditions",
        "status.containerStatuses",
        "status.initContainerStatuses",
        "status.nominatedNodeName",
        "status.phase",
        "status.podIPs",
        "status.reason",
    ]),
    cells: pod,
};

pub(super) const DEPLOYMENTS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Ready", "Ready pods of the desired number."),
        TableColumn::text("Up-to-date", "Pods made from the current template."),
        TableColumn::text("Available", "Pods ready for at least minReadySeconds."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: Fields::AllButManaged,
    cells: deployment,
};

pub(super) const JOBS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Status", "How the job stands."),
        TableColumn::text("Completions", "Succeeded pods of the desired number."),
        TableColumn::text("Duration", "How long the job ran, or has been running."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: Fields::AllButManaged,
    cells: job,
};

/// The totals of the container statuses of a pod.
#[derive(Default)]
struct Tally {
    restarts: i64,
    last_restart: Option<Timestamp>,
    ready: usize,
}

impl Tally {
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += number(status, "restartCount");
        let finished = time(at(status, "lastState.terminated.finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let sidecars = items(object, "spec.initContainers")
        .iter()
        .filter(|c| is_sidecar(c))
        .count();
    let total = items(object, "spec.containers").len() + sidecars;
    let mut reason = text_or(object, "status.reason", text(object, "status.phase")).to_owned();
    if condition(object, "PodScheduled").is_some_and(|c| c["reason"] == "SchedulingGated") {
        reason = "SchedulingGated".to_owned();
    }

    let (mut tally, of_sidecars, initializing) = init_containers(object);
    if let Some(initializing) = &initializing {
        reason.clone_from(initializing);
    }
    if initializing.is_none() || is_true(condition(object, "Initialized")) {
        tally = Tally {
            ready: tally.ready,
            ..of_sidecars
        };
        containers(object, &mut tally, &mut reason);
    }
    if !at(object, "metadata.deletionTimestamp").is_null() {
        let phase = text(object, "status.phase");
        if text(object, "status.reason") == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            reason = "Terminating".to_owned();
        }
    }
    let restarts = match tally.last_restart {
        Some(last) if tally.restarts != 0 => {
            format!("{} ({} ago)", tally.restarts, age(Some(last), now))
        }
        _ => tally.restarts.to_string(),
    };
    let ip = items(object, "status.podIPs")
        .first()
        .map_or("", |ip| text(ip, "ip"));
    vec![
        name(object),
        format!("{}/{total}", tally.ready).into(),
        reason.into(),
        restarts.into(),
        created(object, now),
        if ip.is_empty() { "<none>" } else { ip }.into(),
        text_or(object, "spec.nodeName", "<none>").into(),
        text_or(object, "status.nominatedNodeName", "<none>").into(),
        readiness_gates(object).into(),
    ]
}

/// Returns true for a sidecar: a restartable init container.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn is_true(condition: Option<&Value>) -> bool {
    condition.is_some_and(|c| c["status"] == "True")
}

/// Counts the init containers and the sidecars among them, and sets the status to print while initialization is not
/// complete.
fn init_containers(object: &Value) -> (Tally, Tally, Option<String>) {
    let (mut all, mut of_sidecars) = (Tally::default(), Tally::default());
    let specs = items(object, "spec.initContainers");
    for (index, status) in items(object, "status.initContainerStatuses")
        .iter()
        .enumerate()
    {
        let sidecar = specs
            .iter()
            .any(|c| c["name"] == status["name"] && is_sidecar(c));
        all.add_restarts(status);
        if sidecar {
            of_sidecars.add_restarts(status);
        }
        let terminated = at(status, "state.terminated");
        if !terminated.is_null() && number(terminated, "exitCode") == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            all.ready += usize::from(status["ready"] == true);
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        let reason = if !terminated.is_null() {
            format!("Init:{}", why_terminated(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", specs.len())
        };
        return (all, of_sidecars, Some(reason));
    }
    (all, of_sidecars, None)
}

fn why_terminated(terminated: &Value) -> String {
    match (text(terminated, "reason"), number(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Counts the regular containers; the first one with a reason sets `reason`.
fn containers(object: &Value, tally: &mut Tally, reason: &mut String) {
    let mut running = false;
    for status in items(object, "status.containerStatuses").iter().rev() {
        tally.add_restarts(status);
        let waiting = text(status, "state.waiting.reason");
        let terminated = at(status, "state.terminated");
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if !terminated.is_null() {
            *reason = why_terminated(terminated);
        } else if status["ready"] == true && !at(status, "state.running").is_null() {
            running = true;
            tally.ready += 1;
        }
    }
    if reason == "Completed" && running {
        let ready = is_true(condition(object, "Ready"));
        *reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn readiness_gates(object: &Value) -> String {
    let gates = items(object, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| is_true(condition(object, text(gate, "conditionType"))))
        .count();
    format!("{open}/{}", gates.len())
}

fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = template(object, "spec.template");
    let ready = number(object, "status.readyReplicas");
    vec![
        name(object),
        format!("{ready}/{}", number(object, "spec.replicas")).into(),
        number(object, "status.updatedReplicas").into(),
        number(object, "status.availableReplicas").into(),
        created(object, now),
        names,
        images,
        selector(at(object, "spec.selector")).into(),
    ]
}

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(object, "status.succeeded");
    let completions = match at(object, "spec.completions").as_i64() {
        Some(desired) => format!("{succeeded}/{desired}"),
        None => match number(object, "spec.parallelism") {
            parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            _ => format!("{succeeded}/1"),
        },
    };
    let duration = time(at(object, "status.startTime")).map_or_else(String::new, |start| {
        let end = time(at(object, "status.completionTime")).unwrap_or(now);
        human_duration(between(start, end))
    });
    let is = |kind| is_true(condition(object, kind));
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if !at(object, "metadata.deletionTimestamp").is_null() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let (names, images) = template(object, "spec.template");
    vec![
        name(object),
        status.into(),
        completions.into(),
        duration.into(),
        created(object, now),
        names,
        images,
        selector(at(object, "spec.selector")).into(),
    ]
}
