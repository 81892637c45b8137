//! Printers of role bindings, quotas, certificates, admission, flow control, priority and runtime classes, leases, API
//! services.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{
    at, condition, count, created, items, joined, name, number, quantity, selector, text, text_or,
};
use super::printer::{Fields, Printer};
use watchet_registry::age::human_duration;
use watchet_registry::table_columns::{AGE, NAME, TableColumn};

pub(super) const BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Role", "What the subjects may do."),
        AGE,
        TableColumn::wide("Users", "Subjects that are users."),
        TableColumn::wide("Groups", "Subjects that are groups."),
        TableColumn::wide("ServiceAccounts", "Subjects that are service accounts."),
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let role = &object["roleRef"];
        let of = |kind: &str| {
            let subjects = items(object, "subjects")
                .iter()
                .filter(|s| s["kind"] == kind);
            let shown = subjects.map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "namespace"), text(subject, "name"))
                }
                _ => text(subject, "name").to_owned(),
            });
            shown.collect::<Vec<_>>().join(", ").into()
        };
        vec![
            name(object),
            format!("{}/{}", text(role, "kind"), text(role, "name")).into(),
            created(object, now),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    },
};

pub(super) const SERVICE_ACCOUNTS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Secrets", "How many secrets its pods may use."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| vec![name(object), count(object, "secrets"), created(object, now)],
};

pub(super) const QUOTAS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Request", "What is used, and may be, other than limits."),
        TableColumn::text("Limit", "Limits that are used, and may be."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        // JSON maps are sorted here, as in upstream's output.
        let hard = at(object, "status.hard").as_object().into_iter().flatten();
        for (resource, hard) in hard {
            let shown = |value: &Value| match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => "0".to_owned(),
            };
            let used = shown(&object["status"]["used"][resource]);
            let line = format!("{resource}: {used}/{}", shown(hard));
            match resource.starts_with("limits.") {
                true => limits.push(line),
                false => requests.push(line),
            }
        }
        vec![
            name(object),
            requests.join(", ").into(),
            limits.join(", ").into(),
            created(object, now),
        ]
    },
};

pub(super) const CERTIFICATE_REQUESTS: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        TableColumn::text("SignerName", "Who is to sign it."),
        TableColumn::text("Requestor", "Who asks."),
        TableColumn::text("RequestedDuration", "For how long."),
        TableColumn::text("Condition", "What has been decided and done."),
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let decided = match (condition(object, "Denied"), condition(object, "Approved")) {
            (Some(_), _) => "Denied",
            (None, Some(_)) => "Approved",
            (None, None) => "Pending",
        };
        let mut state = decided.to_owned();
        if condition(object, "Failed").is_some() {
            state.push_str(",Failed");
        }
        if !text(object, "status.certificate").is_empty() {
            state.push_str(",Issued");
        }
        let duration = at(object, "spec.expirationSeconds").as_i64();
        vec![
            name(object),
            created(object, now),
            text_or(object, "spec.signerName", "<none>").into(),
            text(object, "spec.username").into(),
            duration
                .map_or_else(|| "<none>".to_owned(), human_duration)
                .into(),
            state.into(),
        ]
    },
};

pub(super) const LEASES: Printer = Printer {
    columns: &[NAME, TableColumn::text("Holder", "Who has it."), AGE],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let holder = text(object, "spec.holderIdentity").into();
        vec![name(object), holder, created(object, now)]
    },
};

pub(super) const PRIORITY_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::integer("Value", "More goes first."),
        TableColumn::boolean("Global-Default", "Whether it is for pods that name none."),
        AGE,
        TableColumn::text("PreemptionPolicy", "Whether others may be evicted for it."),
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            number(object, "value").into(),
            (object["globalDefault"] == true).into(),
            created(object, now),
            text(object, "preemptionPolicy").into(),
        ]
    },
};

pub(super) const RUNTIME_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Handler", "What runs its pods."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let handler = text(object, "handler").into();
        vec![name(object), handler, created(object, now)]
    },
};

pub(super) const WEBHOOK_CONFIGURATIONS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::integer("Webhooks", "How many webhooks it has."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            count(object, "webhooks"),
            created(object, now),
        ]
    },
};

pub(super) const MUTATING_POLICIES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::integer("Mutations", "The number of mutations of the policy."),
        PARAM_KIND,
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| policy_cells(object, "spec.mutations", now),
};

pub(super) const VALIDATING_POLICIES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::integer("Validations", "The number of validations of the policy."),
        PARAM_KIND,
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| policy_cells(object, "spec.validations", now),
};

const PARAM_KIND: TableColumn = TableColumn::text("ParamKind", "The kind of the parameters.");

/// The cells of an admission policy whose expressions are the items of `list`.
fn policy_cells(object: &Value, list: &str, now: Timestamp) -> Vec<Value> {
    let kind = at(object, "spec.paramKind");
    let shown = match kind.is_null() {
        true => "<unset>".to_owned(),
        false => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
    };
    vec![
        name(object),
        count(object, list),
        shown.into(),
        created(object, now),
    ]
}

pub(super) const ADMISSION_BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("PolicyName", "Which policy is bound."),
        TableColumn::text("ParamRef", "With which parameters."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let reference = at(object, "spec.paramRef");
        let shown = match (text(reference, "namespace"), text(reference, "name")) {
            ("", "") if reference["selector"].is_null() => "<unset>".to_owned(),
            (_, "") => selector(&reference["selector"]),
            // The row does not show whether the parameter is cluster-scoped.
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        vec![
            name(object),
            text(object, "spec.policyName").into(),
            shown.into(),
            created(object, now),
        ]
    },
};

pub(super) const FLOW_SCHEMAS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("PriorityLevel", "Where its requests queue."),
        TableColumn::text("MatchingPrecedence", "Less is looked at first."),
        TableColumn::text("DistinguisherMethod", "What makes requests one flow."),
        AGE,
        TableColumn::text("MissingPL", "Whether there is no such priority level."),
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let dangling = condition(object, "Dangling");
        vec![
            name(object),
            text(object, "spec.priorityLevelConfiguration.name").into(),
            number(object, "spec.matchingPrecedence").into(),
            text_or(object, "spec.distinguisherMethod.type", "<none>").into(),
            created(object, now),
            dangling
                .map_or("?", |condition| text(condition, "status"))
                .into(),
        ]
    },
};

pub(super) const PRIORITY_LEVELS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Type", "Limited, or Exempt."),
        TableColumn::text("NominalConcurrencyShares", "Its share of the seats."),
        TableColumn::text("Queues", "How many queues it has."),
        TableColumn::text("HandSize", "Of how many a flow is dealt."),
        TableColumn::text("QueueLengthLimit", "How long each may be."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let limited = at(object, "spec.limited");
        let shares = match limited.is_null() {
            true => at(object, "spec.exempt"),
            false => limited,
        };
        let queuing = at(limited, "limitResponse.queuing");
        vec![
            name(object),
            text(object, "spec.type").into(),
            quantity(shares, "nominalConcurrencyShares", "<none>"),
            quantity(queuing, "queues", "<none>"),
            quantity(queuing, "handSize", "<none>"),
            quantity(queuing, "queueLengthLimit", "<none>"),
            created(object, now),
        ]
    },
};

pub(super) const API_SERVICES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Service", "Who serves it."),
        TableColumn::text("Available", "Whether it can be asked."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let service = at(object, "spec.service");
        let service = match service.is_null() {
            true => "Local".to_owned(),
            false => format!("{}/{}", text(service, "namespace"), text(service, "name")),
        };
        let available = match condition(object, "Available") {
            None => "Unknown".to_owned(),
            Some(is) if is["status"] == "True" => "True".to_owned(),
            Some(is) => format!("{} ({})", text(is, "status"), joined([text(is, "reason")])),
        };
        vec![
            name(object),
            service.into(),
            available.into(),
            created(object, now),
        ]
    },
};
