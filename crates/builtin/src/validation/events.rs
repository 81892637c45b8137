//! Validates events, which both groups store in the representation of the core group.

use serde_json::Value;

use super::text as rules;
use super::text::IMMUTABLE;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, number, object, text};

/// The maximum length of an action, of a reason and of the name of an instance.
const NAME_BYTES_MAX: usize = 128;
const MESSAGE_BYTES_MAX: usize = 1024;

/// The members that an update through `events.k8s.io` must not change.
const IMMUTABLE_MEMBERS: [&str; 11] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "action",
    "related",
    "reportingInstance",
];

/// Validates an event that a client creates in the group `group`; the core group permits more.
pub(super) fn new(group: &str, event: &Fields, causes: &mut Causes) {
    check_common(group, event, causes);
    if group.is_empty() {
        return;
    }
    series(event, causes);
    if is_unset(event, "eventTime") {
        causes.required(&Path::Top("eventTime"), "");
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        let why = format!("has invalid value: {kind}");
        causes.invalid(&Path::Top("type"), "", &why);
    }
    let is_set = |member: &str| match member {
        "count" => number(event, member).is_some_and(|count| count != 0),
        "source" => object(event, member).is_some_and(|source| {
            ["component", "host"]
                .iter()
                .any(|member| !is_unset(source, member))
        }),
        member => !is_unset(event, member),
    };
    for member in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if is_set(member) {
            causes.invalid(&Path::Top(member), "", "needs to be unset");
        }
    }
}

/// Validates the update of an event in the group `group`.
pub(super) fn update(group: &str, old: &Fields, new: &Fields, causes: &mut Causes) {
    check_common(group, new, causes);
    if group.is_empty() {
        return;
    }
    if old.get("series") != new.get("series") {
        series(new, causes);
    }
    let immutable = |member: &'static str, field: &'static str, causes: &mut Causes| {
        let value = |event: &Fields| event.get(member).cloned().unwrap_or(Value::Null);
        if value(old) != value(new) {
            causes.invalid(&Path::Top(field), value(new), IMMUTABLE);
        }
    };
    for member in IMMUTABLE_MEMBERS {
        immutable(member, member, causes);
    }
    immutable("reportingComponent", "reportingController", causes);
    if micros(old) != micros(new) {
        immutable("eventTime", "eventTime", causes);
    }
}

/// Returns `eventTime` in microseconds, so that equal instants in different notations are equal.
fn micros(event: &Fields) -> Option<i64> {
    let time: jiff::Timestamp = text(event, "eventTime").parse().ok()?;
    Some(time.as_microsecond())
}

fn series(event: &Fields, causes: &mut Causes) {
    let Some(series) = object(event, "series") else {
        return;
    };
    let at = Path::Top("series");
    if number(series, "count").unwrap_or(0) < 2 {
        causes.invalid(&at.member("count"), "", "should be at least 2");
    }
    if is_unset(series, "lastObservedTime") {
        causes.required(&at.member("lastObservedTime"), "");
    }
}

/// Validates the rules of both groups. An event with an `eventTime` is of the newer form, which has more required fields.
fn check_common(group: &str, event: &Fields, causes: &mut Causes) {
    let at = Path::Top("involvedObject");
    let own = object(event, "metadata").map_or("", |metadata| text(metadata, "namespace"));
    let about = object(event, "involvedObject").map_or("", |about| text(about, "namespace"));
    let is_newer = !is_unset(event, "eventTime");
    let is_valid = match (is_newer, about) {
        (false, "") => matches!(own, "" | "default"),
        (false, about) => about == own,
        (true, "") => matches!(own, "default" | "kube-system"),
        (true, _) => true,
    };
    if !is_valid {
        let why = "does not match event.namespace";
        causes.invalid(&at.member("namespace"), about, why);
    }
    if is_newer {
        check_event_time_form(group, event, causes);
    }
}

fn check_event_time_form(group: &str, event: &Fields, causes: &mut Causes) {
    let at = Path::Top(match group {
        "" => "reportingComponent",
        _ => "reportingController",
    });
    let controller = text(event, "reportingComponent");
    if controller.is_empty() {
        causes.required(&at, "");
    }
    causes.invalid_each(&at, controller, rules::qualified(controller));
    for (member, bytes_max) in [
        ("reportingInstance", NAME_BYTES_MAX),
        ("action", NAME_BYTES_MAX),
        ("reason", NAME_BYTES_MAX),
        ("message", MESSAGE_BYTES_MAX),
    ] {
        let given = text(event, member);
        if given.is_empty() && member != "message" {
            causes.required(&Path::Top(member), "");
        }
        if given.len() > bytes_max {
            let why = format!("can have at most {bytes_max} characters");
            causes.invalid(&Path::Top(member), "", &why);
        }
    }
}
