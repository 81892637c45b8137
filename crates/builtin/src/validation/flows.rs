//! Validates FlowSchemas and PriorityLevelConfigurations.

use super::members::objects;
use super::members::required_one_of;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, number, object, text};

const SPEC: Path<'static> = Path::Top("spec");
const PRECEDENCE_MAX: i64 = 10_000;
/// The most queues of a level.
const QUEUES_MAX: i64 = 10_000_000;
/// The bits of a hash that choose a hand of queues.
const HASH_BITS_MAX: i64 = 60;
const SUBJECTS: &[&str] = &["Group", "ServiceAccount", "User"];

/// A FlowSchema.
pub(super) fn schema(schema: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let name = object(schema, "metadata").map_or("", |metadata| text(metadata, "name"));
    let spec = object(schema, "spec").unwrap_or(&empty);
    let at = SPEC.member("matchingPrecedence");
    match number(spec, "matchingPrecedence").unwrap_or(0) {
        given if given < 1 => causes.invalid(&at, given, "must be a positive value"),
        given if given > PRECEDENCE_MAX => {
            let why = format!("must not be greater than {PRECEDENCE_MAX}");
            causes.invalid(&at, given, &why);
        }
        1 if name != "exempt" => {
            let why = "only the schema named 'exempt' may have matchingPrecedence 1";
            causes.invalid(&at, 1, why);
        }
        _ => {}
    }
    if let Some(method) = object(spec, "distinguisherMethod") {
        let at = SPEC.member("distinguisherMethod");
        required_one_of(method, "type", &["ByNamespace", "ByUser"], &at, causes);
    }
    let at = SPEC.member("priorityLevelConfiguration");
    let level = object(spec, "priorityLevelConfiguration").map_or("", |level| text(level, "name"));
    match level {
        "" => causes.required(&at.member("name"), "must reference a priority level"),
        level => causes.invalid_each(&at.member("name"), level, rules::subdomain(level)),
    }
    let at = SPEC.member("rules");
    for (index, rule) in objects(list(spec, "rules")) {
        rules_with_subjects(rule, &at.item(index), causes);
    }
}

fn rules_with_subjects(rule: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let subjects = list(rule, "subjects");
    let at_subjects = at.member("subjects");
    if subjects.is_empty() {
        causes.required(&at_subjects, "subjects must contain at least one value");
    }
    for (index, subject) in objects(subjects) {
        let at = at_subjects.item(index);
        required_one_of(subject, "kind", SUBJECTS, &at, causes);
        let (kind, member) = match text(subject, "kind") {
            "User" => ("user", "user"),
            "Group" => ("group", "group"),
            "ServiceAccount" => ("serviceAccount", "service account"),
            _ => continue,
        };
        if object(subject, kind).is_none() {
            let why = format!(
                "{member} is required when subject kind is '{}'",
                text(subject, "kind")
            );
            causes.required(&at.member(kind), &why);
        }
    }
    let (objects_, paths) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if objects_.is_empty() && paths.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        causes.required(at, why);
    }
    let at_objects = at.member("resourceRules");
    for (index, rule) in objects(objects_) {
        let at = at_objects.item(index);
        for member in ["verbs", "apiGroups", "resources"] {
            if list(rule, member).is_empty() {
                let why = format!("{member} must contain at least one value");
                causes.required(&at.member(member), &why);
            }
        }
        if list(rule, "namespaces").is_empty()
            && !watchet_registry::fields::flag(rule, "clusterScope")
        {
            let why =
                "resource rules that are not cluster scoped must supply at least one namespace";
            causes.required(&at.member("namespaces"), why);
        }
    }
    let at_paths = at.member("nonResourceRules");
    for (index, rule) in objects(paths) {
        let at = at_paths.item(index);
        for member in ["verbs", "nonResourceURLs"] {
            if list(rule, member).is_empty() {
                let why = format!("{member} must contain at least one value");
                causes.required(&at.member(member), &why);
            }
        }
    }
}

/// A PriorityLevelConfiguration.
pub(super) fn level(level: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(level, "spec").unwrap_or(&empty);
    required_one_of(spec, "type", &["Exempt", "Limited"], &SPEC, causes);
    let at = SPEC.member("limited");
    match (text(spec, "type"), object(spec, "limited")) {
        ("Exempt", Some(_)) => {
            causes.forbidden(&at, "must be nil if the type is not Limited");
        }
        ("Limited", None) => causes.required(&at, "must not be empty when type is Limited"),
        (_, Some(limited)) => {
            let shares = number(limited, "nominalConcurrencyShares").unwrap_or(0);
            if shares < 0 {
                let why = "must be a non-negative integer";
                causes.invalid(&at.member("nominalConcurrencyShares"), shares, why);
            }
            percentages(limited, &at, causes);
            if let Some(response) = object(limited, "limitResponse") {
                limit_response(response, &at.member("limitResponse"), causes);
            }
        }
        _ => {}
    }
    if text(spec, "type") == "Limited" && object(spec, "exempt").is_some() {
        let why = "must be nil if the type is Limited";
        causes.forbidden(&SPEC.member("exempt"), why);
    }
    if let Some(exempt) = object(spec, "exempt") {
        percentages(exempt, &SPEC.member("exempt"), causes);
    }
}

fn percentages(settings: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let lendable = number(settings, "lendablePercent").unwrap_or(0);
    if !(0..=100).contains(&lendable) {
        let why = "must be between 0 and 100, inclusive";
        causes.invalid(&at.member("lendablePercent"), lendable, why);
    }
    let borrowing = number(settings, "borrowingLimitPercent").unwrap_or(0);
    if borrowing < 0 {
        let why = "if specified, must be a non-negative integer";
        causes.invalid(&at.member("borrowingLimitPercent"), borrowing, why);
    }
}

fn limit_response(response: &Fields, at: &Path<'_>, causes: &mut Causes) {
    required_one_of(response, "type", &["Queue", "Reject"], at, causes);
    let at_queuing = at.member("queuing");
    match (text(response, "type"), object(response, "queuing")) {
        ("Reject", Some(_)) => {
            causes.forbidden(&at_queuing, "must be nil if the type is Reject");
        }
        ("Queue", None) => {
            causes.required(&at_queuing, "must not be empty if the type is Queue");
        }
        ("Queue", Some(queuing)) => queues(queuing, &at_queuing, causes),
        _ => {}
    }
}

fn queues(queuing: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let [queues, hand_size, length] = ["queues", "handSize", "queueLengthLimit"].map(|member| {
        let value = number(queuing, member).unwrap_or(0);
        if value <= 0 {
            causes.invalid(&at.member(member), value, "must be positive");
        }
        value
    });
    if queues <= 0 || hand_size <= 0 || length <= 0 {
        return;
    }
    if queues > QUEUES_MAX {
        let why = format!("must not be greater than {QUEUES_MAX}");
        causes.invalid(&at.member("queues"), queues, &why);
    }
    let at = at.member("handSize");
    if hand_size > queues {
        let why = format!("should not be greater than queues ({queues})");
        causes.invalid(&at, hand_size, &why);
        return;
    }
    // More than the maximum of bits already needs fewer cards than this.
    let dealt = (0..hand_size.min(HASH_BITS_MAX + 1)).map(|dealt| ((queues - dealt) as f64).log2());
    if dealt.sum::<f64>().ceil() > HASH_BITS_MAX as f64 {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand_size} should not be greater than {HASH_BITS_MAX}"
        );
        causes.invalid(&at, hand_size, &why);
    }
}
