//! Validates FlowSchemas.

use serde_json::Value;
use watchet_flowcontrol::FlowSchema;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, list, number, object, text};

use super::super::members::objects;
use super::super::text as rules;

const SPEC: Path<'static> = Path::Top("spec");
const PRECEDENCE_MAX: i64 = 10_000;
const SUBJECTS: &[&str] = &["Group", "ServiceAccount", "User"];
const METHODS: &[&str] = &["ByNamespace", "ByUser"];
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

/// A FlowSchema.
pub(in super::super) fn schema(schema: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let name = object(schema, "metadata").map_or("", |metadata| text(metadata, "name"));
    let spec = object(schema, "spec").unwrap_or(&empty);
    precedence(spec, name, causes);
    if let Some(method) = object(spec, "distinguisherMethod")
        && !METHODS.contains(&text(method, "type"))
    {
        let at = SPEC.member("distinguisherMethod");
        // The value is the object, but the path is that of its type, as in kube-apiserver.
        causes.not_supported(&at.member("type"), method.clone(), METHODS);
    }
    let at = SPEC.member("priorityLevelConfiguration");
    let level = object(spec, "priorityLevelConfiguration").map_or("", |level| text(level, "name"));
    match level {
        "" => causes.required(&at.member("name"), "must reference a priority level"),
        level => causes.invalid_each(&at.member("name"), level, rules::subdomain(level)),
    }
    let at = SPEC.member("rules");
    for (index, rule) in objects(list(spec, "rules")) {
        rule_with_subjects(rule, &at.item(index), causes);
    }
    let parsed = FlowSchema::parse(Value::Object(schema.clone()).to_string().as_bytes());
    if !FlowSchema::allows_spec(name, parsed.ok().as_ref()) {
        let why = format!("spec of '{name}' must equal the fixed value");
        causes.invalid(&SPEC, spec.clone(), &why);
    }
}

fn precedence(spec: &Fields, name: &str, causes: &mut Causes) {
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
}

fn rule_with_subjects(rule: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let subjects = list(rule, "subjects");
    let at_subjects = at.member("subjects");
    if subjects.is_empty() {
        causes.required(&at_subjects, "subjects must contain at least one value");
    }
    for (index, of) in objects(subjects) {
        subject(of, &at_subjects.item(index), causes);
    }
    let (resources, paths) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        causes.required(at, why);
    }
    let at_resources = at.member("resourceRules");
    for (index, rule) in objects(resources) {
        resource_rule(rule, &at_resources.item(index), causes);
    }
    let at_paths = at.member("nonResourceRules");
    for (index, rule) in objects(paths) {
        path_rule(rule, &at_paths.item(index), causes);
    }
}

fn subject(subject: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let kind = text(subject, "kind");
    if !SUBJECTS.contains(&kind) {
        return causes.not_supported(&at.member("kind"), kind, SUBJECTS);
    }
    let members = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    for (of, member) in members.into_iter().filter(|(of, _)| *of == kind) {
        let at = at.member(member);
        match object(subject, member) {
            None => {
                let why = format!("{member} is required when subject kind is '{of}'");
                causes.required(&at, &why);
            }
            Some(named) if of == "ServiceAccount" => service_account(named, &at, causes),
            Some(named) if text(named, "name").is_empty() => {
                causes.required(&at.member("name"), "");
            }
            Some(_) => {}
        }
    }
    for (of, member) in members.into_iter().filter(|(of, _)| *of != kind) {
        if object(subject, member).is_some() {
            let why = format!("{member} is forbidden when subject kind is not '{of}'");
            causes.forbidden(&at.member(member), &why);
        }
    }
}

fn service_account(account: &Fields, at: &Path<'_>, causes: &mut Causes) {
    match text(account, "name") {
        "" => causes.required(&at.member("name"), ""),
        "*" => {}
        name => causes.invalid_each(&at.member("name"), name, rules::subdomain(name)),
    }
    let at = at.member("namespace");
    match text(account, "namespace") {
        "" => causes.required(&at, "must specify namespace for service account"),
        namespace => causes.invalid_each(&at, namespace, rules::label(namespace)),
    }
}

fn resource_rule(rule: &Fields, at: &Path<'_>, causes: &mut Causes) {
    verbs(rule, at, causes);
    for (member, one, other) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        let at = at.member(member);
        if list(rule, member).is_empty() {
            let why = format!("resource rules must supply at least one {one}");
            causes.required(&at, &why);
        } else {
            alone_if_wildcard(list(rule, member), other, &at, causes);
        }
    }
    let namespaces = list(rule, "namespaces");
    let at = at.member("namespaces");
    if namespaces.is_empty() && !flag(rule, "clusterScope") {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        causes.required(&at, why);
    }
    if alone_if_wildcard(namespaces, "namespaces", &at, causes) {
        return;
    }
    for (index, namespace) in texts(namespaces).enumerate() {
        for problem in rules::label(namespace) {
            let why =
                format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            causes.invalid(&at.item(index), namespace, &why);
        }
    }
}

fn path_rule(rule: &Fields, at: &Path<'_>, causes: &mut Causes) {
    verbs(rule, at, causes);
    let paths = list(rule, "nonResourceURLs");
    let at = at.member("nonResourceURLs");
    if paths.is_empty() {
        let why = "nonResourceURLs must contain at least one value";
        causes.required(&at, why);
    }
    if alone_if_wildcard(paths, "non-resource URLs", &at, causes) {
        return;
    }
    for (index, path) in texts(paths).enumerate() {
        if let Some(why) = path_problem(path) {
            causes.invalid(&at.item(index), path, why);
        }
    }
}

fn verbs(rule: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let verbs = list(rule, "verbs");
    let at = at.member("verbs");
    if verbs.is_empty() {
        causes.required(&at, "verbs must contain at least one value");
    } else if !alone_if_wildcard(verbs, "verbs", &at, causes)
        && !texts(verbs).all(|verb| VERBS.contains(&verb))
    {
        causes.not_supported(&at, verbs, VERBS);
    }
}

/// Returns true if `*` is one of the items, and reports items beside it.
fn alone_if_wildcard(items: &[Value], named: &str, at: &Path<'_>, causes: &mut Causes) -> bool {
    let has_wildcard = texts(items).any(|item| item == "*");
    if has_wildcard && items.len() > 1 {
        let why = format!("if '*' is present, must not specify other {named}");
        causes.invalid(at, items, &why);
    }
    has_wildcard
}

fn path_problem(path: &str) -> Option<&'static str> {
    let wildcards = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !path.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

fn texts(items: &[Value]) -> impl Iterator<Item = &str> {
    items.iter().map(|item| item.as_str().unwrap_or_default())
}
