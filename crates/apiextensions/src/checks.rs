//! Validation of definitions, with upstream's messages. `structural` validates schemas. A name that another resource
//! uses is not an error; the definition then has the condition `NamesAccepted=False`.

use serde_json::Value;

use super::conditions::{APPROVAL, ESTABLISHED, is_protected};
use super::definition::{Definition, Names, Version};
use super::json_path::JsonPath;
use super::schema::Compiler;
use super::structural;
use watchet_admission::client_problems;
use watchet_api::StatusCause;
use watchet_registry::Causes;
use watchet_registry::names::NameRule;
use watchet_schema::openapi::SchemaText;

/// The maximum number of selectable fields of a version.
const SELECTABLE_FIELDS_MAX: usize = 8;

const COLUMN_TYPES: [&str; 5] = ["integer", "number", "string", "boolean", "date"];
const COLUMN_FORMATS: [&str; 9] = [
    "int32",
    "int64",
    "float",
    "double",
    "byte",
    "date",
    "date-time",
    "password",
    "name",
];

/// Returns the structural problems of the schemas of a definition. Another program may have stored an invalid one.
pub(super) fn violations(definition: &Definition) -> Option<String> {
    let mut causes = Causes::default();
    for (index, version) in definition.spec.versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if let Some(schema) = &version.schema.open_api {
            structural::check_structure(&schema.parse(), &path, &mut causes);
        }
    }
    let causes = causes.into_vec();
    let mut messages: Vec<String> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    match messages.len() {
        0 => None,
        1 => messages.pop(),
        _ => Some(format!("[{}]", messages.join(", "))),
    }
}

fn name_problems(field: &str, name: &str, rule: NameRule, causes: &mut Causes) {
    for problem in rule.problems(name, false) {
        causes.push(StatusCause::invalid(field, name, &problem));
    }
}

impl Definition {
    /// Validates the definition, which replaces `old`, and adds its problems to `causes`.
    pub(super) fn check(&self, old: Option<&Self>, causes: &mut Causes) {
        let spec = &self.spec;
        let name = &self.metadata.name;
        if *name != format!("{}.{}", spec.names.plural, spec.group) {
            let why = r#"must be spec.names.plural+"."+spec.group"#;
            causes.push(StatusCause::invalid("metadata.name", name, why));
        }
        let group = &spec.group;
        match group.as_str() {
            "" => causes.push(StatusCause::required("spec.group", "")),
            _ => name_problems("spec.group", group, NameRule::Subdomain, causes),
        }
        if !group.is_empty() && !group.contains('.') {
            let why = "should be a domain with at least one dot";
            causes.push(StatusCause::invalid("spec.group", group, why));
        }
        match spec.scope.as_str() {
            "Cluster" | "Namespaced" => {}
            "" => causes.push(StatusCause::required("spec.scope", "")),
            other => {
                let scopes = ["Cluster", "Namespaced"];
                causes.push(StatusCause::not_supported("spec.scope", other, &scopes));
            }
        }
        if spec.preserve_unknown_fields {
            let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                       spec.versions[*].schema instead";
            let field = "spec.preserveUnknownFields";
            causes.push(StatusCause::invalid_flag(field, true, why));
        }
        if is_protected(group) {
            self.check_approval(old, causes);
        }
        self.check_versions(causes);
        check_names(&spec.names, causes);
        self.check_conversion(causes);
        if let Some(old) = old {
            self.check_changes(old, causes);
        }
    }

    fn check_approval(&self, old: Option<&Self>, causes: &mut Causes) {
        let approval = |definition: &Self| definition.metadata.annotations.get(APPROVAL).cloned();
        // As upstream, a stored definition without the annotation remains valid.
        if old.is_some_and(|old| approval(old).is_none()) || approval(self).is_some() {
            return;
        }
        let field = format!("metadata.annotations[{APPROVAL}]");
        let why = format!(
            "protected groups must have approval annotation {APPROVAL:?}, see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        causes.push(StatusCause::required(&field, &why));
    }

    fn check_versions(&self, causes: &mut Causes) {
        let versions = &self.spec.versions;
        let field = "spec.versions";
        if versions.is_empty() {
            return causes.push(StatusCause::required(
                field,
                "must have at least one version",
            ));
        }
        let mut names: Vec<&str> = versions.iter().map(|v| &*v.name).collect();
        let all_names = names.join(",");
        names.sort_unstable();
        names.dedup();
        if names.len() < versions.len() {
            let why = "must contain unique version names";
            causes.push(StatusCause::invalid(field, &all_names, why));
        }
        if versions.iter().filter(|version| version.storage).count() != 1 {
            let why = "must have exactly one version marked as storage version";
            causes.push(StatusCause::invalid(field, &all_names, why));
        }
        let mut compiler = Compiler::default();
        for (index, version) in versions.iter().enumerate() {
            version.check(&format!("{field}[{index}]"), &mut compiler, causes);
        }
    }

    fn check_conversion(&self, causes: &mut Causes) {
        let conversion = &self.spec.conversion;
        let field = "spec.conversion";
        match conversion.strategy.as_str() {
            "" => causes.push(StatusCause::required(&format!("{field}.strategy"), "")),
            "None" if conversion.webhook.is_some() => {
                let why = "should not be set when strategy is not set to Webhook";
                causes.push(StatusCause::forbidden(&format!("{field}.webhook"), why));
            }
            "None" => {}
            "Webhook" => match &conversion.webhook {
                None => {
                    let why = "required when strategy is set to Webhook";
                    causes.push(StatusCause::required(&format!("{field}.webhook"), why));
                }
                Some(webhook) => {
                    let field = format!("{field}.webhook");
                    let at = format!("{field}.clientConfig");
                    match &webhook.client_config {
                        None => {
                            let why = "required when strategy is set to Webhook";
                            causes.push(StatusCause::required(&at, why));
                        }
                        Some(client) => {
                            let problems = client_problems(&at, client);
                            problems.into_iter().for_each(|cause| causes.push(cause));
                        }
                    }
                    let versions = &webhook.conversion_review_versions;
                    let field = format!("{field}.conversionReviewVersions");
                    if versions.is_empty() {
                        causes.push(StatusCause::required(&field, ""));
                    } else if !versions.iter().any(|version| version == "v1") {
                        let why = "must include at least one of v1";
                        causes.push(StatusCause::invalid(&field, &versions.join(","), why));
                    }
                }
            },
            other => {
                let strategies = ["None", "Webhook"];
                let field = format!("{field}.strategy");
                causes.push(StatusCause::not_supported(&field, other, &strategies));
            }
        }
    }

    fn check_changes(&self, old: &Self, causes: &mut Causes) {
        let mut immutable = |field: &str, new: &str, old: &str| {
            if new != old {
                causes.push(StatusCause::invalid(field, new, "field is immutable"));
            }
        };
        let (new_names, old_names) = (&self.spec.names, &old.spec.names);
        immutable("spec.group", &self.spec.group, &old.spec.group);
        immutable("spec.names.plural", &new_names.plural, &old_names.plural);
        if old.has(ESTABLISHED) {
            immutable("spec.scope", &self.spec.scope, &old.spec.scope);
            immutable("spec.names.kind", &new_names.kind, &old_names.kind);
        }
        for (index, stored) in self.status.stored_versions.iter().enumerate() {
            if !self
                .spec
                .versions
                .iter()
                .any(|version| version.name == *stored)
            {
                let field = format!("status.storedVersions[{index}]");
                let why = "missing from spec.versions; must appear in spec.versions";
                causes.push(StatusCause::invalid(&field, stored, why));
            }
        }
    }
}

fn check_names(names: &Names, causes: &mut Causes) {
    let field = |name: &str| format!("spec.names.{name}");
    let label = |field: &str, name: &str, causes: &mut Causes| {
        name_problems(field, name, NameRule::Label1035, causes);
    };
    match names.plural.as_str() {
        "" => causes.push(StatusCause::required(&field("plural"), "")),
        plural => label(&field("plural"), plural, causes),
    }
    if !names.singular.is_empty() {
        label(&field("singular"), &names.singular, causes);
    }
    for (member, kind) in [("kind", &names.kind), ("listKind", &names.list_kind)] {
        if kind.is_empty() {
            causes.push(StatusCause::required(&field(member), ""));
            continue;
        }
        for problem in NameRule::Label1035.problems(&kind.to_lowercase(), false) {
            let why = format!("may have mixed case, but should otherwise match: {problem}");
            causes.push(StatusCause::invalid(&field(member), kind, &why));
        }
    }
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let why = "kind and listKind may not be the same";
        causes.push(StatusCause::invalid(
            &field("listKind"),
            &names.list_kind,
            why,
        ));
    }
    for (member, list) in [
        ("shortNames", &names.short_names),
        ("categories", &names.categories),
    ] {
        for (index, name) in list.iter().enumerate() {
            label(&format!("{}[{index}]", field(member)), name, causes);
        }
    }
}

impl Version {
    fn check(&self, field: &str, compiler: &mut Compiler, causes: &mut Causes) {
        name_problems(
            &format!("{field}.name"),
            &self.name,
            NameRule::Label1035,
            causes,
        );
        if self.deprecation_warning.is_some() && !self.deprecated {
            let why = "can only be set for deprecated versions";
            let field = format!("{field}.deprecationWarning");
            let text = self.deprecation_warning.as_deref().unwrap_or_default();
            causes.push(StatusCause::invalid(&field, text, why));
        }
        let schema = format!("{field}.schema.openAPIV3Schema");
        let open_api = self.schema.open_api.as_ref().map(SchemaText::parse);
        match &open_api {
            None => causes.push(StatusCause::required(&schema, "schemas are required")),
            Some(open_api) => structural::check(open_api, &schema, compiler, causes),
        }
        self.check_columns(field, causes);
        self.check_selectable(field, open_api.as_ref(), causes);
        if let Some(scale) = &self.subresources.scale {
            let field = format!("{field}.subresources.scale");
            for (member, path, below) in [
                ("specReplicasPath", &scale.spec_replicas_path, ".spec."),
                (
                    "statusReplicasPath",
                    &scale.status_replicas_path,
                    ".status.",
                ),
            ] {
                let field = format!("{field}.{member}");
                if path.is_empty() {
                    causes.push(StatusCause::required(&field, ""));
                } else if !path.starts_with(below) {
                    let why = format!(
                        "should be a json path under {}",
                        below.trim_end_matches('.')
                    );
                    causes.push(StatusCause::invalid(&field, path, &why));
                } else {
                    check_path(&field, path, causes);
                }
            }
        }
    }

    fn check_columns(&self, field: &str, causes: &mut Causes) {
        for (index, column) in self.additional_printer_columns.iter().enumerate() {
            let field = format!("{field}.additionalPrinterColumns[{index}]");
            if column.name.is_empty() {
                causes.push(StatusCause::required(&format!("{field}.name"), ""));
            }
            let types = COLUMN_TYPES.join(",");
            if column.r#type.is_empty() {
                let why = format!("must be one of {types}");
                causes.push(StatusCause::required(&format!("{field}.type"), &why));
            } else if !COLUMN_TYPES.contains(&&*column.r#type) {
                let why = format!("must be one of {types}");
                let field = format!("{field}.type");
                causes.push(StatusCause::invalid(&field, &column.r#type, &why));
            }
            if !column.format.is_empty() && !COLUMN_FORMATS.contains(&&*column.format) {
                let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
                let field = format!("{field}.format");
                causes.push(StatusCause::invalid(&field, &column.format, &why));
            }
            let field = format!("{field}.jsonPath");
            match column.json_path.as_str() {
                "" => causes.push(StatusCause::required(&field, "")),
                path => check_path(&field, path, causes),
            }
        }
    }

    fn check_selectable(&self, field: &str, open_api: Option<&Value>, causes: &mut Causes) {
        let fields = &self.selectable_fields;
        let field = format!("{field}.selectableFields");
        if fields.len() > SELECTABLE_FIELDS_MAX {
            causes.push(StatusCause {
                reason: "FieldValueTooMany".to_owned(),
                message: format!(
                    "Too many: {}: must have at most {SELECTABLE_FIELDS_MAX} items",
                    fields.len()
                ),
                field: field.clone(),
            });
        }
        for (index, selectable) in fields.iter().enumerate() {
            let path = &selectable.json_path;
            let field = format!("{field}[{index}].jsonPath");
            if path.is_empty() {
                causes.push(StatusCause::required(&field, ""));
                continue;
            }
            if fields[..index].iter().any(|other| other.json_path == *path) {
                causes.push(StatusCause {
                    reason: "FieldValueDuplicate".to_owned(),
                    message: format!("Duplicate value: {path:?}"),
                    field,
                });
                continue;
            }
            let node = open_api.and_then(|open_api| schema_at(open_api, path));
            let kind = node.and_then(|node| node["type"].as_str());
            let why = match kind {
                None => "is an invalid path: does not refer to a valid field",
                Some("string" | "integer" | "boolean") if path.starts_with(".metadata") => {
                    "must not point to fields in metadata"
                }
                Some("string" | "integer" | "boolean") => continue,
                Some(_) => {
                    "must point to a field of type string, boolean or integer. Enum string fields \
                     and strings with formats are allowed."
                }
            };
            causes.push(StatusCause::invalid(&field, path, why));
        }
    }
}

/// Returns the schema of the field at a simple path.
fn schema_at<'a>(open_api: &'a Value, path: &str) -> Option<&'a Value> {
    let mut node = open_api;
    for name in path.strip_prefix('.')?.split('.') {
        node = node.get("properties")?.get(name)?;
    }
    Some(node)
}

/// Adds the problems of a JSONPath.
fn check_path(field: &str, path: &str, causes: &mut Causes) {
    if !path.starts_with('.') {
        let why = "must be a simple json path starting with .";
        causes.push(StatusCause::invalid(field, path, why));
    } else if let Err(error) = JsonPath::parse(path) {
        let why = format!("is an invalid JSONPath: {error}");
        causes.push(StatusCause::invalid(field, path, &why));
    }
}
