//! The paths of a document: the paths of each resource with their operations, in either OpenAPI
//! dialect.

use serde_json::{Map, Value, json};

use super::constants::gvk;
use super::definition_names::definition_of;
use super::dialect::Dialect;
use super::operations::{
    Body, OPERATIONS, Operation, PRETTY, Parameter, ResponseKind, WATCH_OPERATIONS,
};
use super::{ResourceDescription, SubresourceDescription};
use crate::Types;

const OBJECT_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const CUSTOM_OBJECT_TYPES: &[&str] = &["application/json", "application/yaml"];
/// The media types of watchable resources.
const STREAM_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Strategic merge patch is not available for custom resources, and kubectl chooses its patch type
/// from this list.
const CUSTOM_PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Names of schemas in a document.
pub(super) struct Names<'a> {
    pub(super) types: &'a Types,
    pub(super) dialect: Dialect,
}

impl<'a> Names<'a> {
    pub(super) fn new(types: &'a Types, dialect: Dialect) -> Self {
        Self { types, dialect }
    }

    /// Returns the name of a kind's schema; that of a custom resource starts with its reversed
    /// group.
    pub(super) fn definition(&self, api_version: &str, kind: &str) -> String {
        if let Some(object) = self.types.object_of(api_version, kind) {
            return definition_of(self.types.object_name(object));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut words: Vec<&str> = group.split('.').collect();
        words.reverse();
        format!("{}.{version}.{kind}", words.join("."))
    }

    /// Returns a reference to a schema.
    pub(super) fn reference(&self, name: &str) -> String {
        format!("#{}/{name}", self.dialect.schema_location())
    }

    /// Returns a reference to a type that all groups share.
    pub(super) fn meta(&self, kind: &str) -> String {
        self.reference(&definition_of(&format!("meta.v1.{kind}")))
    }
}

/// A path of a resource.
struct ResourcePath<'a> {
    names: &'a Names<'a>,
    resource: &'a ResourceDescription,
    part: Option<&'a SubresourceDescription>,
    /// True if the namespace is part of the path.
    namespaced: bool,
    named: bool,
    /// True for the deprecated paths below `/watch/`.
    watches: bool,
}

/// Adds the paths of a resource.
pub(super) fn add(
    names: &Names<'_>,
    resource: &ResourceDescription,
    paths: &mut Map<String, Value>,
) {
    let schema_location = |part, namespaced, named| ResourcePath {
        names,
        resource,
        part,
        namespaced,
        named,
        watches: false,
    };
    let mut all = vec![
        schema_location(None, resource.namespaced, false),
        schema_location(None, resource.namespaced, true),
    ];
    if resource.namespaced {
        // Across all namespaces only list is possible.
        all.push(schema_location(None, false, false));
    }
    // Watch paths of custom resources are not published.
    if resource.schema.is_none() && resource.verbs.iter().any(|verb| verb == "watch") {
        let watched: Vec<_> = all.iter().map(ResourcePath::watched).collect();
        all.extend(watched);
    }
    for part in &resource.parts {
        all.push(schema_location(Some(part), resource.namespaced, true));
    }
    for schema_location in all {
        if let Some(item) = schema_location.item() {
            paths.insert(schema_location.path(), item);
        }
    }
}

impl ResourcePath<'_> {
    /// Returns the path below `/watch/` of the same objects.
    fn watched(&self) -> Self {
        Self {
            watches: true,
            ..*self
        }
    }

    fn path(&self) -> String {
        let ResourceDescription { group, version, .. } = self.resource;
        let mut path = match group.is_empty() {
            true => format!("/api/{version}"),
            false => format!("/apis/{group}/{version}"),
        };
        if self.watches {
            path.push_str("/watch");
        }
        if self.namespaced {
            path.push_str("/namespaces/{namespace}");
        }
        path.push('/');
        path.push_str(&self.resource.plural);
        if self.named {
            path.push_str("/{name}");
        }
        if let Some(part) = self.part {
            path.push('/');
            path.push_str(&part.name);
        }
        path
    }

    /// Returns the operations of the path and their common properties; `None` without operations.
    fn item(&self) -> Option<Value> {
        let all_namespaces = self.resource.namespaced && !self.namespaced;
        let verbs = self.part.map_or(&self.resource.verbs, |part| &part.verbs);
        let mut item = Map::new();
        let operations = match self.watches {
            true => WATCH_OPERATIONS,
            false => OPERATIONS,
        };
        for operation in operations {
            let served = verbs.iter().any(|verb| verb == operation.verb);
            // Operations on a subresource are about one object.
            let fits = match self.part {
                Some(_) => operation.verb == "create" || operation.named,
                None => operation.named == self.named,
            };
            let lists = matches!(operation.verb, "list" | "watch");
            if served && fits && (!all_namespaces || lists) {
                let output = self.operation(operation, all_namespaces);
                item.insert(operation.method.to_owned(), output);
            }
        }
        if item.is_empty() {
            return None;
        }
        let mut shared = Vec::new();
        if self.named {
            let what = format!("name of the {}", self.resource.kind);
            shared.push(self.path_parameter("name", &what));
        }
        if self.namespaced {
            let what = "object name and auth scope, such as for teams and projects";
            shared.push(self.path_parameter("namespace", what));
        }
        shared.push(self.query_parameter(&PRETTY));
        item.insert("parameters".to_owned(), shared.into());
        Some(Value::Object(item))
    }

    fn path_parameter(&self, name: &str, description: &str) -> Value {
        let mut output = json!({
            "name": name, "in": "path", "required": true, "description": description,
        });
        self.typed(&mut output, "string");
        output
    }

    fn query_parameter(&self, parameter: &Parameter) -> Value {
        let Parameter {
            name,
            form,
            description,
        } = parameter;
        let mut output = json!({"name": name, "in": "query", "description": description});
        self.typed(&mut output, form);
        output
    }

    fn typed(&self, parameter: &mut Value, form: &str) {
        match self.names.dialect {
            Dialect::V2 => {
                parameter["type"] = form.into();
                parameter["uniqueItems"] = true.into();
            }
            Dialect::V3 => parameter["schema"] = json!({"type": form, "uniqueItems": true}),
        }
    }

    fn operation(&self, operation: &Operation, all_namespaces: bool) -> Value {
        let resource = self.resource;
        let own = || {
            let ResourceDescription {
                group,
                version,
                kind,
                ..
            } = resource;
            (group.clone(), version.clone(), kind.clone())
        };
        let body = self.part.and_then(|part| part.body.clone());
        let (group, version, kind) = body.unwrap_or_else(own);
        let query = operation.parameters.iter().copied().flatten();
        let mut parameters: Vec<Value> = query.map(|p| self.query_parameter(p)).collect();
        let mut output = Map::from_iter([
            ("tags".to_owned(), json!([tag(resource)])),
            (
                "description".to_owned(),
                self.description(operation, &kind).into(),
            ),
            (
                "operationId".to_owned(),
                self.id(operation, all_namespaces).into(),
            ),
            ("x-kubernetes-action".to_owned(), operation.action.into()),
            (
                "x-kubernetes-group-version-kind".to_owned(),
                gvk(&group, &version, &kind),
            ),
        ]);
        let api_version = match group.is_empty() {
            true => version,
            false => format!("{group}/{version}"),
        };
        let object = self.names.definition(&api_version, &kind);
        let response = match operation.response {
            ResponseKind::Object => self.names.reference(&object),
            ResponseKind::List => self.names.reference(&format!("{object}List")),
            ResponseKind::Status => self.names.meta("Status"),
            ResponseKind::Event => self.names.meta("WatchEvent"),
        };
        let (sent, media): (_, &[&str]) = match operation.body {
            Body::None => (None, &["*/*"]),
            Body::Object => (Some(self.names.reference(&object)), &["*/*"]),
            Body::Patch => {
                let custom = self.resource.schema.is_some();
                let types = if custom {
                    CUSTOM_PATCH_TYPES
                } else {
                    PATCH_TYPES
                };
                (Some(self.names.meta("Patch")), types)
            }
            Body::Options => (Some(self.names.meta("DeleteOptions")), &["*/*"]),
        };
        let required = operation.body != Body::Options;
        match self.names.dialect {
            Dialect::V3 => {
                if let Some(sent) = sent {
                    let content = content(media, &sent);
                    let body = json!({"content": content, "required": required});
                    output.insert("requestBody".to_owned(), body);
                }
            }
            Dialect::V2 => {
                if let Some(sent) = sent {
                    let schema = json!({"$ref": sent});
                    parameters.push(json!({
                        "name": "body", "in": "body", "required": required, "schema": schema,
                    }));
                }
                output.insert("consumes".to_owned(), json!(media));
                output.insert("produces".to_owned(), json!(self.response_types(operation)));
                output.insert("schemes".to_owned(), json!(["https"]));
            }
        }
        output.insert("parameters".to_owned(), parameters.into());
        output.insert("responses".to_owned(), self.responses(operation, &response));
        Value::Object(output)
    }

    fn response_types(&self, operation: &Operation) -> &'static [&'static str] {
        match operation.verb {
            _ if self.resource.schema.is_some() => CUSTOM_OBJECT_TYPES,
            "list" | "watch" => STREAM_TYPES,
            _ => OBJECT_TYPES,
        }
    }

    fn responses(&self, operation: &Operation, response: &str) -> Value {
        let codes = operation.codes.iter().map(|(code, description)| {
            let output = match self.names.dialect {
                Dialect::V3 => {
                    let content = content(self.response_types(operation), response);
                    json!({"description": description, "content": content})
                }
                Dialect::V2 => json!({"description": description, "schema": {"$ref": response}}),
            };
            ((*code).to_owned(), output)
        });
        let mut all: Map<String, Value> = codes.collect();
        all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        Value::Object(all)
    }

    fn description(&self, operation: &Operation, kind: &str) -> String {
        let part = self.part.map(|part| &*part.name);
        match (operation.verb, part) {
            ("list", _) => format!("list or watch objects of kind {kind}"),
            ("watch", _) if operation.named => format!(
                "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list \
                 operation instead, filtered to a single item with the 'fieldSelector' parameter."
            ),
            ("watch", _) => format!(
                "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a \
                 list operation instead."
            ),
            ("create", None) => format!("create a {kind}"),
            ("create", Some(part)) => format!("create {part} of a {}", self.resource.kind),
            ("deletecollection", _) => format!("delete collection of {kind}"),
            ("get", None) => format!("read the specified {kind}"),
            ("get", Some(part)) => format!("read {part} of the specified {}", self.resource.kind),
            ("update", None) => format!("replace the specified {kind}"),
            ("update", Some(part)) => {
                format!("replace {part} of the specified {}", self.resource.kind)
            }
            ("patch", Some(part)) => {
                format!(
                    "partially update {part} of the specified {}",
                    self.resource.kind
                )
            }
            ("patch", None) => format!("partially update the specified {kind}"),
            (verb, _) => format!("{verb} a {kind}"),
        }
    }

    /// `readCoreV1NamespacedPodStatus`
    fn id(&self, operation: &Operation, all_namespaces: bool) -> String {
        let mut id = operation.word.to_owned();
        for word in group_words(&self.resource.group) {
            id.push_str(&capital(word));
        }
        id.push_str(&capital(&self.resource.version));
        if operation.verb == "deletecollection" {
            id.push_str("Collection");
        }
        if self.namespaced {
            id.push_str("Namespaced");
        }
        id.push_str(&self.resource.kind);
        if let Some(part) = self.part {
            id.push_str(&capital(&part.name));
        }
        if self.watches && !self.named {
            id.push_str("List");
        }
        if all_namespaces {
            id.push_str("ForAllNamespaces");
        }
        id
    }
}

fn content(media: &[&str], reference: &str) -> Value {
    let all = media.iter().map(|media| {
        let schema = json!({"schema": {"$ref": reference}});
        ((*media).to_owned(), schema)
    });
    Value::Object(all.collect())
}

/// Returns the words of a group's name without the suffix of built-in groups.
fn group_words(group: &str) -> Vec<&str> {
    let group = if group.is_empty() { "core" } else { group };
    group.trim_end_matches(".k8s.io").split('.').collect()
}

/// `rbacAuthorization_v1`
fn tag(resource: &ResourceDescription) -> String {
    let words = group_words(&resource.group);
    let rest: String = words[1..].iter().map(|word| capital(word)).collect();
    format!("{}{rest}_{}", words[0], resource.version)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
